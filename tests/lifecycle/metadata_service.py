"""The metadata services of three clouds on one loopback port."""

import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=120)


class Cloud(ThreadingHTTPServer):
    """Answers as the three metadata services do, and refuses what they refuse."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ends = False
        self.tokens = 0


class Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            return self._answer(400)
        self.server.tokens += 1
        return self._answer(200, f"token-{self.server.tokens}")

    def do_GET(self) -> None:
        ends = self.server.ends
        if self.path == "/latest/meta-data/spot/instance-action":
            if self.headers.get("X-aws-ec2-metadata-token") != f"token-{self.server.tokens}":
                return self._answer(401)
            said = {"action": "terminate", "time": f"{SOON:%Y-%m-%dT%H:%M:%SZ}"}
            return self._answer(200, json.dumps(said)) if ends else self._answer(404)
        if self.path == "/computeMetadata/v1/instance/preempted":
            google = self.headers.get("Metadata-Flavor") == "Google"
            return self._answer(200, "TRUE" if ends else "FALSE") if google else self._answer(403)
        if self.path == "/metadata/scheduledevents?api-version=2020-07-01":
            if self.headers.get("Metadata") != "true":
                return self._answer(400)
            reboot = {"EventId": "a", "EventType": "Reboot", "NotBefore": ""}
            at = f"{SOON:%a, %d %b %Y %H:%M:%S GMT}"
            preempt = {"EventId": "b", "EventType": "Preempt", "NotBefore": at}
            return self._answer(200, json.dumps({"Events": [reboot, preempt] if ends else [reboot]}))
        return self._answer(404)

    def _answer(self, status: int, body: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass
