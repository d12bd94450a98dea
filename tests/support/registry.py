"""A schema registry on this machine: the part of Confluent's REST interface that a client needs."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Keeps schemas by number; `requests` lists what was asked, `refuse` makes it answer with an error.

    `login` is the `Authorization` that it wants; None: none.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.refuse: tuple[int, dict[str, Any]] | None = None
        self.url = ""
        self.login: str | None = None

    def add(self, schema: Any, schema_type: str = "AVRO") -> int:
        """The number of a schema; the same one for the same schema."""
        entry = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema),
            "schemaType": schema_type,
        }
        for number, known in self.schemas.items():
            if known == entry:
                return number
        number = 100_001 + len(self.schemas)
        self.schemas[number] = entry
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and body for a request."""
        self.requests.append(f"{method} {path.partition('?')[0]}")
        if self.refuse is not None:
            return self.refuse
        if match := re.match(r"/schemas/ids/(\d+)", path):
            entry = self.schemas.get(int(match[1]))
            return (200, entry) if entry else (404, {"error_code": 40403, "message": "Schema not found"})
        if method == "POST" and re.match(r"/subjects/[^/]+/versions", path):
            return 200, {"id": self.add(body["schema"], body.get("schemaType", "AVRO"))}
        return 404, {"error_code": 404, "message": f"nothing at {path}"}


@contextmanager
def registry_server(context: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """A running registry at `url`; over TLS with a context."""
    server = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = server.answer(self.command, self.path, body)
            if server.login not in (None, self.headers.get("Authorization")):
                status, answer = 401, {"error_code": 401, "message": "who are you?"}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server.url = f"{'http' if context is None else 'https'}://localhost:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
