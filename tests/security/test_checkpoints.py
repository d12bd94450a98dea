"""Checkpoints on a log: bytes that name a class do not build it."""

from __future__ import annotations

import base64
import importlib
import sys
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from noesium_stream.kernel import LogCheckpointer
from noesium_stream.kernel.checkpointer.values import Values

CALLED: list[Any] = []


class Ours:
    def __init__(self, value: Any = None) -> None:
        CALLED.append(value)


def naming(module: str, name: str, argument: Any) -> list[str]:
    """A typed value whose msgpack extension calls `module.name(argument)`."""
    inner = ormsgpack.packb((module, name, [argument]), option=ormsgpack.OPT_NON_STR_KEYS)
    return ["msgpack", base64.b64encode(ormsgpack.packb(ormsgpack.Ext(1, inner))).decode()]


def values_of(saver: LogCheckpointer) -> Values:
    return Values(saver.serde)


async def test_a_class_that_bytes_name_is_neither_imported_nor_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CALLED.clear()
    (tmp_path / "named_by_bytes.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with LogCheckpointer.from_url("memory://") as saver:
        values = values_of(saver)
        values.decode({"$typed": naming(__name__, "Ours", "forged")})
        values.decode({"$typed": naming("named_by_bytes", "anything", 1)})
        values.decode({"$typed": naming("os", "system", f"touch {tmp_path}/proof")})
    assert CALLED == []
    assert "named_by_bytes" not in sys.modules
    assert not (tmp_path / "proof").exists()


async def test_a_user_may_allow_a_class() -> None:
    CALLED.clear()
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Ours")])
    with LogCheckpointer.from_url("memory://", serde=serde) as saver:
        made = values_of(saver).decode({"$typed": naming(__name__, "Ours", "wanted")})
    assert isinstance(made, Ours)
    assert CALLED == ["wanted"]
