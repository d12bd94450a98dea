"""The manifest of a push: written last, and signed if a key is configured."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noesium_stream.errors import SignatureError, SnapshotError, brief
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.signing import Signer, Verifier

MANIFEST: Final = "manifest.json"
PACKED: Final = ".zst"
SPEAKER: Final = "agent:projections"
"""The name in which a push is signed; see `noesium_stream.event.trust.trusted_key`."""

_SIGNATURE: Final = "signature"

_Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
_Count = Annotated[int, Field(ge=0)]


class ShippedFile(BaseModel):
    """One state file of a push: `sha256` of its compressed bytes; `bytes` is its uncompressed size."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    topic: _Topic
    topic_id: str
    partition: _Count
    shape: str
    cursor: _Count
    events: _Count
    bytes: _Count
    packed_bytes: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def name(self) -> str:
        """The name of the state file."""
        return f"{self.topic}-{self.partition}.state"


class Shipment(BaseModel):
    """The manifest of a push. `push` is its id, a UUIDv7: a later push has a greater one.

    `code` is the fingerprint of the code that folded the states; None if not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1] = 1
    push: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")]
    pushed: str
    projection: str
    version: Annotated[int, Field(ge=1)]
    reference: str | None
    group: str
    keyed: bool
    merges: bool
    unmerged: tuple[str, ...] = ()
    code: str | None = None
    files: tuple[ShippedFile, ...]

    @property
    def place(self) -> str:
        """The place of the push in a store."""
        return f"{self.projection}/v{self.version}/{self.push}"


def seal(shipment: Shipment, signer: Signer | None) -> bytes:
    """Encode a manifest: JSON, with a signature over its RFC 8785 form."""
    fields = shipment.model_dump(mode="json")
    if signer is not None:
        signed = {"algorithm": "Ed25519", "key": signer.public_key_id}
        fields[_SIGNATURE] = {**signed, "value": signer.sign_bytes(rfc8785.dumps(fields))}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"


def unseal(data: bytes, place: str, verifier: Verifier | None) -> Shipment:
    """Decode a manifest that was found at a place of a store.

    Raises:
        SnapshotError: it is damaged, belongs to another place, or `verifier` rejects its signature.
    """
    try:
        fields: dict[str, Any] = orjson.loads(data)
        signature = fields.pop(_SIGNATURE, None)
        if verifier is not None:
            _verify(fields, signature, verifier)
        shipment = Shipment.model_validate_json(orjson.dumps(fields))
    except SignatureError as error:
        raise SnapshotError(f"{place} is refused: its signature {error.reason}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise SnapshotError(f"{place}/{MANIFEST} is damaged: {path}: {first['msg']}.") from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise SnapshotError(f"{place}/{MANIFEST} is damaged: {brief(error, 200)}.") from error
    if shipment.place != place:
        raise SnapshotError(f"{place}/{MANIFEST} is that of {shipment.place}.")
    return shipment


def _verify(fields: dict[str, Any], signature: Any, verifier: Verifier) -> None:
    if signature is None:
        raise SignatureError(_SIGNATURE, "is missing, and here public keys are configured")
    if not isinstance(signature, dict) or signature.get("algorithm") != "Ed25519":
        raise SignatureError(_SIGNATURE, "is not one of Ed25519")
    key = verifier.verify_bytes(str(signature.get("key")), str(signature.get("value")), rfc8785.dumps(fields))
    if not key.speaks(SPEAKER):
        whose = f"is by the key {short(key.key_id)}"
        raise SignatureError(_SIGNATURE, f"{whose}, which may not speak for {SPEAKER}")
