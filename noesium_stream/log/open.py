"""`open_log`: opens an `EventLog` by its URL; a backend's libraries are imported when it is opened."""

from __future__ import annotations

import os

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.config import load_config
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.codec.other_schemas import SchemaRegistry
from noesium_stream.event.sealing.key_folder import KeyFolder
from noesium_stream.event.sealing.keys import SubjectKeys
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import Topology
from noesium_stream.log.trust import RegistryTrust
from noesium_stream.log.url import LogUrl, parse_url


async def open_log(
    url: str | None = None,
    *,
    topology: Topology | None = None,
    catalogue: Catalogue | None = None,
    clock: Clock | None = None,
    verifier: Verifier | None = None,
    signer: Signer | None = None,
    registry: SchemaRegistry | None = None,
    subject_keys: SubjectKeys | None = None,
) -> EventLog:
    """Open the log at `url`, or by default the log that the configuration names.

    - `memory://[name]`: in this process; a name shares it, `?seed=N` interleaves operations reproducibly.
    - `sqlite:///path` (relative, four slashes: absolute): one durable file, several processes.
    - `kafka://host:port[,host:port]`: a broker.

    Args:
        url: the address; its parameters `namespace` and `partitions` override the configured ones.
        topology: names and partition counts; overrides both.
        catalogue: event types that are validated; default: the standard ones.
        clock: time and ids; default: the machine's.
        verifier: the keys for signed events and records; default: the configured ones. Without a key,
            `Record.envelope` refuses a signed event. Operators among them may trust and revoke others in the
            log's registry.
        signer: the key with which every record that is written here is signed; default: the configured one.
        registry: a schema registry; records are then in the Confluent wire format. Default: the configured
            one.
        subject_keys: the keys that seal events about people. Default: those in the configured folder; without
            one, of a SQLite file those in the folder beside it, of a log in memory its own, of Kafka none.

    Raises:
        LogUrlError: the URL cannot be read.
        LogUnavailableError: no broker answers at this address, or the file cannot be opened.
        LogCorruptError: the file is torn, foreign or damaged.
    """
    config = load_config()
    parsed = parse_url(url or config.log)
    names = topology or parsed.topology(Topology(config.namespace, config.partitions))
    if verifier is None and (config.public_keys is not None or config.signatures == "required"):
        verifier = Verifier.from_file(config.public_keys, required=config.signatures == "required")
    if registry is None and config.schema_registry is not None:
        registry = _registry(config.schema_registry)
    if signer is None and config.signing_key is not None:
        signer = Signer.from_file(config.signing_key)
    if verifier is not None:
        verifier = verifier.copy()  # what the registry of this log says is of this log
    clock = clock or SystemClock()
    keys = subject_keys
    if keys is None and config.subject_keys is not None:
        keys = KeyFolder(config.subject_keys.expanduser().absolute(), clock)
    codec = EnvelopeCodec(catalogue, verifier=verifier, signer=signer, registry=registry, subject_keys=keys)
    log = await _open(parsed, names, codec, clock)
    if verifier is not None:
        codec.trust = RegistryTrust(log, verifier, clock)
    return log


def _registry(url: str) -> SchemaRegistry:
    from noesium_stream.event.codec.confluent_registry import (  # noqa: PLC0415
        ConfluentRegistry,
        registry_settings,
    )

    return ConfluentRegistry(url, registry_settings(os.environ))


async def _open(url: LogUrl, topology: Topology, codec: EnvelopeCodec, clock: Clock) -> EventLog:
    if url.scheme == "memory":
        from noesium_stream.log.memory.open import open_memory  # noqa: PLC0415

        return await open_memory(url, topology, codec, clock)
    if url.scheme == "sqlite":
        from noesium_stream.log.sqlite.store import open_sqlite  # noqa: PLC0415

        return await open_sqlite(url, topology, codec, clock)
    from noesium_stream.log.kafka.log import open_kafka  # noqa: PLC0415

    return await open_kafka(url, topology, codec, clock)
