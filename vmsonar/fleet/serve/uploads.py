"""Bundles and increments sent to the server: addresses minted for `save.to: mint+https`, and what is put there.

A PUT is acknowledged when the bundle is verified and on disk (`fleet.intake`), with the MD5 of what came as its ETag,
which the sender compares. What was acknowledged under a name is remembered: a lost answer costs no second transfer. A
transfer that broke off can be continued: HEAD says how much is there, a PUT with Content-Range sends the rest.
"""

import asyncio
import errno
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError

from vmsonar.fleet.intake import Intake, Receipt
from vmsonar.fleet.serve.access import Asker
from vmsonar.fleet.serve.refusal import Refusal

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")
_CHUNK = 1024 * 1024
#: How long an address can be used, how long the client may ask again for what it sent, and go on with what broke off.
_VALID = timedelta(minutes=30)
_REMEMBERED = timedelta(days=2)
_BROKEN_OFF = timedelta(days=1)
_MOST_ASKED = 64 * 1024
#: A sender that sends less than so many bytes in so long has broken off.
_IDLE_SECONDS, _LEAST = 60.0, 64 * 1024
#: Bundles that are verified at a time, each with a process' worth of memory; and how many of the largest may lie
#: unfinished, of all senders and of one.
_VERIFIED, _UNFINISHED, _OF_ONE = 2, 4, 2
_TIDIED_SECONDS = 3600.0
_KEY_BYTES = 32

#: Whose token it is, and from where it was sent.
Sender = tuple[str, str]


class _Question(msgspec.Struct):
    """What the client asks for an address."""

    #: Of one that has none yet and asks whether it would be let in: nothing.
    archive: Annotated[str, msgspec.Meta(max_length=36)]
    node: str
    name: str
    size: int | None = None


class Ticket(msgspec.Struct, frozen=True):
    """What an address is good for."""

    holder: str
    machine: str | None
    archive: str
    name: str
    until: float


class _Known(msgspec.Struct):
    """What was acknowledged under a name."""

    bytes: int
    md5: str
    receipt: Receipt


class Uploads:
    """Mints addresses, and takes what is put there."""

    def __init__(
        self,
        intake: Intake,
        state: Path,
        *,
        url: str | None = None,
        largest: int = 2 * 2**30,
        a_minute: int = 600,
        idle: float = _IDLE_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._intake = intake
        self._state = state / "uploads"
        self._url = url
        self._largest = largest
        self._a_minute = a_minute
        self._now = now
        self._key = _secret(state / "ticket.key")
        self._idle = idle
        self._recent: OrderedDict[tuple[str, str, int], int] = OrderedDict()
        self._tidied = now()
        self._verifying: CapacityLimiter | None = None
        #: Bytes of the transfers under way, by sender; each transfer is written by a thread.
        self._coming: Counter[Sender] = Counter()
        self._counting = threading.Lock()
        self.counts: Counter[str] = Counter()

    async def mint(self, request: Request) -> Response:
        """POST: an address for a bundle of that name."""
        content = await _body(request, self._idle)
        try:
            asked = msgspec.json.decode(content, type=_Question)
        except NOT_JSON:
            raise Refusal(400, "asked for with a JSON object of archive, node, name and size") from None
        asker: Asker = request.state.asker
        self._check(asked.name, asked.size)
        self._limit(request)
        if self._now() - self._tidied > _TIDIED_SECONDS:
            self._tidied = self._now()
            await asyncio.to_thread(self.tidy)
        ends = self._now() + _VALID.total_seconds()
        ticket = self._sealed(Ticket(asker.name, asker.machine, asked.archive, asked.name, ends))
        base = self._url or f"{request.url.scheme}://{request.url.netloc}"
        answer = {
            "url": f"{base}/upload/{asked.name}?ticket={ticket}",
            "expires": datetime.fromtimestamp(ends, UTC).replace(microsecond=0),
        }
        return Response(msgspec.json.encode(answer), media_type="application/json")

    def holder(self, request: Request) -> Asker | None:
        """Whose address it is, where it is one of ours, for this name and not expired."""
        ticket = self._opened(request.query_params.get("ticket", ""))
        if ticket is None or ticket.until < self._now() or request.path_params.get("name") != ticket.name:
            return None
        request.state.archive = ticket.archive
        return Asker(ticket.holder, "upload", None, ticket.machine)

    async def head(self, request: Request) -> Response:
        """HEAD: what was acknowledged under the name, or how much of it is there."""
        place = self._place(request)
        known = self._known(place)
        if known is not None:
            return Response(headers={"Content-Length": str(known.bytes), "ETag": f'"{known.md5}"'})
        with suppress(FileNotFoundError):
            return Response(
                status_code=404, headers={"Upload-Offset": str(self._partial(place).stat().st_size)}
            )
        return Response(status_code=404, headers={"Upload-Offset": "0"})

    async def put(self, request: Request) -> Response:
        """PUT: takes a bundle, or the rest of one."""
        name, place = request.path_params["name"], self._place(request)
        length = request.headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,15}", length):
            raise Refusal(411, "say how long it is: Content-Length")
        begin, whole = _range_of(request, int(length))
        self._check(name, whole)
        self._limit(request)
        if (known := self._known(place)) is not None:
            raise Refusal(412, "a bundle of that name was acknowledged", {"ETag": f'"{known.md5}"'})
        transfer = self._partial(place)
        sender = _sender(request)
        count = 0

        def keep(file: BinaryIO, content: bytes) -> None:
            nonlocal count
            self._need_room(sender, len(content))
            files.write_all(file.fileno(), content)
            count += len(content)
            self._note(sender, len(content))

        try:
            with _held(transfer, begin) as file:
                await _receive(request, partial(keep, file), int(length), self._idle)
                if begin + int(length) < whole:
                    there = {"Upload-Offset": str(begin + int(length))}
                    return Response(status_code=202, headers=there)
                take = partial(self._take, request.state.asker, name, place, transfer, file)
                self._verifying = self._verifying or CapacityLimiter(_VERIFIED)
                return await to_thread.run_sync(take, abandon_on_cancel=True, limiter=self._verifying)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Refusal(507, "no room here: send it again later") from None
            raise Refusal(
                503, f"cannot keep it: {error.strerror}: send it again later", {"Retry-After": "30"}
            ) from None
        finally:
            self._note(sender, -count)

    def _note(self, sender: Sender, count: int) -> None:
        with self._counting:
            self._coming[sender] += count
            if self._coming[sender] <= 0:
                del self._coming[sender]

    def _need_room(self, sender: Sender, length: int) -> None:
        """Refuses what comes while very much lies unfinished, of all or of one sender: names cost nothing.

        What counts is what came, not what was announced: who announces much and sends nothing takes nobody's room.
        """
        there = 0
        with os.scandir(self._intake.fleet.incoming) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    there += entry.stat(follow_symlinks=False).st_size
        own = self._coming[sender] + length
        if there + length > _UNFINISHED * self._largest or own > _OF_ONE * self._largest:
            raise Refusal(503, "too much is on its way: send it again later", {"Retry-After": "60"})

    def _take(self, asker: Asker, name: str, place: Path, partial: Path, file: BinaryIO) -> Response:
        os.fsync(file.fileno())
        size, md5 = file.tell(), hashlib.md5(usedforsecurity=False)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            md5.update(chunk)
        try:
            receipt = self._intake.take(partial, f"upload:{asker.name}", name=name, machine=asker.machine)
        except VmsonarError as error:
            raise self._again_later(str(error), 30) from None
        headers = {"ETag": f'"{md5.hexdigest()}"'}
        partial.unlink(missing_ok=True)
        receipt.set_aside = None  # is for whoever looks after the fleet
        if not receipt.accepted:
            self.counts["refused"] += 1
            if receipt.stays:
                raise self._again_later(f"{receipt.reason}: {receipt.detail}", 300)
            return Response(msgspec.json.encode(receipt), 422, media_type="application/json")
        files.make_folders(self._state.parent, place.parent)
        files.write_whole(place, msgspec.json.encode(_Known(size, md5.hexdigest(), receipt)))
        self.counts.update(accepted=1, bytes=size)
        return Response(msgspec.json.encode(receipt), 201, headers, media_type="application/json")

    def _again_later(self, why: str, seconds: int) -> Refusal:
        """A fault of ours, in words that tell the sender nothing of our folders."""
        said = why.replace(f"{self._intake.fleet.root}/", "")
        return Refusal(503, f"{said}: send it again later", {"Retry-After": str(seconds)})

    def tidy(self) -> None:
        """Forgets names, and transfers that broke off, after a while."""
        incoming = self._intake.fleet.incoming
        for folder, form, kept in (
            (self._state, "*/*.json", _REMEMBERED),
            (incoming, "upload-*.partial", _BROKEN_OFF),
        ):
            for path in folder.glob(form):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < self._now() - kept.total_seconds():
                        path.unlink()

    def _check(self, name: str, size: int | None) -> None:
        if not _NAME.fullmatch(name):
            raise Refusal(400, "a name is made of letters, digits, dots, _ and -")
        if size is not None and size > self._largest:
            raise Refusal(413, f"larger than {self._largest} bytes: send increments")

    def _limit(self, request: Request) -> None:
        """So many requests a minute of each sender."""
        key = (*_sender(request), int(self._now() // 60))
        self._recent[key] = self._recent.get(key, 0) + 1
        while len(self._recent) > 10_000:
            self._recent.popitem(last=False)
        if self._recent[key] > self._a_minute:
            raise Refusal(429, f"more than {self._a_minute} requests a minute: wait", {"Retry-After": "60"})

    def _place(self, request: Request) -> Path:
        """Where is remembered what came under this name of this sender."""
        owner = f"{request.state.asker.name}/{getattr(request.state, 'archive', '')}/{request.path_params['name']}"
        name = hashlib.sha256(owner.encode()).hexdigest()
        # A folder with all of them would have hundreds of thousands.
        return self._state / name[:2] / f"{name}.json"

    def _partial(self, place: Path) -> Path:
        return self._intake.fleet.incoming / f"upload-{place.stem}.partial"

    @staticmethod
    def _known(place: Path) -> _Known | None:
        with suppress(FileNotFoundError, *NOT_JSON):
            return msgspec.json.decode(place.read_bytes(), type=_Known)
        return None

    def _sealed(self, ticket: Ticket) -> str:
        content = msgspec.json.encode(ticket)
        return f"{content.hex()}.{hmac.digest(self._key, content, 'sha256').hex()}"

    def _opened(self, text: str) -> Ticket | None:
        content, _, seal = text.partition(".")
        try:
            raw, given = bytes.fromhex(content), bytes.fromhex(seal)
        except ValueError:
            return None
        if not hmac.compare_digest(hmac.digest(self._key, raw, "sha256"), given):
            return None
        return msgspec.json.decode(raw, type=Ticket)


def _secret(path: Path) -> bytes:
    """A key of this fleet's servers, made once, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".key-") as file, suppress(FileExistsError):
        file.write(secrets.token_bytes(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.link(file.name, path)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise VmsonarError(f"{path} is no key: remove it, and a new one is made")
    return key


def _sender(request: Request) -> Sender:
    """The token and the address, which behind a proxy is the one that it names last."""
    told = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return request.state.asker.name, request.client.host if request.client else told


async def _body(request: Request, idle: float) -> bytes:
    content = b""
    try:
        async with asyncio.timeout(idle):
            async for chunk in request.stream():
                content += chunk
                if len(content) > _MOST_ASKED:
                    raise Refusal(413, "more than a question")
    except TimeoutError:
        raise Refusal(408, "broke off") from None
    return content


def _range_of(request: Request, length: int) -> tuple[int, int]:
    """Where what is sent begins, and how long the whole is."""
    given = request.headers.get("content-range")
    if given is None:
        return 0, length
    found = _RANGE.fullmatch(given)
    if found is None or int(found[2]) - int(found[1]) + 1 != length or int(found[2]) >= int(found[3]):
        raise Refusal(400, "Content-Range does not say what is sent")
    return int(found[1]), int(found[3])


def _held(path: Path, begin: int) -> BinaryIO:
    """The file of a transfer, for us alone, as far as it came."""
    file = os.fdopen(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640), "r+b", buffering=0
    )
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Not 409, by which a client understands that there is something else under that name.
            raise Refusal(503, "the same is being sent already", {"Retry-After": "10"}) from None
        there = os.fstat(file.fileno()).st_size
        if begin == 0:
            file.truncate(0)
        elif begin != there:
            raise Refusal(409, f"{there} bytes are there", {"Upload-Offset": str(there)})
        file.seek(begin)
    except BaseException:
        file.close()
        raise
    return file


async def _receive(request: Request, keep: Callable[[bytes], None], length: int, idle: float) -> None:
    """Keeps what comes; what came before a sender broke off stays."""
    waiting, count, noted, stream = bytearray(), 0, 0, request.stream()
    clock = asyncio.get_running_loop().time
    limit = clock() + idle
    try:
        while True:
            async with asyncio.timeout_at(limit):
                chunk = await anext(stream, b"")
            if not chunk:
                break
            count += len(chunk)
            if count - noted >= _LEAST:
                noted, limit = count, clock() + idle
            waiting += chunk
            if len(waiting) >= _CHUNK:
                await asyncio.to_thread(keep, bytes(waiting))
                waiting.clear()
    except (ClientDisconnect, TimeoutError) as error:
        keep(bytes(waiting))
        raise Refusal(408 if isinstance(error, TimeoutError) else 400, "broke off") from None
    await asyncio.to_thread(keep, bytes(waiting))
    if count != length:
        raise Refusal(400, "broke off")
