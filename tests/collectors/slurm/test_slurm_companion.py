"""The Slurm companion against stand-ins for Slurm's programs that lie, hang, babble and fail."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.collectors.slurm.programs import JOB, FakeSlurm
from tests.lifecycle.conftest import REPOSITORY
from tests.real.wait import let_pass, wait_until
from vmsonar import cli
from vmsonar.collectors.slurm.collector import SLURM_SOCKET
from vmsonar.collectors.slurm.wire import Asked, BatchJobs, ClusterState
from vmsonar.companion.programs import MOST, Programs
from vmsonar.companion.slurm import Questions, serve
from vmsonar.config.quantities import Duration
from vmsonar.config.schema import Slurm as Settings


class Asking:
    """A companion's questions and the programs they go to."""

    def __init__(self, folder, timeout=10.0, most=64 * 2**20, interval=120.0):
        self.slurm = FakeSlurm(folder)
        settings = Settings(folder=str(folder), interval=Duration(interval), timeout=Duration(timeout))
        self.questions = Questions(Programs(settings, most), settings)

    def ask(self):
        return list(self.questions.ask())

    def jobs(self):
        return [row for message in self.ask() if isinstance(message, BatchJobs) for row in message.rows]

    def states(self):
        return {each.program: each.state for each in self.ask() if isinstance(each, Asked)}


@pytest.fixture
def asking(tmp_path):
    return Asking(tmp_path / "slurm")


@pytest.fixture
def pass_hour(monkeypatch):
    """Lets an hour pass on the companion's clock."""
    now = [500_000]

    def pass_one(hours=1):
        now[0] += hours

    monkeypatch.setattr("vmsonar.companion.slurm._hour", lambda: now[0])
    return pass_one


def test_a_job_is_what_sacct_says(asking):
    asking.slurm.jobs([JOB])
    (row,) = asking.jobs()
    assert (row.batch_job, row.batch_step, row.job_name, row.job_state) == ("7", None, "train", "RUNNING")
    assert (row.user_name, row.account, row.project, row.cluster_name) == ("ann", "physics", "lhc", "fake")
    assert (row.requested_cpus, row.requested_memory, row.requested_gpus) == (2, 400 * 2**20, None)
    assert (row.allocated_cpus, row.allocated_memory, row.allocated_gpus) == (2, 400 * 2**20, 1)
    assert (row.time_limit, row.end_time, row.exit_code) == (3600, None, None)
    assert row.start_time.timestamp() == 1795033328


@pytest.mark.parametrize(
    ("raw", "shown", "expected"),
    [
        ("8", "3_5", {"batch_job": "8", "array_job": "3", "array_task": 5}),
        ("3", "3_[1-9%2]", {"batch_job": "3", "array_job": "3", "array_task": None}),
        ("6.batch", "5+1.batch", {"batch_job": "6", "batch_step": "batch", "het_job": "5", "het_offset": 1}),
        ("9.0", "9.0", {"batch_job": "9", "batch_step": "0", "array_job": None, "het_job": None}),
    ],
)
def test_arrays_steps_and_heterogeneous_jobs(asking, raw, shown, expected):
    asking.slurm.jobs([JOB | {"JobIDRaw": raw, "JobID": shown}])
    (row,) = asking.jobs()
    assert {name: getattr(row, name) for name in expected} == expected


def test_an_end_has_state_code_and_signal(asking):
    asking.slurm.jobs([JOB | {"State": "CANCELLED by 1000", "End": "1795033400", "ExitCode": "3:15"}])
    (row,) = asking.jobs()
    assert (row.job_state, row.exit_code, row.exit_signal) == ("CANCELLED", 3, 15)


def test_what_was_told_is_not_told_again_until_it_changes(asking):
    asking.slurm.jobs([JOB])
    assert len(asking.jobs()) == 1
    assert asking.jobs() == []
    asking.slurm.jobs([JOB | {"State": "COMPLETED", "End": "1795033400"}])
    assert [row.job_state for row in asking.jobs()] == ["COMPLETED"]
    assert asking.jobs() == []


def test_two_starts_of_one_job_are_two_rows_told_once(asking):
    asking.slurm.jobs([JOB | {"State": "REQUEUED", "End": "1795033330"}, JOB | {"Start": "1795033340"}])
    assert len(asking.jobs()) == 2
    assert asking.jobs() == []


def test_what_is_not_over_is_told_again_in_each_hour(asking, pass_hour):
    over = JOB | {"JobIDRaw": "9", "JobID": "9", "State": "COMPLETED", "End": "1795033400"}
    asking.slurm.jobs([JOB, over])
    asking.ask()
    pass_hour()
    told = asking.ask()
    assert [row.batch_job for each in told if isinstance(each, BatchJobs) for row in each.rows] == ["7"]
    assert [each for each in told if isinstance(each, ClusterState)]
    # What Slurm does not tell any more is not told for ever.
    asking.slurm.jobs([])
    pass_hour()
    assert asking.jobs() == []


def test_a_new_recorder_is_told_from_the_last_answer_on(asking):
    asking.slurm.jobs([JOB])
    asking.ask()
    asking.questions._answered -= 1000
    asking.questions.forget()
    assert len(asking.jobs()) == 1
    assert "--starttime=now-240seconds" not in asking.slurm.asked[1]


def test_another_release_is_asked_for_its_fields_anew(asking):
    asking.slurm.jobs([JOB])
    asking.ask()
    said = (asking.slurm.folder / "say").read_text()
    asking.slurm.program("say", "#!/bin/sh\necho 'Invalid field requested: \"WCKey\"' >&2; exit 1\n")
    assert asking.states()["sacct"] == "failed"
    asking.slurm.program("say", said)
    asking.ask()
    helps = [
        line for line in (asking.slurm.folder / "asked").read_text().splitlines() if "--helpformat" in line
    ]
    assert len(helps) == 2


def test_a_window_of_twice_the_cadence_is_asked_for(asking):
    asking.ask()
    assert "--starttime=now-240seconds" in asking.slurm.asked[0]


def test_after_a_failure_the_window_reaches_back_to_the_last_answer(asking):
    asking.ask()
    asking.questions._answered -= 1000
    asking.ask()
    (back,) = (word for word in asking.slurm.asked[1].split() if "starttime" in word)
    assert 1115 <= int(back.removeprefix("--starttime=now-").removesuffix("seconds")) <= 1130


def test_partitions_and_states_come_when_they_change(asking):
    (first,) = [each for each in asking.ask() if isinstance(each, ClusterState)]
    assert [(row.partition_name, row.node_names, row.node_states) for row in first.rows] == [
        ("short", "c[1-3]", None),
        (None, "c[1-2]", "IDLE"),
        (None, "c3", "DOWN*+DRAIN"),
    ]
    assert not [each for each in asking.ask() if isinstance(each, ClusterState)]
    asking.slurm.cluster("short|c[1-3]\n", "c[1-3]|idle|\n")
    assert [each for each in asking.ask() if isinstance(each, ClusterState)]


def test_a_list_of_nodes_is_whole_or_not_told(asking):
    names = ",".join(f"c{at}" for at in range(1000))
    asking.slurm.jobs(
        [JOB | {"NodeList": names}, JOB | {"JobIDRaw": "8", "JobID": "8", "NodeList": "c" * 70_000}]
    )
    assert [row.node_names for row in asking.jobs()] == [names, None]


def test_more_nodes_than_fit_a_line_are_no_answer(asking):
    asking.slurm.program("sinfo", "#!/bin/sh\nfor n in $(seq 5000); do printf 'c%080d|idle|\\n' $n; done\n")
    assert asking.states()["sinfo"] == "too_large"


FORGED = "x|999|999\n999\x1f999\n\x1b[31m"


def test_a_jobs_name_forges_no_job(asking):
    asking.slurm.jobs([JOB | {"JobName": FORGED}, JOB | {"JobIDRaw": "8", "JobID": "8"}])
    # The stand-in's own separator is in the name too; Slurm's is not known to whom gives the name.
    asking.slurm.jobs([JOB | {"JobName": FORGED.replace("\x1f", "|")}, JOB | {"JobIDRaw": "8", "JobID": "8"}])
    assert [(row.batch_job, row.job_name) for row in asking.jobs()] == [
        ("7", FORGED.replace("\x1f", "|")),
        ("8", "train"),
    ]


def test_a_hanging_program_is_ended_and_so_are_its_children(tmp_path):
    asking = Asking(tmp_path / "slurm", timeout=0.5)
    pids = tmp_path / "pids"
    asking.slurm.program("sacct", f"#!/bin/sh\nsleep 600 &\necho $$ $! > {pids}\nwait\n")
    began = time.monotonic()
    states = asking.states()
    assert time.monotonic() - began < 5
    assert states == {"scontrol": "ok", "sinfo": "ok", "sacct": "timeout"}
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not _is_running(pid), 5, "the end of what hung")


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_babbling_program_is_cut_off(tmp_path):
    asking = Asking(tmp_path / "slurm", most=2**20)
    asking.slurm.program("sacct", "#!/bin/sh\nexec yes babble\n")
    assert asking.states()["sacct"] == "too_large"
    asking.slurm.program("sacct", "#!/bin/sh\nexec yes babble >&2\n")
    assert asking.states()["sacct"] == "too_large"


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n", "failed"),
        ("#!/no/such/interpreter\n", "failed"),
        ("#!/bin/sh\necho no field of ours\n", "protocol"),
    ],
)
def test_a_program_that_fails_is_named_with_its_reason(asking, script, state):
    asking.slurm.program("sacct", script)
    (told,) = [each for each in asking.ask() if isinstance(each, Asked) and each.program == "sacct"]
    assert told.state == state
    if "disabled" in script:
        assert "Slurm accounting storage is disabled" in told.detail


@pytest.mark.parametrize("said", ["garbage", "\\0\\0\\0", "7 7 7\\n8 8"])
def test_garbage_is_no_job(asking, said):
    asking.slurm.program("say", f"#!/bin/sh\nprintf '{said}'\n")
    assert asking.states()["sacct"] == "protocol"


def test_garbage_of_sinfo_is_told(asking):
    asking.slurm.cluster("short|c1\n", "no bar in this\n")
    assert asking.states()["sinfo"] == "protocol"


def test_without_slurm_all_is_absent(tmp_path):
    settings = Settings(folder=str(tmp_path))
    told = list(Questions(Programs(settings), settings).ask())
    assert [(each.program, each.state) for each in told] == [
        ("scontrol", "absent"), ("sinfo", "absent"), ("sacct", "absent"),
    ]  # fmt: skip


def test_a_program_gets_no_secrets_of_ours(asking, monkeypatch, tmp_path):
    monkeypatch.setenv("VMSONAR_TOKEN", "secret")
    asking.slurm.program("scontrol", f"#!/bin/sh\nenv > {tmp_path}/env\n")
    asking.ask()
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "TZ", "SLURM_TIME_FORMAT", "SLURM_CONF", "PWD", "SHLVL", "_", "OLDPWD"}


@pytest.mark.slow
def test_a_hundred_thousand_jobs_take_bounded_memory(asking):
    asking.slurm.jobs([JOB | {"JobIDRaw": str(number), "JobID": str(number)} for number in range(1, 100_001)])
    count, start = 0, _highest(anew=True)
    for message in asking.questions.ask():
        count += len(message.rows) if isinstance(message, BatchJobs) else 0
    assert count == 100_000
    assert _highest() - start < 64 * 2**20
    assert sum(len(message.rows) for message in asking.questions.ask() if isinstance(message, BatchJobs)) == 0


def _highest(anew=False):
    """The highest resident memory of this process, from now on if it is to begin anew (proc_pid_clear_refs(5))."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


@contextmanager
def serving(questions):
    """A companion with a recorder that goes at the end, which is the end of the companion's round."""
    ours, theirs = socket.socketpair()
    with theirs:
        companion = threading.Thread(target=serve, args=(questions, theirs))
        companion.start()
        with ours:
            yield
        companion.join(10)
    assert not companion.is_alive()


def test_who_takes_long_to_answer_is_asked_less_often(tmp_path, monkeypatch):
    """The pause begins with the answer: a controller that hangs is not asked at once again."""
    asking, began = Asking(tmp_path / "slurm", interval=0.4), []

    def slow():
        began.append(time.monotonic())
        let_pass(0.4)
        yield from ()

    monkeypatch.setattr(asking.questions, "_ask_config", slow)
    with serving(asking.questions):
        wait_until(lambda: len(began) == 3, 10, "three rounds")
    assert began[1] - began[0] >= 0.8
    assert began[2] - began[1] >= 0.8


def test_a_recorder_that_comes_back_makes_slurm_no_busier(asking):
    with serving(asking.questions):
        wait_until(lambda: asking.questions.due, 10, "the first answer")
    with serving(asking.questions):
        let_pass(0.5)
    assert len(asking.slurm.asked) == 1


def test_a_line_that_is_no_job_costs_only_itself(asking):
    asking.slurm.jobs([JOB, JOB | {"JobIDRaw": "none"}, JOB | {"JobIDRaw": "8", "JobID": "8"}])
    told = asking.ask()
    assert [row.batch_job for each in told if isinstance(each, BatchJobs) for row in each.rows] == ["7", "8"]
    (sacct,) = [each for each in told if isinstance(each, Asked) and each.program == "sacct"]
    assert sacct.state == "protocol"
    assert asking.jobs() == []


def test_an_answer_that_breaks_off_is_told_once(asking):
    asking.slurm.jobs([JOB])
    say = (asking.slurm.folder / "say").read_text()
    asking.slurm.program("say", say + "sys.stdout.write('garbage')\n")
    assert len(asking.jobs()) == 1
    assert asking.jobs() == []
    assert asking.states()["sacct"] == "protocol"


def test_what_lies_behind_a_break_is_told_when_an_answer_is_whole(asking, pass_hour):
    """In each hour, however often the answer breaks off: and of what was told in time nothing is kept for ever."""
    second = JOB | {"JobIDRaw": "8", "JobID": "8"}
    asking.slurm.jobs([JOB, second])
    whole = (asking.slurm.folder / "say").read_text()
    assert {row.batch_job for row in asking.jobs()} == {"7", "8"}
    pass_hour()
    asking.slurm.jobs([JOB])
    asking.slurm.program("say", whole + "sys.stdout.write('garbage')\n")
    assert [row.batch_job for row in asking.jobs()] == ["7"]
    assert asking.jobs() == []
    asking.slurm.jobs([JOB, second])
    asking.slurm.program("say", whole)
    assert [row.batch_job for row in asking.jobs()] == ["8"]
    assert asking.jobs() == []


def test_answers_that_keep_breaking_off_fill_no_memory(asking, pass_hour):
    asking.slurm.program("say", (asking.slurm.folder / "say").read_text() + "sys.stdout.write('garbage')\n")
    for day in range(4):
        asking.slurm.jobs([JOB | {"JobIDRaw": str(day * 10 + at), "JobID": "x"} for at in range(10)])
        asking.ask()
        assert len(asking.questions._told) <= 20
        pass_hour(24)


@pytest.mark.parametrize(("counted", "gpus"), [("cpu,mem,node", None), ("cpu,mem,node,gres/gpu", 0)])
def test_no_gpu_is_told_only_where_slurm_counts_them(asking, counted, gpus):
    asking.slurm.program(
        "scontrol", f"#!/bin/sh\necho 'AccountingStorageTRES = {counted}'\necho 'ClusterName = fake'\n"
    )
    asking.slurm.jobs([JOB | {"AllocTRES": "cpu=2"}, JOB | {"JobIDRaw": "8", "JobID": "8", "AllocTRES": ""}])
    assert [row.allocated_gpus for row in asking.jobs()] == [gpus, None]


def test_the_unit_has_room_for_the_longest_answer():
    service = (REPOSITORY / "cloud-init/units/vmsonar-slurm.service").read_text()
    lines = [line.partition("=")[::2] for line in service.splitlines() if not line.startswith("#")]
    unit = dict(lines)
    assert int(unit["MemoryMax"].removesuffix("M")) * 2**20 >= 4 * MOST
    assert unit["OOMPolicy"] == "continue"
    assert int(unit["RestartSec"]) >= Settings().interval
    assert unit["ExecStart"].split()[3:6] == ["vmsonar.companion.slurm", "--listen", f"/run/{SLURM_SOCKET}"]


def test_a_companion_that_listens_tells_each_recorder(tmp_path):
    slurm, at = FakeSlurm(tmp_path / "slurm"), tmp_path / "slurm.sock"
    slurm.jobs([JOB])
    config = tmp_path / "config.yaml"
    config.write_text(f"slurm: {{folder: {slurm.folder}, interval: 1min}}\n")
    command = [sys.executable, "-m", "vmsonar.companion.slurm", "--listen", str(at), "--config", str(config)]
    with subprocess.Popen(command) as companion:
        try:
            wait_until(at.exists, 30, "its socket")
            with socket.socket(socket.AF_UNIX) as recorder:
                recorder.connect(str(at))
                recorder.settimeout(30)
                said = b""
                while b"batch_jobs" not in said:
                    said += recorder.recv(65536)
        finally:
            companion.terminate()
    assert not at.exists()


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert cli.run(["slurm", "--folder", str(tmp_path), "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["batch_job"] == []
    assert "sacct" in said.err


def test_the_command_shows_a_table(tmp_path, capsys):
    FakeSlurm(tmp_path).jobs([JOB | {"User": "[/red]"}])
    assert cli.run(["slurm", "--folder", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["job", "step", "state", "user", "account", "nodes", "given"]
    assert lines[1][:3] == ["7", "RUNNING", "[/red]"]
    assert ["c[1-2]:", "IDLE"] in lines
