"""Trust in keys as the registry of a log says it: a fold that follows the topic.

Before records are given out, the registry is read to its end if one of them is signed by a key that is not
known here, so that a key counts as soon as it is trusted. Without such a record it is read now and then:
a revocation counts here at most `LOOK_S` after the log took it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    ConfigError,
    CorruptRecordError,
    EventError,
    EventValidationError,
    LogUnavailableError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.record_proofs import PROOF
from noesium_stream.event.signing import Verifier
from noesium_stream.event.trust.trust_fold import TRUST_TYPES, trusted_after
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.headers import header_value
from noesium_stream.log.port import EventLog, Handler
from noesium_stream.log.record import Decoder, Record

LOOK_S: Final = 5.0
_PAUSE_S: Final = 0.25
_REFUSED: Final = 100
_REASON_LENGTH: Final = 300


class RegistryTrust:
    """Keeps the keys of a verifier as the registry of a log says.

    Attributes:
        refused: why events of the registry about keys were passed over, by offset; the last ones.
        said_at: the offset of the last event about a key, by its id; keys of the root have none.
    """

    def __init__(self, log: EventLog, verifier: Verifier, clock: Clock) -> None:
        self.refused: dict[int, str] = {}
        self.said_at: dict[str, int] = {}
        self._log = log
        self._verifier = verifier
        self._clock = clock
        self._topic = log.topology.registry
        self._cursor: dict[int, int] = {}
        self._looked_s: float | None = None
        self._reading = asyncio.Lock()

    async def know(self, records: Sequence[Record]) -> None:
        """Have the keys that these records are signed with, as far as the registry has them.

        Waits while the log does not answer and one of the keys is unknown.
        """
        if not records or records[0].topic == self._topic:
            return  # the fold of the registry takes its own records in order
        while True:
            known = all(key_id in self._verifier.keys for key_id in _signers(records))
            now_s = self._clock.monotonic()
            if known and self._looked_s is not None and now_s < self._looked_s + LOOK_S:
                return
            try:
                await self.refresh()
                return
            except LogUnavailableError:
                if known:
                    return  # the next look finds what is new
                await self._clock.sleep(_PAUSE_S)

    async def refresh(self) -> dict[str, TrustedKey]:
        """Read the registry to its end; return the keys by id.

        Raises:
            LogUnavailableError: the log does not answer.
        """
        async with self._reading:
            looked_s = self._clock.monotonic()
            try:
                until = await self._log.end(self._topic)
            except TopicNotFoundError:
                until = {}
            if until != self._cursor:
                source = self._log.read_batches(self._topic, self._cursor, until=until, types=TRUST_TYPES)
                async for batch in source:
                    for record in batch:
                        self._take(record)
                self._cursor = until
            self._looked_s = looked_s
            return dict(self._verifier.keys)

    def _take(self, record: Record) -> None:
        try:
            event = record.envelope
            key = trusted_after(self._verifier.keys, event, record.signed_by, record.timestamp_ms)
            self._verifier.trust(key)
        except (CorruptRecordError, EventValidationError, ConfigError) as error:
            self._refuse(record, error)
            return
        self.said_at[key.key_id] = record.offset

    def _refuse(self, record: Record, error: EventError | ConfigError) -> None:
        self.refused[record.offset] = brief(error, _REASON_LENGTH)
        if len(self.refused) > _REFUSED:
            del self.refused[min(self.refused)]


def trusting(handler: Handler, decoder: Decoder) -> Handler:
    """The handler, which gets records only once the keys that they are signed with are known."""
    if decoder.record_verifier is None:
        return handler

    async def handle(records: Sequence[Record]) -> None:
        await decoder.know_keys_of(records)
        await handler(records)

    return handle


def trust_of(log: EventLog) -> RegistryTrust:
    """The keys that a log trusts.

    Raises:
        ConfigError: it was opened without public keys.
    """
    trust = getattr(log.decoder, "trust", None)
    if not isinstance(trust, RegistryTrust):
        raise ConfigError(
            "No public keys are configured: nothing is verified here.",
            hint="NOESIUM_PUBLIC_KEYS names the file that has the operator's public key.",
        )
    return trust


async def own_key(log: EventLog) -> TrustedKey | None:
    """The key with which this process signs what it writes; None: signatures are not verified here.

    Where they are verified and not required, a process that does not sign, or not with a trusted key, has
    none either.

    Raises:
        ConfigError: signatures are required, and this process does not sign, or not with a trusted key.
        LogUnavailableError
    """
    signer, verifier = getattr(log.decoder, "record_signer", None), log.decoder.record_verifier
    if verifier is None or not (verifier.required or signer is not None):
        return None
    if signer is None:
        raise ConfigError(
            "This process does not sign what it writes, and only signed records are accepted.",
            hint="NOESIUM_SIGNING_KEY names the file of a private key; make one: noesium keys new --help",
        )
    if verifier.key(signer.key_id) is None:
        await trust_of(log).refresh()
    key = verifier.key(signer.key_id)
    if key is None and verifier.required:
        raise ConfigError(
            f"{log.url} does not trust the key {short(signer.key_id)}: what it signs is accepted by nobody.",
            hint="An operator lets the log trust it: noesium keys trust FILE",
        )
    return key


def _signers(records: Sequence[Record]) -> Iterable[str]:
    """The ids of the keys with which records say that they are signed."""
    found = set[bytes]()
    for record in records:
        proof = header_value(record.raw_headers, PROOF)
        if proof is not None:
            found.add(proof[:260].split(b" ", 2)[1] if proof.count(b" ", 0, 260) else b"")
    return (key_id.decode("ascii", "replace") for key_id in found)
