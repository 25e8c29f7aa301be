"""A file system in user space without any library: it tells its room, until somebody stops it (fuse(4)).

Run as `python fuse_server.py MOUNTPOINT`; it says `ready` when it is mounted.
"""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORGET, GETATTR, STATFS, INIT, INTERRUPT, BATCH_FORGET, ENOSYS = 2, 3, 17, 26, 36, 42, 38
BLOCKS, FREE, FILES, FILES_FREE = 1000, 400, 50, 20


def _body(opcode: int) -> bytes | None:
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0, *[0] * 7)
    if opcode == STATFS:
        return struct.pack("<5QIIII6I", BLOCKS, FREE, FREE, FILES, FILES_FREE, 4096, 255, 4096, 0, *[0] * 6)
    if opcode == GETATTR:
        return struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
    return None


def serve(place: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", place.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)
    print("ready", flush=True)
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:  # unmounted
            return
        _, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        body = _body(opcode)
        error = 0 if body is not None else -ENOSYS
        os.write(device, struct.pack("<IiQ", 16 + len(body or b""), error, unique) + (body or b""))


@contextmanager
def fuse_mount(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The server of a file system at that place; SIGSTOP makes it one that never answers."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.real.fuse_server", str(place)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield server
    finally:
        server.kill()  # whoever waits for it gets an error then
        server.communicate()
        subprocess.run(["umount", "-l", str(place)], check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    serve(sys.argv[1])
