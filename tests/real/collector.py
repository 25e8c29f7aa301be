"""A real OpenTelemetry collector on loopback, and what it printed of what it received."""

import http.client
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.parts import collector_program
from tests.real.ports import accepts, free_ports
from tests.real.wait import wait_until

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"%s}}}}
exporters: {debug: {verbosity: detailed}}
service:
  # Its log, which is where it prints, else leaves out what resembles too much of what it said just before.
  telemetry: {metrics: {level: none}, logs: {sampling: {enabled: false}}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    logs: {receivers: [otlp], exporters: [debug]}
"""
_TIME = "%Y-%m-%d %H:%M:%S"


class Printed(NamedTuple):
    """One number point as the collector printed it."""

    name: str
    attributes: frozenset[tuple[str, str]]
    time: float
    value: float
    #: 0 where nobody told when it began.
    start: float = 0.0


class Collector:
    """Where it listens, and what it has printed."""

    def __init__(self, port: int, output: Path, scheme: str = "http") -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self._output = output

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as client:
            client.request("POST", path, body, headers)
            answer = client.getresponse()
            return answer.status, answer.read()

    @property
    def text(self) -> str:
        return self._output.read_text()

    def points(self) -> list[Printed]:
        """Every point, as often as it came."""
        found: list[Printed] = []
        name, attributes, start, time, wanted = "", set(), 0.0, 0.0, False
        for line in self.text.splitlines():
            if line.startswith("     -> Name: "):
                name = line.removeprefix("     -> Name: ")
            elif line.startswith("NumberDataPoints #"):
                attributes, wanted = set(), True
            elif wanted and (match := re.fullmatch(r"     -> ([^:]+): Str\((.*)\)", line)):
                attributes.add((match[1], match[2]))
            elif wanted and line.startswith("StartTimestamp: "):
                start = seconds(line.removeprefix("StartTimestamp: "))
            elif wanted and line.startswith("Timestamp: "):
                time = seconds(line.removeprefix("Timestamp: "))
            elif wanted and line.startswith("Value: "):
                value = float(line.removeprefix("Value: "))
                found.append(Printed(name, frozenset(attributes), time, value, start))
                wanted = False
        return found

    def kinds(self) -> set[tuple[str, ...]]:
        """Name, unit and type of every metric; of a sum also whether it only rises, and since when it is counted."""
        told = re.findall(
            r"     -> Name: (.*)\n     -> Description: .*\n     -> Unit: (.*)\n     -> DataType: (.*)\n"
            r"(?:     -> IsMonotonic: (.*)\n     -> AggregationTemporality: (.*)\n)?",
            self.text,
        )
        return set(told)

    def bodies(self) -> list[str]:
        """The words of every log record."""
        return re.findall(r"(?m)^Body: Str\((.*)\)$", self.text)


def seconds(text: str) -> float:
    """Go's form of a time in UTC, in seconds since 1970."""
    whole, _, rest = text.removesuffix(" +0000 UTC").partition(".")
    return datetime.strptime(whole, _TIME).replace(tzinfo=UTC).timestamp() + float(f"0.{rest or 0}")


@contextmanager
def collector(folder: Path, certificate: Path | None = None) -> Iterator[Collector]:
    """One that runs; with a certificate (and its key in the same file), by HTTPS."""
    (port,) = free_ports(1)
    tls = "" if certificate is None else f", tls: {{cert_file: {certificate}, key_file: {certificate}}}"
    config, output = folder / "otelcol.yaml", folder / "otelcol.out"
    config.write_text(CONFIG % (port, tls))
    line = [str(collector_program()), "--config", str(config)]
    with output.open("wb") as out, subprocess.Popen(line, stdout=out, stderr=out) as process:
        try:
            wait_until(lambda: accepts(port), 30, f"the collector: {output}")
            yield Collector(port, output, "https" if tls else "http")
        finally:
            process.terminate()
            process.wait(20)
