"""An HTTP endpoint that takes down what it is sent and answers as it is told, and a proxy that only tunnels."""

import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Endpoint:
    """Answers with `answers`, one after the other, the last one for ever: a status, or status and headers."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Any] = [200]
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = endpoint._answer(dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"said\n")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://localhost:{self.port}/ingest"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        self.requests.append((headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer(body)
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        if status < 300:
            self.taken.append((headers, body))
        return status, more

    @property
    def records(self) -> list[dict[str, Any]]:
        """What was taken in the JSON form."""
        return [record for _, body in self.taken for record in json.loads(body)["records"]]

    @property
    def proxied(self) -> list[tuple[dict[str, Any], bytes]]:
        """What was taken in the form of Sonar's Kafka proxy."""
        return [message for _, body in self.taken for message in parse_proxy_form(body)]


def parse_proxy_form(body: bytes) -> list[tuple[dict[str, Any], bytes]]:
    messages = []
    while body:
        assert body[:1] == b"\n"
        line, _, rest = body[1:].partition(b"\n")
        head = json.loads(line)
        messages.append((head, rest[: head["data-size"]]))
        assert len(messages[-1][1]) == head["data-size"]
        body = rest[head["data-size"] :]
    return messages


class Tunnel:
    """A proxy that knows CONNECT and nothing else (RFC 9110, 9.3.6)."""

    def __init__(self) -> None:
        self.connected: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        target = head.split(b" ")[1].decode()
        assert head.startswith(b"CONNECT")
        self.connected.append(head.decode())
        server = socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])))
        client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with client, server:
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
