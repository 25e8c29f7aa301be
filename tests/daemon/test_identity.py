import pytest

from tests.fixtures.hosts import aarch64_vm, small_vm, two_socket_node
from vmsonar.config.schema import Config
from vmsonar.host.identity import IdentityWatch, boot_id, node_identity
from vmsonar.host.roots import Host


def test_a_machine_of_the_cloud(tmp_path):
    node = node_identity(small_vm(tmp_path))
    assert node.machine_id == "0123456789abcdef0123456789abcdef"
    assert node.instance_id == "i-0000002a"
    assert (node.hostname_short, node.hostname_full) == ("web-1", "web-1.example.org")


def test_the_board_tells_the_instance_where_cloud_init_does_not(tmp_path):
    assert node_identity(aarch64_vm(tmp_path)).instance_id == "i-0abcdef1234567890"
    assert node_identity(two_socket_node(tmp_path / "b")).instance_id is None


@pytest.mark.parametrize("content", ["", "uninitialized\n", None])
def test_an_image_whose_id_is_not_set_yet(tmp_path, content):
    host = small_vm(tmp_path)
    (host.etc / "machine-id").unlink()
    if content is not None:
        (host.etc / "machine-id").write_text(content)
    assert node_identity(host).machine_id == boot_id(host) == "11111111-2222-3333-4444-555555555555"


def test_a_machine_that_hides_everything(tmp_path):
    host = Host(proc=tmp_path, sys=tmp_path, etc=tmp_path, run=tmp_path)
    node = node_identity(host)
    assert node.hostname_full is None
    assert node.machine_id == "00000000-0000-0000-0000-000000000000"


def test_a_host_name_that_is_set_late(tmp_path):
    host = small_vm(tmp_path)
    watch = IdentityWatch(host)
    assert watch.change() is None
    (host.proc / "sys/kernel/hostname").write_text("db-9\n")
    change = watch.change()
    assert change.detail == "hostname_short: web-1 -> db-9, hostname_full: web-1.example.org -> db-9"
    assert watch.change() is None
    watch.close()


def test_an_instance_id_that_vanishes_for_a_moment_is_no_change(tmp_path):
    host = small_vm(tmp_path)
    watch = IdentityWatch(host)
    (host.run / "cloud-init/.instance-id").unlink()
    assert watch.change() is None
    (host.run / "cloud-init/.instance-id").write_text("i-0000002b\n")
    assert watch.change().detail == "instance_id: i-0000002a -> i-0000002b"
    watch.close()


def test_this_machine():
    node = node_identity(Config().host)
    assert len(boot_id(Config().host)) == 36
    assert node.hostname_full


def test_what_no_reader_would_accept_is_not_written(tmp_path):
    host = small_vm(tmp_path)
    (host.etc / "machine-id").write_text("../../x\n")
    (host.run / "cloud-init").mkdir(parents=True, exist_ok=True)
    (host.run / "cloud-init/.instance-id").write_text("i-1\nX-Header: 1\n")
    (host.proc / "sys/kernel/hostname").write_text("vm\x1b[31m\n")
    node = node_identity(host)
    assert node.machine_id == boot_id(host)
    assert node.instance_id is None
    assert (node.hostname_short, node.hostname_full) == (None, None)
