"""A small reverse proxy in front of a real server, which rejects large requests or answers with a login page."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LOGIN = b"<!doctype html><html><head><title>Sign in to\n the lab</title></head><body><form></form></body></html>"
TOO_LARGE = b"<html><head><title>413 Request Entity Too Large</title></head></html>"


@dataclass
class Proxy:
    """The settings of a running proxy: the largest request in bytes, and whether every answer is a login page."""

    address: str
    max_bytes: int = 1 << 20
    login: bool = False


@contextlib.contextmanager
def proxy_to(server: str) -> Iterator[Proxy]:
    """Run a proxy in front of `server`, an address such as http://127.0.0.1:5000."""
    target = urlsplit(server).netloc

    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)  # as nginx does, which discards what it rejects
            if proxy.login:
                self._answer(200, "text/html", LOGIN)
            elif length > proxy.max_bytes:
                self._answer(413, "text/html", TOO_LARGE)
            else:
                connection = http.client.HTTPConnection(target, timeout=120)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                self._answer(answer.status, answer.headers.get("Content-Type", "text/plain"), answer.read())
                connection.close()

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _forward  # noqa: N815 - names of http.server

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as front:
        proxy = Proxy(f"http://127.0.0.1:{front.server_port}")
        threading.Thread(target=front.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            front.shutdown()
