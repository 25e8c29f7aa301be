"""A real Prometheus on loopback, over imported history or scraping, and its answers."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.ports import free_ports
from tests.real.wait import wait_until


def import_history(files: Iterable[Path], data: Path) -> None:
    """Makes blocks of OpenMetrics files as users do; whatever promtool complains of fails."""
    for file in files:
        done = subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), (file.name, done.stdout, done.stderr)


class Prometheus:
    """Answers PromQL."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, query: str, time: float | None = None) -> list[dict[str, Any]]:
        """What a query finds, as Prometheus' HTTP API tells it."""
        asked = {"query": query} | ({} if time is None else {"time": f"{time:.3f}"})
        found: list[dict[str, Any]] = self._get("query", asked)["result"]
        return found

    def label_values(self, label: str, selector: str) -> list[str]:
        """The values of a label in all series that match."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": selector})
        return found

    def _get(self, path: str, asked: dict[str, str]) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(asked)}", timeout=20
        ) as answer:
            return json.load(answer)["data"]

    def value(self, query: str, time: float | None = None) -> float | None:
        """The number of the only series that a query finds; None where it finds none."""
        found = self.query(query, time)
        assert len(found) < 2, (query, found)
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(folder: Path, scraped: str = "") -> Iterator[Prometheus]:
    """One that runs over the blocks in `folder/data`; `scraped` is the list below scrape_configs."""
    (port,) = free_ports(1)
    config = folder / "prometheus.yml"
    config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: {scraped or '[]'}\n")
    line = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--log.level=error",
    ]  # fmt: skip
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(line, stdout=log, stderr=log) as process,
    ):
        try:
            served = Prometheus(port)
            wait_until(served.is_ready, 60, f"Prometheus: {folder / 'prometheus.log'}")
            yield served
        finally:
            process.terminate()
            process.wait(20)
