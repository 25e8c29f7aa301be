"""The ladder of signs by which a container gets its owner, each rung, and the accounts behind it."""

import os
import pwd
import threading

import pytest

from tests.collectors.container.trees import write
from vmsonar.collectors.container.owner import Owners, owner_of, rootless_user
from vmsonar.collectors.container.wire import ContainerFacts
from vmsonar.companion import ownership

PID = 77
ROOTLESS = "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-x.scope"
ALL = ContainerFacts(
    container_id="a", engine="podman", client_user=1003, compose_user=1004, bind_users=[1005]
)


@pytest.fixture
def proc(tmp_path):
    """A process of the user who runs the test, who logged in as 1002."""
    write(tmp_path / str(PID) / "loginuid", "1002")
    write(tmp_path / str(PID) / "uid_map", "         0          0 4294967295\n")
    return tmp_path


def without(*names):
    return ContainerFacts(
        container_id="a",
        engine=ALL.engine,
        **{
            name: getattr(ALL, name)
            for name in ("client_user", "compose_user", "bind_users")
            if name not in names
        },
    )


def test_each_rung_speaks_when_those_above_are_silent(proc):
    assert owner_of(proc, "podman", ROOTLESS, PID, ALL) == Owners((1000,), "cgroup")
    assert owner_of(proc, "podman", "/docker/x", PID, ALL) == Owners((1002,), "loginuid")
    write(proc / str(PID) / "loginuid", "4294967295")
    assert owner_of(proc, "podman", "/docker/x", PID, ALL) == Owners((1003,), "client")
    assert owner_of(proc, "podman", "/docker/x", PID, without("client_user")) == Owners(
        (1004,), "compose_dir"
    )
    assert owner_of(proc, "podman", "/docker/x", PID, without("client_user", "compose_user")) == Owners(
        (1005,), "bind_mount"
    )


def test_dockers_own_login_is_not_heard(proc):
    facts = ContainerFacts(container_id="a", engine="docker", bind_users=[1005])
    assert owner_of(proc, "docker", "/docker/x", PID, facts) == Owners((1005,), "bind_mount")


def test_several_bind_mounts_may_be_of_several_people(proc):
    facts = ContainerFacts(container_id="a", engine="docker", bind_users=[1005, 1006])
    assert owner_of(proc, "docker", "/docker/x", PID, facts) == Owners((1005, 1006), "bind_mount")


def test_a_uid_inside_counts_last_and_only_without_a_user_namespace(proc):
    if os.geteuid() == 0:
        os.chown(proc / str(PID), 1234, -1)
    uid = (proc / str(PID)).stat().st_uid
    assert owner_of(proc, "docker", "/docker/x", PID, None) == Owners((uid,), "process_uid")
    write(proc / str(PID) / "uid_map", "         0     100000      65536\n")
    assert owner_of(proc, "docker", "/docker/x", PID, None) is None


def test_a_client_that_is_root_is_heard_when_nothing_else_is(proc):
    facts = ContainerFacts(container_id="a", engine="docker", client_user=0, compose_user=1004)
    assert owner_of(proc, "podman", "/docker/x", None, facts) == Owners((1004,), "compose_dir")
    facts = ContainerFacts(container_id="a", engine="docker", client_user=0)
    assert owner_of(proc, "podman", "/docker/x", None, facts) == Owners((0,), "client")


def test_nobody_is_nobody(tmp_path):
    assert owner_of(tmp_path, "podman", None, None, None) is None
    assert owner_of(tmp_path, "podman", "/docker/x", PID, None) is None
    assert rootless_user("/user.slice/user@x.service") is None


def account(name, uid, home):
    return pwd.struct_passwd((name, "x", uid, uid, "", home, "/bin/sh"))


@pytest.fixture
def people(monkeypatch, tmp_path):
    listed = [
        account("root", 0, "/root"),
        account("daemon", 1, "/"),
        account("svc", 999, f"{tmp_path}"),
        account("alice", 1000, f"{tmp_path}/alice"),
        account("bob", 1001, f"{tmp_path}/alice/nested/bob/"),
    ]
    unlisted = {"carol": account("carol", 2000, f"{tmp_path}/net/carol")}
    monkeypatch.setattr(ownership.pwd, "getpwall", lambda: listed)
    monkeypatch.setattr(ownership.pwd, "getpwnam", lambda name: unlisted[name])
    return tmp_path


def test_a_path_in_a_home_is_its_owners_even_out_of_sight(people):
    assert ownership.home_owner(f"{people}/alice") == 1000
    assert ownership.home_owner(f"{people}/alice/deep/down") == 1000
    assert ownership.home_owner(f"{people}/alice/nested/bob/x") == 1001
    assert ownership.home_owner(f"{people}/alicette") is None
    assert ownership.home_owner(f"{people}/net/carol/data") == 2000
    assert ownership.home_owner("/srv/data") is None
    assert ownership.home_owner("/") is None


def test_the_owner_of_the_path_itself_comes_first_unless_it_is_root(people):
    assert ownership.path_owner(f"{people}/alice/not/there") == 1000
    there = people / "alice" / "there"
    there.mkdir(parents=True)
    assert ownership.path_owner(str(there)) == (os.geteuid() or 1000)


def test_a_dead_file_system_is_not_waited_for(people):
    answers = threading.Event()

    def dead(path):
        answers.wait()
        return os.stat("/")

    assert ownership.path_owner(f"{people}/alice/x", seconds=0.05, stat=dead) == 1000
    answers.set()
