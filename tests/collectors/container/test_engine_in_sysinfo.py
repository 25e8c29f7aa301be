"""The engine answers after the daemon has started: it is in the sysinfo record all the same."""

from vmsonar_archive.read.reader import open_archive

from tests.daemon.running import daemon, samples, stop, wait_for
from tests.parts import DOCKER_SOCKET, requires

CONTAINER = 'Entry("container", "vmsonar.collectors.container.collector")'


@requires("docker")
def test_an_engine_that_answers_late_makes_a_new_sysinfo_record(tmp_path, docker_engine):
    archive, config = tmp_path / "archive", tmp_path / "config.yaml"
    config.write_text(f"containers: {{engine: docker, socket: {DOCKER_SOCKET}}}\n")
    with daemon(archive, "--interval=200ms", f"--config={config}", entries=(CONTAINER,)) as process:
        wait_for(lambda: engines(archive)[-1:] == ["docker"], seconds=30)
        wait_for(lambda: (samples(archive)[-1].cost[0].child_cpu_time or 0) > 10_000_000)
        seconds, code, _ = stop(process)
    assert code == 0
    assert seconds < 5 * 2
    assert engines(archive) == [None, "docker"], "once before it was known, once after"


def engines(archive):
    with open_archive(archive) as opened:
        return [info.engines[0].engine if info.engines else None for info in opened.sysinfos()]
