"""How an engine fails to answer, in one word for the gap row and one line for people."""

import errno
import socket

from vmsonar_archive.system.text import masked

_STATES = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ECONNREFUSED: "refused",
    errno.EAGAIN: "timeout",
    errno.ETIMEDOUT: "timeout",
}


class EngineError(Exception):
    """The engine does not answer as it should; `state` says in one word how.

    A connection that is `cut` says little: asking again tells whether the engine is gone.
    """

    def __init__(self, detail: str, state: str = "protocol") -> None:
        super().__init__(detail)
        self.state = state


class TooLarge(EngineError):
    """One answer exceeds its limit; others may be as usual."""


class NotThere(EngineError):
    """The engine knows nothing of that name."""


def probe(path: str, seconds: float) -> None:
    """Raises EngineError unless somebody listens; called before the SDK is imported."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        try:
            client.connect(path)
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror or error}", _state_of(error)) from None


def failure_of(path: str, error: BaseException) -> EngineError:
    """What an exception of the SDK means: the libraries below it wrap the first one several times over."""
    from http.client import HTTPException, IncompleteRead  # brings TLS with it

    chain = [error]
    while inner := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(inner)
    for each in reversed(chain):
        if isinstance(each, TimeoutError):
            return EngineError(f"{path}: no whole answer in time", "timeout")
        if isinstance(each, (ConnectionError, IncompleteRead)):
            state = _STATES.get(getattr(each, "errno", None) or 0, "cut")
            return EngineError(f"{path}: the connection ended before the end of an answer", state)
        if isinstance(each, HTTPException):
            return EngineError(f"{path}: the answer is not HTTP ({type(each).__name__})")
        if isinstance(each, OSError) and each.errno:
            return EngineError(f"{path}: {each.strerror}", _state_of(each))
    first = masked(f"{type(chain[-1]).__name__}: {chain[-1]}")
    return EngineError(f"{path}: {first}")


def _state_of(error: OSError) -> str:
    return "timeout" if isinstance(error, TimeoutError) else _STATES.get(error.errno or 0, "protocol")
