"""The next generation of an agent's topics, as the owner of a partition knows it.

See `noesium_stream.log.generations` for what a generation is, and for what goes on to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from noesium_stream.errors import (
    CorruptRecordError,
    EventValidationError,
    LogClosedError,
    LogUnavailableError,
)
from noesium_stream.event.standard import PartitionOutgrown
from noesium_stream.log.generations import next_specs
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.journal_records import source_of

VISIBLE_S: Final = 2.0
"""Upper bound of the time until a broker tells of a topic that was made."""

_PAUSE_S: Final = 0.25


class Successor:
    """The way from a partition to the next generation.

    Args:
        context: of the partition.
        writer: of the partition.
        directory: waits for a log that is away.
        on_found: called when a new generation is found, so that those who read by pattern look again.
        partitions: of the next generation, as the journal has it; None: it has none.

    Attributes:
        partitions: see above.
    """

    def __init__(
        self,
        context: PartitionContext,
        writer: PartitionWriter,
        directory: Directory,
        on_found: Callable[[], None],
        partitions: int | None,
    ) -> None:
        self.partitions = partitions
        self._context = context
        self._writer = writer
        self._directory = directory
        self._on_found = on_found
        self._announced: int | None = None
        self._ready = False

    async def prepare(self, records: Sequence[Record] = ()) -> None:
        """Make sure that the next generation's inbox is there, if the journal or these records tell of one.

        Comes before decisions: what is decided goes to the log without a pause.
        """
        if self._ready:
            return
        if self.partitions is not None:
            self._ready = await self._open(self.partitions, announced=False)
            return
        for partitions in self._announcements(records):
            if await self._open(partitions, announced=True):
                self._announced, self._ready = partitions, True
                return

    def learn(self, record: Record) -> Outgoing | EventValidationError | None:
        """Learn of a growth from an inbox record; return the journal's copy of it.

        None: it is known already. An error: the announcement is wrong.
        """
        context, payload = self._context, record.envelope.payload
        refused = self._misdirected(payload)
        if refused is not None:
            return refused
        if self.partitions is not None:
            return None
        if payload["partitions"] != self._announced:
            said = f"{payload['partitions']}: generation {payload['generation']} has no such journal"
            return EventValidationError("payload.partitions", said)
        self.partitions = self._announced
        return Outgoing(
            record.envelope, context.journal, context.journal_partition, context.key, (source_of(record),)
        )

    def _announcements(self, records: Sequence[Record]) -> list[int]:
        """Partition counts of the next generation that these records announce, each once."""
        found: dict[int, None] = {}
        for record in records:
            with suppress(CorruptRecordError, UnicodeDecodeError):  # the decider says what is wrong with it
                if record.event_type == PartitionOutgrown.TYPE:
                    news = record.envelope.payload
                    if self._misdirected(news) is None:
                        found[news["partitions"]] = None
        return list(found)

    def _misdirected(self, news: Mapping[str, Any]) -> EventValidationError | None:
        context = self._context
        if news["agent_type"] != context.agent_type:
            return EventValidationError("payload.agent_type", f"is {news['agent_type']}")
        if news["generation"] != context.generation + 1:
            return EventValidationError("payload.generation", f"does not follow {context.generation}")
        if news["partition"] != context.partition:
            return EventValidationError("payload.partition", f"is {news['partition']}")
        return None

    async def _open(self, partitions: int, *, announced: bool) -> bool:
        """Make the next inbox where it is missing; return whether the generation can be used.

        An inbox record may announce anything: only a journal with so many partitions proves it, which whoever
        grows an agent makes first.
        """
        context = self._context
        log, clock = context.log, context.clock
        number = context.generation + 1
        inbox, journal = next_specs(log.topology, context.agent_type, number, partitions)
        begun = clock.monotonic()
        while True:
            if not self._writer.is_open:
                raise LogClosedError(f"{context.name} was given up")
            try:
                if announced:
                    made = (await log.layout()).get(journal.name)
                    if made is None and clock.monotonic() - begun < VISIBLE_S:
                        await clock.sleep(_PAUSE_S)
                        continue
                    if made is None or made.partitions != partitions:
                        return False
                await log.ensure_topics([inbox])
                break
            except LogUnavailableError as error:
                await self._directory.wait_for_log(error)
        self._on_found()
        return True


def outgrown(context: PartitionContext, partitions: int) -> Outgoing:
    """The announcement of the next generation, for a journal whose inbox has lost it."""
    return context.record(
        PartitionOutgrown(
            agent_type=context.agent_type,
            partition=context.partition,
            generation=context.generation + 1,
            partitions=partitions,
        )
    )
