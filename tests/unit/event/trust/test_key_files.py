"""Files of keys: what is read, what is written, and what each mistake is told as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.key_files import (
    MAX_FILE_BYTES,
    PASSWORD,
    public_entries,
    read_private_key,
    read_public_keys,
    write_private_key,
)
from noesium_stream.event.trust.trusted_key import TrustedKey

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"


def written(tmp_path: Path, content: Any) -> Path:
    """A file with this content."""
    path = tmp_path / "keys.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_public_keys_are_read_as_they_are_written(tmp_path: Path) -> None:
    keys = [
        TrustedKey("alice-1", PRIVATE.public_key(), frozenset({"alice", "role:auditor"}), 1_000, 2_000),
        TrustedKey("ops", Ed25519PrivateKey.generate().public_key()),
    ]
    path = written(tmp_path, public_entries(keys))
    found = read_public_keys(path)
    assert public_entries(found.values()) == public_entries(keys)
    assert found["alice-1"].not_before_ms == 1_000
    assert found["ops"].speaks_for_everybody


def test_a_key_alone_may_speak_for_everybody(tmp_path: Path) -> None:
    [key] = read_public_keys(written(tmp_path, {"ops": KEY})).values()
    assert key.speaks_for_everybody


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("no json", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ("[]", "no JSON object"),
        ({"a b": KEY}, "key id"),
        ({"a": 5}, "no base64"),
        ({"a": "?"}, "no base64"),
        ({"a": "AAAA"}, "has 3 bytes"),
        ({"a": {"key": KEY}}, "no list of names"),
        ({"a": {"key": KEY, "speaks_for": ["x", 5]}}, "no list of names"),
        ({"a": {"key": KEY, "speaks_for": []}}, "1 to 1,000 names"),
        ({"a": {"key": KEY, "speaks_for": ["x"], "role": "y"}}, "'role'"),
        ({"a": {"key": KEY, "speaks_for": ["x"], "not_after": "soon"}}, "'soon' is no time"),
        ({"a": {"key": KEY, "speaks_for": ["x"], "not_after": "2026-03-01T12:00:00"}}, "is no time"),
        ({"a": "A" * 43}, "small order"),
    ],
)
def test_a_wrong_file_of_public_keys_is_one_error(tmp_path: Path, content: Any, problem: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError, match="is no file of public keys") as raised:
        read_public_keys(path)
    assert problem in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than 4,000,000 bytes"):
        read_public_keys(written(tmp_path, " " * (MAX_FILE_BYTES + 1)))
    with pytest.raises(ConfigError, match="No such file") as public:
        read_public_keys(tmp_path / "absent")
    assert "NOESIUM_PUBLIC_KEYS" in str(public.value.hint)
    with pytest.raises(ConfigError, match="No such file") as private:
        read_private_key(tmp_path / "absent")
    assert "NOESIUM_SIGNING_KEY" in str(private.value.hint)


def test_a_private_key_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    path = tmp_path / "alice.json"
    assert not write_private_key(path, "alice", PRIVATE)
    assert path.stat().st_mode & 0o777 == 0o600
    key_id, key = read_private_key(path)
    assert (key_id, key.private_bytes_raw()) == ("alice", PRIVATE.private_bytes_raw())
    with pytest.raises(ConfigError, match="exists already"):
        write_private_key(path, "alice", PRIVATE)


def test_an_encrypted_private_key_needs_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "correct horse")
    path = tmp_path / "alice.json"
    assert write_private_key(path, "alice", PRIVATE)
    assert "ENCRYPTED" in path.read_text()
    assert read_private_key(path)[1].private_bytes_raw() == PRIVATE.private_bytes_raw()
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        read_private_key(path)
    monkeypatch.delenv(PASSWORD)
    with pytest.raises(ConfigError, match="is encrypted") as raised:
        read_private_key(path)
    assert PASSWORD in str(raised.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "has 0 private keys"),
        ({"a": "AAAA"}, "has 3 bytes"),
        ({"a": {}}, "`encrypted`"),
        ("x", "Expecting"),
    ],
)
def test_a_wrong_file_of_a_private_key_is_one_error(tmp_path: Path, content: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_private_key(written(tmp_path, content))
