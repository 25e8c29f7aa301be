"""A synthetic archive with known rollups gives exactly these numbers in every view and format."""

import csv
import io
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from vmsonar_inspect.inspection import InspectionSettings, opened
from vmsonar_inspect.show.answers import ROW_TYPES, csv_rows, to_csv
from vmsonar_inspect.show.order import VIEWS, arranged

from tests.inspect.conftest import known_machine
from tests.making.machines import GIB, MIB, gpu_id
from vmsonar.cli import run

# 3,600 s at 10 s, of which 300 s are one long interval; the counters go on meanwhile.
HOURS_100 = 2.0 * 3600
HOURS_200 = 4.0 * 600 + 1.0 * 600
PACKAGE = 80.0 * 3600
GPU = 100.0 * 3600


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    document = json.loads(ask(capsys, *arguments, "--json"))
    assert document["answer"] == 1
    found: list[dict[str, Any]] = document["rows"]
    return found


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


# What is told from daily histograms is told within one per cent.
def near(value: float) -> Any:
    return pytest.approx(value, rel=0.011)


def test_jobs(known: Path, capsys) -> None:
    train, simulate, shell = rows(capsys, known, "jobs")
    assert (train["job"], train["user"], train["program"], train["container"]) == (
        "100",
        "anna",
        "Python",
        "trainer",
    )
    assert train["cpu_seconds"] == close(HOURS_100)
    assert train["cores"] == {"mean": close(2.0), "median": near(2.0), "p95": near(2.0), "peak": close(2.0)}
    assert train["memory_bytes"]["peak"] == 8 * GIB
    assert train["gpus"] == [gpu_id(0)]
    assert train["gpu_seconds"] == close(0.5 * 3600)
    assert train["gpu_util"] == {"mean": close(50.0), "median": 50.0, "p95": 50.0, "peak": 50.0}
    assert train["gpu_memory_bytes"]["peak"] == 10 * GIB
    assert (train["ended"], train["samples"]) == (False, 331)
    assert simulate["cpu_seconds"] == close(HOURS_200)
    assert simulate["cores"]["mean"] == close(2.5)
    assert simulate["cores"]["p95"] == near(4.0)
    assert simulate["memory_bytes"]["peak"] == 2 * GIB
    assert simulate["read_bytes"] == close(10 * MIB * 1200)
    assert simulate["write_bytes"] == close(5 * MIB * 1200)
    assert simulate["read_rate"] == {
        "mean": close(10 * MIB), "median": near(10 * MIB), "p95": near(10 * MIB), "peak": close(10 * MIB)
    }  # fmt: skip
    assert (simulate["runtime_seconds"], simulate["samples"], simulate["ended"]) == (1200.0, 120, True)
    assert (shell["program"], shell["cpu_seconds"]) == ("Shell", 0.0)


def test_energy_is_measured_split_and_idle_has_its_own_row(known: Path, capsys) -> None:
    (summary,) = rows(capsys, known)
    train, simulate, _ = summary["jobs"]
    assert train["energy"]["joules"] == close(PACKAGE * 2 / 8 + GPU)
    assert simulate["energy"]["joules"] == close(80.0 * (4 * 600 + 1 * 600) / 8)
    energy = summary["energy"]
    assert energy["joules"] == close(PACKAGE + GPU)
    assert energy["gpu_joules"] == close(GPU)
    assert energy["idle_joules"] == close(
        energy["joules"] - train["energy"]["joules"] - simulate["energy"]["joules"]
    )
    assert energy["source"] == "measured"
    assert energy["kwh"] == close(energy["joules"] / 3.6e6)
    assert energy["grams_co2e"] == close(energy["kwh"] * 473 * 1.135)
    assert (energy["factor_country"], energy["factor_year"]) == ("World", "2024")
    # The container's first interval is not known: it began with the record.
    assert summary["containers"][0]["energy"]["joules"] == close(80.0 * 3590 * 2 / 8)


def test_energy_is_an_estimate_where_nothing_measures(tmp_path: Path, capsys) -> None:
    machine = known_machine()
    machine.package_watts, machine.gpus, machine.loads[0].gpu = None, (), {}
    root = machine.record(tmp_path / "archive", 3600)
    (summary,) = rows(capsys, root, "--country", "DEU")
    energy = summary["energy"]
    assert energy["source"] == "estimate"
    assert energy["method"].startswith("Cloud Carbon Footprint averages per vCPU (aws)")
    cpu = (HOURS_100 + HOURS_200) * (3.5 - 0.74)
    held = summary["jobs"][1]["memory_byte_seconds"] / 1e9 / 3600 * 0.000392 * 3.6e6
    assert held == pytest.approx(1.5 * GIB * 1200 / 1e9 / 3600 * 0.000392 * 3.6e6, rel=0.01)
    assert summary["jobs"][1]["energy"]["joules"] == close(HOURS_200 * (3.5 - 0.74) + held)
    covered = summary["coverage"]["covered_seconds"]
    memory = 32 * GIB / 1e9 * covered / 3600 * 0.000392 * 3.6e6
    assert energy["joules"] == close(cpu + 8 * 0.74 * covered + memory)
    assert energy["grams_co2e"] == close(energy["kwh"] * 344 * 1.135)


def test_a_time_varying_factor_is_weighted_by_time(known: Path, tmp_path: Path, capsys) -> None:
    factors = tmp_path / "factors.tsv"
    factors.write_text("2026-11-16T00:00Z\t100\n2026-11-16T08:30Z\t300\n")
    (summary,) = rows(capsys, known, "--factors", factors)
    assert summary["energy"]["factor_grams_per_kwh"] == close(200.0)
    assert summary["energy"]["factor_source"] == str(factors)


def test_the_machine(known: Path, capsys) -> None:
    (summary,) = rows(capsys, known)
    use, coverage = summary["use"], summary["coverage"]
    assert use["cpu_seconds"] == close(HOURS_100 + HOURS_200)
    assert use["cores"] == {"mean": close(10200 / 3600), "median": 2.0, "p95": 6.0, "peak": 6.0}
    assert use["memory_bytes"]["peak"] == 11 * GIB + 4 * MIB
    assert use["received_bytes"] == close(2 * MIB * 3600)
    assert use["disk_read_bytes"] == close(10 * MIB * 1200)
    assert coverage["samples"] == 332
    assert (coverage["span_seconds"], coverage["covered_seconds"]) == (3600.0, 3300.0)
    assert coverage["coverage"] == close(11 / 12)
    assert (coverage["interval_seconds"], coverage["holes"]) == (10.0, 1)


def test_containers_and_gpus(known: Path, capsys) -> None:
    (box,) = rows(capsys, known, "containers")
    assert (box["name"], box["image"], box["user"]) == ("trainer", "pytorch:2.9", "anna")
    assert box["cpu_seconds"] == close(HOURS_100 - 20)
    assert (box["quota_cores"], box["memory_limit_bytes"]) == (4.0, 16 * GIB)
    assert box["throttled_share"] == pytest.approx(0.25, abs=0.01)
    (gpu,) = rows(capsys, known, "gpus")
    assert gpu["gpu_util"]["p95"] == 50.0
    assert gpu["energy"]["joules"] == close(GPU)
    assert gpu["jobs"] == ["100"]


def test_users_and_programs(known: Path, capsys) -> None:
    anna, bert = rows(capsys, known, "users")
    assert (anna["name"], anna["jobs"], anna["cpu_seconds"]) == ("anna", 1, close(HOURS_100))
    assert (bert["name"], bert["jobs"], bert["cpu_seconds"]) == ("bert", 2, close(HOURS_200))
    assert bert["memory_peak_bytes"] == 2 * GIB + 4 * MIB
    python, simulate, _ = rows(capsys, known, "programs", "--tz", "Asia/Kolkata")
    assert python["name"] == "Python"
    assert python["tags"] == ["python"]
    assert sum(python["cpu_seconds_by_hour"]) == close(HOURS_100)
    # 08:00 to 09:00 UTC is 13:30 to 14:30 there, on a Monday.
    assert python["cpu_seconds_by_hour"][13] == pytest.approx(HOURS_100 / 2, rel=0.02)
    assert python["cpu_seconds_by_weekday"][0] == close(HOURS_100)
    assert simulate["cpu_seconds"] == close(HOURS_200)


def test_gaps_and_timeline(known: Path, capsys) -> None:
    hole, blind = rows(capsys, known, "gaps")
    assert (hole["kind"], hole["seconds"], hole["reason"]) == ("no_samples", 300.0, "missing")
    assert (blind["kind"], blind["collector"], blind["reason"]) == ("not_read", "gpu", "timeout")
    moments = rows(capsys, known, "timeline")
    assert len(moments) == 30
    assert [round(at["cores"], 6) for at in moments[:11]] == [2.0] * 5 + [6.0] * 5 + [3.0]
    assert [at["cores"] is None for at in moments[19:24]] == [False, True, True, False, False]


def test_a_time_frame_counts_only_what_lies_in_it(known: Path, capsys) -> None:
    frame = ("--from", "2026-11-16T08:10", "--to", "2026-11-16T08:20:01")
    train, simulate, _ = rows(capsys, known, "jobs", *frame)
    by_cpu = {job["job"]: job["cpu_seconds"] for job in (train, simulate)}
    assert by_cpu == {"100": close(2 * 600), "200": close(4 * 600)}
    assert run(["inspect", str(known), "jobs", "--from", "2026-11-17"]) == 1


def test_filters(known: Path, capsys) -> None:
    assert [job["job"] for job in rows(capsys, known, "jobs", "--user", "bert")] == ["200", "300"]
    assert [job["job"] for job in rows(capsys, known, "jobs", "--command", "train|bash")] == ["100", "300"]
    assert [job["job"] for job in rows(capsys, known, "jobs", "--min-runtime", "30min")] == ["100", "300"]
    assert [job["job"] for job in rows(capsys, known, "jobs", "--sort", "start", "--top", "2")] == [
        "300",
        "100",
    ]
    assert [user["name"] for user in rows(capsys, known, "users", "--user", "bert")] == ["bert"]


@pytest.mark.parametrize("view", VIEWS)
def test_csv_and_json_hold_the_same(view: str, known: Path, capsys) -> None:
    table = list(csv.DictReader(io.StringIO(ask(capsys, known, view, "--csv"))))
    with opened([known], InspectionSettings()) as inspection:
        expected = csv_rows(inspection, view, UTC, None, None)
    assert len(table) == len(expected)
    for cells, row in zip(table, expected, strict=True):
        for name, value in json.loads(json.dumps(_flat(row), default=str)).items():
            if isinstance(value, float):
                assert float(cells[name]) == value
            elif value is None:
                assert cells[name] == ""


def _flat(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if hasattr(value, "__struct_fields__"):
            found.update({f"{name}_{inner}": getattr(value, inner) for inner in value.__struct_fields__})
        else:
            found[name] = value
    return found


def test_the_header_stays_when_there_are_no_rows(known: Path) -> None:
    for view in VIEWS:
        to_csv(out := io.StringIO(), [], ROW_TYPES[view])
        assert len(out.getvalue().splitlines()) == 1


def test_a_job_tells_its_story(known: Path, capsys) -> None:
    (story,) = rows(capsys, known, "--job", "200")
    assert story["job"]["job"] == "200"
    assert story["ended_by"] == "not known: how it ended was not recorded"
    course = story["timeline"]
    assert course[0]["time"] == "2026-11-16T08:10:00Z"
    assert [course[0]["cores"], course[59]["cores"], course[60]["cores"], course[-1]["cores"]] == [
        4.0,
        4.0,
        1.0,
        1.0,
    ]
    assert len(course) == 120
    assert [process["pid"] for process in story["processes"]] == [200]
    text = ask(capsys, known, "--job", "100")
    assert "still running at the last sample" in text
    assert "trainer" in text
    assert "NVIDIA A100" in text


def test_a_killed_job_says_what_ended_it(tmp_path: Path, capsys) -> None:
    from tests.making.scenes import SECONDS, out_of_memory

    root = out_of_memory().record(tmp_path / "archive", SECONDS)
    text = ask(capsys, root, "--job", "100")
    words = "exit 137, which stands for SIGKILL by the kernel, its container's limit of 4.0 GiB was reached"
    assert text.splitlines()[3] == f"End: its container ended: {words}"
    assert f"the container ended: {words[:50]}" in text


def test_a_job_that_was_not_recorded(known: Path, capsys) -> None:
    assert run(["inspect", str(known), "--job", "999"]) == 1
    assert (
        capsys.readouterr().err
        == "vmsonar: no job '999' was recorded: see the view jobs for those that were\n"
    )


def test_sorting_and_cutting() -> None:
    assert arranged([3, 1, 2], None, 2) == [3, 1]
