"""Vectors of others: signatures of Wycheproof, canonical texts of the author of RFC 8785.

Where they are from: `tests/data/vectors/README.md`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, SignatureError
from noesium_stream.event import Verifier, canonical_json

FOLDER = Path(__file__).parents[1] / "data" / "vectors"
SIGNATURES: list[list[Any]] = json.loads((FOLDER / "ed25519.json").read_text(encoding="utf-8"))
TEXTS: dict[str, list[str]] = json.loads((FOLDER / "jcs.json").read_text(encoding="utf-8"))


def is_accepted(key: str, message: str, signature: str) -> bool:
    text = base64.urlsafe_b64encode(bytes.fromhex(signature)).rstrip(b"=").decode()
    try:
        Verifier({"key": bytes.fromhex(key)}).verify_bytes("key", text, bytes.fromhex(message))
    except (SignatureError, ConfigError):
        return False
    return True


def test_the_signatures_of_wycheproof_are_judged_as_it_says() -> None:
    assert len(SIGNATURES) > 140
    wrong = [number for number, *case, valid in SIGNATURES if is_accepted(*case) != valid]
    assert wrong == []


@pytest.mark.parametrize("name", TEXTS)
def test_the_canonical_text_is_that_of_the_author_of_rfc_8785(name: str) -> None:
    given, expected = (bytes.fromhex(part) for part in TEXTS[name])
    assert canonical_json(json.loads(given)) == expected.rstrip(b"\n")
