"""A machine's archive with a configuration, and the command that tears it down."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import yaml
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path

from tests.making.bundles import START, fill, make_archive, open_writer
from tests.real.certificates import Authority


class Vm:
    """An archive with a configuration, and the command."""

    def __init__(self, root: Path, authority: Authority) -> None:
        self.root = root
        self.archive = make_archive(root / "archive")
        self.waiting = root / "waiting"
        self.waiting.mkdir()
        self.environment = {**os.environ, "SSL_CERT_FILE": str(authority.certificate)}

    def record(self, samples: int, hours: float) -> None:
        writer = open_writer(self.archive)
        fill(writer, samples, START + timedelta(hours=hours), first=1000)
        writer.close()

    def configure(self, to: str | None, sign: str = "none", **config) -> Path:
        save = {"waiting": str(self.waiting), "sign": sign} | ({"to": to} if to else {})
        file = self.root / "config.yaml"
        more = config.pop("save", {})
        file.write_text(yaml.safe_dump({"archive": str(self.archive), "save": save | more, **config}))
        return file

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "vmsonar", *words, "--config", str(self.root / "config.yaml")]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command, which may say nothing secret and never shows a traceback."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert "canary" not in done.stdout + done.stderr
        return done

    def teardown(self, *more: str, to: str | None, sign: str = "none", **config) -> tuple[int, dict]:
        self.configure(to, sign, **config)
        done = self.run("teardown", "--json", *more)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def numbers(self, bundle: Path) -> list[int]:
        report = verify_path(bundle)
        assert report.ok, report.findings
        with open_archive(bundle) as inside:
            return [sample.seq for sample in inside.samples()]


def bundles(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tar"), key=lambda path: path.stat().st_mtime)
