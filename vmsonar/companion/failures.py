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

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state


class TooLarge(EngineError):
    """One answer exceeds its limit; others may be as usual."""

    def __init__(self, detail: str) -> None:
        super().__init__("protocol", detail)


class NotThere(EngineError):
    """The engine knows nothing of that name."""

    def __init__(self, detail: str) -> None:
        super().__init__("protocol", detail)


def probe(path: str, seconds: float) -> None:
    """Raises EngineError unless somebody listens; called before the SDK is imported."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        try:
            client.connect(path)
        except OSError as error:
            raise EngineError(_state_of(error), f"{path}: {error.strerror or error}") from None


def failure_of(path: str, error: BaseException) -> EngineError:
    """What an exception of the SDK means: the libraries below it wrap the first one several times over."""
    chain = [error]
    while inner := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(inner)
    first = chain[-1]
    said = masked(f"{type(first).__name__}: {first}")
    return _by_type(path, chain) or EngineError("protocol", f"{path}: {said}")


def _by_type(path: str, chain: list[BaseException]) -> EngineError | None:
    from http.client import HTTPException, IncompleteRead  # brings TLS with it

    for error in reversed(chain):
        if isinstance(error, TimeoutError):
            return EngineError("timeout", f"{path}: no whole answer in time")
        if isinstance(error, (ConnectionError, IncompleteRead)):
            state = _STATES.get(getattr(error, "errno", None) or 0, "cut")
            return EngineError(state, f"{path}: the connection ended before the end of an answer")
        if isinstance(error, HTTPException):
            return EngineError("protocol", f"{path}: the answer is not HTTP ({type(error).__name__})")
        if isinstance(error, OSError) and error.errno:
            return EngineError(_state_of(error), f"{path}: {error.strerror}")
    return None


def _state_of(error: OSError) -> str:
    return "timeout" if isinstance(error, TimeoutError) else _STATES.get(error.errno or 0, "protocol")
