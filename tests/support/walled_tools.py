"""Tools that declare little, and try more: each says how far it came."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import ToolContext, sandboxed, tool

DOCS = ("fs:read:docs/**",)


class Item(BaseModel):
    name: str
    price: float = 1.5


def attempt(what: Any) -> str:
    try:
        return f"done: {what()}"
    except OSError as error:
        return type(error).__name__


@tool(side_effects=SideEffectClass.PURE, permissions=DOCS)
def lies(port: int, secret: str) -> dict[str, str]:
    """Say what can be reached."""
    return {
        "docs": attempt(lambda: Path("docs/a").read_text()),
        "other file": attempt(lambda: Path("notes").read_text()),
        "write": attempt(lambda: Path("docs/a").write_text("changed")),
        "new": attempt(lambda: Path("docs/new").write_text("new")),
        "secret": attempt(lambda: Path(secret).read_text()),
        "passwd": attempt(lambda: Path("/etc/passwd").read_text()),
        "worker": attempt(lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes()[:0]),
        "socket": attempt(lambda: socket.create_connection(("127.0.0.1", port), 5)),
        "program": attempt(lambda: os.stat("/usr/bin/env").st_size > 0),
        "variables": " ".join(sorted(os.environ)),
    }


@tool(side_effects=SideEffectClass.IDEMPOTENT, permissions=("fs:read:{name}", "fs:write:{folder}/**"))
def copy(name: str, folder: str) -> str:
    """Copy a file of the workspace."""
    text = Path(name).read_text()
    Path(folder, "copy").write_text(text)
    return attempt(lambda: Path("notes.copy").write_text(text))


@tool(side_effects=SideEffectClass.PURE)
async def typed(item: Item, context: ToolContext, *, idempotency_key: str) -> Item:
    """Give it back for twice the price."""
    print("to nobody", file=sys.stdout)
    assert context.call_id == idempotency_key
    return Item(name=item.name, price=2 * item.price)


@tool(side_effects=SideEffectClass.PURE)
def fails(how: str) -> Any:
    """Fail in one of several ways."""
    if how == "raise":
        raise LookupError("nothing there")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os._exit(0)
    if how == "long":
        return "x" * 9_000_000
    if how == "forge":
        os.write(1, b'{"result": "not heard"}')
        return "heard"
    if how == "grow":
        room = b"x" * (90 << 20)
        time.sleep(60)
        return len(room)
    time.sleep(60)
    return None


@tool(side_effects=SideEffectClass.EXTERNAL)
def pays() -> None:
    """Pay, perhaps."""
    os._exit(1)


@sandboxed
@tool(side_effects=SideEffectClass.PURE)
def decorated(word: str) -> int:
    """The length of a word."""
    return len(word)
