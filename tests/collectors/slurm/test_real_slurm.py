"""Twelve jobs of a real Slurm, recorded by the daemon: ids, states, codes and allocations as sacct tells them."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import requires
from tests.real.slurm import ACCOUNT, Slurm, running
from tests.real.wait import let_pass, wait_until

pytestmark = [requires("slurm")]

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"
HOLD = "import time\nblock = bytearray({mib} << 20)\nblock[::4096] = b'x' * len(block[::4096])\ntime.sleep({seconds})"
STRAYS = 'rules: {strays: {when: ["strays >= 1", "stray_core_hours >= 0.0002"]}}'
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")


def python(text, **values):
    """A shell command that runs a Python program."""
    return f"exec /usr/bin/python3 -S -c '{text.format(**values)}'".replace("'x'", '"x"')


def seconds_of(text):
    """Of `MM:SS.mmm` or `HH:MM:SS`."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + float(part)
    return total


class Recording:
    """The daemon at work beside a cluster, and what it recorded."""

    def __init__(self, slurm: Slurm, folder: Path, timeout: str = "30s") -> None:
        self.slurm = slurm
        self.archive = folder / "archive"
        config = folder / "config.yaml"
        config.write_text(
            "interval: 1s\ncollectors: {slurm: auto, container: none}\n"
            f"slurm: {{interval: 2s, timeout: {timeout}, conf: {slurm.folder}/slurm.conf}}\n"
        )
        command = [sys.executable, "-m", "vmsonar.daemon", f"--archive={self.archive}", f"--config={config}"]
        with (folder / "log").open("wb") as log:
            self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        wait_until(lambda: list(self.archive.glob("*/*/*/sample-*")), 30, "the first sample")

    def wait_for(self, *jobs: str) -> None:
        """Waits until Slurm's word of the end of these jobs is recorded."""
        over = "batch_step IS NULL AND end_time IS NOT NULL AND job_state <> 'REQUEUED'"
        query = f"SELECT batch_job FROM batch_job WHERE {over}"
        wait_until(
            lambda: {row["batch_job"] for row in self.sql(query)} >= set(jobs), 90, "the ends", every=1
        )

    def end(self) -> None:
        self._daemon.terminate()
        self._daemon.wait(30)

    def ask(self, *words: str) -> list[dict]:
        done = subprocess.run([sys.executable, "-m", "vmsonar", *words, "--json"], check=False, capture_output=True,
                              text=True, timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return told["rows"] if isinstance(told, dict) else told

    def sql(self, query: str) -> list[dict]:
        return self.ask("sql", str(self.archive), query)


def run_jobs(slurm: Slurm) -> dict[str, str]:
    """Twelve jobs, submitted at once and run two at a time; returns when all are over."""
    short = ("--mem=60",)
    jobs = {
        "cpu": slurm.submit(python(BURN, seconds=4), *short, user="nobody"),
        "memory": slurm.submit(python(HOLD, mib=300, seconds=5), "--mem=500"),
        "steps": slurm.submit(
            f'srun -n1 sh -c "{python(BURN, seconds=3)}" & wait\nsleep 1', *short, "--job-name=a|b\n99|x"
        ),
        "exit 3": slurm.submit("sleep 2; exit 3", *short),
        "array": slurm.submit("sleep 2", "--array=1-2", *short),
        "gpu": slurm.submit("sleep 3", "--gres=gpu:1", *short),
        "exclusive": slurm.submit("sleep 2", "--exclusive", *short),
        "left": slurm.submit("setsid sleep 20 >/dev/null 2>&1 & sleep 3", *short, user="games"),
        "cancelled": slurm.submit("sleep 300", *short),
        "timeout": slurm.submit("sleep 300", "--time=0:2", *short),
        # Its parts want nodes of their own, so that it never starts here.
        "heterogeneous": slurm.submit("sleep 2", *short, ":", "--mem=70"),
        "requeued": slurm.submit("sleep 6", "--requeue", *short),
    }
    slurm.wait_for(jobs["cancelled"], "RUNNING", seconds=300)
    let_pass(2)
    slurm.run("scancel", jobs["cancelled"], jobs["heterogeneous"])
    slurm.wait_for(jobs["requeued"], "RUNNING", seconds=300)
    let_pass(3)
    slurm.run("scontrol", "requeue", jobs["requeued"])
    slurm.wait_for(jobs["requeued"], "PENDING")
    slurm.run("scontrol", "update", f"JobId={jobs['requeued']}", "StartTime=now")
    for job in jobs.values():
        slurm.wait_for(job, *OVER, seconds=300)
    return jobs


@pytest.fixture(scope="module")
def recorded(slurm_cluster, tmp_path_factory):
    """A recording of the jobs, their numbers, and the rows of sacct when all were over."""
    recording = Recording(slurm_cluster, tmp_path_factory.mktemp("recording"))
    try:
        jobs = run_jobs(slurm_cluster)
        recording.wait_for(*jobs.values())
    finally:
        recording.end()
    fields = (
        "JobIDRaw",
        "JobID",
        "State",
        "ExitCode",
        "User",
        "Account",
        "AllocTRES",
        "AllocCPUS",
        "TotalCPU",
        "MaxRSS",
    )
    # Of several starts of a job the last.
    told = {row[0]: dict(zip(fields, row, strict=True)) for row in slurm_cluster.account(*fields)}
    return recording, jobs, told


def latest(recording):
    rows = recording.sql("SELECT * FROM batch_job ORDER BY seq")
    return {(row["batch_job"], row["batch_step"]): row for row in rows}


@pytest.mark.slow
def test_ids_states_codes_and_allocations_equal_saccts(recorded):
    recording, jobs, told = recorded
    rows = latest(recording)
    ours = {job + (f".{step}" if step else ""): row for (job, step), row in rows.items()}
    assert set(told) <= set(ours)
    for name, theirs in told.items():
        row = ours[name]
        assert row["job_state"] == theirs["State"].split()[0], name
        assert f"{row['exit_code']}:{row['exit_signal'] or 0}" == theirs["ExitCode"], name
        assert (row["user_name"] or "") == theirs["User"], name
        assert (row["account"] or "") == theirs["Account"], name
        assert (row["allocated_resources"] or "") == theirs["AllocTRES"], name
        if theirs["AllocTRES"]:  # to a part that never started sacct gives the CPUs that it asked for
            assert row["allocated_cpus"] == int(theirs["AllocCPUS"]), name
    assert rows[jobs["gpu"], None]["allocated_gpus"] == 1
    assert rows[jobs["exit 3"], None]["exit_code"] == 3
    assert {row["array_task"] for row in rows.values() if row["array_job"] == jobs["array"]} == {1, 2}
    assert rows[jobs["steps"], None]["job_name"] == "a|b\n99|x"
    assert rows[jobs["cpu"], None]["account"] == ACCOUNT


@pytest.mark.slow
def test_cpu_time_and_memory_agree_with_what_the_jobs_did(recorded):
    recording, jobs, told = recorded
    found = {row["job"]: row for row in recording.ask("inspect", str(recording.archive), "jobs")}
    cpu, memory, steps = (found[jobs[name]] for name in ("cpu", "memory", "steps"))
    assert cpu["cpu_seconds"] == pytest.approx(4, rel=0.02, abs=0.06)  # Python itself takes 0.02 s to start
    assert cpu["user"] == "nobody"
    assert memory["memory_bytes"]["peak"] == pytest.approx(300 * 2**20, rel=0.05)
    assert steps["cpu_seconds"] == pytest.approx(3, rel=0.02, abs=0.15)  # srun's own included
    assert {step["step"] for step in steps["steps"]} == {"batch", "0"}
    assert sum(step["cpu_seconds"] for step in steps["steps"]) == pytest.approx(
        steps["cpu_seconds"], abs=0.02
    )
    assert {row["job_source"] for row in (cpu, memory, steps)} == {"slurm"}
    used = {name: seconds_of(row["TotalCPU"]) for name, row in told.items() if "." not in name}
    busy = [name for name, seconds in used.items() if seconds > 1]
    assert {jobs["cpu"], jobs["steps"]} <= set(busy)
    for name in busy:
        assert found[name]["cpu_seconds"] == pytest.approx(used[name], rel=0.02, abs=0.05), name
    # Slurm counts files that are mapped as well, in each process: 5 MiB of a shell and a small program.
    ours = {
        f"{job}.{step['step']}": step["memory_peak_bytes"]
        for job, row in found.items()
        for step in row["steps"]
    }
    theirs = {name: int(row["MaxRSS"] or 0) for name, row in told.items()}
    both = {name: (ours[name], theirs[name]) for name in ours if ours[name] and theirs.get(name)}
    assert {f"{jobs[name]}.batch" for name in ("cpu", "memory", "steps")} <= set(both)
    for name, (peak, resident) in both.items():
        assert resident - 12 * 2**20 <= peak <= 1.05 * resident, name
    peak, resident = both[f"{jobs['memory']}.batch"]
    assert peak == pytest.approx(resident, rel=0.05)


@pytest.mark.slow
def test_a_job_that_was_put_back_has_a_row_for_each_start(recorded):
    recording, jobs, _ = recorded
    rows = recording.sql(
        f"SELECT DISTINCT job_state, start_time, end_time FROM batch_job WHERE batch_job = '{jobs['requeued']}' "
        "AND batch_step IS NULL AND end_time IS NOT NULL ORDER BY start_time"
    )
    assert [row["job_state"] for row in rows] == ["REQUEUED", "COMPLETED"]
    (job,) = [
        row
        for row in recording.ask("inspect", str(recording.archive), "jobs")
        if row["job"] == jobs["requeued"]
    ]
    assert job["job_state"] == "COMPLETED"
    assert job["steps"][0]["groups"] == 2


@pytest.mark.slow
def test_the_parts_of_a_heterogeneous_job_know_each_other(recorded):
    recording, jobs, _ = recorded
    rows = recording.sql(
        "SELECT DISTINCT batch_job, het_job, het_offset, requested_memory FROM batch_job "
        "WHERE het_job IS NOT NULL ORDER BY batch_job"
    )
    first = jobs["heterogeneous"]
    assert [(row["het_job"], row["het_offset"]) for row in rows] == [(first, 0), (first, 1)]
    assert [row["requested_memory"] // 2**20 for row in rows] == [60, 70]


@pytest.mark.slow
def test_the_recipe_makes_a_bundle_of_each_job(recorded, tmp_path):
    slurm, recording = recorded[0].slurm, Recording(recorded[0].slurm, tmp_path)
    script = slurm.folder / "scripts" / "vmsonar.sh"
    recipe = (Path(__file__).parents[3] / "docs/recipes/slurm.sh").read_text()
    ours = f"{sys.executable} -m vmsonar bundle --archive={recording.archive}"
    script.write_text(
        recipe.replace("vmsonar bundle", ours)
        .replace("/run/", f"{tmp_path}/")
        .replace("/shared/vmsonar", str(tmp_path))
    )
    script.chmod(0o755)
    try:
        let_pass(4)  # what is older is not in the bundle
        job = slurm.submit("sleep 4", "--mem=60")
        slurm.wait_for(job, "COMPLETED")
        marked = "vmsonar-job-*"
        wait_until(lambda: list(tmp_path.glob("*.tar")) and not list(tmp_path.glob(marked)), 60, "the epilog")
    finally:
        script.unlink()
        recording.end()
    (bundle,) = tmp_path.glob("*.tar")
    assert bundle.name == f"{job}-0-{slurm.host}.tar"
    (whole,) = recording.sql("SELECT MIN(time) AS first FROM samples")
    recording.archive = bundle
    (cut,) = recording.sql("SELECT MIN(time) AS first FROM samples")
    assert cut["first"] > whole["first"]
    assert [row for row in recording.ask("inspect", str(bundle), "jobs") if row["job"] == job]
    assert "idle" in slurm.run("sinfo", "-h", "-o", "%T")


@pytest.mark.slow
def test_every_process_group_of_a_job_is_counted_once(recorded):
    recording, jobs, _ = recorded
    found = recording.ask("inspect", str(recording.archive), "jobs")
    assert len([row for row in found if row["job"] == jobs["steps"]]) == 1
    whole = sum(row["cpu_seconds"] or 0 for row in found)
    (groups,) = recording.sql("SELECT SUM(cpu_seconds) AS used FROM job_usage")
    assert whole == pytest.approx(groups["used"], rel=1e-6)
    users = recording.ask("inspect", str(recording.archive), "users")
    assert sum(row["cpu_seconds"] or 0 for row in users) == pytest.approx(whole, rel=1e-6)
    (nobody,) = [row for row in users if row["name"] == "nobody"]
    assert nobody["accounts"] == [ACCOUNT]


@pytest.mark.slow
def test_what_is_left_behind_still_counts_and_is_named(recorded):
    recording, jobs, _ = recorded
    found = {row["job"]: row for row in recording.ask("inspect", str(recording.archive), "jobs")}
    left = found[jobs["left"]]
    assert left["outlived_seconds"] > 3
    assert left["job_state"] == "COMPLETED"
    assert found[jobs["exit 3"]]["ending"]["source"] == "slurm"
    assert found[jobs["exit 3"]]["ending"]["exit_code"] == 3
    assert found[jobs["gpu"]]["allocated_gpus"] == 1


@pytest.mark.slow
def test_the_command_shows_what_runs_now(recorded):
    recording, _, _ = recorded
    job = recording.slurm.submit("sleep 30", "--mem=60")
    recording.slurm.wait_for(job, "RUNNING", seconds=60)
    command = ["slurm", f"--config={recording.archive.parent}/config.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "vmsonar", *command, "--json"], capture_output=True, timeout=60
    )
    recording.slurm.run("scancel", job)
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert {row["job_state"] for row in told["batch_job"] if row["batch_job"] == job} == {"RUNNING"}
    assert [row for row in told["cluster"] if row.get("partition_name")]
    assert told["wrong"] == []


@pytest.mark.slow
def test_evidence_is_the_step_daemon(recorded):
    recording, jobs, _ = recorded
    rows = recording.sql(
        "SELECT DISTINCT job_id, batch_step, batch_source FROM job_info WHERE job_source = 'slurm'"
    )
    assert {row["batch_source"] for row in rows} == {"ancestor"}
    assert {jobs["cpu"], jobs["steps"]} <= {row["job_id"] for row in rows}
    states = recording.sql("SELECT DISTINCT node_states FROM cluster WHERE node_states IS NOT NULL")
    assert states


@pytest.mark.slow
def test_a_controller_that_freezes_leaves_samples_in_time(slurm_cluster, tmp_path):
    recording = Recording(slurm_cluster, tmp_path, timeout="1s")
    asked = {"sacct_timeout", "sinfo_timeout"}
    told = f"SELECT DISTINCT reason FROM gap WHERE reason IN {tuple(asked)}"
    try:
        wait_until(lambda: recording.sql("SELECT * FROM cluster"), 60, "the first answer", every=1)
        slurm_cluster.pause()
        wait_until(lambda: {row["reason"] for row in recording.sql(told)} == asked, 60, "gap rows", every=1)
    finally:
        slurm_cluster.resume()
        recording.end()
    times = recording.sql("SELECT boottime FROM samples ORDER BY seq")
    gaps = [(b["boottime"] - a["boottime"]) / 1e9 for a, b in itertools.pairwise(times)]
    assert max(gaps[1:-1]) < 2.5


@pytest.mark.slow
def test_an_orphan_of_a_job_keeps_it_over_a_restart_of_the_recorder(slurm_cluster, tmp_path):
    """What it starts afterwards, in groups of their own, is the job's too."""
    recording = Recording(slurm_cluster, tmp_path)
    try:
        stop = slurm_cluster.folder / "out" / "stop"
        forks = f"while [ -d {stop.parent} ] && [ ! -e {stop} ]; do setsid -w sleep 1; done"
        job = slurm_cluster.submit(
            f"setsid sh -c '{forks}' >/dev/null 2>&1 & sleep 3", "--mem=60", user="games"
        )
        slurm_cluster.wait_for(job, "COMPLETED")
    finally:
        recording.end()
    (before,) = recording.sql("SELECT MAX(boottime) AS last FROM samples")
    began = f"boottime > {before['last']} AND command LIKE 'sleep%' AND user_name = 'games'"
    query = f"SELECT DISTINCT pgid, job_id, batch_source FROM job_info WHERE {began}"
    recording = Recording(slurm_cluster, tmp_path)
    try:
        wait_until(lambda: len(recording.sql(query)) >= 3, 120, "three of its groups", every=1)
    finally:
        stop.touch()
        recording.end()
    groups = recording.sql(query)
    assert {(row["job_id"], row["batch_source"]) for row in groups} == {(job, "ancestor")}


@pytest.fixture
def stray():
    """A process of an ordinary user that works beside the jobs and belongs to none."""
    script = BURN.format(seconds=90)
    with subprocess.Popen(["/usr/bin/python3", "-S", "-c", script], user=4321, process_group=0) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_who_works_beside_the_jobs_is_a_stray(slurm_cluster, tmp_path, stray):
    recording = Recording(slurm_cluster, tmp_path)
    try:
        job = slurm_cluster.submit("sleep 5", "--mem=60")
        slurm_cluster.wait_for(job, "COMPLETED")
        let_pass(22)  # of less nothing is said
    finally:
        recording.end()
    rows = recording.sql(f"SELECT user_id, job_source, job_id FROM job_usage WHERE pgid = {stray.pid}")
    assert [(row["user_id"], row["job_source"]) for row in rows] == [(4321, "process_group")]
    # The rule wants more time of a core than a test should take.
    rules = tmp_path / "rules.yaml"
    rules.write_text(STRAYS)
    told = recording.ask("inspect", str(recording.archive), "advice", f"--rules={rules}")
    said = {each["subject"]: each for row in told for each in row["verdicts"] if each["rule"] == "strays"}
    assert said["uid 4321"]["figures"]["strays"] == 1  # whatever others do on this machine


@pytest.fixture(scope="module")
def grouped_cluster():
    """The same with control groups of v1, where this machine has them."""
    if not Path("/sys/fs/cgroup/memory/tasks").exists() or not Path("/sys/fs/cgroup/freezer/tasks").exists():
        pytest.skip("no control groups of v1 here")
    yield from running("cgroup")


@pytest.mark.slow
def test_control_groups_of_v1_tell_job_step_and_oom(grouped_cluster, tmp_path):
    slurm = grouped_cluster
    recording = Recording(slurm, tmp_path)
    try:
        burn = slurm.submit(python(BURN, seconds=3), "--mem=60")
        oom = slurm.submit(python(HOLD, mib=300, seconds=3), "--mem=80")
        slurm.wait_for(burn, *OVER)
        slurm.wait_for(oom, *OVER)
        recording.wait_for(burn, oom)
    finally:
        recording.end()
    rows = latest(recording)
    assert rows[oom, None]["job_state"] == "OUT_OF_MEMORY"
    found = recording.sql(
        "SELECT batch_job, batch_step, MAX(cpu_time) AS used, MAX(cpu_time_high) AS high, "
        "MAX(memory_limit) AS most FROM cgroup WHERE cgroup_kind = 'slurm' GROUP BY ALL"
    )
    used = {(row["batch_job"], row["batch_step"]): row for row in found}
    # The group goes with the job, so that its last reading may be a sample old: the bound says so.
    whole = used[burn, None]
    assert 1.5 <= whole["used"] / 1e9 <= 3.15
    assert max(whole["used"], whole["high"] or 0) / 1e9 >= 2.9
    assert used[burn, "batch"]["most"] == 60 * 2**20
    sources = recording.sql("SELECT DISTINCT batch_source FROM job_info WHERE job_source = 'slurm'")
    assert [row["batch_source"] for row in sources] == ["cgroup"]
