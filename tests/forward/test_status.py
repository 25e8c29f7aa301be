"""What forwarding says of itself, in the file and in `vmsonar status`; over HTTP, which needs no real part."""

import json
from pathlib import Path

from tests.forward.http_server import Endpoint
from tests.forward.place import Place
from tests.making.forwarded import Recorder
from tests.real.wait import wait_until


def test_lag_errors_and_counts(tmp_path: Path) -> None:
    endpoint = Endpoint()
    place = Place(tmp_path, {"to": "http", "cluster": "c.example", "url": endpoint.url})
    recorder = Recorder(place.archive)
    recorder.record(30)
    assert json.loads(place.ask("--json").stdout)["forward"] is None
    assert place.once().returncode == 0
    found = json.loads(place.ask("--json").stdout)["forward"]
    assert (found["lag_records"], found["lag_seconds"], found["trouble"]) == (0, 0, None)
    assert found["counts"] == {**found["counts"], "sent": 31, "retried": 0, "lost": 0, "undeliverable": 0}
    recorder.record(12)
    behind = json.loads(place.ask("--json").stdout)["forward"]
    assert (behind["lag_records"], behind["lag_seconds"]) == (12, 120), "told without the forwarder's help"
    said = place.ask().stdout
    assert f"forwarding to: http {endpoint.url} (sonar)" in " ".join(said.split())
    assert "31 records, 12 records behind, 120 s" in said
    endpoint.answers = [503]
    with place.running() as process:
        wait_until(lambda: place.status["trouble"], 30, "trouble in the status")
        assert place.status["pid"] == process.pid
    answer = json.loads(place.ask("--json").stdout)
    assert answer["healthy"] is False
    assert f"forwarding: {endpoint.url} answers 503 Service Unavailable" in answer["problems"]
    endpoint.answers = [200]
    assert place.once().returncode == 0
    last = place.status
    assert last["trouble"] is None
    assert last["counts"]["sent"] == 43
    recorder.close()
    endpoint.close()


def test_the_last_sample_before_a_stop_is_still_sent(tmp_path: Path) -> None:
    endpoint = Endpoint()
    place = Place(tmp_path, {"to": "http", "cluster": "c.example", "url": endpoint.url})
    recorder = Recorder(place.archive)
    recorder.record(3)
    with place.running() as process:
        wait_until(lambda: len(endpoint.taken), 30, "the first samples")
        recorder.record(5)
        recorder.close()
        process.terminate()
        assert process.wait(20) == 0
    assert [
        int(r["headers"]["seq"]) for r in endpoint.records if r["topic"].endswith("sample")
    ] == recorder.samples
    endpoint.close()


def test_since_beyond_the_end_is_told(tmp_path: Path) -> None:
    endpoint = Endpoint()
    place = Place(tmp_path, {"to": "http", "cluster": "c.example", "url": endpoint.url})
    recorder = Recorder(place.archive)
    recorder.record(3)
    recorder.close()
    for _ in range(2):
        done = place.once("--since", "2099-01-01")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("vmsonar: no records from 2099-01-01 00:00:00 UTC on")
        assert "all is sent" not in done.stdout
        assert place.once().returncode == 0  # what is sent here does not count for the next turn
    endpoint.close()
