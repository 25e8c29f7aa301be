import os
from datetime import UTC, datetime

import msgspec
import pytest
from vmsonar_archive.format.lines import checked, decode_sysinfo, record_line
from vmsonar_archive.system.text import where_it_leads

from tests.fixtures.hosts import aarch64_vm, small_vm, two_socket_node
from vmsonar.collectors.base import Setup
from vmsonar.collectors.registry import make_collectors
from vmsonar.config.schema import Config
from vmsonar.config.shipping import Forward, Save
from vmsonar.daemon.sysinfo import gather, os_name
from vmsonar.host.clock import Clock
from vmsonar.host.cloud import cloud, virtualization
from vmsonar.host.hardware import parse_list


def info_of(host):
    return gather(host, Config(), [], Clock())


def test_a_small_vm(tmp_path):
    info = info_of(small_vm(tmp_path))
    assert (info.cloud_provider, info.instance_type, info.region) == ("openstack", "m1.small", "bgo")
    assert (info.virtualization, info.cgroup_mode) == ("kvm", "v2")
    assert (info.cpus, info.sockets, info.cores_per_socket, info.threads_per_core) == (2, 2, 1, 1)
    assert info.core_siblings is None
    assert info.cpu_model == "Intel Xeon Processor (Icelake)"
    assert info.os_name == "Debian GNU/Linux 12 (bookworm)"
    assert info.booted == datetime(2025, 11, 16, 4, 0, tzinfo=UTC)
    assert [(disk.device, disk.size, disk.rotational) for disk in info.disks] == [("vda", 20 * 2**30, True)]
    assert [(one.interface, one.speed) for one in info.interfaces] == [("eth0", None), ("lo", None)]
    assert info.memory_total == 4_000_000 * 1024


def test_a_two_socket_node(tmp_path):
    info = info_of(two_socket_node(tmp_path))
    assert (info.cpus, info.sockets, info.cores_per_socket, info.threads_per_core) == (256, 2, 64, 2)
    assert info.core_siblings == [[cpu, cpu + 128] for cpu in range(128)]
    assert (info.numa_nodes, info.numa_distances) == (2, [[10, 21], [21, 10]])
    assert (info.cloud_provider, info.virtualization, info.cgroup_mode) == (None, "none", "hybrid")
    assert info.os_name == "Rocky Linux 9.4 (Blue Onyx)"
    assert info.disks[0].model == "SAMSUNG MZQL21T9HCJR-00A07"
    assert info.interfaces[0].speed == 25000


def test_an_aarch64_vm(tmp_path):
    info = info_of(aarch64_vm(tmp_path))
    assert (info.cpus, info.sockets, info.cores_per_socket, info.threads_per_core) == (4, 1, 4, 1)
    assert info.cpu_model == "ARM Neoverse-N1"
    assert (info.cloud_provider, info.instance_type) == ("aws", "m6g.xlarge")
    assert (info.virtualization, info.cgroup_mode) == ("kvm", "v1")


@pytest.mark.parametrize(
    ("vendor", "product", "tag", "provider", "kind"),
    [
        ("Google", "Google Compute Engine", "", "gcp", "kvm"),
        ("Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77", "azure", "hyperv"),
        ("Microsoft Corporation", "Virtual Machine", "x", None, "hyperv"),
        ("VMware, Inc.", "VMware7,1", "", None, "vmware"),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "", None, "kvm"),
    ],
)
def test_clouds_by_their_firmware(tmp_path, vendor, product, tag, provider, kind):
    host = two_socket_node(tmp_path)
    for name, text in (("sys_vendor", vendor), ("product_name", product), ("chassis_asset_tag", tag)):
        (host.sys / "class/dmi/id" / name).write_text(text + "\n")
    assert (cloud(host).cloud_provider, virtualization(host)) == (provider, kind)


def test_cloud_init_that_wrote_nonsense(tmp_path):
    host = small_vm(tmp_path)
    for text in ("[1]", "{", '{"v1": [], "ds": 7}'):
        (host.run / "cloud-init/instance-data.json").write_text(text)
        assert cloud(host).cloud_provider == "openstack"


def test_lists_of_cpus():
    assert parse_list("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_list("") == []


def test_names_of_systems():
    assert os_name("A=1\nPRETTY_NAME=Alpine\n") == "Alpine"
    assert os_name("") is None


def test_the_record_of_this_machine_survives_writing_and_reading():
    config = Config()
    info = gather(config.host, config, make_collectors(Setup(config)), Clock())
    assert info.cpus == os.cpu_count()
    assert {one.collector for one in info.capabilities} >= {"node", "cpu", "disk", "net", "pressure"}
    again = decode_sysinfo(checked(record_line(info).rstrip(b"\n")))
    assert msgspec.json.decode(again.config["interval"]) == "10s"
    assert msgspec.structs.replace(again, config=None) == msgspec.structs.replace(info, config=None)


def test_the_configuration_in_the_record_lets_nobody_write_where_bundles_go(tmp_path):
    config = Config(
        forward=Forward(to="http", url="https://me:CANARY@host.example:8443/hook/CANARY?sig=CANARY"),
        save=Save(to="https://bucket.example/{time}?X-Amz-Signature=CANARY"),
    )
    told = msgspec.json.encode(gather(small_vm(tmp_path), config, [], Clock()).config).decode()
    assert "CANARY" not in told
    assert "https://host.example:8443/…" in told
    assert "https://bucket.example/…" in told


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket/prefix/", "s3://bucket/prefix/"),
        ("/mnt/bundles", "/mnt/bundles"),
        ("@/run/secrets/url", "@/run/secrets/url"),
        ("https://host.example", "https://host.example"),
        ("mint+https://host.example/CANARY", "mint+https://host.example/…"),
        ("HTTPS://a:CANARY@host.example?CANARY", "HTTPS://host.example/…"),
        ("http://host.example#CANARY", "http://host.example/…"),
    ],
)
def test_what_is_said_of_a_url(url, said):
    assert where_it_leads(url) == said
