"""The proof that a member of a consumer group on Kafka holds a partition (KIP-447).

Decision record: the proof is a commit of the group's offset in the writer's first transaction, with the
member's id and generation. The group's coordinator accepts it only while they are current. It does not check
which partitions the member has. That is enough: a partition changes hands in a generation that its former
holder is not a member of, or has joined without it, and a member releases a partition before it joins without
it. The coordinator accepts metadata without a member or a generation from anybody: they prove nothing, and
are refused here.

The offset is the group's current one, so that the commit changes nothing. librdkafka returns the metadata as
bytes: a magic word, the generation as an integer of this machine, then group, member and instance, each ended
by a zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from noesium_stream.errors import TenureEndedError
from noesium_stream.log.members import tenure_ended
from noesium_stream.log.port import TopicPartition

_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")


@dataclass(frozen=True, slots=True)
class KafkaTenure:
    """A `Tenure` on Kafka.

    Attributes:
        partition: the assigned partition.
        metadata: the member and its generation, in librdkafka's format.
        offset: returns the group's offset; blocks.
    """

    partition: TopicPartition
    metadata: bytes
    offset: Callable[[], int] = field(compare=False, repr=False)

    @property
    def visible(self) -> bool:
        """Whether the member, as far as it knows, still belongs to the group."""
        generation, member = member_of(self.metadata)
        return generation >= 0 and member != ""

    def ended(self, what: str) -> TenureEndedError:
        """The error for a tenure that has ended."""
        return tenure_ended(self.partition, what)


def member_of(metadata: bytes) -> tuple[int, str]:
    """Generation and member id; -1 and an empty id if there is no membership, or it cannot be parsed."""
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + _GENERATION.size:
        return -1, ""
    [generation] = _GENERATION.unpack_from(metadata, len(_MAGIC))
    names = metadata[len(_MAGIC) + _GENERATION.size :].split(b"\0")
    return generation, names[1].decode(errors="replace") if len(names) > 1 else ""
