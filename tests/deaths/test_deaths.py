"""Staged deaths, each for real: the recorder tells each rightly, and none wrongly."""

import pytest

from tests.deaths.stage import Stage, play
from tests.parts import requires
from tests.real.docker import DockerEngine

pytestmark = requires("docker", "loop_mount", "stranger")


@pytest.fixture(scope="module")
def stage(docker_engine: DockerEngine):
    with play(docker_engine) as stage:
        yield stage


def test_dump(stage: Stage):
    import shutil, os
    shutil.rmtree("/tmp/deaths-archive", ignore_errors=True)
    shutil.copytree(stage.archive, "/tmp/deaths-archive")
    with open("/tmp/deaths-dump.txt", "w") as f:
        for n, j in stage.jobs.items():
            print(n, j, file=f)
            for e in stage.exits(n):
                print("    ", {k: getattr(e, k) for k in e.__struct_fields__ if getattr(e, k) is not None}, file=f)
        for n, c in stage.containers.items():
            print(n, c, file=f)
            for s in stage.samples:
                for e in s.event:
                    if e.container_id == c:
                        print("    ", s.seq, {k: getattr(e, k) for k in e.__struct_fields__ if getattr(e, k) is not None}, file=f)
                for r in s.container:
                    if r.container_id == c:
                        print("    ", s.seq, s.time, r.pids_max_events, r.oom_kills, r.oom_events, r.memory_max_events, r.memory_peak, r.processes_limit, r.memory_limit, file=f)
        for s in stage.samples:
            for r in s.filesystem:
                if str(stage.place) in (r.mount_point or ""):
                    print(s.time, r.mount_point, r.bytes_available, r.inodes_available, r.read_only, file=f)
            for e in s.event:
                if e.event_type == "exits_counted":
                    print(s.time, e.program, e.exits, e.exit_code, file=f)
            for e in s.node:
                print(s.time, getattr(e, "oom_kills", None), file=f)
            for g in s.gap: print(s.time, g, file=f)
