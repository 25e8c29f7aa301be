"""Whether the machine goes down is asked over the system bus, which may be absent, mute or hostile."""

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from vmsonar.host.roots import Host
from vmsonar.host.shutdown import stop_reason


def host_of(tmp_path: Path, first: bytes = b"/sbin/init\0") -> Host:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/cmdline").write_bytes(first)
    (tmp_path / "run/dbus").mkdir(parents=True)
    return Host(proc=tmp_path / "proc", run=tmp_path / "run")


def serve(host: Host, talk: Callable[[socket.socket], None]) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(host.run / "dbus/system_bus_socket"))
    server.listen(1)

    def run() -> None:
        with suppress(OSError), server, server.accept()[0] as line:
            talk(line)

    threading.Thread(target=run, daemon=True).start()


def reply(serial: int, body: bytes, kind: int = 2) -> bytes:
    fields = b"\x05\x01u\0" + struct.pack("<I", serial)
    return struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), 9, len(fields)) + fields + body


def bus_with(*messages: bytes, greeting: bytes = b"OK 1234\r\n") -> Callable[[socket.socket], None]:
    def talk(line: socket.socket) -> None:
        line.recv(4096)
        line.sendall(greeting)
        line.recv(4096)
        line.sendall(b"".join(messages))
        line.recv(4096)

    return talk


def job(unit: str, kind: str = "start") -> bytes:
    named, typed = unit.encode() + b"\0", kind.encode() + b"\0"
    padding = b"\0" * (-len(named) % 4)
    return struct.pack("<II", 7, len(unit)) + named + padding + struct.pack("<I", len(kind)) + typed


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [(b"", "stop"), (job("vmsonar.service", "restart"), "stop"), (job("reboot.target"), "reboot"),
     (job("a.service", "stop") + job("poweroff.target"), "poweroff"), (job("halt.target"), "halt"),
     (job("soft-reboot.target"), "soft_reboot"), (job("reboot.target", "stop"), "stop"),
     (job("my-reboot.target"), "stop")],
)  # fmt: skip
def test_the_goal_is_among_the_jobs(tmp_path, jobs, reason):
    host = host_of(tmp_path)
    serve(host, bus_with(reply(1, b""), reply(2, jobs)))
    assert stop_reason(host) == reason


@pytest.mark.parametrize(
    ("first", "reason"),
    [(b"/usr/lib/systemd/systemd-shutdown\0reboot\0--log-level\0", "reboot"),
     (b"/lib/systemd/systemd-shutdown\0poweroff\0", "poweroff"),
     (b"/sbin/init\0splash\0", None), (b"", None)],
)  # fmt: skip
def test_the_first_process_tells_at_the_very_end(tmp_path, first, reason):
    assert stop_reason(host_of(tmp_path, first)) == reason


def mute(line: socket.socket) -> None:
    while line.recv(4096):
        pass


@pytest.mark.parametrize(
    "talk",
    [bus_with(reply(2, b"no such name", kind=3)), bus_with(greeting=b"REJECTED\r\n"), bus_with(b"\xff" * 64),
     bus_with(reply(1, b"") * 3), lambda line: None, mute,
     lambda line: line.sendall(b"x" * 10**6)],
)  # fmt: skip
def test_a_bus_that_does_not_say_costs_a_moment_and_gives_no_reason(tmp_path, talk):
    host = host_of(tmp_path)
    serve(host, talk)
    begin = time.monotonic()
    assert stop_reason(host, 0.3) is None
    assert time.monotonic() - begin < 1


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon")
def test_a_real_bus_without_systemd_gives_no_reason(tmp_path):
    host = host_of(tmp_path)
    address = f"unix:path={host.run}/dbus/system_bus_socket"
    words = ["dbus-daemon", "--session", "--nofork", "--print-address=1", f"--address={address}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as bus:
        assert bus.stdout is not None
        bus.stdout.readline()
        begin = time.monotonic()
        assert stop_reason(host) is None
        assert time.monotonic() - begin < 0.4, "it was refused, not timed out"
        bus.terminate()
    assert os.path.exists(host.run)
