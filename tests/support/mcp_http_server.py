"""An MCP server at a URL for tests, of revision 2025-11-25: `python mcp_http_server.py FOLDER PORT`.

Its sessions end with its process. FOLDER gets `calls`, a line for each call, and `port`, when it listens. A
call of `slow` waits for the file `go` there. `TOKEN`, an environment variable, is the bearer token that it
asks for.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SESSIONS: set[str] = set()
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}}
    for name in ("echo", "die", "status", "large", "cut", "slow")
]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", session: str | None = None, kind: str = "json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(body)))
        if session is not None:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(405)

    def do_DELETE(self) -> None:
        self.answer(200)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = os.environ.get("TOKEN")
        if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
            self.answer(401)
            return
        method, known = request.get("method"), self.headers.get("Mcp-Session-Id") in SESSIONS
        if method == "initialize":
            session = uuid.uuid4().hex
            SESSIONS.add(session)
            info = {"name": "test", "version": "1"}
            made = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            self.result(request, made, session)
        elif not known or method == "server/discover":
            self.answer(404)
        elif "id" not in request:
            self.answer(202)
        elif method == "tools/list":
            self.result(request, {"tools": TOOLS})
        else:
            self.call(request)

    def call(self, request: dict[str, Any]) -> None:
        name = request["params"]["name"]
        with (FOLDER / "calls").open("a") as file:
            file.write(name + "\n")
        if name == "die":
            os._exit(9)
        while name == "slow" and not (FOLDER / "go").exists():
            time.sleep(0.01)
        if name == "status":
            self.answer(504, b"<html>Gateway Timeout</html>", kind="html")
            return
        if name == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.wfile.flush()
            self.connection.close()
            return
        self.result(request, {"content": [{"type": "text", "text": "x" * (10**6 if name == "large" else 1)}]})

    def result(self, request: dict[str, Any], result: dict[str, Any], session: str | None = None) -> None:
        self.answer(
            200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode(), session
        )


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    (FOLDER / "port").write_text(str(server.server_address[1]))
    server.serve_forever()
