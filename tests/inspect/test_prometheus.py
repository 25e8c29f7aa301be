"""Real Prometheus over what was recorded: counters are the archive's, and PromQL says what our views say."""

import pickle
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.dialect.grafana import dashboards, promql
from vmsonar_archive.dialect.subjects import Observer, nanoseconds
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.records import JobInfoRow, JobRow
from vmsonar_inspect.export.history import OpenMetricsFiles, out_of_order
from vmsonar_inspect.tables.database import Tables, open_tables

from tests.making.archives import BOOT
from tests.making.lives import LIVES, make_lives
from tests.making.metered import BOOTED, command, exported, live, running, sample, vmsonar
from tests.making.worlds import SECOND_BOOT, Job, Machine, make, make_history
from tests.parts import requires
from tests.real.certificates import make_authority
from tests.real.ports import accepts, free_ports
from tests.real.prometheus import Prometheus, import_history, prometheus
from tests.real.wait import wait_until

pytestmark = requires("prometheus", "duckdb")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Restarts, a reboot, a gap, a clock step and counters that fall; as a bundle."""
    folder = tmp_path_factory.mktemp("prometheus")
    make_history(folder / "archive")
    line = vmsonar("bundle", "--archive", folder / "archive", "-o", folder / "b.tar")
    subprocess.run(line, check=True, capture_output=True)
    import_history(sorted(exported(folder / "b.tar", folder / "om").glob("*.om")), folder / "data")
    return folder


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Prometheus]:
    with prometheus(place) as server:
        yield server


@pytest.fixture(scope="module")
def tables(place: Path) -> Iterator[Tables]:
    with open_tables([place / "archive"]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ('vmsonar_node_cpu_seconds_total{mode="user"}', "SELECT epoch(time), user_ticks / 100 FROM node"),
        ("vmsonar_node_context_switches_total", "SELECT epoch(time), context_switches FROM node"),
        ("vmsonar_node_memory_available_bytes", "SELECT epoch(time), memory_available FROM node"),
        ('vmsonar_disk_read_bytes_total{device="vda"}',
         "SELECT epoch(time), read_sectors * 512 FROM disk WHERE device = 'vda'"),
        ('vmsonar_net_received_bytes_total{interface="lo"}',
         "SELECT epoch(time), received_bytes FROM net WHERE interface = 'lo'"),
        ("vmsonar_pressure_some_seconds_total", "SELECT epoch(time), some_time / 1e6 FROM pressure"),
        ("vmsonar_gpu_energy_joules_total", "SELECT epoch(time), energy / 1e6 FROM gpu"),
        ("vmsonar_gpu_utilization_ratio", "SELECT epoch(time), gpu_util / 100 FROM gpu"),
        ("vmsonar_container_cpu_seconds_total", "SELECT epoch(time), cpu_time / 1e9 FROM container"),
        ('vmsonar_job_cpu_seconds_total{job_id="60",mode="user"}',
         "SELECT epoch(time), user_ticks / 100 FROM job WHERE pgid = 60"),
        ('vmsonar_job_written_bytes_total{job_id="20"}', "SELECT epoch(time), write_bytes FROM job WHERE pgid = 20"),
    ],
)  # fmt: skip
def test_every_number_is_the_archives(served: Prometheus, tables: Tables, name: str, query: str):
    recorded = {(round(float(time), 3), float(value)) for time, value in tables.sql(query).fetchall()}
    found = [
        (float(time), float(value))
        for series in served.query(f"{name}[100y]", 1.9e9)
        for time, value in series["values"]
    ]
    assert set(found) >= recorded
    # Beside them there is only where counters began.
    assert {value for _, value in set(found) - recorded} <= {0.0}
    assert len(found) == len(set(found))


CPU = 'mode=~"user|nice|system|irq|softirq"'
RATES = [
    (f"sum(increase(vmsonar_node_cpu_seconds_total{{{CPU}}}[W]))", "node_rates", "cpu_seconds", ""),
    ('increase(vmsonar_disk_read_bytes_total{device="vda"}[W])', "disk_rates",
     "read_bytes_per_second * interval_seconds", "device = 'vda'"),
    ('increase(vmsonar_net_sent_bytes_total{interface="eth0"}[W])', "net_rates",
     "sent_bytes_per_second * interval_seconds", "interface = 'eth0'"),
    ("increase(vmsonar_meter_energy_joules_total[W])", "energy_rates", "joules", ""),
    ("increase(vmsonar_container_cpu_seconds_total[W])", "container_rates", "cpu_seconds", ""),
    ("increase(vmsonar_container_read_bytes_total[W])", "container_rates", "read_bytes", ""),
    *(
        (f'sum(increase(vmsonar_job_cpu_seconds_total{{series_id="SERIES",job_id="{job}"}}[W]))', "job_rates",
         "cpu_seconds", f"job_id = '{job}'")
        for job in (10, 20, 30, 40, 50, 60)
    ),
    ('increase(vmsonar_job_written_bytes_total{series_id="SERIES"}[W])', "job_rates",
     "write_bytes_per_second * interval_seconds", "job_id = '20'"),
]  # fmt: skip


@pytest.mark.parametrize(("promql", "view", "column", "where"), RATES, ids=lambda value: str(value)[:40])
def test_rates_are_those_of_our_views(
    served: Prometheus, tables: Tables, promql: str, view: str, column: str, where: str
):
    series = "series_id" if view == "job_rates" else "NULL"
    rows = tables.sql(
        f"""WITH times AS (SELECT DISTINCT boot, seq, epoch(time) AS moment FROM node),
        spans AS (
            SELECT boot, seq, moment, moment - LAG(moment) OVER (PARTITION BY boot ORDER BY seq) AS width FROM times
        )
        SELECT w.moment, w.width, r.interval_seconds, {series}, {column}
        FROM {view} AS r JOIN spans AS w ON r.boot = w.boot AND r.seq = w.seq
        WHERE {column} IS NOT NULL AND interval_seconds > 0 AND w.width IS NOT NULL {f"AND {where}" if where else ""}"""
    ).fetchall()
    assert rows
    for at, width, interval, series_id, expected in rows:
        # Aligned to the samples, or to the beginning of what came between two: rate() extrapolates elsewhere.
        window = float(width) if abs(float(width) - 3610) < 1 else min(float(width), float(interval))
        query = promql.replace("W", f"{round(window * 1000)}ms").replace("SERIES", str(series_id))
        found = served.value(query, float(at))
        assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-6), (query, at)


def test_what_ended_between_two_samples_is_whole(tmp_path: Path):
    make_lives(tmp_path / "archive")
    import_history(sorted(exported(tmp_path / "archive", tmp_path / "om").glob("*.om")), tmp_path / "data")
    with prometheus(tmp_path) as server:
        for pgid in (10, 20, 30, 40):  # ONCE, TWICE, BETWEEN and HASTY began and ended while recorded
            last = LIVES[pgid][1][max(LIVES[pgid][1])]
            used = f'sum(max_over_time(vmsonar_job_cpu_seconds_total{{job_id="{pgid}"}}[1y]))'
            assert server.value(used, 1.8e9) == pytest.approx(
                (last["user_ticks"] + last["system_ticks"]) / 100
            )
            gauge = f'last_over_time(vmsonar_job_processes{{job_id="{pgid}"}}[1y])'
            assert server.value(gauge, 1.8e9) in (None, 2.0)


def test_what_ended_is_in_no_sum(tmp_path: Path):
    machine = Machine(tmp_path / "archive")
    machine.start_daemon()
    begun = [machine.uptime + 10 * number + 1 for number in range(30)]
    machine.jobs = [Job(1000 + round(at), at, at + 19, cores=1.0, memory=2**30) for at in begun]
    machine.run(32)
    machine.stop_daemon()
    import_history(exported(machine.root, tmp_path / "om").glob("*.om"), tmp_path / "data")
    panels = dashboards()["vmsonar-jobs.json"]["panels"]
    (query,) = [one["targets"][0]["expr"] for one in panels if one["title"] == "Memory by user"]
    asked = "SELECT epoch(node.time), sum(memory) FROM node LEFT JOIN job USING (boot, seq) GROUP BY ALL ORDER BY ALL"
    with prometheus(tmp_path) as server, open_tables([machine.root]) as tables:
        rows = tables.sql(asked).fetchall()
        assert {total for _, total in rows} == {None, 2**30, 2**31}
        for at, total in rows:
            for later in (0, 9):
                assert server.value(query.replace("$instance", ".*"), float(at) + later) == total


def test_steps_keep_totals_and_ends(place: Path, served: Prometheus, tables: Tables, tmp_path: Path):
    files = sorted(exported(place / "archive", tmp_path / "om", "--step", "1min").glob("*.om"))
    import_history(files, tmp_path / "data")
    every = len((place / "om" / files[0].name).read_text().splitlines())
    assert len(files[0].read_text().splitlines()) < every / 3
    with prometheus(tmp_path) as server:
        for name, query in (
            ("max_over_time(vmsonar_job_written_bytes_total{job_id='20',program='python3'}[1y])",
             "SELECT max(write_bytes) FROM job WHERE pgid = 20"),
            ("max_over_time(vmsonar_node_context_switches_total[1y])", "SELECT max(context_switches) FROM node"),
        ):  # fmt: skip
            assert server.value(name, 1.8e9) == tables.sql(query).fetchall()[0][0]
        # What was counted before a fall within a step, too.
        until = float(tables.sql("SELECT epoch(max(time)) FROM node WHERE boot = ?", [BOOT]).fetchall()[0][0])
        for name in ('vmsonar_disk_read_bytes_total{device="vda"}', "vmsonar_gpu_energy_joules_total"):
            since = min(points(server, name, until))[0]
            whole = [point for point in points(served, name, until) if point[0] >= since]
            assert risen(points(server, name, until)) == risen(whole) > 0


def points(server: Prometheus, name: str, until: float) -> list[tuple[float, float]]:
    return sorted(
        (at, float(value)) for one in server.query(f"{name}[1y]", until) for at, value in one["values"]
    )


def risen(told: list[tuple[float, float]]) -> float:
    """By how much a counter rose, as increase() counts it where nothing is extrapolated."""
    return sum(after - (before if after >= before else 0) for (_, before), (_, after) in pairwise(told))


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[tuple[Machine, Prometheus]]:
    """A machine that is scraped in both ways: over HTTPS with a password, and by node_exporter from the textfile."""
    machine, authority = live(tmp_path / "archive"), make_authority(tmp_path / "tls")
    machine.container_start = machine.uptime - 5
    textfiles, password, config = tmp_path / "textfiles", tmp_path / "password", tmp_path / "config.yaml"
    textfiles.mkdir()
    password.touch(0o600)
    password.write_text("s3cret")
    tls = {"certificate_file": str(authority.issue("server"))}
    config.write_text(
        yaml.safe_dump({"metrics": {"tls": tls, "username": "anna", "password_file": str(password)}})
    )
    ours, theirs = free_ports(2)
    trust = f"scheme: https, tls_config: {{ca_file: {authority.certificate}}}"
    told = (
        f"[{{job_name: vmsonar, static_configs: [{{targets: ['127.0.0.1:{ours}']}}], {trust}, "
        f"basic_auth: {{username: anna, password_file: {password}}}}}, "
        f"{{job_name: node, static_configs: [{{targets: ['127.0.0.1:{theirs}']}}]}}]"
    )
    exporter = [
        "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
        f"--collector.textfile.directory={textfiles}", f"--web.listen-address=127.0.0.1:{theirs}",
    ]  # fmt: skip
    with (
        running(*command(machine.root, "--listen", f"127.0.0.1:{ours}", "--config", config)),
        running(*command(machine.root, "--textfile", textfiles)),
        running(*exporter),
        prometheus(tmp_path, told) as server,
    ):
        wait_until(lambda: accepts(ours) and accepts(theirs), 30, "exporters")
        yield machine, server
    machine.stop_daemon()


JOBS = "vmsonar_job_cpu_seconds_total"
COUNTERS = [
    ('vmsonar_node_cpu_seconds_total{mode="system"}', "SELECT system_ticks / 100 FROM node"),
    ('vmsonar_disk_read_bytes_total{device="vda"}', "SELECT read_sectors * 512 FROM disk WHERE device = 'vda'"),
    ('vmsonar_net_received_bytes_total{interface="eth0"}',
     "SELECT received_bytes FROM net WHERE interface = 'eth0'"),
    ("vmsonar_container_cpu_seconds_total", "SELECT cpu_time / 1e9 FROM container"),
    (f'{JOBS}{{mode="user"}}', "SELECT user_ticks / 100 FROM job"),
]  # fmt: skip


#: What rose from one sample to the next, as our views say it.
RISES = [
    (f"sum by (job) (vmsonar_node_cpu_seconds_total{{{CPU}}})",
     "SELECT epoch(time), cpu_seconds FROM node_rates"),
    ('vmsonar_disk_read_bytes_total{device="vda"}',
     "SELECT epoch(time), read_bytes_per_second * interval_seconds FROM disk_rates WHERE device = 'vda'"),
    ('vmsonar_net_received_bytes_total{interface="eth0"}',
     "SELECT epoch(time), received_bytes_per_second * interval_seconds FROM net_rates WHERE interface = 'eth0'"),
    ("vmsonar_container_cpu_seconds_total", "SELECT epoch(time), cpu_seconds FROM container_rates"),
    (f"sum by (job) ({JOBS})", "SELECT epoch(time), cpu_seconds FROM job_rates"),
]  # fmt: skip


def risen_between_samples(server: Prometheus, query: str, job: str) -> dict[float, float]:
    """By how much a counter rose from each scraped sample to the next of the same boot, by the later one's time."""
    when = "vmsonar_last_sample_timestamp_seconds"
    (samples,) = server.query(f'{when}{{job="{job}"}}[1h]')
    (boots,) = server.query(f'vmsonar_node_boot_time_seconds{{job="{job}"}}[1h]')
    booted, told = dict(boots["values"]), dict[tuple[str, str], float]()
    for at, moment in samples["values"]:
        for one in server.query(f"{query} and on (job) {when}", at):
            if one["metric"]["job"] == job:
                told.setdefault((booted[at], moment), float(one["value"][1]))
    return {
        round(float(later[1]), 3): told[later] - told[earlier]
        for earlier, later in pairwise(sorted(told, key=lambda key: float(key[1])))
        if later[0] == earlier[0] and told[later] >= told[earlier]
    }


def test_scrapes_of_the_exporter_and_of_a_textfile(scraped: tuple[Machine, Prometheus]):
    """Every value of every counter across a restart, a reset, a gap and a reboot."""
    machine, server = scraped

    def told(query: str) -> dict[str, float]:
        return {one["metric"]["job"]: float(one["value"][1]) for one in server.query(query)}

    def shown() -> bool:
        when = machine.now().timestamp()
        return told("vmsonar_last_sample_timestamp_seconds") == {"vmsonar": when, "node": when}

    def restart() -> None:
        machine.stop_daemon()
        machine.start_daemon()

    def reset() -> None:
        machine.devices_since = machine.uptime + 2

    def reboot() -> None:
        machine.stop_daemon()
        jobs = [replace(machine.jobs[0], start=1.0)]
        machine.reboot(SECOND_BOOT, after=1)
        machine.jobs, machine.devices_since, machine.container_start = jobs, 0.0, 2.0
        machine.start_daemon()

    wait_until(shown, 30, "the first sample")
    for change, seconds in ((None, 5), (restart, 5), (reset, 5), (None, 50), (reboot, 5), (None, 5)):
        if change is not None:
            change()
        machine.run(1, seconds=seconds)
        wait_until(shown, 30, f"the sample at {machine.uptime}")
    with open_tables([machine.root]) as tables:
        for name, query in COUNTERS:
            recorded = [float(value) for (value,) in tables.sql(f"{query} ORDER BY time").fetchall()][-7:]
            for job in ("vmsonar", "node"):
                points = [
                    (time, float(value))
                    for one in server.query(f"{name}[1h]")
                    if one["metric"]["job"] == job
                    for time, value in one["values"]
                ]
                assert [value for value, _ in groupby(value for _, value in sorted(points))] == recorded, (
                    name,
                    job,
                )
    assert server.value("node_textfile_scrape_error") == 0
    memory = promql("sum by (job) (<job.memory>)").replace("$instance", ".*")
    assert told(memory) == {"vmsonar": 2**30, "node": 2**30}
    # Its series end when the job does: with its last sample, or a moment after it.
    machine.jobs.clear()
    machine.run(1, seconds=5)
    wait_until(lambda: told(f"sum by (job) ({JOBS})") == {}, 30, "the end of the job's series")
    with open_tables([machine.root]) as tables:
        for name, query in RISES:
            rows = tables.sql(query).fetchall()
            rises = {round(float(at), 3): float(rise) for at, rise in rows if rise is not None}
            for job in ("vmsonar", "node"):
                found = risen_between_samples(server, name, job)
                assert found == pytest.approx({at: rises[at] for at in found}), (name, job)
                assert len(found) >= 3, (name, job)


#: Names that a process gives itself: no UTF-8, quotes, the end of a line, half a surrogate pair.
NAMES = [b'\xff"\xc3\n\\A', b'"\n\\{}', b"\xc3(\xed\xa0\x80\xff", b'x"} 9\n# EOF\n']
_NAMED = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0); sys.stdin.read()"
)


def test_names_of_any_bytes_from_the_process_to_prometheus(tmp_path: Path):
    recorder = vmsonar("daemon", "--archive", tmp_path / "a", "--interval", "1s")
    (port,) = free_ports(1)
    scraped = f"[{{job_name: vmsonar, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]"
    with ExitStack() as stack:
        for name in NAMES:
            line = [sys.executable, "-c", _NAMED, name.hex()]
            stack.enter_context(subprocess.Popen(line, stdin=subprocess.PIPE, process_group=0))
        stack.enter_context(running(*recorder))
        stack.enter_context(running(*command(tmp_path / "a", "--listen", f"127.0.0.1:{port}")))
        server = stack.enter_context(prometheus(tmp_path, scraped))
        wait_until(lambda: server.query("vmsonar_job_processes"), 30, "a sample")
        shown = {name.decode("utf-8", "backslashreplace") for name in NAMES}
        wait_until(
            lambda: shown <= set(server.label_values("program", "vmsonar_job_processes")), 30, "the names"
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_fleet_of_machines_of_one_name(tmp_path: Path):
    for number in (1, 2):
        make(tmp_path / "fleet" / f"a{number}", samples=5, machine_id=f"{number:032x}")
    files = sorted(exported(tmp_path / "fleet", tmp_path / "om").glob("*.om"))
    assert len(files) == 2
    import_history(files, tmp_path / "data")
    with prometheus(tmp_path) as server:
        assert server.value("count(last_over_time(vmsonar_node_load1[1y]))", 1.8e9) == 2


@pytest.mark.parametrize("step", [0, 60])
def test_what_is_held_does_not_grow_with_the_jobs_there_were(tmp_path: Path, step: int):
    """Each lives for one sample; places for all, so that all have series."""
    observer, identity = (
        Observer(10_000),
        ArchiveIdentity(format=1, archive="a", machine_id="m", created=BOOTED),
    )
    sink, held = OpenMetricsFiles(tmp_path, identity, force=True), []
    for tick in range(200):
        pgids = range(50 * tick, 50 * tick + 50)
        rows = [
            JobRow(
                pgid=n, start_ticks=1000 * tick + 500, processes=0, user_ticks=n, system_ticks=1, read_bytes=n
            )
            for n in pgids
        ]
        infos = [
            JobInfoRow(pgid=n, start_ticks=1000 * tick + 500, series_id=f"{n}", job_id=f"{n}") for n in pgids
        ]
        told = sample(10 * tick + 10, job=rows, job_info=infos)
        observer.observe(told)
        if not step:
            sink.take(observer, told, ended=None)
        else:
            sink.take(observer, told, ended=True)
            if not told.seq % step:
                sink.take(observer, told, ended=False)
        if tick in (99, 199):
            sink.finish()
            held.append(len(pickle.dumps(vars(sink))))
    texts = "".join(path.read_text() for path in tmp_path.glob("*.om"))
    assert texts.count("vmsonar_job_read_bytes_total{") == 2 * 200 * 50 - 50 * (step // 10 or 1)
    assert held[1] < 1.2 * held[0] < 100_000


def test_a_clock_that_was_set_back_is_said_and_imported(tmp_path: Path):
    machine = make(tmp_path / "archive", samples=10)
    machine.clock_offset = -65.0
    machine.start_daemon()
    machine.run(10)
    machine.stop_daemon()
    line = vmsonar("export", machine.root, "--to", "openmetrics", "-o", tmp_path / "om")
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "6 of 20 samples are left out: the clock was set back" in done.stderr
    import_history(sorted((tmp_path / "om").glob("*.om")), tmp_path / "data")


def test_a_clock_that_was_ahead_at_boot_costs_what_it_told(tmp_path: Path):
    machine = Machine(tmp_path / "archive", clock_offset=8 * 3600.0)
    machine.start_daemon()
    machine.run(2)
    machine.clock_offset = 0.0
    machine.run(200)
    machine.stop_daemon()
    line = vmsonar("export", machine.root, "--to", "openmetrics", "-o", tmp_path / "om")
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "2 of 202 samples are left out: the clock was set back" in done.stderr
    import_history((tmp_path / "om").glob("*.om"), tmp_path / "data")
    with prometheus(tmp_path) as server:
        now = machine.now().timestamp()
        assert server.value("count_over_time(vmsonar_node_load1[1d])", now) == 200
        assert server.value("count_over_time(vmsonar_node_load1[2d])", now + 86400) == 200
    line = vmsonar("export", machine.root, "--to", "otlp-json", "-o", tmp_path / "otlp")
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "left out" not in done.stderr
    (told,) = (tmp_path / "otlp").glob("*-metrics.jsonl")
    assert told.read_text().count('"vmsonar.sample.time"') == 202


@pytest.mark.parametrize(
    ("times", "out"),
    [
        ([], []),
        ([1, 2, 3], []),
        ([9, 10, 1, 2, 3], [9, 10]),
        ([1, 2, 3, 4, 3, 4, 5, 6], [3, 4]),
        ([1, 2, 3, 4, 2], [2]),
        ([1, 50, 51, 2, 3, 4, 90, 5, 6], [50, 51, 90]),
    ],
)
def test_as_few_as_can_be_are_out_of_order(times: list[int], out: list[int]):
    stamps = [sample(time) for time in times]
    for seq, stamp in enumerate(stamps):
        stamp.seq = seq
    unfit = out_of_order(stamps)
    assert sorted(round(time / 1e9 - BOOTED.timestamp()) for _, time in unfit) == out
    kept = [(one.seq, one.time) for one in stamps if (one.seq, nanoseconds(one.time)) not in unfit]
    assert all(earlier < later for (_, earlier), (_, later) in pairwise(kept))


@pytest.mark.parametrize(("ago", "is_young"), [(600.0, True), (4 * 3600.0, False)])
def test_what_prometheus_still_has_in_memory_is_not_to_be_imported_yet(
    tmp_path: Path, ago: float, is_young: bool
):
    machine = live(tmp_path / "archive", ago=ago)
    machine.stop_daemon()
    for layout in ("openmetrics", "otlp-json"):
        line = vmsonar("export", machine.root, "--to", layout, "-o", tmp_path / layout)
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert ("less than 3 hours old" in done.stderr) == (is_young and layout == "openmetrics")
