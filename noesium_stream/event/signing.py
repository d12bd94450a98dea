"""Ed25519 signatures over canonical envelopes (RFC-0002).

A signature covers values (the RFC 8785 form of everything but the signature itself), but an event on a log is
bytes, and many byte sequences could encode the same values. A signed event therefore has exactly one
encoding, so that no bit of it can be changed unnoticed:
- Its payload, metadata and extensions travel as canonical JSON, extensions sorted by name. The signature is
verified over their texts as received, so other text does not verify.
- After verification the event is encoded again, and every byte must be the same.
- The signature block, which the signature does not cover, has one form too: the algorithm is `Ed25519`, a
verifier knows each key under one id only, and base64 is url-safe, unpadded, with zero spare bits.

The codec verifies an event before the catalogue or any other code sees it. A signature that cannot be
verified (invalid, with an unknown key, or because the codec has no keys) is refused: RFC-0002 requires a
present signature to be valid.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from noesium_stream.errors import ConfigError, SignatureError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import SignatureBlock, short
from noesium_stream.event.payload.canonical import canonical_envelope
from noesium_stream.event.trust.key_files import read_private_key, read_public_keys
from noesium_stream.event.trust.trusted_key import TrustedKey, checked_key

ALGORITHM: Final = "Ed25519"


class Signer:
    """Signs events with one private key.

    `private_key` is an `Ed25519PrivateKey` or its 32 raw bytes; `public_key_id` is the name under which
    verifiers know the public key.

    Raises:
        ConfigError: the key or its id is invalid.
    """

    def __init__(self, private_key: Ed25519PrivateKey | bytes, public_key_id: str) -> None:
        if not public_key_id:
            raise ConfigError("a signing key needs an id under which verifiers know it.")
        if isinstance(private_key, bytes):
            try:
                private_key = Ed25519PrivateKey.from_private_bytes(private_key)
            except ValueError:
                raise ConfigError("a private key of Ed25519 has 32 bytes.") from None
        self._key = private_key
        self.public_key_id = public_key_id

    @classmethod
    def from_file(cls, path: Path) -> Signer:
        """Load the key from a file of one private key (see `noesium_stream.event.trust.key_files`).

        Raises:
            ConfigError: the file cannot be read, or has other content.
        """
        key_id, key = read_private_key(path)
        return cls(key, key_id)

    @property
    def public_key(self) -> Ed25519PublicKey:
        """The public key, for verifiers."""
        return self._key.public_key()

    def sign(self, event: EventEnvelope) -> EventEnvelope:
        """The event with a signature, which replaces any earlier one.

        Raises:
            EventValidationError: it has no canonical form (whole numbers beyond ±(2^53-1), NaN, ...).
        """
        text = self.sign_bytes(canonical_envelope(event))
        return event.replace(signature=SignatureBlock(ALGORITHM, self.public_key_id, text))

    def sign_bytes(self, data: bytes) -> str:
        """The signature of any bytes, in unpadded url-safe base64."""
        return base64.urlsafe_b64encode(self._key.sign(data)).rstrip(b"=").decode()


class Verifier:
    """Verifies events against known public keys, by id.

    Keys are `TrustedKey`s; an `Ed25519PublicKey`, or its 32 raw bytes, may speak for everybody. With
    `required`, `verify` refuses an event without a signature, and a log a record without a proof
    (`record_proofs.py`).

    Raises:
        ConfigError: a key is invalid, or two ids name the same key (see the module's docstring).
    """

    def __init__(
        self,
        keys: Mapping[str, TrustedKey | Ed25519PublicKey | bytes] | None = None,
        *,
        required: bool = False,
    ) -> None:
        self.required = required
        self._keys: dict[str, TrustedKey] = {}
        self._ids: dict[bytes, str] = {}
        for key_id, key in (keys or {}).items():
            self.trust(key if isinstance(key, TrustedKey) else TrustedKey(key_id, checked_key(key_id, key)))

    @classmethod
    def from_file(cls, path: Path | None, *, required: bool = False) -> Verifier:
        """Load the keys from a file (see `noesium_stream.event.trust.key_files`); without one none is known.

        Raises:
            ConfigError: the file cannot be read, or has other content.
        """
        if path is None:
            return cls(required=required)
        return cls(read_public_keys(path), required=required)

    @property
    def keys(self) -> Mapping[str, TrustedKey]:
        """The keys by their ids."""
        return self._keys

    def trust(self, key: TrustedKey) -> None:
        """Verify with this key, too, or with what is new about a known one.

        Raises:
            ConfigError: its id names another key, or another id names this key.
        """
        data = key.public_key.public_bytes_raw()
        known = self._keys.get(key.key_id)
        if known is not None and known.public_key.public_bytes_raw() != data:
            raise ConfigError(f"the id {short(key.key_id)} names another public key already.")
        other = self._ids.setdefault(data, key.key_id)
        if other != key.key_id:
            raise ConfigError(f"the ids {short(other)} and {short(key.key_id)} name the same public key.")
        self._keys[key.key_id] = key

    def copy(self) -> Verifier:
        """Another one with the same keys."""
        return Verifier(self._keys, required=self.required)

    def verify(self, event: EventEnvelope, texts: Mapping[str, bytes] | None = None) -> None:
        """Check the event's signature, if it has one; `texts` as for `canonical_envelope`.

        Raises:
            SignatureError: it is invalid, its key is unknown, or it is missing although required.
        """
        block = event.signature
        if block is None:
            if self.required:
                raise SignatureError("signature", "is missing, and here only signed events are accepted")
            return
        if block.algorithm != ALGORITHM:
            raise SignatureError("signature.algorithm", f"{short(block.algorithm)} is not {ALGORITHM}")
        try:
            self.verify_bytes(block.public_key_id, block.signature, canonical_envelope(event, texts))
        except SignatureError as error:
            if error.field == "signature.value":
                raise SignatureError("signature", f"{event.event_id} is not what was signed") from None
            raise

    def verify_bytes(self, key_id: str, signature: str, data: bytes) -> TrustedKey:
        """Check a signature of any bytes, as `Signer.sign_bytes` writes it; return the key.

        Raises:
            SignatureError: it is invalid, or its key is unknown.
        """
        key = self._keys.get(key_id)
        if key is None:
            raise SignatureError(
                "signature.public_key_id",
                f"the key {short(key_id)} is not known here: it cannot be verified",
                hint="Hand over the key: open_log(url, verifier=Verifier({id: public_key})).",
            )
        try:
            key.public_key.verify(_signature_bytes(signature), data)
        except InvalidSignature:
            raise SignatureError("signature.value", "is not of this content") from None
        return key


def _signature_bytes(text: str) -> bytes:
    try:
        signature = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if len(signature) != 64 or base64.urlsafe_b64encode(signature).rstrip(b"=").decode() != text:
        raise SignatureError("signature.signature", "is not 64 bytes in unpadded url-safe base64")
    return signature
