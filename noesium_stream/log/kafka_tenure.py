"""What a member of a consumer group on Kafka can prove of a partition (KIP-447).

Decision record: the proof is a commit of the group's offset in the writer's first transaction, with the
member's id and generation: the group's coordinator takes it only while they are its own. It does not look
which partitions the member has. That is enough: a partition changes hands in a generation that its former
holder is no member of, or has joined without it, and a member gives a partition up before it joins without
it. Metadata without a member or a generation would be taken from anybody: they are no proof, and refused
here.

The offset is the one that the group has already, so that nothing of it changes. librdkafka hands the metadata
out as bytes: a magic word, the generation as an integer of this machine, then group, member and instance,
each ended by a zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from noesium_stream.errors import TenureEndedError
from noesium_stream.log.group import tenure_ended
from noesium_stream.log.port import TopicPartition

_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")


@dataclass(frozen=True, slots=True)
class KafkaTenure:
    """See `Tenure`.

    Attributes:
        partition: of which partition.
        metadata: the member and its generation, as librdkafka has them.
        offset: asks for the group's offset; blocks.
    """

    partition: TopicPartition
    metadata: bytes
    offset: Callable[[], int] = field(compare=False, repr=False)

    @property
    def visible(self) -> bool:
        """Whether the member is one, as far as it knows itself."""
        generation, member = member_of(self.metadata)
        return generation >= 0 and member != ""

    def ended(self, what: str) -> TenureEndedError:
        """The error for a tenure that is none any more."""
        return tenure_ended(self.partition, what)


def member_of(metadata: bytes) -> tuple[int, str]:
    """Generation and member id; -1 and nothing where there is no membership, or where it cannot be read."""
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + _GENERATION.size:
        return -1, ""
    [generation] = _GENERATION.unpack_from(metadata, len(_MAGIC))
    names = metadata[len(_MAGIC) + _GENERATION.size :].split(b"\0")
    return generation, names[1].decode(errors="replace") if len(names) > 1 else ""
