"""A connection to the server, as uvicorn has it, but with a bound on the time and the size of a request's head.

uvicorn itself waits for ever for whoever connects and says nothing: a few hundred of them would keep everybody out.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_SECONDS = 30.0
_BYTES = 64 * 1024


class Connection(HttpToolsProtocol):
    """Ends when the head of a request does not come, or does not end."""

    _end: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.on_message_begin()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._end is None:
            self._end, self._head = self.loop.call_later(_SECONDS, self.transport.abort), 0

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._end is not None and self._head > _BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._told()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._told()
        super().connection_lost(exc)

    def _told(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
