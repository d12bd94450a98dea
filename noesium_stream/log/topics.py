"""Topic names, routing and partitioning of events, all pure functions.

Each agent type has an inbox (requests: anyone writes) and a journal (the truth: only the fenced owner
writes), co-partitioned by run id. Facts of other programs have a topic per domain. Tasks have two topics per
capability: the tasks themselves (anyone writes), and who has taken them (subscribers write). Four more topics
belong to the system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from noesium_stream.errors import ConfigError, EventValidationError
from noesium_stream.event.envelope import EventEnvelope

DEFAULT_PARTITIONS: Final = 8
WATCHER: Final = "watcher"
"""The writer id of the process that watches the agents' health."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_CAPABILITY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_CAPABILITY: Final = 120
_GENERATION: Final = re.compile(r"g([1-9]\d*)")
"""A partition count never changes: growth is a new generation of a topic, `….journal.g2`."""

_REGISTRY_TYPES: Final = frozenset(
    {
        "agent.started",
        "agent.stopped",
        "agent.unavailable",
        "agent.recovered",
        "capability.circuit.closed",
        "capability.circuit.opened",
        "capability.circuit.probed",
        "capability.registered",
        "capability.updated",
        "capability.deprecated",
        "key.revoked",
        "key.trusted",
        "projection.migrated",
        "tool.accepted",
        "tool.registered",
    }
)


class TopicKind(Enum):
    """The purpose of a topic; its settings follow from it."""

    INBOX = "inbox"
    JOURNAL = "journal"
    EVENTS = "events"
    REGISTRY = "registry"
    HEARTBEAT = "heartbeat"
    STREAM = "stream"
    DLQ = "dlq"
    TASK = "task"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The required settings of a topic; `retention_ms` None keeps records for good.

    `like`: if the topic is missing, create it with the settings of this other topic, which has to exist.
    `as_is`: an existing topic keeps its partition count; otherwise it must have at least as many.
    """

    name: str
    kind: TopicKind
    partitions: int
    retention_ms: int | None
    like: str | None = None
    as_is: bool = False


_DAY_MS: Final = 86_400_000
RETENTION_MS: Final[dict[TopicKind, int | None]] = {
    TopicKind.INBOX: 14 * _DAY_MS,
    TopicKind.JOURNAL: None,
    TopicKind.EVENTS: None,
    TopicKind.REGISTRY: None,
    TopicKind.HEARTBEAT: _DAY_MS // 24,
    TopicKind.STREAM: _DAY_MS // 24,
    TopicKind.DLQ: None,
    TopicKind.TASK: 14 * _DAY_MS,
    TopicKind.TAKEN: None,
}


@dataclass(frozen=True, slots=True)
class Topology:
    """The topic names of a namespace, and the partition count of new topics."""

    namespace: str = "noesium"
    partitions: int = DEFAULT_PARTITIONS
    exact: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.namespace) is None:
            raise ConfigError(
                f"{self.namespace!r} is not a namespace.",
                hint="Use lower-case letters, digits, - and _, beginning with a letter.",
            )

    def inbox(self, agent_type: str, generation: int = 1) -> str:
        """Topic of requests to agents of this type."""
        return _of_generation(f"{self.namespace}.agent.{agent_name(agent_type)}.inbox", generation)

    def journal(self, agent_type: str, generation: int = 1) -> str:
        """Topic of everything that agents of this type received, did and sent."""
        return _of_generation(f"{self.namespace}.agent.{agent_name(agent_type)}.journal", generation)

    def workers(self, agent_type: str) -> str:
        """The consumer group of the workers for this agent type; it reads their inbox."""
        return f"{self.namespace}.agent.{agent_name(agent_type)}"

    def task(self, capability_id: str) -> str:
        """Topic of the tasks for any subscriber of a capability (RFC-0001).

        Raises:
            ConfigError: the capability's id makes no topic name.
        """
        return f"{self.namespace}.task.{task_capability(capability_id)}"

    def taken(self, capability_id: str) -> str:
        """Topic that says who has taken the tasks of a capability, and how far; subscribers alone write it.

        Raises:
            ConfigError: as `task`.
        """
        return f"{self.namespace}.taken.{task_capability(capability_id)}"

    def takers(self, capability_id: str) -> str:
        """The consumer group of all subscribers of a capability, of whatever agent type."""
        return f"{self.namespace}.tasks.{task_capability(capability_id)}"

    def events(self, domain: str) -> str:
        """Topic of facts whose type begins with `domain`."""
        return f"{self.namespace}.events.{domain}"

    @property
    def registry(self) -> str:
        """Topic of capabilities and agents' life cycle; one partition."""
        return f"{self.namespace}.registry"

    @property
    def heartbeat(self) -> str:
        """Topic of heartbeats; kept for an hour."""
        return f"{self.namespace}.heartbeat"

    @property
    def watchers(self) -> str:
        """The consumer group of the processes that watch the agents' health."""
        return f"{self.namespace}.watchers"

    @property
    def stream(self) -> str:
        """Topic of tokens and progress; kept for an hour."""
        return f"{self.namespace}.stream"

    @property
    def dlq(self) -> str:
        """Topic of dead letters."""
        return f"{self.namespace}.dlq"

    def spec(self, topic: str) -> TopicSpec:
        """The required settings of `topic`; its partition count applies if it is created.

        Raises:
            ConfigError: the name does not belong to this namespace.
        """
        kind = self.kind(topic)
        one = kind is TopicKind.REGISTRY
        partitions = 1 if one else self.exact.get(topic, self.partitions)
        return TopicSpec(topic, kind, partitions, RETENTION_MS[kind], as_is=not one)

    def kind(self, topic: str) -> TopicKind:
        """The kind of a topic of this namespace.

        Raises:
            ConfigError: the name does not belong to this namespace.
        """
        parts = topic.split(".")
        if parts[0] == self.namespace:
            if len(parts) == 2 and parts[1] in ("registry", "heartbeat", "stream", "dlq"):
                return TopicKind(parts[1])
            plain = len(parts) == 4 or (len(parts) == 5 and _GENERATION.fullmatch(parts[4]) is not None)
            if plain and parts[1] == "agent" and parts[3] in ("inbox", "journal"):
                return TopicKind(parts[3])
            if len(parts) == 3 and parts[1] == "events":
                return TopicKind.EVENTS
            if len(parts) > 2 and parts[1] in ("task", "taken") and _makes_topic(".".join(parts[2:])):
                return TopicKind(parts[1])
        raise ConfigError(f"{topic} is no topic of the namespace {self.namespace}.")


def generation_of(topic: str) -> int:
    """The generation number of an inbox or a journal; the first is 1."""
    found = _GENERATION.fullmatch(topic.rpartition(".")[2])
    return 1 if found is None else int(found[1])


def first_generation(topic: str) -> str:
    """The name of the first generation of this topic."""
    head, _, tail = topic.rpartition(".")
    return head if _GENERATION.fullmatch(tail) else topic


def _of_generation(topic: str, generation: int) -> str:
    return topic if generation == 1 else f"{topic}.g{generation}"


def agent_name(agent_type: str) -> str:
    """Check that `agent_type` may be part of a topic's name, and return it.

    Raises:
        ConfigError: it may not.
    """
    if _NAME.fullmatch(agent_type) is None:
        raise ConfigError(
            f"{agent_type!r} is not an agent type.",
            hint="Use lower-case letters, digits, - and _, beginning with a letter.",
        )
    return agent_type


def task_capability(capability_id: str) -> str:
    """Check that tasks of a capability may have a topic, and return its id.

    Raises:
        ConfigError: the id makes no topic name.
    """
    if not _makes_topic(capability_id):
        raise ConfigError(
            f"Tasks of {capability_id[:200]!r} cannot have a topic: its name would not be valid.",
            hint="Use letters, digits, -, _ and single dots between them, "
            f"{_LONGEST_CAPABILITY} characters at most.",
        )
    return capability_id


def _makes_topic(capability_id: str) -> bool:
    return len(capability_id) <= _LONGEST_CAPABILITY and _CAPABILITY.fullmatch(capability_id) is not None


def route(envelope: EventEnvelope, topology: Topology) -> str:
    """The topic that an appended event belongs to.

    An event with `metadata["to"]` is a request to agents of that type. Life cycle and capabilities go to the
    registry; everything else is a fact of its domain. Journals are never a destination: only their owner
    writes them, through a writer.

    Raises:
        EventValidationError: `metadata.to` is not a valid agent type.
    """
    to = envelope.metadata.get("to")
    if to is not None:
        if not isinstance(to, str) or _NAME.fullmatch(to) is None:
            raise EventValidationError("metadata.to", f"{to!r} is not an agent type")
        return topology.inbox(to)
    event_type = envelope.event_type
    if event_type in _REGISTRY_TYPES:
        return topology.registry
    if event_type == "agent.heartbeat":
        return topology.heartbeat
    domain = event_type.partition(".")[0]
    return topology.stream if domain == "stream" else topology.events(domain)


def record_key(envelope: EventEnvelope) -> str:
    """The key that orders an event among others: its partition key, else its correlation id, else its id."""
    return envelope.partition_key or envelope.correlation_id or envelope.event_id


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key: murmur2 as in Java's default partitioner, computed here for every client.

    librdkafka's default (CRC32) differs from it.
    """
    return _positive_hash(key) % partitions


@lru_cache(maxsize=65_536)
def _positive_hash(key: str) -> int:
    """Cached hash of a key. A run's events share their key: 0.1 µs from the cache instead of 6 µs."""
    return murmur2(key.encode()) & 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, unsigned, word by word.

    aiokafka has the same function, but its import takes longer than a command on SQLite may take.
    """
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if length != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
