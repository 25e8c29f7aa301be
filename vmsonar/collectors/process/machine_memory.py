"""What the machine as a whole has in use: a bound for every estimate (proc_meminfo(5), proc_vmstat(5))."""

import os
from pathlib import Path

from vmsonar.collectors.base import numbers
from vmsonar.host.files import KeptFile, read_text

_MEMINFO = {
    b"\nMemTotal:": "total",
    b"\nAnonPages:": "anonymous",
    b"\nShmem:": "shared",
    b"\nHugePages_Total:": "pool",
    b"\nHugePages_Free:": "free",
    b"\nHugePages_Rsvd:": "reserved",
    b"\nHugepagesize:": "size",
    b"\nHugetlb:": "all_pools",
}
_VMSTAT = {b"\nthp_fault_alloc ": "anonymous", b"\nthp_file_alloc ": "shared"}


class MachineMemory:
    """Read when it is first needed in a round of looks, and forgotten after it."""

    def __init__(self, proc: str) -> None:
        self._meminfo = KeptFile(Path(proc) / "meminfo")
        self._vmstat = KeptFile(Path(proc) / "vmstat")
        self._page, self._huge_page = _page_sizes(Path(proc).parent / "sys/kernel/mm/transparent_hugepage")
        self._known: dict[str, int] | None = None
        self._huge_faults: int | None = None
        self._huge_faults_before = 0
        self._pool: tuple[int, ...] = ()
        self._has_pool_changed = False

    def end_round(self) -> None:
        self._known = self._huge_faults = None

    def close(self) -> None:
        self._meminfo.close()
        self._vmstat.close()

    @property
    def total(self) -> int | None:
        return self._bytes("total")

    @property
    def anonymous(self) -> int | None:
        """Anonymous pages in use, each once."""
        return self._bytes("anonymous")

    @property
    def shared(self) -> int | None:
        """Shared memory and tmpfs in use, each page once."""
        return self._bytes("shared")

    @property
    def hugetlb(self) -> int | None:
        """Pages of the huge page pool in use; None where there are pools of several sizes."""
        known = self._read()
        if not known.get("pool") or known.get("all_pools", 0) != known["pool"] * known["size"]:
            return None
        return (known["pool"] - known.get("free", 0)) * known["size"] * 1024

    def has_hugetlb_changed(self) -> bool:
        """Whether somebody may have got pages of a huge page pool since the last round."""
        self._read()
        return self._has_pool_changed

    def growth(self, faults: int) -> int:
        """The most bytes that this number of page faults can have brought."""
        if faults <= 0:
            return 0
        return faults * self._page + min(faults, self._new_huge_faults()) * self._huge_page

    def _bytes(self, name: str) -> int | None:
        value = self._read().get(name)
        return None if value is None else value * 1024

    def _read(self) -> dict[str, int]:
        if self._known is None:
            self._known = _numbers(self._meminfo, _MEMINFO)
            get = self._known.get
            pool = (get("pool", 0), get("free", 0), get("reserved", 0), get("all_pools", 0))
            # The free pages of a pool of another size stand nowhere in this file.
            has_others = pool[3] != pool[0] * get("size", 0)
            self._has_pool_changed = has_others or (pool != self._pool and pool[0] > 0)
            self._pool = pool
        return self._known

    def _new_huge_faults(self) -> int:
        """Faults on the whole machine that brought a transparent huge page, since this was last asked."""
        if self._huge_faults is None:
            now = sum(_numbers(self._vmstat, _VMSTAT).values())
            self._huge_faults = now - self._huge_faults_before
            self._huge_faults_before = now
        return self._huge_faults


def _numbers(file: KeptFile, names: dict[bytes, str]) -> dict[str, int]:
    try:
        return numbers(file.read(), names)
    except OSError:
        return {}


def _page_sizes(folder: Path) -> tuple[int, int]:
    """What an ordinary fault brings at most, and a fault that vmstat counts as huge."""
    huge = int(read_text(folder / "hpage_pmd_size") or 2 << 20)
    sizes = [os.sysconf("SC_PAGE_SIZE")]
    for file in folder.glob("hugepages-*kB/enabled"):
        size = int(file.parent.name[len("hugepages-") : -len("kB")]) * 1024
        if size < huge and "[never]" not in (read_text(file) or "[never]"):
            sizes.append(size)
    return max(sizes), huge
