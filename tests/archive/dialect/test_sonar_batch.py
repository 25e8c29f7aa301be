"""Batch jobs and clusters in Sonar's words: topics, types, required attributes, units."""

from datetime import UTC, datetime

import msgspec
import pytest
from vmsonar_archive.dialect.history import History
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.records import BatchJobRow, ClusterRow, JobInfoRow, Sample

TIME = datetime(2026, 11, 16, 12, 0, 0, 500_000, tzinfo=UTC)
STATES = {"PENDING", "RUNNING", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"}


def messages(**rows):
    sample = Sample(time=TIME, seq=1, run="r", boot="b", boottime=10**9, **rows)
    return [
        (kind, msgspec.json.decode(envelope(kind, told))["data"])
        for kind, told in Sonar("c.example.org", "n1").batch(sample)
    ]


def test_a_job_has_their_names_and_units():
    row = BatchJobRow(
        batch_job="7", job_name="fit", job_state="COMPLETED", user_name="ann", account="physics", array_job="5",
        array_task=2, node_names="c[1-3,5],d1", submit_time=TIME, time_limit=3600, exit_code=3,
        requested_memory=8 * 2**30, requested_nodes=4, requested_resources="cpu=4", memory_peak=3 * 2**20,
        user_time=12, elapsed_time=30, suspended_time=0,
    )  # fmt: skip
    ((kind, data),) = messages(batch_job=[row])
    assert (kind, data["type"]) == ("job", "jobs")
    assert {name: data["attributes"][name] for name in ("time", "cluster")} == {
        "time": "2026-11-16T12:00:00Z",
        "cluster": "c.example.org",
    }
    (job,) = data["attributes"]["slurm_jobs"]
    assert job == {
        "job_id": 7, "job_step": "", "job_name": "fit", "job_state": "COMPLETED", "user_name": "ann",
        "account": "physics", "array_job_id": 5, "array_task_id": 2, "nodes": ["c[1-3,5]", "d1"],
        "submit_time": "2026-11-16T12:00:00Z", "time_limit": 60, "exit_code": 3, "suspend_time": 0,
        "requested_memory_per_node": 2 * 2**20, "requested_node_count": 4, "requested_resources": "cpu=4",
        "sacct": {"MaxRSS": 3072, "UserCPU": 12, "ElapsedRaw": 30},
    }  # fmt: skip


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "REQUEUED", "COMPLETING", "TIMEOUT", None])
def test_every_state_is_one_of_theirs(state):
    ((_, data),) = messages(batch_job=[BatchJobRow(batch_job="7", batch_step="0", job_state=state)])
    (job,) = data["attributes"]["slurm_jobs"]
    assert job["job_state"] in STATES
    assert job["job_step"] == "0"


@pytest.mark.parametrize("name", ["\u00b2", "\u0663", "9" * 5000, "s1", ""])
def test_what_is_no_number_is_no_job_of_theirs(name):
    rows = [BatchJobRow(batch_job=name), BatchJobRow(batch_job="7", array_job=name, het_job=name)]
    info = JobInfoRow(series_id="", pgid=5, start_ticks=1, job_id=name, job_source="slurm")
    ((_, data),) = messages(batch_job=rows, job_info=[info])
    assert [job["job_id"] for job in data["attributes"]["slurm_jobs"]] == [7]
    assert not {"array_job_id", "het_job_id"} & set(data["attributes"]["slurm_jobs"][0])
    history = History()
    history.learn_infos(Sample(time=TIME, seq=1, run="r", boot="b", boottime=10**9, job_info=[info]))
    assert history.batch_jobs == {}


def test_a_cluster_has_partitions_and_nodes():
    rows = [
        ClusterRow(cluster_name="x", partition_name="short", node_names="c[1-3]"),
        ClusterRow(cluster_name="x", node_names="c3", node_states="DOWN+DRAIN"),
    ]
    ((kind, data),) = messages(cluster=rows)
    assert kind == data["type"] == "cluster"
    assert data["attributes"]["slurm"] is True
    assert data["attributes"]["partitions"] == [{"name": "short", "nodes": ["c[1-3]"]}]
    assert data["attributes"]["nodes"] == [{"names": ["c3"], "states": ["DOWN", "DRAIN"]}]


def test_many_jobs_are_several_messages():
    found = messages(
        batch_job=[BatchJobRow(batch_job=str(number), job_name="x" * 1000) for number in range(1000)]
    )
    assert sum(len(data["attributes"]["slurm_jobs"]) for _, data in found) == 1000
    assert all(len(msgspec.json.encode(data)) < 900_000 for _, data in found)


def test_a_job_whose_number_is_hidden_is_left_out():
    assert messages(batch_job=[BatchJobRow(batch_job="id-0123456789abcdef")]) == []
