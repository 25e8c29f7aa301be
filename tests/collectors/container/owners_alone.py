"""Two people, their containers, and a sampler that is neither root nor in the engine's group."""

import os
import secrets
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import docker  # noqa: F401 - loaded before the children give up the right to read it
import msgspec
import pytest

from tests.collectors.container.as_user import Account, accounts, run_as, running_as
from tests.collectors.container.own_engine import OwnEngine, own_engine
from tests.collectors.container.recording import Recording
from tests.parts import requires
from tests.real.docker import DOCKER, IMAGE
from tests.real.wait import wait_until
from vmsonar.companion import __main__ as companion

pytestmark = requires("docker", "root", "netns")
QUIET = ("--network", "none", "--label", "vmsonar-test=owners")


class House:
    """An engine, a group that may use it, and four users."""

    def __init__(self, engine: OwnEngine, users: list[Account]) -> None:
        self.engine = engine
        self.alice, self.bob, self.asker, self.sampler = users
        self.group = self.asker.gid
        # As a unit it would have Group=, the sampler's, and SupplementaryGroups=, the engine's.
        self.asker = replace(self.asker, gid=self.sampler.gid)
        os.chown(engine.socket, 0, self.group)
        os.chmod(engine.socket, 0o660)
        self.run = engine.folder / "run"
        (self.run / "vmsonar").mkdir(parents=True)
        os.chown(self.run / "vmsonar", self.asker.uid, self.sampler.gid)

    def client(self, user: Account, *arguments: str) -> subprocess.Popen[bytes]:
        """A person's docker command."""
        command = [DOCKER, "-H", f"unix://{self.engine.socket}", *arguments]
        environment = {"HOME": str(user.home), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(command, user=user.uid, group=user.gid, extra_groups=[self.group],
                                env=environment, cwd="/", stdin=subprocess.DEVNULL)  # fmt: skip

    def companion(self) -> None:
        """The companion's unit: its own user, who alone has the engine's group."""
        listen = str(self.run / "vmsonar/engine.sock")
        sys.argv = ["engine", "--listen", listen]
        sys.argv += ["--socket", str(self.engine.socket), "--label", "com.docker.compose.*"]
        companion.main()

    def owners(self, names: set[str]) -> dict[str, tuple[str | None, str | None]]:
        """Who owns what, as the unprivileged sampler sees it."""

        def work() -> bytes:
            recording = Recording(self.run, [])
            recording.until(lambda: names <= {info.name for info in recording.infos.values()})
            assert all(
                recording.rows[info.container_id].cpu_time
                for info in recording.infos.values()
                if info.name in names
            )
            found = {
                info.name: (info.user_name, info.user_source)
                for info in recording.infos.values()
                if info.name
            }
            return msgspec.json.encode(found)

        answer: dict[str, list[str | None]] = msgspec.json.decode(run_as(self.sampler, [], work))
        return {name: (found[0], found[1]) for name, found in answer.items()}


@pytest.fixture
def house():
    with accounts(4) as users, own_engine(Path(f"/tmp/vms-{secrets.token_hex(4)}")) as engine:
        yield House(engine, users)


def test_each_container_gets_its_owner_and_the_sign_that_told(house):
    alice, bob = house.alice, house.bob
    for user in (alice, bob):
        (user.home / "data").mkdir(mode=0o700)
        os.chown(user.home / "data", user.uid, user.gid)
    listening = house.run / "vmsonar/engine.sock"
    with running_as(house.asker, [house.group], house.companion):
        wait_until(listening.exists, 30, "the companion's socket")
        house.owners(set())
        waiting = [
            house.client(alice, "run", "--rm", "--name", "of-alice", *QUIET, IMAGE, "sleep", "60"),
            house.client(bob, "run", "--rm", *QUIET, "--name", "of-bob", IMAGE, "sleep", "60"),
        ]
        of = {name: ("--volume", f"{user.home}/data:/{name}") for name, user in (("a", alice), ("b", bob))}
        compose = ("--label", f"com.docker.compose.project.working_dir={bob.home}/shop")
        for name, options in {
            "bind": of["a"],
            "binds": (*of["a"], *of["b"]),
            "compose": (*compose, *of["a"]),
            "inside": ("--user", str(alice.uid)),
            "nobodys": (),
        }.items():
            house.engine.docker("run", "--detach", "--name", name, *QUIET, *options, IMAGE, "sleep", "60")
        detached = house.client(
            bob, "run", "--detach", "--name", "detached", *QUIET, *of["b"], IMAGE, "sleep", "60"
        )
        assert detached.wait(60) == 0
        names = {"of-alice", "of-bob", "bind", "binds", "compose", "inside", "nobodys", "detached"}
        found = house.owners(names)
    house.engine.docker("rm", "--force", "of-alice", "of-bob")
    for client in waiting:
        client.wait(60)
    both = ",".join(user.name for user in sorted((alice, bob), key=lambda user: user.uid))
    assert found.pop("detached") in ((bob.name, "client"), (bob.name, "bind_mount"))
    assert found == {
        "of-alice": (alice.name, "client"),
        "of-bob": (bob.name, "client"),
        "bind": (alice.name, "bind_mount"),
        "binds": (both, "bind_mount"),
        "compose": (bob.name, "compose_dir"),
        "inside": (alice.name, "process_uid"),
        "nobodys": ("root", "client"),
    }


def test_a_stranger_may_not_listen(house):
    listening = house.run / "vmsonar/engine.sock"
    with running_as(house.asker, [house.group], house.companion):
        wait_until(listening.exists, 30, "the companion's socket")
        mode = listening.stat()
        assert (mode.st_uid, mode.st_gid, mode.st_mode & 0o777) == (house.asker.uid, house.sampler.gid, 0o660)

        def work() -> bytes:
            recording = Recording(house.run, [])
            recording.sample()
            return " ".join(recording.gaps).encode()

        assert run_as(house.bob, [], work) == b"companion"
