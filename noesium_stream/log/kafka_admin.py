"""Topics of a Kafka cluster: asked for, created, checked, truncated; every call off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from noesium_stream.errors import LogUnavailableError, TopicNotFoundError
from noesium_stream.log.kafka_coordinator import group_members
from noesium_stream.log.kafka_errors import (
    OPEN_TIMEOUT_S,
    PATIENCE_S,
    ClientLog,
    hangs_up,
    refused,
    translated,
    unavailable,
)
from noesium_stream.log.kafka_settings import KafkaSettings
from noesium_stream.log.kafka_sizes import topic_sizes
from noesium_stream.log.kafka_too_large import MOST_BYTES
from noesium_stream.log.kafka_topics import check_topic, topic_settings
from noesium_stream.log.port import GroupShare, TopicInfo, TopicShape
from noesium_stream.log.port import TopicPartition as Partition
from noesium_stream.log.prepare import check_partition
from noesium_stream.log.topics import TopicSpec

T = TypeVar("T")
_REQUEST_S: Final = 10.0
_RECHECK_S: Final = 2.0
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_MOMENTS: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_CACHE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,  # no leaders are known, of a broker that comes back
    }
)


class KafkaAdmin:
    """One admin client. Partition counts are remembered: a topic's count never changes while it lives."""

    def __init__(self, settings: KafkaSettings, executor: Executor) -> None:
        self._settings = settings
        self.bootstrap = settings.bootstrap
        self._replication = settings.replication
        self._executor = executor
        self._client, self._log = _client(settings)
        self._partitions: dict[str, int] = {}
        self._ensured: set[str] = set()

    async def probe(self) -> None:
        """Return when a broker answers.

        Raises:
            LogUnavailableError: none did within five seconds, or it does not let us in.
        """
        await self._blocking(self._probe, self._client, self._log, OPEN_TIMEOUT_S)

    async def still_let_in(self) -> None:
        """Ask over a new connection whether we are let in now: old ones outlive a password that has changed.

        Raises:
            LogUnavailableError: a broker has answered, and does not let us in.
        """
        client, log = await self._blocking(_client, self._settings)
        try:
            await self._blocking(self._probe, client, log, _RECHECK_S)
        except LogUnavailableError:
            if log.refusal is not None:
                raise

    async def partitions(self, topic: str) -> int | None:
        """The number of a topic's partitions, asked for now; None where there is no such topic.

        Raises:
            LogUnavailableError: nobody answers.
        """
        count: int | None = await self._blocking(self._count, topic)
        if count is None:
            self._partitions.pop(topic, None)
        else:
            self._partitions[topic] = count
        return count

    async def existing(self, topic: str) -> int:
        """As `partitions`, for a topic that has to be there.

        Raises:
            TopicNotFoundError: it is not.
        """
        count = await self.partitions(topic)
        if count is None:
            raise TopicNotFoundError(
                f"there is no topic {topic} at {self.bootstrap}.",
                hint="`noesium topics` lists those that there are; the first event makes its topic.",
            )
        return count

    def known(self, topic: str) -> int | None:
        """The number of partitions if this process has made the topic or found it in order."""
        return self._partitions.get(topic) if topic in self._ensured else None

    def forget(self, topics: Iterable[str]) -> None:
        """Ask again about these the next time."""
        for topic in topics:
            self._partitions.pop(topic, None)
            self._ensured.discard(topic)

    async def limits(self, topics: Iterable[str]) -> dict[str, int]:
        """How many bytes topics take at once.

        Raises:
            EventStoreError: nobody answers, or this user may not ask.
        """
        return {name: int(found[MOST_BYTES]) for name, found in (await self._configs([*topics])).items()}

    async def ensure(self, specs: Sequence[TopicSpec], *, exact: bool) -> None:
        """Create topics that are missing; check the settings of those that exist.

        With `exact` they need at least as many partitions as `specs` say; without, what they have is taken.

        Raises:
            TopicConfigError: one has settings that lose or reorder events.
        """
        missing = [spec for spec in specs if await self.partitions(spec.name) is None]
        await self._check([spec for spec in specs if spec not in missing], exact)
        # Somebody else may have made one in between, or a moment before metadata tell of it.
        await self._check(await self._create(missing) if missing else [], exact)
        self._ensured.update(spec.name for spec in specs)

    async def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        """First (`earliest`) or next (`latest`, the high watermark) offset of every partition.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        count = await self.existing(topic)
        found = await self._offsets({TopicPartition(topic, number): spec for number in range(count)})
        return {number: found[topic, number] for number in range(count)}

    async def topic_id(self, topic: str) -> str:
        """The id that the cluster gave this topic when it was made.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        await self.existing(topic)
        answer = self._client.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S)
        description = await self._answer(answer[topic], f"the description of {topic}")
        return str(description.topic_id)

    async def layout(self, prefix: str) -> dict[str, TopicShape]:
        """Partitions and ids of the topics whose names begin with `prefix`.

        Raises:
            LogUnavailableError: nobody answers.
        """
        metadata = await self._blocking(self._metadata)
        names = sorted(name for name in metadata.topics if name.startswith(prefix))
        if not names:
            return {}
        shapes = {}
        answers = self._client.describe_topics(TopicCollection(names), request_timeout=_REQUEST_S)
        for name in names:
            try:
                found = await self._answer(answers[name], f"the description of {name}")
            except TopicNotFoundError:
                continue  # deleted since
            shapes[name] = TopicShape(len(found.partitions), str(found.topic_id))
        return shapes

    async def members(self, group: str) -> list[GroupShare]:
        """Who has which partition of a consumer group; see `EventLog.members`.

        Raises:
            LogUnavailableError: nobody answers.
        """
        shares = [
            GroupShare(
                client_id if "/" in client_id else f"{client_id} at {host}",
                frozenset(Partition(topic, number) for topic, numbers in partitions for number in numbers),
            )
            for client_id, host, partitions in await group_members(
                self._settings, group, f"the members of {group}"
            )
        ]
        return sorted(shares, key=lambda share: share.member)

    async def infos(self, prefix: str) -> list[TopicInfo]:
        """All topics whose names begin with `prefix`, by name; bytes where the brokers tell.

        Raises:
            LogUnavailableError: nobody answers.
        """
        metadata = await self._blocking(self._metadata)
        names = sorted(name for name in metadata.topics if name.startswith(prefix))
        counts = {name: len(metadata.topics[name].partitions) for name in names}
        if not names:
            return []
        tps = [TopicPartition(name, number) for name in names for number in range(counts[name])]
        first = await self._offsets({tp: OffsetSpec.earliest() for tp in tps})
        last = await self._offsets({tp: OffsetSpec.latest() for tp in tps})
        settings = await self._configs(names)
        sizes = await topic_sizes(self._settings, counts)
        infos = []
        for name in names:
            records = sum(last[name, number] - first[name, number] for number in range(counts[name]))
            retention = int(settings[name]["retention.ms"])
            kept_ms = None if retention < 0 else retention
            infos.append(TopicInfo(name, counts[name], records, sizes.get(name), kept_ms))
        return infos

    async def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        """Remove records below the given offsets.

        Raises:
            TopicNotFoundError, LogUnavailableError, EventValidationError
        """
        ends = await self.offsets(topic, OffsetSpec.latest())
        for number in before:
            check_partition(topic, number, len(ends))
        wanted = [
            TopicPartition(topic, number, min(offset, ends[number])) for number, offset in before.items()
        ]
        if wanted:
            for answer in self._client.delete_records(wanted, request_timeout=_REQUEST_S).values():
                await self._answer(answer, f"the truncation of {topic}")

    def close(self) -> None:
        """Let go of the connection."""
        self._client.poll(0)

    def _probe(self, client: AdminClient, log: ClientLog, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                if log.hung_up:
                    raise hangs_up(self.bootstrap, self._settings.security, timeout_s)
                raise unavailable(self.bootstrap, timeout_s)
            try:
                client.list_topics(timeout=min(left, 1.0))
            except KafkaException as error:
                client.poll(0)
                if log.refusal is not None:
                    raise refused(self.bootstrap, log.refusal.str()) from error
                if error.args[0].code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                    raise translated(error, self.bootstrap, "opening") from error
            else:
                return

    def _metadata(self, topic: str | None = None) -> Any:
        """Metadata of one or all topics, patiently: a broker may be restarting."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._client.list_topics(topic, timeout=_REQUEST_S)
            except KafkaException as error:
                self._client.poll(0)
                if time.monotonic() > deadline or not isinstance(
                    translated(error, self.bootstrap, "metadata"), LogUnavailableError
                ):
                    raise translated(error, self.bootstrap, "asking for topics") from error
                time.sleep(0.1)

    def _count(self, topic: str) -> int | None:
        """A topic's partitions, waiting while it is being made."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self._metadata(topic).topics[topic]
            problem = found.error or next((p.error for p in found.partitions.values() if p.error), None)
            if problem is None and found.partitions:
                return len(found.partitions)
            if problem is not None and problem.code() in _MISSING:
                return None
            if problem is not None and problem.code() == KafkaError.TOPIC_EXCEPTION:
                return None
            if time.monotonic() > deadline:
                raise unavailable(self.bootstrap, PATIENCE_S, f"{topic} has no leader")
            time.sleep(0.05)

    async def _check(self, specs: Sequence[TopicSpec], exact: bool) -> None:
        if not specs:
            return
        settings = await self._configs([spec.name for spec in specs])
        for spec in specs:
            count = await self.existing(spec.name) if exact else None
            check_topic(spec, count, settings[spec.name], self.bootstrap)

    async def _create(self, specs: Sequence[TopicSpec]) -> list[TopicSpec]:
        """Make topics; those of them that were there already."""
        brokers = len((await self._blocking(self._metadata)).brokers)
        new = []
        for spec in specs:
            replication = self._replication or min(brokers, 3)
            config = topic_settings(spec, replication)
            if spec.like is not None:
                replication, own = await self._settings_of(spec.like)
                config |= own
            new.append(NewTopic(spec.name, spec.partitions, replication, config=config))
        there = set()
        for name, answer in self._client.create_topics(new, request_timeout=_REQUEST_S).items():
            try:
                await asyncio.wrap_future(answer)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translated(error, self.bootstrap, f"making the topic {name}") from error
                there.add(name)
        for spec in specs:
            await self._visible(spec.name)
        return [spec for spec in specs if spec.name in there]

    async def _settings_of(self, topic: str) -> tuple[int, dict[str, str]]:
        """A topic's copies, and the settings that are its own, not the brokers'."""
        described = (await self._blocking(self._metadata, topic)).topics[topic]
        copies = min((len(partition.replicas) for partition in described.partitions.values()), default=1)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = self._client.describe_configs([resource], request_timeout=_REQUEST_S)[resource]
        entries = await self._answer(answer, f"the settings of {topic}")
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return copies, {name: entry.value for name, entry in entries.items() if entry.source == own}

    async def _visible(self, topic: str) -> None:
        """Return when every broker's metadata may be expected to show a topic just made."""
        deadline = time.monotonic() + PATIENCE_S
        while await self.partitions(topic) is None:
            if time.monotonic() > deadline:
                raise unavailable(self.bootstrap, PATIENCE_S, f"{topic} was made and is not seen")
            await asyncio.sleep(0.02)

    async def _configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        for resource, answer in self._client.describe_configs(resources, request_timeout=_REQUEST_S).items():
            entries = await self._answer(answer, f"the settings of {resource.name}")
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    async def _offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[tuple[str, int], int]:
        if not wanted:
            return {}
        found: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + PATIENCE_S
        missing = dict(wanted)
        while missing:
            answers = self._client.list_offsets(
                missing, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_REQUEST_S
            )
            missing = {}
            for tp, answer in answers.items():
                offset = await self._offset(answer, f"the offsets of {tp.topic}", deadline)
                if offset is None:
                    missing[tp] = wanted[tp]
                else:
                    found[tp.topic, tp.partition] = offset
            if missing:
                await asyncio.sleep(0.02)
        return found

    async def _offset(self, answer: Future[Any], what: str, deadline: float) -> int | None:
        """None: it is to be asked for again.

        A leader that has just changed, or a topic that was just made, is a matter of moments.
        """
        late = time.monotonic() > deadline
        try:
            offset: int = (await asyncio.wrap_future(answer)).offset
        except KafkaException as error:
            if error.args[0].code() not in _MOMENTS or late:
                raise translated(error, self.bootstrap, what) from error
            return None
        # While leaders change the client may say -1001, and that nothing is wrong. Taken for an end, nothing
        # before it would be read; for a cursor, nothing ever would.
        if offset < 0 and late:
            raise unavailable(self.bootstrap, PATIENCE_S, f"{what} are not known")
        return offset if offset >= 0 else None

    async def _answer(self, answer: Future[Any], what: str) -> Any:
        try:
            return await asyncio.wrap_future(answer)
        except KafkaException as error:
            raise translated(error, self.bootstrap, what) from error

    async def _blocking(self, function: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        except KafkaException as error:
            raise translated(error, self.bootstrap, "asking the cluster") from error


def _client(settings: KafkaSettings) -> tuple[AdminClient, ClientLog]:
    log = ClientLog()
    config = {**settings.confluent(), "error_cb": log.on_error}
    return AdminClient(config, logger=log), log
