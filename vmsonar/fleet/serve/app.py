"""The server's web application: who asks, what they ask, and how it is answered."""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from vmsonar_archive.dialect.exposition import CLASSIC_TYPE, OPENMETRICS_TYPE, Family, classic, openmetrics
from vmsonar_archive.dialect.metrics import table

from vmsonar import __version__
from vmsonar.fleet.holdings import Holdings
from vmsonar.fleet.machines import interval_of
from vmsonar.fleet.serve import openapi
from vmsonar.fleet.serve.access import Asker, Authenticator, Denied
from vmsonar.fleet.serve.dashboard import PAGES, PageSpan, asset
from vmsonar.fleet.serve.prepared import EVERYTHING, Prepared, TooLong
from vmsonar.fleet.serve.preparer import Preparer
from vmsonar.fleet.serve.questions import QUESTIONS, Asked, NotThere, Question, WrongQuestion
from vmsonar.fleet.serve.refusal import Refusal
from vmsonar.fleet.serve.uploads import Uploads

Endpoint = Callable[[Request], Awaitable[Response]]

#: Answers that are kept, each until something changes.
_KEPT = 512
_KEPT_BYTES = 64 * 2**20
_THREADS = 2
#: An answer is at most that old: whether a machine is late depends on the time. These two are that old even when
#: something has changed meanwhile, and then given for a while longer until a new one is made.
_FRESH, _STALE = 10.0, 60.0
_OFTEN = ("/", "/api/v1/fleet")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "private, no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Authorization, Accept",
}
#: Seconds up to which answers are counted.
_BOUNDS = (0.005, 0.02, 0.1, 0.3, 1.0, 5.0)


@dataclass
class Counts:
    """What /metrics says of requests."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    denied: int = 0
    seconds: float = 0.0
    within: Counter[float] = field(default_factory=Counter)

    def note(self, path: str, code: int, seconds: float) -> None:
        self.requests[path, code] += 1
        self.seconds += seconds
        self.within.update(bound for bound in _BOUNDS if seconds <= bound)


@dataclass
class Server:
    """What all requests share."""

    prepared: Prepared
    door: Authenticator
    preparer: Preparer
    uploads: Uploads | None
    audit: Callable[[str], None]
    #: How often machines ship; None: as each does.
    shipping: timedelta | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counts: Counts = field(default_factory=Counts)
    #: Answers, with when and from which state of things they were made; and those that are being made.
    kept: "OrderedDict[tuple[Any, ...], tuple[float, tuple[int, ...], Response]]" = field(
        default_factory=OrderedDict
    )
    kept_bytes: int = 0
    notes: Holdings = field(init=False)
    last_heard: Mapping[str, tuple[datetime, timedelta]] = field(default_factory=dict)
    listened: float = -_FRESH
    making: dict[tuple[Any, ...], asyncio.Lock] = field(default_factory=dict)
    renewing: "dict[tuple[Any, ...], asyncio.Task[Response]]" = field(default_factory=dict)
    #: So many answers are made at a time, more would only be slower; and one for which nobody waits.
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS))
    behind: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __post_init__(self) -> None:
        self.notes = Holdings(self.preparer.fleet)

    def heard(self) -> Mapping[str, tuple[datetime, timedelta]]:
        """When each machine was heard last, by the notes of whoever takes in: the same for all replicas."""
        if time.monotonic() - self.listened > _FRESH:
            self.listened = time.monotonic()
            self.last_heard = {
                each.archive: (each.arrivals[-1], interval_of(each, self.shipping))
                for each in self.notes.read()
                if each.arrivals
            }
        return self.last_heard

    def application(self) -> Starlette:
        routes = [
            Route(question.path, self._open(partial(self._question, question), question.path))
            for question in QUESTIONS
        ]
        routes += [Route(path, self._open(partial(self._page, page), path)) for path, page in PAGES.items()]
        routes += [
            Route("/api/v1/openapi.json", self._open(self._openapi, "/api/v1/openapi.json")),
            Route("/assets/{name}", self._open(self._asset, "/assets", public=True)),
            Route("/metrics", self._open(self._metrics, "/metrics")),
            Route("/healthz", self._open(self._healthy, "/healthz", public=True)),
            Route("/readyz", self._open(self._ready, "/readyz", public=True)),
        ]
        if self.uploads is not None:
            uploads = self.uploads
            routes += [
                Route("/upload", self._open(uploads.mint, "/upload"), methods=["POST"]),
                Route("/upload/{name}", self._open(uploads.put, "/upload/{name}"), methods=["PUT"]),
                Route("/upload/{name}", self._open(uploads.head, "/upload/{name}"), methods=["HEAD"]),
            ]
        application = Starlette(routes=routes, exception_handlers={HTTPException: _http, Exception: _failed})
        # Nobody is led anywhere: where to would be what the Host header says.
        application.router.redirect_slashes = False
        return application

    def _open(self, endpoint: Endpoint, path: str, *, public: bool = False) -> Endpoint:
        """Lets in who may, and counts."""

        async def answer(request: Request) -> Response:
            begin = time.monotonic()
            try:
                if not public:
                    request.state.asker = self._asker(request, path)
                response = await endpoint(request)
            except Refusal as refusal:
                asker = getattr(request.state, "asker", None)
                if refusal.code == 404 and asker is not None and asker.scope != EVERYTHING:
                    self._tell_denied(request, 404, asker.name, "not there, or not theirs")
                response = refusal.response()
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            self.counts.note(path, response.status_code, time.monotonic() - begin)
            return response

        return answer

    def _asker(self, request: Request, path: str) -> Asker:
        try:
            asker = self.door.asker(request.headers)
        except Denied as denied:
            ticket = path.startswith("/upload/") and self.uploads is not None and self.uploads.holder(request)
            if ticket:
                return ticket
            self._tell_denied(request, 401, "nobody", str(denied))
            raise Refusal(
                401, str(denied), {"WWW-Authenticate": 'Basic realm="vmsonar", charset="UTF-8"'}
            ) from None
        uploads = path.startswith("/upload")
        if (asker.role == "upload") != uploads and not (uploads and asker.role == "admin"):
            what = "uploads nothing" if uploads else "sees nothing"
            self._tell_denied(request, 403, asker.name, f"the role {asker.role} {what}")
            raise Refusal(403, f"the role {asker.role} {what}")
        if path == "/metrics" and asker.role != "admin":
            self._tell_denied(request, 403, asker.name, "of the server itself only the role admin is told")
            raise Refusal(403, "of the server itself only the role admin is told")
        return asker

    def _tell_denied(self, request: Request, code: int, who: str, why: str) -> None:
        self.counts.denied += 1
        origin = request.client.host if request.client else "the socket"
        self.audit(f"denied {code} {request.method} {request.url.path[:200]} to {who} from {origin}: {why}")

    async def _question(self, question: Question, request: Request) -> Response:
        wish, places = _converted(request, question.wish), request.path_params
        make = partial(self._answer, question, request.state.asker, wish, places)
        return await self._served(request, make)

    def _answer(self, question: Question, asker: Asker, wish: Any, places: dict[str, str]) -> Response:
        assert asker.scope is not None
        with self.prepared.seen_by(asker.scope) as seen:
            asked = Asked(seen, wish, question.path.format(**places), self.now(), self.heard())
            try:
                answer = question.answer(asked, **places)
            except NotThere as error:
                raise Refusal(404, str(error)) from None
            except WrongQuestion as error:
                raise Refusal(400, str(error)) from None
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def _page(self, page: Callable[..., str], request: Request) -> Response:
        wish, places, asker = (
            _converted(request, PageSpan).at(self.now()),
            request.path_params,
            request.state.asker,
        )

        def make() -> Response:
            with self.prepared.seen_by(asker.scope) as seen:
                asked = Asked(seen, wish, request.url.path, self.now(), self.heard())
                try:
                    content = page(asked, asker, **places)
                except NotThere as error:
                    raise Refusal(404, str(error)) from None
            return Response(content, media_type="text/html")

        return await self._served(request, make)

    async def _served(self, request: Request, make: Callable[[], Response]) -> Response:
        """An answer that was made before, where nothing has changed since; 304 to those who have it."""
        key = (request.state.asker, request.url.path, request.url.query)
        response = self._known(key) or self._renewed(key, make)
        if response is None:
            # Of many who ask the same at once, one is answered and the others wait for that.
            try:
                async with self.making.setdefault(key, asyncio.Lock()):
                    response = self._known(key) or await self._made(key, make, self.threads)
            finally:
                self.making.pop(key, None)
        if response.headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"ETag": response.headers["ETag"]})
        return response

    def _known(self, key: tuple[Any, ...]) -> Response | None:
        found = self.kept.get(key)
        if found is None or time.monotonic() - found[0] > _FRESH:
            return None
        # All machines together change all the time.
        return found[2] if key[1] in _OFTEN or found[1] == self.prepared.generation() else None

    def _renewed(self, key: tuple[Any, ...], make: Callable[[], Response]) -> Response | None:
        """The last answer, while a new one is made for whoever asks next."""
        found = self.kept.get(key)
        if found is None or key[1] not in _OFTEN or time.monotonic() - found[0] > _STALE:
            return None
        if key not in self.renewing:
            task = self.renewing[key] = asyncio.create_task(self._made(key, make, self.behind))
            task.add_done_callback(partial(self._renewal_ended, key))
        return found[2]

    def _renewal_ended(self, key: tuple[Any, ...], task: "asyncio.Task[Response]") -> None:
        del self.renewing[key]
        if task.cancelled() or task.exception() is not None:
            # Whoever asks next waits, and is told what is wrong.
            self._forget(key)

    async def _made(
        self, key: tuple[Any, ...], make: Callable[[], Response], threads: ThreadPoolExecutor
    ) -> Response:
        generation = self.prepared.generation()
        try:
            response = await asyncio.get_running_loop().run_in_executor(threads, make)
        except TooLong:
            raise Refusal(503, "this takes too long: ask for less time, one machine, or fewer rows") from None
        response.headers["ETag"] = f'"{hashlib.blake2b(response.body, digest_size=16).hexdigest()}"'
        self._forget(key)
        self.kept[key] = (time.monotonic(), generation, response)
        self.kept_bytes += len(response.body)
        while len(self.kept) > _KEPT or self.kept_bytes > _KEPT_BYTES:
            self._forget(next(iter(self.kept)))
        return response

    def _forget(self, key: tuple[Any, ...]) -> None:
        if key in self.kept:
            self.kept_bytes -= len(self.kept.pop(key)[2].body)

    async def _openapi(self, _request: Request) -> Response:
        return Response(msgspec.json.encode(openapi.document(__version__)), media_type="application/json")

    async def _asset(self, request: Request) -> Response:
        found = asset(request.path_params["name"])
        if found is None:
            raise Refusal(404, "no such file")
        content, kind = found
        return Response(content, media_type=kind)

    async def _healthy(self, _request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _ready(self, _request: Request) -> Response:
        is_ready = self.preparer.waiting is not None
        return Response(
            "ready\n" if is_ready else "starting\n", 200 if is_ready else 503, media_type="text/plain"
        )

    async def _metrics(self, request: Request) -> Response:
        families = await asyncio.to_thread(self._families)
        wants_open = "application/openmetrics-text" in request.headers.get("accept", "")
        text = openmetrics(families) if wants_open else classic(families)
        return Response(text, headers={"Content-Type": OPENMETRICS_TYPE if wants_open else CLASSIC_TYPE})

    def _families(self) -> list[Family]:
        counts, units = self.counts, self.prepared.units()
        found = {
            metric.field: Family(metric.name, "counter" if metric.is_counter else "gauge", metric.help)
            for metric in table().server
        }
        for (path, code), count in sorted(counts.requests.items()):
            found["requests"].add(count, (("path", path), ("code", str(code))))
        for bound in _BOUNDS:
            found["answers_within"].add(counts.within[bound], (("within_seconds", str(bound)),))
        figures: dict[str, float | None] = {
            "denied": counts.denied,
            "answering": counts.seconds,
            "archives": len({archive for archive, _ in units}),
            "days_waiting": self.preparer.waiting,
            "days_failed": sum(problem is not None for _, _, problem in units.values()),
        }
        if self.uploads is not None:
            taken = self.uploads.counts
            figures |= {
                "uploads": taken["accepted"], "uploads_refused": taken["refused"], "uploaded": taken["bytes"],
            }  # fmt: skip
        for name, value in figures.items():
            found[name].add(value)
        return list(found.values())


def _converted(request: Request, kind: type[Any]) -> Any:
    """The parameters of a question; refuses those that it does not have, and those that stand twice."""
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) != len(given):
        raise Refusal(400, "a parameter stands twice")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        said = str(error).replace("Object contains unknown field", "no such parameter:")
        raise Refusal(400, said.replace(" - at `$.", ": `").replace("`", "")) from None


async def _http(_request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    says = {
        404: "there is nothing here: see /api/v1/openapi.json",
        405: "not that way: answers are read with GET",
    }
    return Refusal(code, says.get(code, "refused")).response()


async def _failed(_request: Request, _error: Exception) -> Response:
    # What it was stands in the log; here it could say something of others.
    return Refusal(500, "the server has failed at this: its log says why").response()
