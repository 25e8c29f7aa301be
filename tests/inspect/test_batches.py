"""Batch jobs in `inspect`: all process groups of one are one job, beside what it was given; nobody counts twice."""

import io
from contextlib import closing
from datetime import UTC, timedelta

import msgspec
import pytest
from rich.console import Console
from vmsonar_archive.records import BatchJobRow, CgroupRow, GapRow, GpuRow
from vmsonar_inspect.advice.figures import user_figures
from vmsonar_inspect.facts.batches import _had
from vmsonar_inspect.facts.model import Coverage, JobUse, StepUse, TaskUse
from vmsonar_inspect.facts.units import UNKNOWN
from vmsonar_inspect.inspection import InspectionSettings, opened
from vmsonar_inspect.show.page.details import job_courses
from vmsonar_inspect.show.terminal.views import _tasks, render_job, render_view

from tests.making.archives import encoded, open_writer
from tests.making.machine_recorder import Recorder
from tests.making.machines import BOOT, GIB, MIB, Load, Machine

SECONDS = 600
GIVEN = {"allocated_nodes": 1, "allocated_cpus": 8, "allocated_memory": 64 * GIB, "allocated_gpus": 2,
         "requested_cpus": 6, "requested_memory": 60 * GIB}  # fmt: skip


def loads():
    """A job of two groups that overlap, one of a single group, and two groups outside of any job."""
    return [
        Load(100, "bash run.sh", begin=10, end=500, cores=0.0, memory=10 * MIB, job_id="77"),
        Load(200, "./solve", begin=100, end=400, cores=2.0, memory=3 * GIB, job_id="77", workers=(1.0, 1.0),
             gpu={"GPU-2": 80.0}),
        Load(250, "./solve", begin=200, end=300, cores=1.0, memory=1 * GIB, job_id="77"),
        Load(300, "./other", begin=50, end=450, cores=0.5, user="bert", job_id="78"),
        Load(400, "./stray", begin=0, end=SECONDS, cores=1.0, user="bert"),
        # Put back into the queue for 300 s, and run again.
        Load(500, "./again", begin=20, end=120, cores=0.1, user="cleo", job_id="79"),
        Load(510, "./again", begin=420, end=520, cores=0.1, user="cleo", job_id="79"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    root = tmp_path_factory.mktemp("batch") / "archive"
    machine = Machine(loads=loads(), cpus=8, gpus=("GPU-1", "GPU-2"))
    machine.interval = 10
    with closing(open_writer(root)) as writer:
        Recorder(machine, writer).run(SECONDS)
        end = machine.start + timedelta(seconds=300)
        told = BatchJobRow(
            batch_job="77", array_job="70", array_task=3, job_name="fit", job_state="COMPLETED",
            user_name="anna", account="physics", project="lhc",
            submit_time=machine.start, start_time=machine.start + timedelta(seconds=10), end_time=end,
            time_limit=36_000, exit_code=0, **GIVEN,
        )  # fmt: skip
        failed = msgspec.structs.replace(
            told,
            batch_job="78",
            array_task=4,
            user_name="bert",
            job_state="FAILED",
            exit_code=1,
            allocated_gpus=None,
        )
        requeued = msgspec.structs.replace(told, batch_job="79", user_name="cleo", job_state="REQUEUED")
        waits = BatchJobRow(batch_job="79", job_state="PENDING", user_name="cleo")
        old = BatchJobRow(batch_job="77", job_state="RUNNING", user_name="anna")
        other = msgspec.structs.replace(
            told, cluster_name="other", account="elsewhere", start_time=end + timedelta(days=9), end_time=None
        )
        unit = CgroupRow(
            cgroup="/s/job_77", cgroup_kind="slurm", batch_job="77", memory_peak=5 * GIB, cpu_time=7
        )
        recorder = Recorder(machine, writer)
        step = msgspec.structs.replace(recorder._job_info(machine.loads[1]), batch_step="0")
        named = msgspec.structs.replace(recorder._job_info(machine.loads[3]), sluid="sKH47TZ5X9J000")
        by_sluid = msgspec.structs.replace(
            unit, cgroup="/s/x", batch_job="sKH47TZ5X9J000", memory_peak=6 * GIB
        )
        for second, rows in ((SECONDS + 10, {"batch_job": [old, other]}),
                             (SECONDS + 20, {"batch_job": [told, failed, requeued, waits]}),
                             (SECONDS + 30, {"cgroup": [unit, by_sluid], "job_info": [step, named]})):  # fmt: skip
            time = machine.start + timedelta(seconds=second)
            writer.append(time, BOOT, int((1000 + second) * 1e9), encoded(rows))
    return root


@pytest.fixture(scope="module")
def inspection(archive):
    with opened([archive], InspectionSettings()) as found:
        yield found


def the(inspection, name):
    (job,) = [job for job in inspection.jobs if job.job == name]
    return job


def test_the_groups_of_a_job_are_one_job_with_one_total(inspection):
    job = the(inspection, "77")
    assert job.cpu_seconds == pytest.approx(2 * 300 + 1 * 100, rel=0.02)
    assert {step.step: step.groups for step in job.steps} == {None: 2, "0": 1}
    assert job.batch_step is None
    assert job.cores.peak == pytest.approx(3.0, rel=0.05)
    assert job.runtime_seconds == pytest.approx(490, abs=20)
    assert job.label
    assert job.label != UNKNOWN
    assert job.command == "./solve"


def test_memory_of_groups_at_once_is_added_and_its_peak_has_a_bound(inspection):
    job = the(inspection, "77")
    assert job.memory_bytes.peak == pytest.approx(4 * GIB + 10 * MIB, rel=0.01)
    assert job.memory_charged_peak_bytes == 5 * GIB
    assert job.memory_peak_source == "sampled"
    assert the(inspection, "78").memory_charged_peak_bytes == 6 * GIB


def test_the_time_in_the_queue_is_no_runtime(inspection):
    assert the(inspection, "79").runtime_seconds == pytest.approx(200, abs=25)


def test_sums_count_each_process_group_once(inspection):

    jobs = sum(job.cpu_seconds for job in inspection.jobs)
    users = {row.name: row for row in inspection.users(UTC)}
    assert sum(row.cpu_seconds for row in users.values()) == pytest.approx(jobs)
    assert users["anna"].cpu_seconds == pytest.approx(700, rel=0.02)
    assert users["anna"].jobs == 1
    assert sum(users["anna"].cpu_seconds_by_hour) == pytest.approx(700, rel=0.02)
    assert users["anna"].memory_peak_bytes == pytest.approx(4 * GIB + 10 * MIB, rel=0.01)
    assert (users["anna"].accounts, users["anna"].projects) == (["physics"], ["lhc"])
    assert sum(row.cpu_seconds for row in inspection.programs(UTC)) == pytest.approx(jobs)


def test_what_slurm_tells_stands_beside_it(inspection):
    job = the(inspection, "77")
    assert (job.job_name, job.job_state, job.account, job.project) == ("fit", "COMPLETED", "physics", "lhc")
    assert (job.allocated_cpus, job.allocated_memory_bytes, job.allocated_gpus) == (8, 64 * GIB, 2)
    assert (job.requested_cpus, job.requested_memory_bytes, job.requested_gpus) == (6, 60 * GIB, None)
    assert (job.ending.exit_code, job.ending.source) == (0, "slurm")
    assert job.outlived_seconds == pytest.approx(200, abs=20)
    assert job.queued_seconds == 10


def test_a_job_that_was_put_back_waits(inspection):
    job = the(inspection, "79")
    assert (job.job_state, job.queued_seconds) == ("PENDING", None)
    assert job.ending.source != "slurm"


def test_a_task_of_an_array_is_found_by_the_number_that_people_see(inspection):
    assert [inspection.keyed_jobs[key].job for key in inspection.find_jobs("70_3")] == ["77"]
    assert {inspection.keyed_jobs[key].job for key in inspection.find_jobs("70")} == {"77", "78"}


def test_what_was_asked_for_and_given_is_shown(inspection):
    console = Console(width=400, file=io.StringIO())
    console.print(render_job(inspection, "77", UTC))
    console.print(render_view(inspection, "jobs", UTC))
    said = console.file.getvalue()
    given = "given 8.0 cores, 64 GiB, 2 GPUs; time limit 10 h"
    assert f"Slurm: task 70_3: asked for 6.0 cores, 60 GiB; {given}" in said
    (titles,) = (line for line in said.splitlines() if "given memory" in line)
    assert titles.split("given memory")[1].split()[:4] == ["given", "GPUs", "time", "limit"]


def test_account_and_project_are_columns_of_jobs(inspection):
    console = Console(width=400, file=io.StringIO())
    console.print(render_view(inspection, "jobs", UTC))
    lines = console.file.getvalue().splitlines()
    (titles,) = (line for line in lines if "account" in line)
    (row,) = (line for line in lines if "./solve" in line)
    for title, value in (("account", "physics"), ("project", "lhc")):
        assert row[titles.index(title) :].split()[0] == value


@pytest.mark.parametrize("view", ["users", "programs"])
def test_accounts_and_projects_are_columns(inspection, view):
    console = Console(width=250, file=io.StringIO())
    console.print(render_view(inspection, view, UTC))
    lines = console.file.getvalue().splitlines()
    (titles,) = (line for line in lines if "accounts" in line)
    place = titles.index("accounts")
    assert titles[place:].split()[:2] == ["accounts", "projects"]
    (row,) = (line for line in lines if line.startswith("anna" if view == "users" else "solve"))
    assert row[place:].split()[:2] == ["physics", "lhc"]


def verdicts(inspection):
    (archive,) = inspection.sources
    advices = inspection.advice(archive)
    return {verdict.rule: verdict.says for advice in advices for verdict in advice.verdicts}


def test_verdicts_name_what_was_given_and_used(inspection):
    said = verdicts(inspection)
    assert "was given 64 GiB" in said["memory_given_idle"]
    assert "was given 8.0 cores" in said["cores_given_idle"]
    assert "10 h" in said["time_given_idle"]
    (failed,) = inspection.find_jobs("78")  # whose use says nothing of what it would have needed
    assert "given_idle" not in " ".join(each.rule for each in inspection.job_advice(failed).verdicts)
    assert said["gpus_given_untouched"] == "was given 2 GPUs on 1 node, and its processes were seen on 1"
    assert {"outlived", "strays"} <= said.keys()
    assert "1 process group " in said["strays"]


def test_the_story_of_a_job_is_that_of_all_its_groups(inspection):
    (key,) = inspection.find_jobs("77")
    story = inspection.story(key, 20)
    assert max(moment.cores or 0 for moment in story.timeline) == pytest.approx(3.0, rel=0.1)
    assert {row.program for row in story.programs} == {"bash", "./solve"}
    # The card is held by a group that is not the first.
    assert max(moment.gpu_util or 0 for moment in story.timeline) == pytest.approx(80)
    (course,) = job_courses(inspection, [story.job])
    told = {
        name: [value or 0 for value in figures["mean"]]
        for name, figures in course.items()
        if name in MEASURES
    }
    assert max(told["cores"]) == pytest.approx(3.0, rel=0.1)
    assert max(told["memory"]) == pytest.approx(4 * GIB, rel=0.1)
    assert max(told["gpu"]) == pytest.approx(80)


MEASURES = ("cores", "memory", "gpu")


def test_without_batch_jobs_nobody_is_a_stray(tmp_path):
    machine = Machine(loads=[Load(400, "./stray", begin=0, end=SECONDS, cores=1.0, user="bert")])
    with closing(open_writer(tmp_path / "a")) as writer:
        Recorder(machine, writer).run(300)
    with opened([tmp_path / "a"], InspectionSettings()) as found:
        assert "strays" not in verdicts(found)


BUSY = [
    (second, "gpu", GpuRow(gpu_uuid="GPU-1", gpu_util=80, memory_used=8 * GIB))
    for second in range(10, SECONDS, 10)
]
DENIED = [(10, GapRow(collector="gpu", reason="permission"))]


@pytest.mark.parametrize(
    ("more", "gaps", "untouched"),
    [([], [], True), (BUSY, [], False), (BUSY[:1], [], False), ([], DENIED, False)],
    ids=["idle", "no list of processes", "seen once, and nobody", "no right to look"],
)
def test_a_gpu_whose_users_nobody_could_see_is_not_called_untouched(tmp_path, more, gaps, untouched):
    given = BatchJobRow(batch_job="5", user_name="anna", allocated_cpus=8, allocated_gpus=1)
    load = Load(100, "./solve", begin=10, end=SECONDS, cores=1.0, job_id="5")
    machine = Machine(loads=[load], gpus=("GPU-1",), more=[*more, (SECONDS, "batch_job", given)], gaps=gaps)
    with opened([machine.record(tmp_path / "a", SECONDS)], InspectionSettings()) as found:
        assert ("gpus_given_untouched" in verdicts(found)) is untouched


@pytest.mark.parametrize(
    ("user_id", "strays"), [(0, 0), (999, 0), (1000, 1), (65534, 0), (100_001, 1), (1_234_567_890, 1)]
)
def test_users_of_a_directory_are_people_too(user_id, strays):
    job = JobUse(job="1", series_id="x", job_source="process_group", pgid=1, user_id=user_id)
    assert user_figures([job], Coverage(), has_batch_jobs=True)["strays"] == strays


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """A job of two ranks on each of two machines, one of which does half as much; and another job of that number."""
    root = tmp_path_factory.mktemp("nodes")
    for name, begin, cores in (("n1", 20, 2.0), ("n2", 20, 0.8), ("n3", 400, 1.0)):
        ranks = [Load(100 + at, "./rank", begin=begin, end=begin + 200, cores=cores * (1 + at), job_id="9")
                 for at in range(2)]  # fmt: skip
        Machine(hostname=name, machine_id=name.ljust(32, "0"), loads=ranks).record(root / name, SECONDS)
    with opened([root / name for name in ("n1", "n2", "n3")], InspectionSettings()) as found:
        yield found


def test_a_job_on_several_nodes_is_one_story(two_nodes):
    by_host = {two_nodes.keyed_jobs[key].hostname: key for key in two_nodes.find_jobs("9")}
    story = two_nodes.story(by_host["n2"], 20)
    assert [part.hostname for part in story.nodes] == ["n1", "n2"]
    assert [part.cpu_seconds for part in story.nodes] == [
        pytest.approx(1200, rel=0.02),
        pytest.approx(480, rel=0.02),
    ]
    assert (story.whole.hostname, story.whole.cpu_seconds) == ("all", pytest.approx(1680, rel=0.02))
    assert story.whole.cores.mean == pytest.approx(8.4, rel=0.06)
    said = {verdict.rule: verdict.says for verdict in story.advice.verdicts}
    assert said["node_behind"] == "used 2.4 cores here, and 6.0 on the busiest of 2 machines"
    assert "node_behind" not in {each.rule for each in two_nodes.job_advice(by_host["n1"]).verdicts}
    assert two_nodes.story(by_host["n3"], 20).nodes == []  # another job of that number


UNEVEN = BatchJobRow(
    batch_job="9", user_name="anna", job_state="COMPLETED", node_names="n[1-2]", allocated_nodes=2,
    allocated_cpus=16, allocated_gpus=4, allocated_memory=8 * GIB,
)  # fmt: skip


def uneven(root, *loads):
    """Two nodes of one job, each with its load, of which the first was given more of everything."""
    names = []
    for at, ((cores, cards), more) in enumerate(zip(loads, ([(300, "batch_job", UNEVEN)], []), strict=True)):
        gpus = tuple(f"GPU-{at}{card}" for card in range(4))
        load = Load(100, "./rank", begin=10, end=500, cores=cores, memory=3 * GIB, job_id="9",
                    gpu=dict.fromkeys(gpus[:cards], 90.0))  # fmt: skip
        machine = Machine(hostname=f"n{at + 1}", machine_id=f"n{at + 1}".ljust(32, "0"), loads=[load], cpus=16,
                          gpus=gpus, more=more)  # fmt: skip
        names.append(machine.record(root / f"n{at + 1}", SECONDS))
    return names


def given(inspection):
    """What is said of what was given, on each machine."""
    return {
        (job.hostname, verdict.rule): verdict.says
        for key, job in inspection.keyed_jobs.items()
        for verdict in inspection.job_advice(key).verdicts
        if "_given_" in verdict.rule
    }


def test_what_was_given_unevenly_and_used_is_no_verdict(tmp_path):
    with opened(uneven(tmp_path, (14.0, 3), (2.0, 1)), InspectionSettings()) as found:
        assert given(found) == {}
        assert {(job.allocated_cpus, job.allocated_gpus, job.nodes) for job in found.jobs} == {(16, 4, 2)}
        console = Console(width=200, file=io.StringIO())
        console.print(render_job(found, "9", UTC))
        assert "Slurm: on 2 nodes: given 16.0 cores, 8.0 GiB, 4 GPUs" in console.file.getvalue()


def test_what_was_given_on_several_nodes_is_judged_once_and_as_a_whole(tmp_path):
    nodes = uneven(tmp_path, (4.0, 3), (2.0, 0))
    with opened(nodes, InspectionSettings()) as found:
        said = given(found)
    assert said == {
        ("n1", "cores_given_idle"): said["n1", "cores_given_idle"],
        ("n1", "gpus_given_untouched"): "was given 4 GPUs on 2 nodes, and its processes were seen on 3",
    }
    assert "was given 16.0 cores on 2 nodes and used 6.0" in said["n1", "cores_given_idle"]
    with opened(nodes[:1], InspectionSettings()) as found:  # of the other nobody knows what it used
        assert given(found) == {}


def test_tasks_of_all_nodes_stand_side_by_side(tmp_path):
    names = []
    for at, name in enumerate(("n1", "n2")):
        ranks = [
            Load(
                100 + task,
                "./rank",
                begin=10,
                end=500,
                cores=cores,
                memory=GIB,
                job_id="9",
                step="0",
                task=task,
            )
            for task, cores in ((2 * at, 1.0 - 0.8 * at), (2 * at + 1, 0.2))
        ]
        script = Load(
            50, "bash job.sh", begin=5, end=510, cores=0.0, memory=MIB, job_id="9", step="batch", task=0
        )
        unit = CgroupRow(cgroup="/s/job_9/step_0", cgroup_kind="slurm", batch_job="9", batch_step="0",
                         memory_peak=5 * GIB)  # fmt: skip
        machine = Machine(hostname=name, machine_id=name.ljust(32, "0"), loads=[script, *ranks][at:],
                          more=[(400, "cgroup", unit)])  # fmt: skip
        names.append(machine.record(tmp_path / name, SECONDS))
    with opened(names, InspectionSettings()) as found:
        (first, second) = sorted(found.find_jobs("9"), key=lambda key: found.keyed_jobs[key].hostname)
        (batch, step) = found.keyed_jobs[first].steps
        assert [task.task for task in batch.tasks] == [0]
        assert (step.step, step.groups, [task.task for task in step.tasks]) == ("0", 2, [0, 1])
        # Two groups at once had more than the larger of them, and their control group counted the cache too.
        assert step.memory_peak_bytes == pytest.approx(2 * GIB, rel=0.01)
        assert step.memory_charged_peak_bytes == 5 * GIB
        story = found.story(second, 20)
        (_, whole) = story.whole.steps
        assert [(task.task, task.hostname) for task in whole.tasks] == [
            (0, "n1"),
            (1, "n1"),
            (2, "n2"),
            (3, "n2"),
        ]
        said = {verdict.rule: verdict.says for verdict in found.job_advice(first).verdicts}
        uneven = "had 4 tasks, which used 3 min of CPU time on average, and the busiest 8 min"
        assert said["tasks_uneven"] == uneven
        assert "tasks_uneven" not in {verdict.rule for verdict in found.job_advice(second).verdicts}
        console = Console(width=120, file=io.StringIO())
        console.print(render_job(found, "9", UTC))
    text = console.file.getvalue()
    assert "Tasks of step 0\n" in text
    assert "Tasks of step batch" not in text
    assert ["2", "n2"] in [line.split()[:2] for line in text.splitlines()]


def test_of_many_tasks_those_are_shown_that_did_least():
    tasks = [TaskUse(task=task, cpu_seconds=float(task)) for task in reversed(range(100))]
    job = JobUse(
        job="9", series_id="x", steps=[StepUse(step="0", tasks=tasks), StepUse(step="1", tasks=tasks[:1])]
    )
    ((title, _, shown),) = _tasks(job)
    assert title == "Tasks of step 0 (the 32 least busy of 100)"
    assert [task.task for task in shown] == [*range(32)]


def test_clusters_that_number_alike_are_told_apart_by_their_nodes(tmp_path):
    nodes = [tmp_path / "n1", tmp_path / "n2"]
    for at, root in enumerate(nodes):
        name = f"c{at + 7:02}"
        start = Machine().start
        told = BatchJobRow(batch_job="9", user_name="anna", cluster_name=f"cluster{at}", account=f"account{at}",
                           start_time=start, node_names=f"x1,c[01-0{at + 1},{name[1:]}]")  # fmt: skip
        load = Load(100, "./rank", begin=10, end=500, cores=1.0, job_id="9")
        Machine(
            hostname=name, machine_id=name.ljust(32, "0"), loads=[load], more=[(300, "batch_job", told)]
        ).record(root, SECONDS)
    with opened(nodes, InspectionSettings()) as found:
        assert {(job.hostname, job.cluster, job.account) for job in found.jobs} == {
            ("c07", "cluster0", "account0"),
            ("c08", "cluster1", "account1"),
        }
        assert [found.story(key, 20).nodes for key in found.find_jobs("9")] == [[], []]
        assert found.users(UTC)[0].jobs == 2


@pytest.mark.parametrize(
    ("names", "host", "is_named"),
    [
        ("n1", "n1", True),
        ("n1", "n11", False),
        ("n[1-3,5],gpu7", "n2", True),
        ("n[1-3,5],gpu7", "n4", False),
        ("n[1-3,5],gpu7", "gpu7", True),
        ("n[08-12]", "n10", True),
        ("n[08-12]", "n9", False),
        ("n[08-12]", "n09", True),
        ("n[1-12]", "n09", False),
        ("r[1-2]c[1-4]", "r2c3", True),
        ("r[1-2]c[1-4]", "r3c3", False),
        (None, "n1", False),
    ],
)
def test_ranges_of_nodes(names, host, is_named):
    job = JobUse(job="1", series_id="x", hostname=f"{host}.site")
    assert _had(job, {"node_names": names}) is is_named


def test_rows_of_one_job_on_several_machines_count_once(two_nodes):
    (anna,) = two_nodes.users(UTC)
    (rank,) = two_nodes.programs(UTC)
    assert (anna.jobs, rank.jobs, len(two_nodes.jobs)) == (2, 2, 3)


def test_ranks_and_machines_stand_side_by_side(two_nodes):
    console = Console(width=120, file=io.StringIO())
    console.print(render_job(two_nodes, "9", UTC))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["On", "2", "machines"] in lines
    assert ["n1", "20", "min", "6.0"] in [line[:4] for line in lines]
    assert ["all", "28", "min"] in [line[:3] for line in lines]
    assert {("101", "13"), ("100", "6.7")} <= {tuple(line[:2]) for line in lines}  # the processes of n1
    assert ["Steps"] in lines
