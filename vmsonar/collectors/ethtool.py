"""What a network driver counts beside the kernel, by ioctl(2) SIOCETHTOOL; anybody may ask (linux/ethtool.h)."""

import fcntl
import socket
import struct
from array import array
from collections.abc import Callable, Mapping

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GSTATS = 0x1B, 0x37, 0x1D
_SET_OF_STATISTICS = 1
_NAME = 32
_MOST = 4096
#: The name of an interface, and where the question lies (struct ifreq).
_IFREQ = struct.Struct("16sP16x")

Ioctl = Callable[[int, int, bytes], object]


class Statistics:
    """The wanted counters of one interface; asks for their places once."""

    def __init__(self, interface: str, wanted: Mapping[str, str], ioctl: Ioctl = fcntl.ioctl) -> None:
        """`wanted` gives the driver's names and ours."""
        self._interface, self._ioctl = interface.encode()[:15], ioctl
        self._size, self._places = 0, dict[str, int]()
        try:
            names = self._names()
        except OSError:
            return  # the driver has none, or is gone
        self._size = len(names)
        self._places = {wanted[name]: place for place, name in enumerate(names) if name in wanted}

    def read(self) -> dict[str, int]:
        """Ours, where the driver has any; raises OSError when the interface is gone."""
        if not self._places:
            return {}
        answer = self._ask(struct.pack("=II", _GSTATS, self._size), self._size * 8)
        values = struct.unpack_from(f"={self._size}Q", answer, 8)
        return {name: values[place] for name, place in self._places.items() if values[place] < 1 << 63}

    @property
    def is_empty(self) -> bool:
        return not self._places

    def _names(self) -> list[str]:
        asked = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_OF_STATISTICS, 0)
        count = struct.unpack_from("=I", self._ask(asked, 0), 16)[0]
        if not 0 < count <= _MOST:
            return []
        answer = self._ask(struct.pack("=III", _GSTRINGS, _SET_OF_STATISTICS, count), count * _NAME)
        names = (answer[12 + place * _NAME :][:_NAME] for place in range(count))
        return [name.partition(b"\0")[0].decode(errors="replace") for name in names]

    def _ask(self, question: bytes, room: int) -> bytes:
        # More room than asked for: a driver may have got more counters since it told their number.
        buffer = array("B", question.ljust(len(question) + room + _MOST * 8, b"\0"))
        asked = _IFREQ.pack(self._interface, buffer.buffer_info()[0])
        # Any socket will do, and the recorder's unit allows this family.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as any_socket:
            self._ioctl(any_socket.fileno(), _SIOCETHTOOL, asked)
        return bytes(buffer[: len(question) + room])
