#!/bin/sh
# openstack.sh create NAME | remove NAME: a VM that records, and one that goes only after an orderly stop.
set -eu
action=$1 name=$2

case $action in
create)
    vmsonar cloud-init --wheels /opt/vmsonar-wheels --upload-url 's3://example-bucket/vms/{node}/' >user-data
    openstack server create --image debian-12 --flavor m1.small --network default --key-name admin \
        --user-data user-data --wait "$name"
    ;;
remove)
    # A stop is an orderly shutdown of 60 s; vmsonar-bundle.service saves within 25. A delete alone gives no notice.
    openstack server stop "$name"
    for _ in $(seq 60); do
        [ "$(openstack server show -f value -c status "$name")" = SHUTOFF ] && break
        sleep 2
    done
    openstack server delete --wait "$name"
    ;;
*)
    echo "usage: $0 create|remove NAME" >&2
    exit 2
    ;;
esac
