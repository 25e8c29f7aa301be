"""A place with a configuration to forward by, and the topics as kcat, which we did not write, reads them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vmsonar_archive.read.reader import open_archive

from tests.real.kafka import KafkaBroker, User

SEPARATOR = "\x1e"


def seqs_of(root: Path, kind: str = "sample") -> list[int]:
    with open_archive(root) as archive:
        records = archive.samples() if kind == "sample" else archive.sysinfos()
        return [record.seq for record in records]


def kafka_config(broker: KafkaBroker, cluster: str, user: User | None = None, **extra: Any) -> dict[str, Any]:
    """The section `forward` for a broker; `user` needs a file with its password."""
    if user is None:
        return {"brokers": [broker.plaintext], "cluster": cluster, "tls": {"use": "none"}, **extra}
    return {"brokers": [broker.secure], "cluster": cluster, "auth": user.mechanism.lower(), "username": user.name,
            "tls": {"ca_file": str(broker.authority.certificate)}, **extra}  # fmt: skip


class Place:
    """A folder with a configuration, the state of a forwarder and its archive."""

    def __init__(self, folder: Path, forward: dict[str, Any], archive: Path | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.archive = archive or folder / "archive"
        self.state = folder / "state"
        self.config = folder / "config.yaml"
        self.configure(forward)

    def configure(self, forward: dict[str, Any]) -> None:
        self.forward = {"state": str(self.state), **forward}
        self.config.write_text(json.dumps({"archive": str(self.archive), "forward": self.forward}))

    def secret(self, name: str, content: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content + "\n")
        return str(path)

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "vmsonar", "forward", "--config", str(self.config), *options]

    def once(self, *options: str, timeout: str = "60s", **settings: Any) -> subprocess.CompletedProcess[str]:
        settings.setdefault("env", {**os.environ})
        return subprocess.run(self.command("--once", "--timeout", timeout, *options), capture_output=True, text=True,
                              timeout=170, check=False, **settings)  # fmt: skip

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(self.command(*options), stderr=log, stdout=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    def ask(self, *options: str) -> subprocess.CompletedProcess[str]:
        """`vmsonar status` of this place."""
        line = [sys.executable, "-m", "vmsonar", "status", "--config", str(self.config), *options]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def cursor(self) -> dict[str, Any]:
        return json.loads((self.state / "cursor.json").read_bytes())

    @property
    def status(self) -> dict[str, Any]:
        return json.loads((self.state / "status.json").read_bytes())


def consume(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """Every message of a topic, in order, with its headers."""
    form = f"%k\x1f%h\x1f%s{SEPARATOR}"
    line = ["kcat", "-C", "-b", broker.plaintext, "-t", topic, "-o", "beginning", "-e", "-q", "-f", form]
    done = subprocess.run(line, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    messages = []
    for text in done.stdout.decode().split(SEPARATOR)[:-1]:
        key, headers, value = text.split("\x1f")
        messages.append(
            {"key": key, "value": value, **dict(pair.split("=", 1) for pair in headers.split(","))}
        )
    return messages


def identities(messages: list[dict[str, Any]]) -> list[tuple[str, str, str, int, str]]:
    return [(m["archive"], m["run"], m["boot"], int(m["seq"]), m.get("part", "")) for m in messages]


def first_seen(messages: list[dict[str, Any]]) -> list[int]:
    """The numbers in the order in which each turned up first."""
    return list(dict.fromkeys(int(message["seq"]) for message in messages))
