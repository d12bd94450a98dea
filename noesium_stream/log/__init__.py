"""The event log: the port, its backends, topics and routing."""

from noesium_stream.log.open import open_log
from noesium_stream.log.port import (
    Cursor,
    EventLog,
    GroupShare,
    Handler,
    LogWriter,
    OnAssigned,
    OnRevoked,
    Outgoing,
    Position,
    Subscription,
    TopicInfo,
    TopicPartition,
    TopicShape,
    Transaction,
)
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind, TopicSpec, Topology, partition_of, record_key, route

__all__ = [
    "Cursor",
    "EventLog",
    "GroupShare",
    "Handler",
    "LogWriter",
    "OnAssigned",
    "OnRevoked",
    "Outgoing",
    "Position",
    "Record",
    "Subscription",
    "TopicInfo",
    "TopicKind",
    "TopicPartition",
    "TopicShape",
    "TopicSpec",
    "Topology",
    "Transaction",
    "open_log",
    "partition_of",
    "record_key",
    "route",
]
