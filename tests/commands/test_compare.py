"""`vmsonar run`, `runs` and `compare` together: numbers, retention, gates on real repeats, jobs of archives."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from vmsonar_inspect.facts.comparison import Side, compare
from vmsonar_inspect.facts.runs import read_run

from tests.daemon.commands import SECONDS, environment, line, run, runs
from tests.making.archives import make_archive
from tests.real.wait import wait_until
from vmsonar.daemon.run_folders import RunFolders

# Seconds by the CPU clock.
_BURN = "import time\nwhile time.process_time() < {}: pass"
# Where nothing is allowed, only the rank test keeps equal sets from failing: it lets 1.6 of 200 fail.
_EQUAL_GATES = ("cpu<=+5%", "cpu<=+0%")


def _vmsonar(home, *words, code=0):
    line = [sys.executable, "-m", "vmsonar", *map(str, words)]
    done = subprocess.run(
        line, env=environment(home), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert code in (None, done.returncode), done.stderr
    return done.stdout


def test_runs_are_numbered_newest_first_and_kept_by_count(tmp_path):
    _vmsonar(tmp_path, "runs", code=1)
    for code in range(4):
        run(tmp_path, "--quiet", "--keep", 3, "--", "sh", "-c", f"exit {code}")
    assert len(runs(tmp_path)) == 3
    listed = _vmsonar(tmp_path, "runs").splitlines()[1:]
    assert [each.split()[0] for each in listed] == ["@1", "@2", "@3"]
    assert ["exit 3" in listed[0], "exit 1" in listed[2]] == [True, True]
    told = json.loads(_vmsonar(tmp_path, "runs", "--json"))
    assert [each["exit_code"] for each in told] == [3, 2, 1]
    assert "2 cores" in _vmsonar(tmp_path, "inspect", "@1") or "core" in _vmsonar(tmp_path, "inspect", "@1")
    _vmsonar(tmp_path, "compare", "@9", "@1", code=2)


def test_old_runs_go_by_size_too_and_never_one_that_is_written(tmp_path):
    folders = RunFolders(tmp_path)
    for number in range(3):
        folder = tmp_path / f"2026110{number}T000000-a-x"
        folder.mkdir()
        (folder / "archive.json").write_bytes(bytes(1000))
    import fcntl

    with (tmp_path / "20261100T000000-a-x" / "writer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folders.prune(tmp_path / "20261102T000000-a-x", keep=20, most=1500)
        assert [path.name[:8] for path in folders.newest_first()] == ["20261102", "20261100"]
    folders.prune(tmp_path / "20261100T000000-a-x", keep=1)  # a newer one began meanwhile
    assert [path.name[:8] for path in folders.newest_first()] == ["20261102", "20261100"]


def _repeats(home, programs, repeats=5):
    """The sides: each program as often, in turns, so that what else the machine does meets all of them alike."""
    for number in range(repeats):
        for side, program in enumerate(programs):
            place = home / f"side{side}-{number}"
            run(home, "--quiet", "--archive", place, "--", sys.executable, "-S", "-c", program)
    return [
        ",".join(str(home / f"side{side}-{number}") for number in range(repeats))
        for side in range(len(programs))
    ]


@pytest.mark.slow
def test_a_gate_finds_a_planted_tenth_of_real_runs(tmp_path):
    """By the CPU clock, so that a busy machine changes nothing: a second, the same again, and a tenth more."""
    first, same, more = _repeats(tmp_path, [_BURN.format(1.0), _BURN.format(1.0), _BURN.format(1.1)])
    assert "kept" in _vmsonar(tmp_path, "compare", first, same, "--gate", "cpu<=+5%")
    assert "failed" in _vmsonar(tmp_path, "compare", first, more, "--gate", "cpu<=+5%", code=1)
    found = json.loads(_vmsonar(tmp_path, "compare", first, more, "--gate", "cpu<=+5%", "--json", code=1))
    cpu = next(each for each in found["differences"] if each["measure"] == "cpu")
    assert cpu["change"] == pytest.approx(0.1, abs=0.03)
    assert cpu["p"] < 0.01


@pytest.mark.chaos
def test_gates_on_300_sets_of_real_runs(tmp_path):
    """Five repeats a side of 0.3 s by the CPU clock, in turns: 200 equal sets, and a tenth more in 100 of them."""
    failed, found = Counter(), 0
    with ThreadPoolExecutor(2) as two:
        for number, (equal, *planted) in enumerate(
            two.map(partial(_gates_of_a_set, tmp_path), range(200)), 1
        ):
            failed.update(gate.gate for gate in equal if gate.failed)
            found += sum(gates[0].failed for gates in planted)
            changes = ", ".join(f"{gate.gate} {gate.change:+.3f}" for gate in equal)
            print(
                f"{number} sets: {changes}; failed {dict(failed)}, found {found}, load {os.getloadavg()[0]:.1f}"
            )
    assert max(failed.values(), default=0) <= 4
    assert found >= 95


def _gates_of_a_set(folder, number):
    """Those of equal repeats and, in every other set, those of a tenth more."""
    home = folder / str(number)
    home.mkdir()
    programs = [_BURN.format(seconds) for seconds in (0.3, 0.3, 0.33)[: 3 - number % 2]]
    repeats = [text.split(",") for text in _repeats(home, programs)]
    first, *others = (Side(name="", runs=[read_run(Path(path)) for path in side]) for side in repeats)
    shutil.rmtree(home)
    return [compare([first, other], _EQUAL_GATES).gates for other in others]


def test_repeats_are_taken_by_command_and_number(tmp_path):
    for code in (0, 0, 1, 1):
        run(tmp_path, "--quiet", "--", "sh", f"-{'e' * (code + 1)}", "/dev/null")
    found = json.loads(_vmsonar(tmp_path, "compare", "@3", "@1", "--repeat", 2, "--json"))
    assert [[each["command"] for each in side["runs"]] for side in found["sides"]] == [
        ["sh -e /dev/null"] * 2,
        ["sh -ee /dev/null"] * 2,
    ]
    _vmsonar(tmp_path, "compare", "@3", "@1", "--repeat", 3, code=2)
    (tmp_path / "config").write_text("command_line: none\n")
    for program in ("true", "sync", "true", "sync"):
        run(
            tmp_path,
            "--quiet",
            "--",
            program,
            env=environment(tmp_path) | {"VMSONAR_CONFIG": f"{tmp_path}/config"},
        )
    _vmsonar(tmp_path, "compare", "@3", "@1", "--repeat", 2, code=2)


def test_repeats_ended_alike_and_count_once(tmp_path):
    for code in (0, 0, 1, 0):
        script = tmp_path / "script"
        script.write_text(f"exit {code}\n")
        run(tmp_path, "--quiet", "--", "sh", script)
    before_all = runs(tmp_path)[0].with_name("20200101T000000.000000-0000-x")
    shutil.copytree(make_archive(tmp_path / "no-command"), before_all)
    found = json.loads(_vmsonar(tmp_path, "compare", "@2", "@1", "--repeat", 1, "--json"))
    assert [side["runs"][0]["exit_code"] for side in found["sides"]] == [1, 0]
    assert "@2: 1 of 1 run failed (exit 1)" in _vmsonar(tmp_path, "compare", "@2", "@1")
    for words in (
        ("@2", "@1", "--repeat", 3),  # one failed once, the other thrice not
        ("@3", "@1", "--repeat", 2),  # the third is on both sides
        ("@1", "@1"),
        (tmp_path / "no-command", "@1"),
    ):
        _vmsonar(tmp_path, "compare", *words, "--gate", "cpu<=+5%", code=2)
    elsewhere = shutil.copytree(runs(tmp_path)[-1], tmp_path / "zz")
    _vmsonar(tmp_path, "compare", elsewhere, "@1", code=2)  # a copy is no repeat
    _vmsonar(tmp_path, "compare", elsewhere, "@2")
    _vmsonar(tmp_path, "compare", elsewhere, "@1", "--repeat", 2, code=2)
    for nothing in (f"{elsewhere}#no-job", tmp_path / "nowhere"):
        _vmsonar(tmp_path, "compare", nothing, "@1", "--gate", "cpu<=+5%", code=3)


def test_a_run_that_has_not_ended_is_not_compared(tmp_path):
    run(tmp_path, "--quiet", "--", "true")
    words = line("--quiet", "--", "sh", "-c", "echo; read x")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(tmp_path), **pipes) as process:
        process.stdout.readline()
        wait_until(
            lambda: json.loads(_vmsonar(tmp_path, "runs", "--json"))[0]["exit_code"] is None,
            30,
            "its first sample",
        )
        _vmsonar(tmp_path, "compare", "@2", "@1", "--gate", "cpu<=+5%", code=3)
        process.communicate(b"\n", timeout=SECONDS)


@pytest.mark.slow
def test_work_on_one_and_two_cores_shows_how_it_scales(tmp_path):
    """Half of it can be divided."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    burn = f"import os\n{_BURN.format(0.6)}\nif os.fork():\n  os.wait()\nelse: pass\n{_BURN.format(1.2)}"
    (tmp_path / "burn.py").write_text(burn)
    for cores in ("0", "0-1"):
        line = ["taskset", "-c", cores, sys.executable, "-m", "vmsonar", "run", "--quiet", "--"]
        settings = {"env": environment(tmp_path), "timeout": SECONDS, "check": True}
        subprocess.run([*line, sys.executable, "-S", tmp_path / "burn.py"], **settings)
    scaling = json.loads(_vmsonar(tmp_path, "compare", "@2", "@1", "--json"))["scaling"]
    assert [step["cores"] for step in scaling["steps"]] == [1.0, 2.0]
    assert scaling["twice_cores"] == 4.0
    assert 0 <= scaling["serial_share"] <= 1
    text = _vmsonar(tmp_path, "compare", "@2", "@1")
    assert "speed-up" in text
    assert "(Amdahl); 4 cores would take about" in text
    other = run(tmp_path, "--quiet", "--", "true")
    assert other.returncode == 0
    assert "Amdahl" not in _vmsonar(tmp_path, "compare", "@2", "@1")  # other work


def test_files_that_were_asked_for_are_written(tmp_path):
    names = {name: tmp_path / f"out.{name}" for name in ("json", "markdown", "html", "bundle")}
    names["markdown"].write_text("before\n")
    options = [word for name, path in names.items() for word in (f"--{name}", path)]
    done = run(tmp_path, *options, "--", "sh", "-c", "echo `date`; exit 2")
    assert done.returncode == 2
    assert json.loads(names["json"].read_text())["exit_code"] == 2
    assert names["markdown"].read_text().startswith("before\n### ")
    assert "exit 2" in names["markdown"].read_text()
    assert names["html"].read_text().startswith("<!doctype html>")
    _vmsonar(tmp_path, "verify", names["bundle"])
    run(tmp_path, "--quiet", "--", "true")
    told = json.loads(_vmsonar(tmp_path, "compare", names["bundle"], "@1", "--json"))
    assert told["sides"][0]["runs"][0]["exit_code"] == 2


def test_a_bundle_is_replaced_by_the_next_and_nothing_else_is(tmp_path):
    """As a CI job does that runs twice in one folder; the bundle of a machine may be all that is left of that."""
    bundle, machine, link = (tmp_path / name for name in ("run.tar", "vm.tar", "link.tar"))
    for code in (3, 4):
        done = run(tmp_path, "--bundle", bundle, "--", "sh", "-c", f"exit {code}")
        assert (done.returncode, b"no --bundle" in done.stderr) == (code, False)
    assert read_run(bundle).exit_code == 4
    assert [path.name for path in tmp_path.glob("run.tar*")] == ["run.tar"]
    _vmsonar(tmp_path, "bundle", "--archive", make_archive(tmp_path / "archive"), "-o", machine)
    (tmp_path / "mine.tar").write_text("precious")
    link.symlink_to(bundle)
    for place in (machine, tmp_path / "mine.tar", link, "/dev/null"):
        before = Path(place).read_bytes()
        done = run(tmp_path, "--quiet", "--bundle", place, "--", "true")
        assert done.stderr.startswith(b"vmsonar: no --bundle: ")
        assert Path(place).read_bytes() == before
    assert link.is_symlink()
    assert Path("/dev/null").is_char_device()


def test_a_file_that_cannot_be_written_is_told_and_the_code_is_still_the_commands(tmp_path):
    (tmp_path / "mine.json").write_text("precious")
    done = run(tmp_path, "--quiet", "--json", tmp_path / "mine.json", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    assert done.stderr.startswith(b"vmsonar: no --json: ")
    assert (tmp_path / "mine.json").read_text() == "precious"


def test_jobs_of_any_archive_can_be_compared(tmp_path):
    run(tmp_path, "--quiet", "--archive", tmp_path / "a", "--", "sh", "-c", "sleep 1.5")
    (job,) = json.loads(_vmsonar(tmp_path, "inspect", tmp_path / "a", "jobs", "--json"))["rows"]
    sides = tmp_path / "a", f"{tmp_path}/a#{job['job']}"
    found = json.loads(_vmsonar(tmp_path, "compare", *sides, "--json"))
    elapsed = next(each for each in found["differences"] if each["measure"] == "elapsed")
    assert elapsed["before"] == pytest.approx(elapsed["after"], abs=1.5)


def test_secrets_of_the_command_line_are_masked(tmp_path):
    run(tmp_path, "--quiet", "--", "echo", "--password=hunter2", "visible")
    folder = runs(tmp_path)[0]
    text = _vmsonar(tmp_path, "runs", "--json")
    assert "visible" in text
    assert "hunter2" not in text
    assert Path(folder).stat().st_mode & 0o077 == 0
    assert os.environ.get("HOME") != str(tmp_path)
