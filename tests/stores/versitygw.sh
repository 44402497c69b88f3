#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034,SC2153  # run, which reads this file, sets the variables
# versitygw: another implementation of S3 that checks signatures; and regions, as AWS does. Over TLS.
server_install() {
  local found
  versitygw=$kits/versitygw-$VERSITYGW/versitygw
  [ ! -x "$versitygw" ] || return 0
  command -v go >/dev/null || { echo "no go to build it with"; return 1; }
  # Minutes the first time; the build cache makes a second one short.
  found=$(GOBIN=${versitygw%/*} timeout "$INSTALL_S" go install \
    "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" 2>&1) && return 0
  echo "go install failed: $(echo "$found" | tail -n 1)"
  return 1
}

server_start() {
  local port
  read -r port < <(free_ports 1)
  authority || return
  mkdir "$here/root" "$here/metadata" "$here/users"
  ROOT_ACCESS_KEY=$access ROOT_SECRET_KEY=$secret spawn versitygw "$versitygw" --port "127.0.0.1:$port" --quiet \
    --cert "$tls_folder/server.pem" --key "$tls_folder/server.key" --iam-dir "$here/users" \
    posix --sidecar "$here/metadata" "$here/root"
  ready 30 curl -so /dev/null --cacert "$tls_folder/ca.pem" "https://127.0.0.1:$port/" || return
  upload s3 "https://127.0.0.1:$port" || return
  s3_configs versitygw "https://127.0.0.1:$port" "ca_bundle=$tls_folder/ca.pem"
  # Told the wrong region, it names the right one.
  {
    config versitygw_region "s3://$bucket/$prefix" "endpoint=https://127.0.0.1:$port" region=eu-west-1 "access_key_id=$access" \
      "secret_access_key=$secret" "ca_bundle=$tls_folder/ca.pem"
    echo "brief 1"
  } >"$here/region.config"
  {
    config versitygw_profile "s3://$bucket/$prefix" profile=tests "ca_bundle=$tls_folder/ca.pem" environment=1
    echo "brief 1"
    printf 'environment %s\n' "AWS_CONFIG_FILE=$here/aws_config" "AWS_SHARED_CREDENTIALS_FILE=$here/aws_credentials"
  } >"$here/profile.config"
  printf '%s\n' '[profile tests]' 'region = us-east-1' "endpoint_url = https://127.0.0.1:$port" >"$here/aws_config"
  printf '%s\n' '[default]' 'aws_access_key_id = AKIANOBODY' 'aws_secret_access_key = none' '[tests]' \
    "aws_access_key_id = $access" "aws_secret_access_key = $secret" >"$here/aws_credentials"
}
