"""What the metadata services of AWS, Google and Azure say about the near end of this VM; link-local HTTP only.

AWS: spot instance interruption notices (IMDSv2); Google: instance/preempted; Azure: scheduled events.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

#: The same for all three; never a name, so that nobody can lead us elsewhere.
ADDRESS = ("169.254.169.254", 80)
_TIMEOUT = 2.0
_MOST = 64 * 1024
_LIFETIME = "21600"


@dataclass(frozen=True, slots=True)
class Notice:
    """This VM is about to be taken away."""

    #: What tells one notice from the next.
    key: str
    detail: str
    #: When, where the cloud says so.
    at: datetime | None = None


class Metadata:
    """One metadata service, asked without proxies and redirects."""

    def __init__(self, address: tuple[str, int] = ADDRESS) -> None:
        self._address = address
        self._token: str | None = None

    def get(self, path: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, bytes]:
        """Status and body; raises OSError where nobody answers in time."""
        connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT)
        try:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST)
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP: {type(error).__name__}") from None
        finally:
            connection.close()

    def token(self, renew: bool = False) -> str:
        """The session token that AWS wants with every question."""
        if self._token is None or renew:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": _LIFETIME}
            status, body = self.get("/latest/api/token", headers, "PUT")
            if status != 200:
                raise OSError(f"no session token: the service answers {status}")
            self._token = body.decode("ascii", "replace").strip()
        return self._token


def ask_aws(service: Metadata) -> Notice | None:
    path = "/latest/meta-data/spot/instance-action"
    status, body = service.get(path, {"X-aws-ec2-metadata-token": service.token()})
    if status == 401:
        status, body = service.get(path, {"X-aws-ec2-metadata-token": service.token(renew=True)})
    if status == 404:
        return None
    said = _object(status, body)
    action, at = str(said.get("action")), str(said.get("time"))
    return Notice(f"{action} {at}", f"aws: {action} at {at}", _moment(at, datetime.fromisoformat))


def ask_gcp(service: Metadata) -> Notice | None:
    headers = {"Metadata-Flavor": "Google", "Host": "metadata.google.internal"}
    status, body = service.get("/computeMetadata/v1/instance/preempted", headers)
    if status != 200:
        raise OSError(f"the service answers {status}")
    return Notice("preempted", "gcp: preempted") if body.strip() == b"TRUE" else None


def ask_azure(service: Metadata) -> Notice | None:
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    said = _object(*service.get(path, {"Metadata": "true"}))
    events = said.get("Events")
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("EventType") in ("Preempt", "Terminate"):
            at = str(event.get("NotBefore") or "")
            kind = event["EventType"]
            return Notice(
                f"{event.get('EventId')}", f"azure: {kind} {at}".strip(), _moment(at, parsedate_to_datetime)
            )
    return None


#: Who is asked, by the value of `save.notice`.
CLOUDS: dict[str, Callable[[Metadata], Notice | None]] = {"aws": ask_aws, "gcp": ask_gcp, "azure": ask_azure}


def _object(status: int, body: bytes) -> dict[str, Any]:
    if status != 200:
        raise OSError(f"the service answers {status}")
    try:
        said = json.loads(body)
    except ValueError:
        raise OSError("the service answers with something else than JSON") from None
    if not isinstance(said, dict):
        raise OSError("the service answers with something else than an object")
    return said


def _moment(text: str, read: Callable[[str], datetime]) -> datetime | None:
    try:
        moment = read(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
