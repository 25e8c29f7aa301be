"""An NVIDIA driver that loads late, hangs, is reloaded or loses a card: rows and gaps that say so."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectors.gpu.conftest import Machine, Stub, forget_library, guarded, plain, tick
from tests.collectors.gpu.drm_machines import integrated_amd
from tests.collectors.gpu.scenarios import DRIVER, IDS, gpu, gpu_row, identity, uuid
from tests.nvml_stub.build import build
from tests.parts import need
from tests.real.wait import wait_until
from vmsonar.collectors.gpu.drm.collector import DrmCollector
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
from vmsonar.daemon.log import Log
from vmsonar.daemon.sampler import Sampler
from vmsonar.host.clock import Clock


def event(event_type: str, index: int, **more: object) -> dict[str, object]:
    return {"event_type": event_type, "series_id": IDS.gpu(uuid(index)), "gpu_uuid": uuid(index), **more}


def gap(reason: str, detail: str = "NVIDIA GPUs") -> dict[str, str]:
    return {"collector": "gpu", "reason": reason, "detail": detail}


def test_one_lost_in_mid_run_stays_as_a_row_and_the_others_go_on(
    stub: Stub, collector: NvidiaCollector
) -> None:
    two = DRIVER + gpu(0) + gpu(1)
    stub.play(two)
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0), gpu_row(1)]}
    stub.play(DRIVER + gpu(0, "lost 15") + gpu(1))
    rows = {"gpu": [identity(0, error="gpu_is_lost"), gpu_row(1)]}
    lost = event("gpu_lost", 0, detail="gpu_is_lost")
    assert plain(collector.collect(tick(10))) == {**rows, "event": [lost]}
    assert plain(collector.collect(tick(20))) == rows
    # after a minute the driver is opened anew, in vain; the card is back two minutes later
    assert plain(collector.collect(tick(70))) == rows
    stub.play(two)
    assert plain(collector.collect(tick(80))) == rows
    found = {"gpu": [gpu_row(0), gpu_row(1)], "event": [event("gpu_found", 0)]}
    assert plain(collector.collect(tick(200))) == found
    assert plain(collector.collect(tick(210))) == {"gpu": [gpu_row(0), gpu_row(1)]}
    assert stub.calls()[:2] == (3, 2)


def test_a_card_lost_before_the_start_is_a_gap(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0) + gpu(1, "lost 15"))
    said = gap("gpu_is_lost", "NVIDIA GPU number 1 could not be identified")
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)], "gap": [said]}
    assert plain(collector.collect(tick(10))) == {"gpu": [gpu_row(0)]}


def test_a_gpu_of_which_nothing_can_be_read_says_why(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0) + gpu(1))
    collector.collect(tick())
    stub.play(DRIVER + gpu(0, "lost 999") + gpu(1))
    assert plain(collector.collect(tick(10))) == {"gpu": [identity(0, error="unknown_error"), gpu_row(1)]}
    stub.play(DRIVER + gpu(0) + gpu(1))
    assert plain(collector.collect(tick(20))) == {"gpu": [gpu_row(0), gpu_row(1)]}


def test_a_driver_that_comes_late_is_news_once(machine: Machine, stub: Stub) -> None:
    stub.play(DRIVER + gpu(0))
    collector = NvidiaCollector(machine.host, IDS, library=stub.library)
    collector.collect(tick())
    assert (collector.describe(), collector.has_news()) == ({"cards": []}, False)
    machine.load_nvidia()
    collector.collect(tick(10))
    assert collector.has_news()
    assert [card.gpu_uuid for card in collector.describe()["cards"] or []] == [uuid(0)]
    collector.collect(tick(20))
    assert not collector.has_news()
    collector.close()


_RELOADED = """
import sys
from pathlib import Path
from tests.collectors.gpu.conftest import IDS, Machine, Stub, guarded, plain, tick
from tests.collectors.gpu.scenarios import DRIVER, gpu
from tests.real.wait import wait_until
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
folder, library = Path(sys.argv[1]), Path(sys.argv[2])
machine, stub = Machine(folder), Stub(library, folder / "scenario")
machine.load_nvidia()
hanging = gpu(0, "hang:nvmlDeviceGetPowerUsage 30000")
stub.play(DRIVER + hanging)
first = guarded(NvidiaCollector(machine.host, IDS, library=library, time_limit=0.1))
first.sample(tick())
stub.play(DRIVER + "driver init 18\\n" + hanging)
second = NvidiaCollector(machine.host, IDS, library=library, time_limit=5.0)
print(plain(second.collect(tick()))["gap"][0]["reason"])
stub.play(DRIVER + gpu(0))
seconds = iter(range(20, 100000, 20))
power = lambda: "power" in plain(first.sample(tick(next(seconds)))).get("gpu", [{}])[0]
wait_until(power, 20, "the power", every=0.02)
print("back")
"""


def test_a_library_in_which_a_call_hangs_stays_loaded(library: Path, tmp_path: Path) -> None:
    """A second collector, as after a reload of the configuration, drops the library; the first is still in it."""
    done = subprocess.run(
        [sys.executable, "-c", _RELOADED, str(tmp_path / "machine"), str(library)],
        env={**os.environ, "NVML_STUB_SCENARIO": str(tmp_path / "machine/scenario")},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("library_version_mismatch\nback\n", "", 0)


def test_xid_79(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0))
    collector.collect(tick())
    stub.play(DRIVER + gpu(0, "xid 79", "xid 154", "lost 15"))
    assert plain(collector.collect(tick(10))) == {
        "gpu": [identity(0, error="gpu_is_lost")],
        "event": [
            event("gpu_xid", 0, code=79),
            event("gpu_xid", 0, code=154),
            event("gpu_lost", 0, detail="gpu_is_lost"),
        ],
    }
    assert "event" not in plain(collector.collect(tick(20)))


def test_no_driver_then_one(machine: Machine, stub: Stub) -> None:
    stub.play(DRIVER + gpu(0))
    collector = NvidiaCollector(machine.host, IDS, library=stub.library)
    assert plain(collector.collect(tick())) == {}
    machine.load_nvidia()
    assert plain(collector.collect(tick(10))) == {"gpu": [gpu_row(0)]}
    collector.close()


def test_hardware_without_its_driver_is_said_once(machine: Machine, stub: Stub) -> None:
    machine.write(
        machine.host.sys,
        {"bus/pci/devices/0000:17:00.0/vendor": "0x10de", "bus/pci/devices/0000:17:00.0/class": "0x030200"},
    )
    collector = NvidiaCollector(machine.host, IDS, library=stub.library)
    assert plain(collector.collect(tick())) == {"gap": [gap("driver_not_loaded")]}
    assert plain(collector.collect(tick(10))) == {}
    (line,) = [each for each in collector.capabilities() if each.item == "NVIDIA GPUs"]
    assert (line.available, line.remedy) == (False, "load the driver: modprobe nvidia")


def test_the_driver_refuses_at_first_and_is_tried_with_back_off(
    stub: Stub, collector: NvidiaCollector
) -> None:
    stub.play("driver init 9\n")
    assert plain(collector.collect(tick())) == {"gap": [gap("driver_not_loaded")]}
    for seconds in range(10, 300, 10):
        assert plain(collector.collect(tick(seconds))) == {}
    # at 0, 10, 30, 70 and 150 s
    assert stub.calls()[0] == 5
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick(300))) == {}
    assert plain(collector.collect(tick(310))) == {"gpu": [gpu_row(0)]}


def test_devices_that_may_not_be_opened_have_a_remedy(stub: Stub, collector: NvidiaCollector) -> None:
    for code, reason in ((4, "no_permission"), (9, "driver_not_loaded")):
        stub.play(f"driver init {code}\n")
        assert plain(collector.collect(tick(code * 100))) == {"gap": [gap(reason)]}
        (line,) = [each for each in collector.capabilities() if each.item == "NVIDIA GPUs"]
        assert (line.available, line.reason) == (False, reason)
        assert "vmsonar-nvidia.conf" in (line.remedy or "")


def test_library_version_mismatch(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play("driver init 18\n")
    assert plain(collector.collect(tick())) == {"gap": [gap("library_version_mismatch")]}
    (line,) = [each for each in collector.capabilities() if each.item == "NVIDIA GPUs"]
    assert (line.available, line.reason) == (False, "library_version_mismatch")


def test_the_driver_is_unloaded_and_loaded_again(
    machine: Machine, stub: Stub, collector: NvidiaCollector
) -> None:
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)]}
    machine.unload_nvidia()
    unreadable = {"gpu": [identity(0, error="driver_not_loaded")]}
    assert plain(collector.collect(tick(10))) == {**unreadable, "gap": [gap("driver_not_loaded")]}
    assert plain(collector.collect(tick(20))) == unreadable
    machine.load_nvidia()
    assert plain(collector.collect(tick(30))) == {"gpu": [gpu_row(0)]}
    assert stub.calls()[:2] == (2, 1)


def test_a_reload_that_only_the_calls_show(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0))
    collector.collect(tick())
    stub.play(DRIVER + "driver fail:nvmlDeviceGetMemoryInfo_v2 1\n" + gpu(0))
    unreadable = {"gpu": [identity(0, error="uninitialized")]}
    assert plain(collector.collect(tick(10))) == {**unreadable, "gap": [gap("uninitialized")]}
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick(20))) == {"gpu": [gpu_row(0)]}


@pytest.fixture
def upgraded(machine: Machine, tmp_path: Path) -> Iterator[tuple[NvidiaCollector, Stub, Path]]:
    """A collector whose library is one of driver 550, which can be replaced by that of 570."""
    need("gcc")
    newer = build(tmp_path / "newer", "570.1")
    stub = Stub(build(tmp_path / "lib", "550.54.15"), tmp_path / "versions")
    forget_library()
    machine.load_nvidia()
    collector = NvidiaCollector(machine.host, IDS, library=stub.library, time_limit=5.0)
    yield collector, stub, newer
    collector.close()
    forget_library()


def test_an_upgraded_driver_gets_its_own_library(
    machine: Machine,
    upgraded: tuple[NvidiaCollector, Stub, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    collector, stub, newer = upgraded
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(tmp_path / "versions"))
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)]}
    # the modules are replaced first
    stub.play("driver version 570.1\n" + gpu(0))
    machine.load_nvidia("570.1")
    reading = plain(collector.collect(tick(10)))
    assert reading["gap"] == [gap("library_version_mismatch")]
    newer.replace(stub.library)
    assert plain(collector.collect(tick(20))) == {"gpu": [gpu_row(0)]}


def test_a_missing_library_and_a_missing_extra_are_gaps(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.load_nvidia()
    forget_library()
    collector = NvidiaCollector(machine.host, IDS, library=tmp_path / "absent.so")
    assert plain(collector.collect(tick())) == {"gap": [gap("library_not_found")]}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    without = NvidiaCollector(machine.host, IDS)
    said = gap(
        "missing_extra",
        "NVIDIA GPUs need an extra that is not installed: "
        "pip install 'vmsonar[gpu]' --no-index --find-links WHEELHOUSE",
    )
    assert plain(without.collect(tick())) == {"gap": [said]}


def test_a_call_that_hangs_for_30_s(machine: Machine, stub: Stub) -> None:
    machine.load_nvidia()
    sampler = guarded(NvidiaCollector(machine.host, IDS, library=stub.library, time_limit=0.2))
    stub.play(DRIVER + gpu(0) + gpu(1))
    sampler.sample(tick())
    stub.play(DRIVER + gpu(0, "hang:nvmlDeviceGetPowerUsage 30000") + gpu(1))
    unreadable = {"gpu": [identity(0, error="timeout"), identity(1, error="timeout")]}
    begin = time.monotonic()
    said = gap("timeout", "the NVIDIA driver has not answered for 0.2 s")
    assert plain(sampler.sample(tick(10))) == {**unreadable, "gap": [said]}
    assert 0.2 <= time.monotonic() - begin < 15
    # while it lasts nothing is waited for and no further thread is spent
    threads = threading.active_count()
    begin = time.monotonic()
    for seconds in range(20, 120, 10):
        assert plain(sampler.sample(tick(seconds))) == unreadable
    assert time.monotonic() - begin < 15
    assert threading.active_count() == threads
    stub.play(DRIVER + gpu(0) + gpu(1))
    wait_until(lambda: "error" not in plain(sampler.sample(tick(130)))["gpu"][0], 20, "the GPU", every=0.02)
    assert plain(sampler.sample(tick(140))) == {"gpu": [gpu_row(0), gpu_row(1)]}
    sampler.close()


def test_a_hang_while_the_driver_is_opened(machine: Machine, stub: Stub) -> None:
    machine.load_nvidia()
    stub.play(DRIVER + "driver hang:nvmlInitWithFlags 30000\n")
    collector = NvidiaCollector(machine.host, IDS, library=stub.library, time_limit=0.1)
    sampler = guarded(collector)
    said = gap("timeout", "the NVIDIA driver has not answered for 0.1 s")
    assert plain(sampler.sample(tick())) == {"gap": [said]}
    assert collector.describe() == {"cards": None}
    (line,) = collector.capabilities()
    assert (line.available, line.reason) == (False, "timeout")
    begin = time.monotonic()
    sampler.close()
    assert time.monotonic() - begin < 15


def test_a_driver_that_hangs_costs_only_its_own_collector(machine: Machine, stub: Stub) -> None:
    machine.load_nvidia()
    integrated_amd(machine)
    stub.play(DRIVER + "driver hang:nvmlInitWithFlags 30000\n")
    nvidia = NvidiaCollector(machine.host, IDS, library=stub.library, time_limit=0.1)
    sampler = Sampler([nvidia, DrmCollector(machine.host, IDS)], 1000.0, Clock(), Log("error"))
    rows = plain(sampler.sample(tick()))
    assert rows["gap"] == [gap("timeout", "the NVIDIA driver has not answered for 0.1 s")]
    assert [row["vendor"] for row in rows["gpu"]] == ["amd"]
    sampler.close()


def test_without_a_driver_pynvml_is_never_loaded(machine: Machine) -> None:
    """In a process of its own: here it has been loaded long since."""
    program = f"""
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID
from vmsonar_archive.records.ids import SeriesIds
from vmsonar.collectors.base import Tick
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
from vmsonar.host.roots import Host
host = Host(proc=Path({str(machine.host.proc)!r}), sys=Path({str(machine.host.sys)!r}))
collector = NvidiaCollector(host, SeriesIds(UUID(int=0)))
rows = collector.collect(Tick(time=datetime.now(UTC), boottime=1, boot="b", fresh=True))
print(rows.by_kind, collector.describe(), [c.available for c in collector.capabilities()])
collector.close()
print([name for name in ("pynvml", "ctypes", "pyarrow", "duckdb", "rich", "typer") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{} {'cards': []} [False]\n[]\n", "")
