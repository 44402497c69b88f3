#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # run, which reads this file, sets the variables
# nginx: files over HTTP/1.1, over TLS, and over HTTP/2.
server_install() {
  command -v nginx >/dev/null || { echo "no nginx"; return 1; }
}

server_start() {
  local plain tls h2 place
  read -r plain tls h2 < <(free_ports 3)
  authority || return
  # gzip: who does not ask for bytes as they are gets others. merge_slashes, underscores: keys are taken as they come.
  cat >"$here/nginx.conf" <<EOF
$([ "$(id -u)" != 0 ] || echo 'user root;')
worker_processes 1;
daemon off;
pid $here/nginx.pid;
error_log $here/error.log warn;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path $here/body;
  proxy_temp_path $here/proxy;
  fastcgi_temp_path $here/fastcgi;
  uwsgi_temp_path $here/uwsgi;
  scgi_temp_path $here/scgi;
  default_type application/octet-stream;
  merge_slashes off;
  gzip on;
  gzip_types *;
  gzip_min_length 1;
  ssl_certificate $tls_folder/server.pem;
  ssl_certificate_key $tls_folder/server.key;
  server {
    listen 127.0.0.1:$plain;
    listen 127.0.0.1:$tls ssl;
    listen 127.0.0.1:$h2 ssl http2;
    root $here/root;
    location /private/ { return 403; }
    location /moved/ { rewrite ^/moved/(.*)$ /open/\$1 redirect; }
    location /word/ { auth_basic word; auth_basic_user_file $here/passwords; }
  }
}
EOF
  mkdir -p "$here/root/open" "$here/root/word"
  ln -s "$archives" "$here/root/open/$prefix"
  ln -s "$archives" "$here/root/word/$prefix"
  printf 'reader:%s\n' "$(openssl passwd -apr1 "$secret")" >"$here/passwords"
  spawn nginx nginx -p "$here" -c "$here/nginx.conf" -e "$here/error.log"
  ready 30 curl -fso /dev/null "http://127.0.0.1:$plain/open/$prefix_escaped/ready" || return
  echo "$plain $tls $h2" >"$here/ports"
  place=open/$prefix_escaped
  {
    config http "http://127.0.0.1:$plain/$place"
    refuse missing_folder NOT_ZARR 0 "http://127.0.0.1:$plain/open/none"
    refuse forbidden AUTH 403 "http://127.0.0.1:$plain/private"
    refuse no_password AUTH 401 "http://127.0.0.1:$plain/word/$prefix_escaped"
  } >"$here/http.config"
  config moved "http://127.0.0.1:$plain/moved/$prefix_escaped" >"$here/moved.config"
  {
    config https "https://127.0.0.1:$tls/$place" "ca_bundle=$tls_folder/ca.pem"
    refuse unknown_authority HTTP 0 "https://127.0.0.1:$tls/$place" ca_bundle=
    refuse other_authority HTTP 0 "https://127.0.0.1:$tls/$place" "ca_bundle=$tls_folder/other.pem"
  } >"$here/https.config"
  config http2 "https://127.0.0.1:$h2/$place" "ca_bundle=$tls_folder/ca.pem" http_version=2 >"$here/http2.config"
}
