"""A recorder on a disk that fails on demand, with increments and forwarding; and what was said to be safe of it.

The faults hit the recorder and its archive alone: bundles go to a folder and records to an HTTP endpoint elsewhere.
"""

import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.read.reader import open_archive

from tests.daemon.running import ROOT, command
from tests.faults.shim import Faults
from tests.forward.http_server import Endpoint
from tests.forward.place import Place

#: A record: which run wrote it, and its number.
Record = tuple[str, int]


class Saving:
    """One archive with all that is meant to bring it to safety."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.archive = folder / "disk" / "archive"
        self.archive.parent.mkdir(parents=True)
        self.bundles = folder / "bundles"
        self.bundles.mkdir()
        (folder / "waiting").mkdir()
        self.endpoint = Endpoint()
        forward = {"to": "http", "url": self.endpoint.url, "cluster": "c.example", "dialect": "native"}
        self.place = Place(folder / "forward", forward, self.archive)
        self.config = folder / "config.yaml"
        save = {"to": str(self.bundles), "waiting": str(folder / "waiting"), "sign": "none"}
        self.config.write_text(
            json.dumps(
                {
                    "budget": {"min_free": "0", "max_bytes": "1GiB"},
                    "save": save,
                    "forward": self.place.forward,
                }
            )
        )
        self.faults = Faults(self.archive.parent, folder / "rules", seed)
        self.daemon: subprocess.Popen[str] | None = None

    def close(self) -> None:
        self.kill()
        self.endpoint.close()

    def start(self, interval: str = "20ms") -> "subprocess.Popen[str]":
        line = command(self.archive, f"--interval={interval}", f"--config={self.config}")
        self.daemon = subprocess.Popen(
            line, cwd=ROOT, env=self.faults.environment(), stderr=subprocess.PIPE, text=True
        )
        return self.daemon

    def kill(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.communicate()
            self.daemon = None

    def stop(self) -> int:
        assert self.daemon is not None
        self.daemon.terminate()
        self.daemon.communicate(timeout=60)
        code, self.daemon = self.daemon.returncode, None
        return code

    def teardown(self, *options: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "vmsonar", "teardown", "--archive", str(self.archive)]
        return subprocess.run(
            [*line, "--config", str(self.config), "--limit", "50s", "--json", *options],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def recorded(self, path: Path | None = None) -> list[Record]:
        """Every record that can be read in the archive, or in a bundle."""
        place = path or self.archive
        if path is None and not (place / "archive.json").exists():
            return []
        with open_archive(place) as archive:
            found = [(one.run, one.seq) for one in archive.samples()]
            return found + [(one.run, one.seq) for one in archive.sysinfos()]

    def bundled(self) -> set[Record]:
        """Every record in any bundle that arrived."""
        return {record for path in self.bundles.glob("*.tar") for record in self.recorded(path)}

    def forwarded(self) -> set[Record]:
        """Every record that the endpoint has taken."""
        found: set[Record] = set()
        for message in list(self.endpoint.records):
            with suppress(KeyError):
                found.add((message["headers"]["run"], int(message["headers"]["seq"])))
        return found


def given_twice(records: list[Record]) -> list[int]:
    """Numbers that more than one record has."""
    return [seq for seq, count in Counter(seq for _, seq in set(records)).items() if count > 1]
