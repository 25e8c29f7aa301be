"""Forwarding as OTLP to a real collector: every point, whatever fails on the way, and nothing that was not recorded."""

import http.server
import json
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import formatdate
from itertools import product
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.dialect import otlp
from vmsonar_archive.dialect.metrics import table
from vmsonar_archive.dialect.subjects import Observer
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import KINDS, ContainerRow, DiskRow, EventRow, GapRow, NetfsRow

from tests.making.metered import Everything, by_convention, sample, vmsonar
from tests.making.worlds import make_history
from tests.parts import requires
from tests.real.certificates import make_authority
from tests.real.collector import Collector, Printed, collector
from tests.real.serving import served
from tests.real.wait import wait_until

pytestmark = requires("otel_collector")
PARTIAL = otlp._bytes(1, b"\x08\x03" + otlp._text(2, "no room"))
WARNING = otlp._bytes(1, otlp._text(2, "old names"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(tmp_path_factory.mktemp("otlp") / "archive")


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """A number for every metric there is, and in each of three samples an event and a gap."""
    machine = Everything(tmp_path_factory.mktemp("eventful") / "archive")
    machine.start_daemon()
    machine.run(3)
    machine.stop_daemon()
    return machine


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Collector]:
    with collector(tmp_path) as running:
        yield running


def recorded(archive: Path) -> set[Printed]:
    """What the archive holds, by the kernel's own names, read without the code that sends."""
    found: set[Printed] = set()
    with open_archive(archive) as opened:
        for sample in opened.samples():
            at = round(sample.time.timestamp(), 6)
            (node,) = sample.node
            modes = {"user": node.user_ticks, "system": node.system_ticks, "idle": node.idle_ticks}
            for mode, ticks in modes.items():
                found.add(Printed("system.cpu.time", frozenset({("cpu.mode", mode)}), at, ticks / 100))
            for disk in sample.disk:
                told = frozenset({("system.device", disk.device), ("disk.io.direction", "read")})
                found.add(Printed("system.disk.io", told, at, disk.read_sectors * 512))
            for box in sample.container:
                told = frozenset({("container.id", box.container_id), ("container.name", "web")})
                found.add(Printed("container.cpu.time", told, at, box.cpu_time / 1e9))
    return found


def of_interest(points: list[Printed]) -> set[Printed]:
    names = {"system.cpu.time": {"user", "system", "idle"}, "system.disk.io": {"read"}}
    kept = set()
    for point in points:
        values = {value for _, value in point.attributes}
        if point.name == "container.cpu.time" or values & names.get(point.name, set()):
            kept.add(point._replace(time=round(point.time, 6), start=0.0))
    return kept


def counts(state: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((state / "status.json").read_text())["counts"]
    return found


def forward(
    archive: Path, state: Path, url: str, *words: str, more: dict[str, object] | None = None
) -> list[str]:
    config = state.with_suffix(".yaml")
    settings = {"state": str(state), "max_payload": "60kB", "timeout": "5s", **(more or {})}
    config.write_text(yaml.safe_dump({"forward": settings}))
    return vmsonar("forward", "--archive", archive, "--config", config, "--to", f"otlp+{url}", *words)


def once(
    archive: Path, state: Path, url: str, more: dict[str, object] | None = None
) -> subprocess.CompletedProcess[str]:
    line = forward(archive, state, url, "--once", "--timeout", "60s", more=more)
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=90)


class Between(http.server.ThreadingHTTPServer):
    """Stands before the collector: answers as its script says, then passes everything on."""

    def __init__(self, behind: Collector, *script: int | bytes, lacks: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.behind = behind
        self.script = deque(script)
        self.lacks = lacks
        self.as_date = False
        self.answered: list[tuple[float, int]] = []
        self.asked: list[tuple[str, int]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Passing(http.server.BaseHTTPRequestHandler):
    server: Between

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Content-Type", "Content-Encoding")}
        status, answer = 200, b""
        said = self.server.script.popleft() if self.server.script else 200
        if self.path == self.server.lacks:
            said = 404
        if isinstance(said, bytes):
            answer = said
        elif said == 200:
            status, answer = self.server.behind.post(self.path, body, headers)
        else:
            status = said
        self.server.answered.append((time.monotonic(), status))
        self.server.asked.append((self.path, status))
        self.send_response(status)
        if status == 503:
            date = formatdate(time.time() + 3, usegmt=True)
            self.send_header("Retry-After", date if self.server.as_date else "2")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """The test asks afterwards."""


def test_the_collector_prints_what_the_archive_holds(real: Collector, archive: Path, tmp_path: Path):
    done = once(archive, tmp_path / "state", real.url)
    assert done.returncode == 0, done.stderr
    points = real.points()
    assert of_interest(points) == recorded(archive)
    assert len({(one.name, one.attributes, one.time) for one in points}) == len(points), "a point twice"
    assert once(archive, tmp_path / "state", real.url).returncode == 0
    assert len(real.points()) == len(points), "sent again"
    assert json.loads((tmp_path / "state" / "status.json").read_text())["dialect"] == "otlp"


def test_every_metric_arrives_with_its_unit_type_value_and_start(
    eventful: Everything, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    """Over HTTPS; compared with the rows themselves, by the table alone."""
    authority = make_authority(tmp_path_factory.mktemp("tls"))
    with collector(tmp_path, authority.issue("server")) as real:
        assert "is not trusted" in once(eventful.root, tmp_path / "state", real.url).stderr
        trust = {"tls": {"ca_file": str(authority.certificate)}}
        done = once(eventful.root, tmp_path / "state", real.url, trust)
        assert done.returncode == 0, done.stderr
        points = real.points()
        sums = {
            one.convention: (one.ucum, "Sum", str(one.is_counter).lower(), "Cumulative")
            for one in table().metrics
            if one.role in ("counter", "amount")
        }
        kinds = {name: rest for name, *rest in real.kinds() if not name.endswith(".info")}
        for name, of in by_convention().items():
            assert tuple(kinds.pop(name)) == sums.get(name, (of[0].ucum, "Gauge", "", "")), name
        assert not kinds
        assert sorted(real.bodies()) == sorted(
            [f"killed at {n}" for n in (110, 120, 130)] + ["gpu: timeout"] * 3
        )
    assert {(one.name, round(one.time, 6), f"{one.value:.6f}") for one in points} >= told_by_rows(
        eventful.root
    )
    starts = {one.name: eventful.booted.timestamp() - one.start for one in points}
    assert (starts["system.cpu.time"], starts["container.cpu.time"], starts["vmsonar.job.cpu.time"]) == (
        0,
        -1,
        -50,
    )


def told_by_rows(root: Path) -> set[tuple[str, float, str]]:
    """Names, times and values, as the collector prints them, of all the rows; energy is told without its wraps."""
    found = set()
    of_rows = [one for one in table().metrics if one.source in KINDS and one.role != "start"]
    with open_archive(root) as opened:
        for sample, metric in product(opened.samples(), of_rows):
            for row in () if metric.source == "energy" else getattr(sample, metric.source):
                value = metric.value(getattr(row, metric.field), 100)
                found.add((metric.convention, round(sample.time.timestamp(), 6), f"{value:.6f}"))
    return found


def test_the_json_lines_say_the_same(real: Collector, eventful: Everything, archive: Path, tmp_path: Path):
    for number, root in enumerate((archive, eventful.root)):
        folder, before = tmp_path / f"json{number}", len(real.points())
        line = vmsonar("export", root, "--to", "otlp-json", "-o", folder)
        subprocess.run(line, check=True, capture_output=True)
        for kind in ("metrics", "logs"):
            (file,) = folder.glob(f"*-{kind}.jsonl")
            for text in file.read_bytes().splitlines():
                assert real.post(f"/v1/{kind}", text, {"Content-Type": "application/json"})[0] == 200
        printed = real.points()[before:]
        assert once(root, tmp_path / f"state{number}", real.url).returncode == 0
        assert sorted(real.points()[before + len(printed) :]) == sorted(printed)
    assert len(real.bodies()) == 12
    assert all(real.bodies().count(body) % 2 == 0 for body in real.bodies())


def test_the_machine_has_the_name_that_was_asked_for(real: Collector, eventful: Everything, tmp_path: Path):
    for name in ("full", "short"):
        done = once(eventful.root, tmp_path / name, real.url, {"host_name": name})
        assert done.returncode == 0, done.stderr
    assert set(re.findall(r"-> host.name: Str\((.*)\)", real.text)) == {"vm.example", "vm"}


@pytest.mark.parametrize("as_date", [False, True])
def test_503_waits_as_long_as_it_is_told(real: Collector, archive: Path, tmp_path: Path, as_date: bool):
    with served(Between(real, 503, 429)) as between:
        between.as_date = as_date
        done = once(archive, tmp_path / "state", between.url)
        assert done.returncode == 0, done.stderr
        (first, _), (second, _) = between.answered[:2]
    assert second - first >= 1.9
    assert of_interest(real.points()) == recorded(archive)


def test_partial_success_is_told_and_not_sent_again(real: Collector, archive: Path, tmp_path: Path):
    with served(Between(real, PARTIAL)) as between:
        done = once(archive, tmp_path / "state", between.url)
    assert done.returncode == 0, done.stderr
    assert "3 points or records were not taken (no room)" in done.stderr
    assert of_interest(real.points()) < recorded(archive)
    (undeliverable,) = (tmp_path / "state" / "undeliverable.jsonl").read_text().splitlines()
    assert re.search(
        r"no room.* messages in one POST, from record \d+ on", json.loads(undeliverable)["reason"]
    )
    assert counts(tmp_path / "state")["undeliverable"] == 3


def test_a_warning_is_told_once(real: Collector, archive: Path, tmp_path: Path):
    with served(Between(real, *[WARNING] * 3)) as between:
        done = once(archive, tmp_path / "state", between.url)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the receiver warns: old names") == 1
    assert counts(tmp_path / "state")["undeliverable"] == 0


def test_a_receiver_of_metrics_alone_gets_them_all(real: Collector, eventful: Everything, tmp_path: Path):
    with served(Between(real, lacks="/v1/logs")) as between:
        done = once(eventful.root, tmp_path / "state", between.url)
        asked = [path for path, status in between.asked if status == 404]
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("it gets no logs") == 1
    assert len({point.time for point in real.points()}) == 3
    assert asked == ["/v1/logs"] * 3
    found = counts(tmp_path / "state")
    assert (found["unwanted"], found["undeliverable"]) == (3, 0)
    with served(Between(real, lacks="/v1/metrics")) as between:
        done = once(eventful.root, tmp_path / "other", between.url)
    assert (done.returncode, "answers 404" in done.stderr) == (1, True)


@pytest.mark.parametrize("status", [400, 500])
def test_what_refuses_everything_has_taken_nothing(
    real: Collector, archive: Path, tmp_path: Path, status: int
):
    with served(Between(real, *[status] * 1000)) as between:
        done = once(archive, tmp_path / "state", between.url)
        assert (done.returncode, str(status) in done.stderr) == (1, True)
        between.script.clear()
        assert once(archive, tmp_path / "state", between.url).returncode == 0
    assert of_interest(real.points()) == recorded(archive)


def test_what_is_sent_again_is_the_same(real: Collector, archive: Path, tmp_path: Path):
    """By a forwarder that goes on where one stopped: the same starts, and sums of energy that go on."""
    state = tmp_path / "state"
    assert once(archive, tmp_path / "whole", real.url).returncode == 0
    whole = set(real.points())
    with served(Between(real, *[200] * 4, *[401] * 1000)) as between:
        assert once(archive, state, between.url).returncode == 1
        some = counts(state)["sent"]
        assert 0 < some < counts(tmp_path / "whole")["sent"]
        between.script.clear()
        assert once(archive, state, between.url).returncode == 0
    assert set(real.points()) == whole


def test_nothing_is_lost_where_it_is_killed(real: Collector, archive: Path, tmp_path: Path):
    with served(Between(real)) as between:
        line = forward(archive, tmp_path / "state", between.url)
        for posts in (1, 2, 3):
            between.answered.clear()
            with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
                wait_until(lambda n=posts: len(between.answered) >= n, 20, "posts", every=0.005)
                process.kill()
        assert once(archive, tmp_path / "state", between.url).returncode == 0
    assert of_interest(real.points()) == recorded(archive)


def test_events_and_gaps_become_logs(real: Collector):
    with_events = Observer()
    told = sample(
        10,
        event=[EventRow(event_type="oom_kill", program='a"b', pid=7, detail="killed: a")],
        gap=[GapRow(collector="gpu", reason="timeout", lost=2)],
    )
    with_events.observe(told)
    described = otlp.resource(with_events, "an-archive", "vm")
    logs = otlp.logs_of(told)
    body = otlp.logs_body(described, logs, with_events.time, "1")
    assert real.post("/v1/logs", body, {"Content-Type": "application/x-protobuf"})[0] == 200
    (line,) = otlp.logs_json(described, logs, with_events.time, "1")
    assert real.post("/v1/logs", line, {"Content-Type": "application/json"})[0] == 200
    assert real.bodies() == ["killed: a", "gpu: timeout"] * 2
    assert real.text.count('vmsonar.event.program: Str(a"b)') == 2
    assert real.text.count("vmsonar.event.lost: Int(2)") == 2
    assert real.text.count("EventName: oom_kill") == 2


def test_numbers_and_times_beyond_64_bits_stop_nothing(real: Collector):
    moments = [datetime(year, 1, 1, tzinfo=UTC) for year in (1900, 2026, 9000)]
    for moment in moments:
        told = sample(
            10,
            disk=[DiskRow(device="vda", device_major=8, device_minor=0, read_sectors=2**60)],
            container=[ContainerRow(container_id="b" * 64, start_boottime=-(2**62), cpu_time=1)],
            netfs=[NetfsRow(device_major=0, device_minor=5, mount_point="/", age=2**62, read_operations=1)],
            event=[EventRow(event_type="clock_step", happened=moment)],
        )
        told.time = moment
        observer = Observer()
        observer.observe(told)
        described, series = otlp.resource(observer, "an-archive", "vm"), otlp.metrics_of(observer)
        for path, body, line in (
            (
                "/v1/metrics",
                otlp.metrics_body(described, series, "1"),
                b"".join(otlp.metrics_json(described, series, "1")),
            ),
            ("/v1/logs", otlp.logs_body(described, otlp.logs_of(told), observer.time, "1"), b""),
        ):
            assert real.post(path, body, {"Content-Type": "application/x-protobuf"})[0] == 200
            assert not line or real.post(path, line, {"Content-Type": "application/json"})[0] == 200
    read = [one.value for one in real.points() if ("disk.io.direction", "read") in one.attributes]
    assert read == [2.0**60 * 512] * 6


@pytest.mark.parametrize("url", ["http://example.org:4318", "ftp://x", "kafka://x"])
def test_only_to_collectors_and_in_the_clear_only_here(archive: Path, tmp_path: Path, url: str):
    done = once(archive, tmp_path / "state", url)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
