"""Samples and sysinfo records as Sonar's JSON, data format 0 (Sonar's NEW-FORMAT.md).

Where a field of ours differs from theirs, theirs counts: memory in KiB, CPU time in whole seconds with that of
waited-for children, threads without the first one. What is unknown is left out; their readers take that for 0.
"""

from typing import Any, Literal

import msgspec

from vmsonar_archive.dialect.known import HostName, Known, Machine, in_seconds
from vmsonar_archive.dialect.sonar_process import jobs_of
from vmsonar_archive.dialect.sonar_sysinfo import sysinfo_attributes
from vmsonar_archive.dialect.sonar_system import system_of
from vmsonar_archive.records import Sample, SysInfo

#: Consumers compute CPU utilisation from cpu_time only when they read a version of at least 0.7 here.
_META = {"producer": "vmsonar", "version": "1.0.0"}

Attributes = dict[str, Any]
encode = msgspec.json.Encoder().encode


class Sonar:
    """Converts the records of one archive, given in order; sysinfo records before the samples they describe."""

    def __init__(
        self, cluster: str, node: str, host_name: HostName = "full", known: Known | None = None
    ) -> None:
        """`node` is the name to use where no sysinfo record tells one."""
        self.cluster = cluster
        self.known = known or Known()
        self._node = node
        self._host_name: HostName = host_name

    def node_at(self, seq: int) -> str:
        """The name of the node in records of that number."""
        return self._name(self.known.machine_at(seq))

    def sysinfo(self, info: SysInfo) -> Attributes:
        """The attributes of one sysinfo record; it is learnt from as well."""
        self.known.learn_machine(info)
        return {**self._head(info), **sysinfo_attributes(info)}

    def sample(self, sample: Sample, shown: Sample | None = None) -> Attributes:
        """The attributes of one sample; `shown` is what may be told of it, where that is not all."""
        known = self.known
        known.learn_infos(sample)
        machine = known.machine_at(sample.seq)
        shown = sample if shown is None else shown
        attributes = self._head(sample)
        attributes["system"] = system_of(shown, machine, known.boot_time(sample))
        if jobs := jobs_of(shown, known, machine):
            attributes["jobs"] = jobs
        if errors := [self._error(sample, gap) for gap in shown.gap]:
            attributes["errors"] = errors
        known.learn_ticks(sample)
        return attributes

    def pass_over(self, sample: Sample) -> None:
        """Learns from a sample without converting it."""
        self.known.learn_infos(sample)
        self.known.learn_ticks(sample)

    def _head(self, record: Sample | SysInfo) -> Attributes:
        return {"time": in_seconds(record.time), "cluster": self.cluster, "node": self.node_at(record.seq)}

    def _name(self, machine: Machine) -> str:
        return machine.name(self._host_name) or self._node

    def _error(self, sample: Sample, gap: Any) -> Attributes:
        words = [gap.collector, gap.reason, *([gap.detail] if gap.detail else [])]
        return {**self._head(sample), "detail": ": ".join(words)}


def envelope(kind: Literal["sample", "sysinfo"], attributes: Attributes) -> bytes:
    """The message: one compact JSON object without a newline."""
    return encode({"meta": _META, "data": {"type": kind, "attributes": attributes}})
