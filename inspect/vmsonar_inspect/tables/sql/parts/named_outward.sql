-- Records of older versions do not tell kinds of interfaces: by their names, those that lead out of the machine.
(
        n.interface_kind IS NULL AND n.default_route IS NULL
        AND n.interface <> 'lo' AND n.interface NOT LIKE 'veth%' AND n.interface NOT LIKE 'docker%'
        AND n.interface NOT LIKE 'br%' AND n.interface NOT LIKE 'vmbr%' AND n.interface NOT LIKE 'virbr%'
        AND n.interface NOT LIKE 'lxc%' AND n.interface NOT LIKE 'lxd%' AND n.interface NOT LIKE 'cni%'
        AND n.interface NOT LIKE 'podman%' AND n.interface NOT LIKE 'cali%' AND n.interface NOT LIKE 'flannel%'
        AND n.interface NOT LIKE 'cilium%' AND n.interface NOT LIKE 'vxlan%' AND n.interface NOT LIKE 'geneve%'
        AND n.interface NOT LIKE 'bond%' AND n.interface NOT LIKE 'team%' AND n.interface NOT LIKE 'vlan%'
        AND n.interface NOT LIKE '%.%' AND n.interface NOT LIKE 'tun%' AND n.interface NOT LIKE 'tap%'
        AND n.interface NOT LIKE 'vnet%' AND n.interface NOT LIKE 'wg%' AND n.interface NOT LIKE 'tailscale%'
        AND n.interface NOT LIKE 'macv%' AND n.interface NOT LIKE 'ipvl%' AND n.interface NOT LIKE 'ovs-%'
        AND n.interface NOT LIKE 'dummy%' AND n.interface NOT LIKE 'ifb%'
        AND NOT (
            n.interface LIKE 'enP%'
            AND n.archive IN (SELECT l.archive FROM latest_sysinfo AS l WHERE l.cloud_provider = 'azure')
        )
    )
