#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # run, which reads this file, sets the variables
# tinyproxy, before a web server: plain requests through it, and tunnels. A port that it must not tunnel to is refused.
server_install() {
  command -v tinyproxy >/dev/null || { echo "no tinyproxy"; return 1; }
  [ -s "$work/nginx/ports" ] || { echo "it needs nginx behind it"; return 1; }
}

server_start() {
  local plain tls h2 port
  read -r plain tls h2 <"$work/nginx/ports"
  read -r port < <(free_ports 1)
  printf '%s\n' "Port $port" 'Listen 127.0.0.1' 'Allow 127.0.0.1' 'MaxClients 100' 'Timeout 60' 'LogLevel Connect' \
    "LogFile \"$here/log\"" "PidFile \"$here/pid\"" "ConnectPort $tls" >"$here/conf"
  spawn tinyproxy tinyproxy -d -c "$here/conf"
  ready 30 curl -fso /dev/null --noproxy '' --proxy "http://127.0.0.1:$port" "http://127.0.0.1:$plain/open/$prefix_escaped/ready" ||
    return
  config proxied_http "http://127.0.0.1:$plain/open/$prefix_escaped" "proxy_url=http://127.0.0.1:$port" >"$here/http.config"
  {
    config proxied_https "https://127.0.0.1:$tls/open/$prefix_escaped" "proxy_url=http://127.0.0.1:$port" \
      "ca_bundle=$tls_folder/ca.pem"
    refuse no_tunnel HTTP 403 "https://127.0.0.1:$h2/open/$prefix_escaped"
  } >"$here/https.config"
}
