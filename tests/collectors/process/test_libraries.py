"""What a Python has loaded is looked up once it has worked, and only where it may be seen."""

import pytest

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder, recording
from vmsonar.config.schema import Config

BUSY = """
import time
for more in 0, 0.1:
    while time.process_time() < {seconds} + more: pass
    print(flush=True); input()
"""


def libraries(recorder: Recorder, seconds: float) -> str | None:
    """What is told of a program with numpy that has been running for a minute, after so much work."""
    pytest.importorskip("numpy")
    recorder.sample()
    with work.spawn(f"import numpy\n{BUSY.format(seconds=seconds)}") as process:
        recorder.sample()
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        recorder.sample()
        # A sleeper has loaded nothing more: one that goes on working is looked at again.
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        recorder.sample(later=70)
        *_, told = recorder.process_infos(process.pid)
        process.communicate(b"\n")
    return told.libraries


@pytest.mark.slow
def test_a_python_that_works_tells_what_it_has_loaded() -> None:
    with recording() as recorder:
        told = libraries(recorder, 5.2)
    assert "numpy" in (told or "").split(",")


def test_who_has_hardly_worked_is_not_looked_into() -> None:
    with recording() as recorder:
        assert libraries(recorder, 0.3) is None


@pytest.mark.slow
def test_where_no_commands_are_recorded_libraries_are_not() -> None:
    with recording(Config(command_line="none")) as recorder:
        assert libraries(recorder, 5.2) is None
