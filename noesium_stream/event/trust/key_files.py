"""Files of keys: public ones with the names that each may speak for, and one private key.

Both are JSON objects by key id. A public key is its 32 bytes in base64, which then may speak for everybody,
or an object with `key`, `speaks_for`, and optionally `not_before` and `not_after` (RFC 3339). A private key
is its 32 bytes in base64, or an object with `encrypted`: PKCS #8 in PEM, encrypted with a password.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from noesium_stream.clock import to_ms, to_rfc3339
from noesium_stream.errors import ConfigError, brief
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.small_files import read_small
from noesium_stream.event.trust.trusted_key import (
    KEY_BYTES,
    TrustedKey,
    check_key_id,
    checked_key,
    checked_principals,
)
from noesium_stream.private_files import FILE_MODE

PASSWORD: Final = "NOESIUM_KEY_PASSWORD"  # nosec B105 - the name of a variable
"""The environment variable with the password of an encrypted private key."""

MAX_FILE_BYTES: Final = 4_000_000
_PUBLIC: Final = '{"alice-2026": {"key": "base64 of the 32 bytes", "speaks_for": ["alice"]}}'
_PRIVATE: Final = '{"alice-2026": "base64 of the 32 bytes"}'
_PUBLIC_NAMED_BY: Final = "NOESIUM_PUBLIC_KEYS, public_keys in noesium.toml, or an option"
_PRIVATE_NAMED_BY: Final = "NOESIUM_SIGNING_KEY, signing_key in noesium.toml, or an option"
_FIELDS: Final = frozenset({"key", "speaks_for", "not_before", "not_after"})


def read_public_keys(path: Path) -> dict[str, TrustedKey]:
    """The public keys in a file, by id.

    Raises:
        ConfigError: the file cannot be read, or has other content.
    """
    data = read_small(path, MAX_FILE_BYTES, "file of public keys", _PUBLIC_NAMED_BY)
    return parse_public_keys(data, str(path))


def parse_public_keys(data: bytes, where: str) -> dict[str, TrustedKey]:
    """The public keys in the content of a file.

    Raises:
        ConfigError: it has other content; names `where` it comes from.
    """
    found = _object(data, where, "public keys", _PUBLIC)
    try:
        return {key_id: _public_key(key_id, entry) for key_id, entry in found.items()}
    except ConfigError as error:
        raise _foreign(where, "public keys", error.message, _PUBLIC) from None


def read_private_key(path: Path) -> tuple[str, Ed25519PrivateKey]:
    """The id and the key in a file of one private key, whose password, if any, is in the environment.

    Raises:
        ConfigError: the file cannot be read, has other content, or the password is missing or wrong.
    """
    data = read_small(path, MAX_FILE_BYTES, "file of a private key", _PRIVATE_NAMED_BY)
    found = _object(data, str(path), "private key", _PRIVATE)
    if len(found) != 1:
        raise ConfigError(
            f"{path} has {len(found)} private keys, not one.", hint=f"It is a JSON object: {_PRIVATE}."
        )
    ((key_id, entry),) = found.items()
    try:
        check_key_id(key_id)
        if isinstance(entry, dict):
            return key_id, _decrypted(path, entry)
        return key_id, Ed25519PrivateKey.from_private_bytes(_raw(key_id, entry, "private"))
    except ConfigError as error:
        if error.hint is not None:
            raise
        raise _foreign(str(path), "private key", error.message, _PRIVATE) from None


def write_private_key(path: Path, key_id: str, key: Ed25519PrivateKey) -> bool:
    """Write a new file of one private key, with mode 600; return whether it is encrypted.

    It is encrypted if the environment has a password.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    password = os.environ.get(PASSWORD)
    entry: Any
    if password:
        hidden = BestAvailableEncryption(password.encode())
        entry = {"encrypted": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()}
    else:
        entry = base64.urlsafe_b64encode(key.private_bytes_raw()).decode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "w") as file:
            json.dump({key_id: entry}, file)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists already.", hint="A key is never written over another: give another file."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
    return bool(password)


def public_entries(keys: Iterable[TrustedKey]) -> dict[str, Any]:
    """Keys as a file of public keys has them."""
    return {key.key_id: _entry(key) for key in keys}


def moment_ms(text: object, field: str) -> int:
    """Milliseconds since the epoch of a time with its zone in RFC 3339.

    Raises:
        ConfigError: it is no such time; names the `field`.
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(f"{field}: {short(text)} is no time such as 2026-03-01T12:00:00Z.")
    return to_ms(moment)


def _entry(key: TrustedKey) -> dict[str, Any]:
    raw = base64.urlsafe_b64encode(key.public_key.public_bytes_raw()).decode()
    entry: dict[str, Any] = {"key": raw, "speaks_for": sorted(key.speaks_for)}
    for name, at_ms in (("not_before", key.not_before_ms), ("not_after", key.not_after_ms)):
        if at_ms is not None:
            entry[name] = to_rfc3339(at_ms)
    return entry


def _public_key(key_id: str, entry: object) -> TrustedKey:
    check_key_id(key_id)
    if not isinstance(entry, dict):
        return TrustedKey(key_id, checked_key(key_id, _raw(key_id, entry, "public")))
    strange = sorted(set(entry) - _FIELDS)
    if strange:
        raise ConfigError(f"{short(key_id)} has a field {short(strange[0])} that a key does not have.")
    names = entry.get("speaks_for")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{short(key_id)} has no list of names in `speaks_for`.")
    times = {
        f"{name}_ms": moment_ms(entry[name], f"{short(key_id)}.{name}")
        for name in ("not_before", "not_after")
        if entry.get(name) is not None
    }
    raw = _raw(key_id, entry.get("key"), "public")
    return TrustedKey(key_id, checked_key(key_id, raw), checked_principals(names), **times)


def _decrypted(path: Path, entry: Mapping[str, Any]) -> Ed25519PrivateKey:
    text, password = entry.get("encrypted"), os.environ.get(PASSWORD)
    if not isinstance(text, str):
        raise ConfigError("a private key is a text, or has a text `encrypted`")
    if not password:
        raise ConfigError(
            f"The private key in {path} is encrypted.", hint=f"Give its password in {PASSWORD}."
        )
    try:
        key = load_pem_private_key(text.encode(), password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"The private key in {path} cannot be decrypted.", hint=f"Is the password in {PASSWORD} right?"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError("the encrypted key is not one of Ed25519")
    return key


def _raw(key_id: str, text: object, kind: str) -> bytes:
    if not isinstance(text, str):
        raise ConfigError(f"the {kind} key {short(key_id)} is no base64")
    padded = text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4)
    try:
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except ValueError:
        raise ConfigError(f"the {kind} key {short(key_id)} is no base64") from None
    if len(data) != KEY_BYTES:
        raise ConfigError(f"the {kind} key {short(key_id)} has {len(data)} bytes; one of Ed25519 has 32")
    return data


def _object(data: bytes, where: str, what: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
    except (ValueError, RecursionError) as error:
        raise _foreign(where, what, brief(error, 200), example) from None
    return found


def _foreign(where: str, what: str, problem: str, example: str) -> ConfigError:
    return ConfigError(
        f"{where} is no file of {what}: {problem}", hint=f"It is a JSON object of ids and keys: {example}."
    )
