"""Sends a bundle to s3://bucket/key by pyarrow, with the credentials that the environment or the machine's role gives.

The caller runs this in a process that ends by os._exit: a stream that is closed after an error, or collected, would
publish what it has so far as if it were whole.
"""

import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from vmsonar_archive.bundle.send.upload import Digests, Sent, Write, digests_of
from vmsonar_archive.bundle.write import Sink
from vmsonar_archive.system.errors import UsageError, VmsonarError, missing_extra
from vmsonar_archive.system.files import sha256_of_chunks
from vmsonar_archive.system.text import masked

_CHUNK = 1024 * 1024
#: For everything but the transfer itself, which gets the time of so many bytes a second for each way through.
_SECONDS = 180.0
_SLOWEST = 16 * 1024
_LOOK_SECONDS = 0.2
_MOST_NAMES = 9
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class UploadFailed(VmsonarError):
    """Keeps the unfinished stream alive, so that nothing closes it."""

    def __init__(self, message: str, unfinished: object) -> None:
        super().__init__(message)
        self.unfinished = unfinished


def object_path(url: str, name: str) -> str:
    """bucket/key; a key that ends in a slash is a folder and gets the bundle's own name."""
    parts = urlsplit(url)
    key = parts.path.lstrip("/")
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("an S3 object is given as s3://bucket/key, without anything else")
    return f"{parts.netloc}/{key}{name}.tar" if _is_folder(url) else f"{parts.netloc}/{key}"


def load(purpose: str = "sending to s3://") -> Any:
    """Loads pyarrow's file systems, now: a process that gives up its rights may not find them later."""
    try:
        from pyarrow import fs
    except ImportError:
        raise missing_extra("s3", purpose) from None
    return fs


def file_system(bucket: str, environment: Mapping[str, str] = os.environ) -> Any:
    """The S3 service of a bucket: endpoint, region and credentials come from the environment."""
    fs = load("an object store")
    settings: dict[str, Any] = {"connect_timeout": 20, "request_timeout": 60}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        parts = urlsplit(endpoint)
        settings |= {"endpoint_override": parts.netloc, "scheme": parts.scheme or "https"}
    if region:
        settings["region"] = region
    elif not endpoint:
        try:
            settings["region"] = fs.resolve_s3_region(bucket)
        except OSError as error:
            raise VmsonarError(f"cannot find the bucket {bucket}: {_reason(error)}") from None
    return fs.S3FileSystem(**settings)


def put(url: str, name: str, write: Write) -> Sent:
    """Sends what `write` produces and compares what lies there afterwards with it.

    By a thread that is left behind when the time is over, because pyarrow waits for ever on a byte a second.
    """
    passed = 0
    done: list[Sent | BaseException] = []

    def counting(sink: Sink) -> object:
        def count(data: bytes) -> None:
            nonlocal passed
            passed += len(data)
            sink(data)

        return write(count)

    def work() -> None:
        try:
            done.append(_put_anywhere(url, name, counting))
        except BaseException as error:
            done.append(error)

    began = time.monotonic()
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while not done and time.monotonic() - began < _SECONDS + passed / _SLOWEST:
        worker.join(_LOOK_SECONDS)
    if not done:
        where = f"s3://{object_path(url, name)}"
        raise UploadFailed(
            f"cannot send the bundle to {where}: not done in time; run the command again", worker
        )
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def _put_anywhere(url: str, name: str, write: Write) -> Sent:
    path = object_path(url, name)
    service = file_system(path.split("/")[0])
    ours: Digests | None = None
    for place in _names(path) if _is_folder(url) else [path]:
        if not _exists(service, place):
            return _put(service, place, write)
        # Perhaps an earlier attempt stored it and only the acknowledgement was lost.
        ours = ours or digests_of(write)
        if _read_back(service, place) == (ours.size, ours.sha256.hexdigest()):
            return ours.sent_to(f"s3://{place}", confirmed=True)
    raise VmsonarError(
        f"s3://{path} exists and is something else: nothing is overwritten, choose another key"
    )


def _put(service: Any, path: str, write: Write) -> Sent:
    digests, failure = _send(service, path, write)
    stored = _read_back(service, path)
    same = stored == (digests.size, digests.sha256.hexdigest())
    if failure is not None and not same:
        raise failure
    if stored is not None and not same:
        raise VmsonarError(
            f"s3://{path} is not what was sent ({stored[0]} of {digests.size} bytes): "
            "remove it there, then run the same command again"
        )
    return digests.sent_to(f"s3://{path}", confirmed=same)


def _is_folder(url: str) -> bool:
    key = urlsplit(url).path.lstrip("/")
    return not key or key.endswith("/")


def _names(path: str) -> list[str]:
    """Where the name is ours to choose, a damaged object under it must not keep the bundle waiting for ever."""
    stem = path.removesuffix(".tar")
    return [path, *(f"{stem}-{number}.tar" for number in range(2, _MOST_NAMES + 1))]


def _exists(service: Any, path: str) -> bool:
    try:
        return bool(service.get_file_info(path).is_file)
    except OSError:
        return False  # may write but not look; the comparison afterwards will say so


def _send(service: Any, path: str, write: Write) -> tuple[Digests, UploadFailed | None]:
    """What was sent, and why it is not acknowledged: what was sent to its end may have been stored all the same."""
    stream = None
    try:
        stream = service.open_output_stream(path)
        digests = Digests(stream.write)
        write(digests.send)
    except BaseException as error:
        raise _failed(path, error, "nothing is stored", stream) from None
    try:
        stream.close()
    except OSError as error:
        return digests, _failed(path, error, "it cannot be seen there", stream)
    return digests, None


def _failed(path: str, error: BaseException, state: str, stream: object) -> UploadFailed:
    said = f"cannot send the bundle to s3://{path}: {_reason(error)}; {state}: run the command again"
    return UploadFailed(said, stream)


def _read_back(service: Any, path: str) -> tuple[int, str] | None:
    """Size and SHA-256 of the object; None when we may not read it."""
    try:
        with service.open_input_stream(path) as stream:
            return sha256_of_chunks(iter(partial(stream.read, _CHUNK), b""))
    except OSError:
        return None


def _reason(error: BaseException) -> str:
    """The first line of what the service said, without what it knows from us."""
    said = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
    return masked(said, (os.environ.get(name, "") for name in _SECRETS))
