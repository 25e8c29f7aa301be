"""Ids: the grammar of those that identify archives, machines and records, and how series get theirs.

Whoever makes a bundle chooses every word in it, and these become file names, partitions, headers and keys.
"""

import re
from typing import Annotated
from uuid import UUID, uuid5

from msgspec import Meta

_MISFIT = re.compile(r"Expected `str` matching regex '.*' - at `\$\.?(.*)`", re.DOTALL)


def _of_shape(pattern: str) -> Meta:
    # Python's $ also stands before a newline at the end, and \Z is none of JSON Schema's.
    return Meta(pattern=f"^{pattern}$(?!\\n)", extra={"unit": "id"})


#: UUIDs as Python and the kernel write them; a redacted one has the same shape.
ArchiveId = Annotated[str, _of_shape("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")]
#: 32 hexadecimal digits; a boot id where there is none yet; `unknown` after a recovery, `id-…` after redaction.
MachineId = Annotated[str, _of_shape("[0-9A-Za-z][0-9A-Za-z._:@+=-]{0,127}")]
#: Whatever the cloud calls it: cloud-init makes a folder of this name.
InstanceId = Annotated[str, _of_shape("[0-9A-Za-z][0-9A-Za-z._:@+=,~-]{0,254}")]
#: What sethostname(2) takes and a terminal shows as it is: no controls, no marks of direction, no path.
HostName = Annotated[
    str,
    _of_shape(
        "(?!\\.{1,2}$)[^\u0000-\u001f\u007f-\u009f/\\\\\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{0,255}"
    ),
]
#: Of a run and of a boot; empty while nobody has filled it in.
StampId = Annotated[str, _of_shape("[0-9A-Za-z._:-]{0,64}")]
Sha256 = Annotated[str, _of_shape("([0-9a-f]{64})?")]


def told(error: Exception) -> str:
    """What is wrong with decoded JSON; an id that breaks its grammar is named instead of quoting that."""
    return _MISFIT.sub(r"\1 has not the form of such an id or name", str(error))


class SeriesIds:
    """Makes the series ids of one namespace; the name strings are part of the format."""

    def __init__(self, namespace: UUID) -> None:
        self._namespace = namespace

    def node(self, machine_id: str) -> str:
        return self._of(f"node:{machine_id}")

    def process(self, boot: str, pid: int, start_ticks: int) -> str:
        return self._of(f"process:{boot}:{pid}:{start_ticks}")

    def job(self, boot: str, pgid: int, start_ticks: int) -> str:
        return self._of(f"job:{boot}:{pgid}:{start_ticks}")

    def container(self, container_id: str) -> str:
        return self._of(f"container:{container_id}")

    def gpu(self, gpu_uuid: str) -> str:
        return self._of(f"gpu:{gpu_uuid}")

    def _of(self, name: str) -> str:
        return str(uuid5(self._namespace, name))
