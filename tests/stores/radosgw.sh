#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # run, which reads this file, sets the variables
# Ceph's S3 gateway, on a cluster of one monitor and one storage daemon that keeps all in memory; no manager. It checks signatures.
server_install() {
  local program
  for program in ceph ceph-mon ceph-osd radosgw radosgw-admin monmaptool; do
    command -v "$program" >/dev/null || { echo "no $program"; return 1; }
  done
}

server_start() {
  local monitor gateway cluster
  read -r monitor gateway < <(free_ports 2)
  cluster=$(cat /proc/sys/kernel/random/uuid)
  mkdir "$here/mon" "$here/osd"
  # No keys among the daemons, which only this machine reaches; proposals at once instead of every second; the monitor does not
  # stop itself on a disk that is nearly full.
  cat >"$here/ceph.conf" <<EOF
[global]
fsid = $cluster
mon host = v2:127.0.0.1:$monitor
auth cluster required = none
auth service required = none
auth client required = none
ms bind ipv4 = true
ms bind ipv6 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = $here
admin socket = $here/\$name.\$pid.asok
log file = $here/\$name.log
pid file =
crash dir = $here
mon data = $here/mon
mon data avail warn = 0
mon data avail crit = 0
mon allow pool size one = true
mon max pg per osd = 1000
paxos propose interval = 0.05
osd data = $here/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
[client]
ms mon client mode = crc
rgw frontends = beast endpoint=127.0.0.1:$gateway tcp_nodelay=1
EOF
  export CEPH_CONF=$here/ceph.conf
  {
    monmaptool --create --fsid "$cluster" --addv a "[v2:127.0.0.1:$monitor]" "$here/monmap" &&
      ceph-mon --mkfs -i a --monmap "$here/monmap"
  } >"$here/mkfs.log" 2>&1 || { cat "$here/mkfs.log"; return 1; }
  spawn mon ceph-mon -f -i a
  timeout 30 ceph --connect-timeout 25 osd create >"$here/create.log" 2>&1 || { cat "$here/create.log"; return 1; }
  ceph-osd --mkfs -i 0 >>"$here/mkfs.log" 2>&1 || { cat "$here/mkfs.log"; return 1; }
  spawn osd ceph-osd -f -i 0
  timeout 60 radosgw-admin user create --uid=tester --display-name=tester --access-key="$access" --secret-key="$secret" \
    >"$here/user.log" 2>&1 || { tail "$here/user.log"; return 1; }
  spawn radosgw radosgw -f -n client.rgw
  ready 60 curl -fso /dev/null "http://127.0.0.1:$gateway/" || return
  upload s3 "http://127.0.0.1:$gateway" || return
  s3_configs radosgw "http://127.0.0.1:$gateway" allow_http=1
  {
    config radosgw_environment "s3://$bucket/$prefix" environment=1
    echo "brief 1"
    printf 'environment %s\n' "AWS_ACCESS_KEY_ID=$access" "AWS_SECRET_ACCESS_KEY=$secret" AWS_REGION=us-east-1 \
      "AWS_ENDPOINT_URL=http://127.0.0.1:$gateway" AWS_ALLOW_HTTP=true
  } >"$here/environment.config"
}
