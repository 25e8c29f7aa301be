"""`python -m tests.recorded.record FOLDER` (as root): records the trees that later versions must still read.

Two archives, one of a real machine (recorded by the daemon in namespaces of its own, killed once) and one scripted
with every kind of row; and from them bundles (signed, redacted), increments, a lake and forwarded messages. What they
hold is told in expected.json, written by the version that recorded them. Run it for a new version of the format; what
is there is never recorded again.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.archive.bundle.tls_server import Store, running
from tests.forward.http_server import Endpoint
from tests.making.worlds import Job, Machine
from tests.real.certificates import Authority, make_authority
from tests.real.wait import let_pass
from tests.recorded.told import answers, lines_of

VMSONAR = Path(sys.executable).with_name("vmsonar")
MACHINE_ID = "6f1d3c0a9be24c5f8a7d2e4b1c903f58"
SIGNER = "vm-1.example"


def run(*command: object, **settings: Any) -> str:
    done = subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True, **settings
    )
    return done.stdout


def record_machine(root: Path, work: Path) -> None:
    """A daemon with a host name, a machine id and processes of its own; its first run ends by SIGKILL."""
    (work / "machine-id").write_text(MACHINE_ID + "\n")
    load = "for n in 1 2 3 4 5 6 7 8; do sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; sleep 0.4; done &"
    (work / "osrelease").write_text("6.1.0-40-cloud-amd64\n")
    mounts = f"mount --bind {work}/machine-id /etc/machine-id; mount --bind {work}/osrelease /proc/sys/kernel/osrelease"
    start = f'{mounts}; hostname vm-1.example; ip link set lo up; setsid sh -c "{load} wait" & '
    inside = [
        "unshare",
        "--uts",
        "--net",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
    ]
    daemon = f"exec {VMSONAR} daemon --archive {root} --interval 250ms"
    killed = subprocess.Popen([*inside, start + daemon], stderr=subprocess.DEVNULL)
    wait_for(lambda: bool(list(root.glob("*/*/*/sample-*"))))
    let_pass(6)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    shutil.copytree(root, root.with_name("killed"))
    run(*inside, start + daemon + " --for 6s", stderr=subprocess.DEVNULL)


def wait_for(there: Any) -> None:
    for _ in range(600):
        if there():
            return
        time.sleep(0.05)
    raise TimeoutError


def record_world(root: Path, inbox: Path, work: Path) -> None:
    """Two boots over two days with every kind of row; an increment, confirmed by the receiver, after each day."""
    authority = make_authority(work)
    world = Machine(root, hostname="world", booted=datetime(2026, 11, 10, 14, tzinfo=UTC))
    world.jobs = [
        Job(100, 120, 4000, 1.5, write_rate=10_000),
        Job(200, 500, 9000, 0.25, user="bob", reset=2000),
    ]
    world.container_start = 300
    world.start_daemon()
    world.run(20, 60)
    # A restart within the hour leaves two segments, which are merged below.
    world.stop_daemon()
    world.start_daemon()
    world.run(60, 60)
    world.stop_daemon()
    with running(authority.issue("receiver")) as store:
        increment(root, store, authority, inbox / "1.tar")
    world.reboot("0e6d4c31-5c6e-4a3d-8f3b-9a1c2b7f4d5e", after=50_000)
    world.jobs = [Job(150, 60, 5000, 2.0, command="java -jar app.jar")]
    world.start_daemon()
    world.run(40, 60)
    assert world.writer is not None
    world.writer.tidy()
    world.stop_daemon()
    with running(authority.issue("receiver")) as store:
        increment(root, store, authority, inbox / "2.tar")


def increment(root: Path, store: Store, authority: Authority, path: Path) -> None:
    trusting = {**os.environ, "SSL_CERT_FILE": str(authority.certificate)}
    run(VMSONAR, "bundle", "--archive", root, "--increment", "-o", store.url(path.name), env=trusting)
    path.write_bytes(store.stored[f"/bucket/{path.name}"])


def forwarded(archive: Path, work: Path, dialect: str) -> list[dict[str, Any]]:
    """Every message of an archive as an HTTP endpoint takes it."""
    endpoint = Endpoint()
    try:
        config = work / f"forward-{archive.name}-{dialect}.yaml"
        state = work / f"state-{archive.name}-{dialect}"
        settings = {
            "to": "http",
            "cluster": "c1.example",
            "url": endpoint.url,
            "dialect": dialect,
            "state": str(state),
        }
        config.write_text(yaml.safe_dump({"forward": settings}))
        run(VMSONAR, "forward", "--archive", archive, "--config", config, "--once")
        return endpoint.records
    finally:
        endpoint.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    work = folder / "work"
    inbox = folder / "increments"
    inbox.mkdir()
    work.mkdir()
    machine, world = folder / "machine", folder / "world"
    record_machine(machine, work)
    record_world(world, inbox, work)
    # The second archive has its tables beside the records, the first has none.
    run(VMSONAR, "derive", "--archive", world)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", SIGNER, "-f", work / "key")
    public = (work / "key.pub").read_text().split()
    (folder / "allowed_signers").write_text(f'{SIGNER} namespaces="bundle@vmsonar" {public[0]} {public[1]}\n')
    run(VMSONAR, "bundle", "--archive", machine, "-o", folder / "signed.tar", "--sign", work / "key")
    run(VMSONAR, "bundle", "--archive", world, "-o", folder / "tables.tar")
    run(VMSONAR, "bundle", "--archive", world, "-o", folder / "redacted.tar", "--redact", "all")
    run(VMSONAR, "bundle", "--archive", world, "-o", folder / "cut.tar", "--since", "2026-11-10T15:00Z")
    run(
        VMSONAR,
        "export",
        folder / "signed.tar",
        folder / "tables.tar",
        "--to",
        "parquet",
        "-o",
        folder / "lake",
    )
    messages = {
        f"{archive.name}-{dialect}": forwarded(archive, work, dialect)
        for archive in (machine, world)
        for dialect in ("native", "sonar")
    }
    for name, sent in messages.items():
        (folder / f"forwarded-{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sent))
    shutil.rmtree(work)
    for lock in folder.rglob("writer.lock"):
        lock.unlink()
    expected = {
        "lines": {name: lines_of(folder / name) for name in ("machine", "killed", "world")},
        "answers": {
            name: answers(folder / name)
            for name in ("machine", "world", "signed.tar", "tables.tar", "cut.tar", "lake")
        },
        "messages": {name: len(sent) for name, sent in messages.items()},
        "files": {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
