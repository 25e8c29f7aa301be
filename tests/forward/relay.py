"""Passes TCP connections on to a port of this machine, listening elsewhere: another address, or another netns."""

import ctypes
import os
import socket
import threading

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Relay:
    """Listens on (address, port) in the network namespace `netns` (ip-netns(8)), or in ours."""

    def __init__(self, address: str, port: int, target: int, netns: str | None = None) -> None:
        self._target = target
        self._listener = self._listen(address, port, netns)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self, address: str, port: int, netns: str | None) -> socket.socket:
        made: list[socket.socket] = []

        def make() -> None:
            # A socket belongs to the namespace of the thread that makes it, and stays there.
            if netns is not None:
                with open(f"/run/netns/{netns}") as name:
                    if _libc.setns(name.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen()
            made.append(listener)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        end.close()
