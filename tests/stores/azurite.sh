#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # run, which reads this file, sets the variables
# Azurite, Microsoft's emulator of Azure's blobs: it checks the signatures of shared keys and of tokens. Account and key: its own.
server_install() {
  local found
  made azurite "$AZURITE" && return 0
  command -v npm >/dev/null || { echo "no npm to install it with"; return 1; }
  found=$(timeout "$INSTALL_S" npm install --silent --no-audit --no-fund --fetch-retries 1 --prefix "$kits/azurite" \
    "azurite@$AZURITE" 2>&1) ||
    { echo "npm install failed: $(echo "$found" | tail -n 1)"; return 1; }
  made_now azurite "$AZURITE"
}

server_start() {
  local program=$kits/azurite/node_modules/azurite/dist/src/blob/main.js port tls endpoint sas expired token
  read -r port tls < <(free_ports 2)
  account=devstoreaccount1
  account_key='Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
  authority || return
  # Two: bearer tokens are for TLS alone.
  spawn azurite_tls node "$program" --silent --disableTelemetry --inMemoryPersistence --blobHost 127.0.0.1 --blobPort "$tls" \
    --oauth basic --cert "$tls_folder/server.pem" --key "$tls_folder/server.key"
  spawn azurite node "$program" --silent --disableTelemetry --inMemoryPersistence --blobHost 127.0.0.1 --blobPort "$port"
  ready 60 curl -so /dev/null "http://127.0.0.1:$port/" || return
  endpoint=http://127.0.0.1:$port/$account
  export AZURE_STORAGE_ACCOUNT_NAME=$account AZURE_STORAGE_ACCOUNT_KEY=$account_key
  upload az "$endpoint" || return
  sas=$(python3 "$tests/put.py" sas "$bucket" 3600)
  expired=$(python3 "$tests/put.py" sas "$bucket" -3600)
  unset AZURE_STORAGE_ACCOUNT_NAME AZURE_STORAGE_ACCOUNT_KEY
  {
    config azure_key "az://$bucket/$prefix" "endpoint=$endpoint" allow_http=1 "account_name=$account" "account_key=$account_key"
    refuse wrong_key AUTH 403 "az://$bucket/$prefix" "account_key=$(echo 'not the key of it' | base64)"
    refuse anonymous AUTH 403 "az://$bucket/$prefix" skip_signature=1
    refuse no_credentials AUTH 0 "az://$bucket/$prefix" account_key= "msi_endpoint=$nobody"
    refuse missing_container NOTFOUND 404 "az://none/$prefix"
    refuse missing_prefix NOTFOUND,NOT_ZARR 0,404 "az://$bucket/none"
  } >"$here/azure_key.config"
  {
    config azure_sas "az://$bucket/$prefix" "endpoint=$endpoint" allow_http=1 "account_name=$account" "sas_token=$sas"
    refuse expired AUTH 403 "az://$bucket/$prefix" "sas_token=$expired"
  } >"$here/azure_sas.config"
  ready 60 curl -so /dev/null --cacert "$tls_folder/ca.pem" "https://127.0.0.1:$tls/" || return
  endpoint=https://127.0.0.1:$tls/$account
  AZURE_STORAGE_ACCOUNT_NAME=$account AZURE_STORAGE_ACCOUNT_KEY=$account_key upload az "$endpoint" || return
  token=$(python3 "$tests/put.py" token https://storage.azure.com 3600)
  expired=$(python3 "$tests/put.py" token https://storage.azure.com -3600)
  {
    config azure_bearer "az://$bucket/$prefix" "endpoint=$endpoint" "account_name=$account" "bearer_token=$token" \
      "ca_bundle=$tls_folder/ca.pem"
    refuse expired AUTH 403 "az://$bucket/$prefix" "bearer_token=$expired"
  } >"$here/azure_bearer.config"
}
