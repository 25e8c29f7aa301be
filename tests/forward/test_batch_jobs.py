"""Batch jobs and the cluster go to topics and files of their own, beside the sample that tells of them."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from vmsonar_archive.records import BatchJobRow, ClusterRow, JobInfoRow, JobRow, NodeRow, ProcessRow

from tests.forward.http_server import Endpoint
from tests.forward.place import Place
from tests.making.archives import append_samples, encoded, open_writer


def rows(number: int, fresh: bool) -> dict[str, list[bytes]]:
    found = {
        "node": [NodeRow()],
        "job": [JobRow(pgid=40, start_ticks=1, user_ticks=number, system_ticks=0)],
        "process": [ProcessRow(pid=40, start_ticks=1, pgid=40, user_ticks=number)],
    }
    if fresh:
        found["job_info"] = [
            JobInfoRow(
                series_id="j", pgid=40, start_ticks=1, job_id="77", job_source="slurm", user_name="ann"
            )
        ]
        found["batch_job"] = [BatchJobRow(batch_job="77", job_state="RUNNING", user_name="ann")]
        found["cluster"] = [ClusterRow(node_names="c1", node_states="IDLE")]
    return encoded(found)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    with closing(open_writer(tmp_path / "archive")) as writer:
        append_samples(writer, 3, rows)
    return tmp_path / "archive"


def test_each_has_its_topic(archive: Path, tmp_path: Path) -> None:
    with closing(Endpoint()) as endpoint:
        settings = {"to": "http", "cluster": "c.example", "url": endpoint.url}
        place = Place(tmp_path / "place", settings, archive)
        assert place.once().returncode == 0
        sent = [(record["topic"], record["value"]["data"]) for record in endpoint.records]
        assert place.once().returncode == 0
        assert len(endpoint.records) == len(sent)  # nothing is sent again
    topics = [topic for topic, _ in sent]
    assert (topics.count("c.example.job"), topics.count("c.example.cluster")) == (1, 1)
    by_topic = dict(sent)
    assert by_topic["c.example.job"]["type"] == "jobs"
    assert by_topic["c.example.job"]["attributes"]["slurm_jobs"][0]["job_id"] == 77
    (job,) = by_topic["c.example.sample"]["attributes"]["jobs"]
    assert (job["job"], job["epoch"]) == (77, 0)


def test_a_selection_leaves_them_out(archive: Path, tmp_path: Path) -> None:
    with closing(Endpoint()) as endpoint:
        settings = {"to": "http", "cluster": "c.example", "url": endpoint.url, "select": ["node", "process"]}
        assert Place(tmp_path / "place", settings, archive).once().returncode == 0
        assert {record["topic"] for record in endpoint.records} == {"c.example.sample"}


def test_the_tree_has_their_files(archive: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "vmsonar",
        "export",
        str(archive),
        "--to",
        "sonar",
        "-o",
        str(tmp_path / "tree"),
    ]
    subprocess.run([*command, "--cluster", "c.example"], check=True, capture_output=True, timeout=60)
    (jobs,) = (tmp_path / "tree").glob("*/*/*/0+job-slurm.json")
    (cluster,) = (tmp_path / "tree").glob("*/*/*/0+cluzter-slurm.json")
    assert json.loads(jobs.read_text())["data"]["attributes"]["slurm_jobs"][0]["job_state"] == "RUNNING"
    assert json.loads(cluster.read_text())["data"]["type"] == "cluster"
