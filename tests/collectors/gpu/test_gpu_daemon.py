"""The daemon with a GPU: pynvml finds the library by its name, a hang delays nobody, `gpu: none` touches nothing."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample

from tests.collectors.gpu.conftest import Stub
from tests.collectors.gpu.scenarios import DRIVER, gpu, uuid
from tests.daemon.running import NODE, daemon, samples, stop, wait_for

NVIDIA = 'Entry("gpu", "vmsonar.collectors.gpu.nvidia.collector")'
DRM = 'Entry("gpu", "vmsonar.collectors.gpu.drm.collector")'


@pytest.fixture
def environment(stub: Stub, tmp_path: Path) -> dict[str, str]:
    """What makes a process find the stub by name."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(stub.library.parent),
        "NVML_STUB_SCENARIO": str(tmp_path / "scenario"),
        "NVML_STUB_MARK": str(tmp_path / "loaded"),
    }


def config(tmp_path: Path, gpus: str = "auto") -> str:
    """A configuration with a sysfs that shows the driver as loaded."""
    state = tmp_path / "sys/module/nvidia/initstate"
    state.parent.mkdir(parents=True)
    state.write_text("live\n")
    path = tmp_path / "config.yaml"
    path.write_text(f"sysfs: {tmp_path / 'sys'}\ncollectors:\n  gpu: {gpus}\n")
    return f"--config={path}"


def found(archive: Path) -> list[Sample]:
    return [sample for sample in samples(archive) if sample.gpu]


def test_a_hang_delays_nobody_and_ends_well(stub: Stub, environment: dict[str, str], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    stub.play(DRIVER + gpu(0))
    with daemon(
        archive, "--interval=200ms", config(tmp_path), entries=(NODE, NVIDIA, DRM), env=environment
    ) as process:
        wait_for(lambda: found(archive))
        assert (tmp_path / "loaded").exists()
        stub.play(DRIVER + gpu(0, "hang:nvmlDeviceGetPowerUsage 30000"))
        wait_for(lambda: len([sample for sample in found(archive) if sample.gpu[0].error]) >= 10)
        seconds, code, _ = stop(process)
    assert code == 0
    assert seconds < 5 * 2
    everything = samples(archive)
    hung = [sample for sample in everything if sample.gpu and sample.gpu[0].error]
    assert {(row.gpu_uuid, row.error, row.power) for sample in hung for row in sample.gpu} == {
        (uuid(0), "timeout", None)
    }
    # each of the others' rows is there, and the ticks kept their time
    assert all(sample.node for sample in everything)
    pauses = [(b.boottime - a.boottime) / 1e9 for a, b in pairwise(hung)]
    assert sorted(pauses)[len(pauses) // 2] < 1.0
    gaps = [row.reason for sample in everything for row in sample.gap if row.collector == "gpu"]
    assert gaps.count("timeout") >= 1


def test_gpu_none_never_touches_the_gpu(stub: Stub, environment: dict[str, str], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    stub.play(DRIVER + gpu(0))
    options = ("--interval=100ms", config(tmp_path, "none"))
    with daemon(archive, *options, entries=(NODE, NVIDIA, DRM), env=environment) as process:
        wait_for(lambda: len(samples(archive)) >= 5)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        stop(process)
    assert found(archive) == []
    assert "libnvidia-ml" not in maps
    assert not (tmp_path / "loaded").exists()


def test_the_sysinfo_of_a_daemon_has_the_cards(
    stub: Stub, environment: dict[str, str], tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    stub.play(DRIVER + gpu(0))
    options = ("--interval=1s", config(tmp_path))

    def cards() -> list[tuple[str, str | None]]:
        with open_archive(archive) as opened:
            infos = list(opened.sysinfos())
        return [(card.gpu_uuid, card.model) for info in infos for card in info.cards or []]

    with daemon(archive, *options, entries=(NODE, NVIDIA, DRM), env=environment) as process:
        # at once, or as soon as a slow driver has been opened
        wait_for(cards)
        stop(process)
    assert cards() == [(uuid(0), "NVIDIA A100-SXM4-40GB")]


def test_a_driver_that_is_installed_later_gives_a_new_sysinfo(
    stub: Stub, environment: dict[str, str], tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    stub.play(DRIVER + gpu(0))
    options = ("--interval=500ms", config(tmp_path))
    state = tmp_path / "sys/module/nvidia/initstate"
    state.unlink()

    def told() -> list[list[str] | None]:
        with open_archive(archive) as opened:
            infos = list(opened.sysinfos())
        return [None if info.cards is None else [card.gpu_uuid for card in info.cards] for info in infos]

    with daemon(archive, *options, entries=(NODE, NVIDIA, DRM), env=environment) as process:
        wait_for(lambda: told() == [[]])
        state.write_text("live\n")
        wait_for(lambda: told()[-1] == [uuid(0)])
        stop(process)
