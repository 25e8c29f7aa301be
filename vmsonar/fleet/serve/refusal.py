"""An answer that is an error: its code, and why, in one sentence."""

import msgspec
from starlette.responses import Response


class Problem(msgspec.Struct):
    """Why there is no answer."""

    error: str


class Refusal(Exception):
    """Ends a request with an error."""

    def __init__(self, code: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.code, self.why, self.headers = code, why, headers

    def response(self) -> Response:
        return Response(msgspec.json.encode(Problem(self.why)), self.code, self.headers, "application/json")
