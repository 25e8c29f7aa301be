"""A wall clock that jumps under a running daemon, by libfaketime."""

import itertools
import os

from tests.daemon.running import daemon, samples, stop, wait_for
from tests.parts import faketime_library, requires


@requires("faketime")
def test_a_step_is_an_event_and_the_ticks_go_on(tmp_path):
    rate = tmp_path / "faketime"
    rate.write_text("+0\n")
    environment = os.environ | {
        "LD_PRELOAD": faketime_library(),
        "FAKETIME_TIMESTAMP_FILE": str(rate),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    archive = tmp_path / "archive"
    with daemon(archive, "--interval=200ms", env=environment) as process:
        wait_for(lambda: len(samples(archive)) >= 3)
        rate.write_text("-7200\n")
        wait_for(lambda: steps(archive))
        after = len(samples(archive))
        wait_for(lambda: len(samples(archive)) >= after + 5)
        _, code, _ = stop(process)
    assert code == 0
    (step,) = steps(archive)
    assert abs(step + 7200 * 10**9) < 10**9
    found = samples(archive)
    assert [sample.boottime for sample in found] == sorted(sample.boottime for sample in found)
    waits = [later.boottime - earlier.boottime for earlier, later in itertools.pairwise(found[1:-1])]
    assert max(waits) < 5 * 300e6, "no tick waits for the clock to come back"


def steps(archive):
    return [
        event.amount
        for sample in samples(archive)
        for event in sample.event
        if event.event_type == "clock_step"
    ]
