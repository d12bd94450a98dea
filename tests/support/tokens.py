"""A token endpoint on this machine: it gives signed tokens to a client that knows its secret."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "worker:1", "s3cr&t/="
_KEY_ID = "k1"


class TokenServer:
    """Gives tokens at `url`; `answer` replaces what it says (status, body)."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, str]] = []
        self.answer: tuple[int, bytes] | None = None
        self.lasts_s = 600
        self._key = rsa.generate_private_key(65537, 2048)

    def jwks(self, path: Path) -> Path:
        """Write the public key as brokers read it."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": _KEY_ID,
            "alg": "RS256",
            "use": "sig",
            "n": _b64(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": _b64(numbers.e.to_bytes(3, "big")),
        }
        path.write_text(json.dumps({"keys": [key]}))
        return path

    def token(self) -> str:
        """A token that is valid for `lasts_s`."""
        now = int(time.time())
        claims = {"sub": CLIENT, "iat": now, "exp": now + self.lasts_s, "scope": "kafka"}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        text = f"{_b64(json.dumps(head).encode())}.{_b64(json.dumps(claims).encode())}"
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_b64(signature)}"


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """A running endpoint."""
    server = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            server.requests.append({"login": login, "body": body})
            status, data = server.answer or self._answer(login)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status == 302:
                self.send_header("Location", server.url)
            self.end_headers()
            self.wfile.write(data)

        def _answer(self, login: str) -> tuple[int, bytes]:
            if login != "worker%3A1:s3cr%26t%2F%3D":
                return 401, b'{"error": "invalid_client"}'
            answer: dict[str, Any] = {"access_token": server.token(), "expires_in": server.lasts_s}
            return 200, json.dumps(answer).encode()

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}/token"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
