"""Topics of a Kafka cluster: queried, created, checked, truncated; every call runs off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from noesium_stream.errors import TopicNotFoundError
from noesium_stream.log.kafka.admin_connection import REQUEST_S, AdminConnection
from noesium_stream.log.kafka.coordinator import group_members, leave_group
from noesium_stream.log.kafka.errors import PATIENCE_S, translated, unavailable
from noesium_stream.log.kafka.offsets import list_offsets
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.too_large import MOST_BYTES
from noesium_stream.log.kafka.topic_settings import check_topic, topic_settings
from noesium_stream.log.kafka.topic_sizes import topic_sizes
from noesium_stream.log.port import GroupShare, TopicInfo, TopicShape
from noesium_stream.log.port import TopicPartition as Partition
from noesium_stream.log.prepare import check_partition
from noesium_stream.log.topics import TopicSpec

_AGAIN_S: Final = 0.1


class KafkaAdmin:
    """Topics of one cluster. It caches partition counts, which never change while a topic exists."""

    def __init__(self, settings: KafkaSettings, executor: Executor) -> None:
        self._settings = settings
        self.bootstrap = settings.bootstrap
        self._replication = settings.replication
        self._connection = AdminConnection(settings, executor)
        self._partitions: dict[str, int] = {}
        self._ensured: set[str] = set()

    async def probe(self) -> None:
        """Return when a broker answers.

        Raises:
            LogUnavailableError: none did within ten seconds, or it refuses this client.
        """
        await self._connection.probe()

    async def still_let_in(self) -> None:
        """Check over a new connection whether we are still accepted: old ones outlive a changed password.

        Raises:
            LogUnavailableError: a broker has answered, and refuses this client.
        """
        await self._connection.still_let_in()

    async def partitions(self, topic: str) -> int | None:
        """The current partition count of a topic; None if there is no such topic.

        Raises:
            LogUnavailableError: no broker answers.
        """
        count = await self._connection.partition_count(topic)
        if count is None:
            self._partitions.pop(topic, None)
        else:
            self._partitions[topic] = count
        return count

    async def existing(self, topic: str) -> int:
        """As `partitions`, for a topic that has to exist.

        Raises:
            TopicNotFoundError: it does not exist.
        """
        count = await self.partitions(topic)
        if count is None:
            raise TopicNotFoundError(
                f"there is no topic {topic} at {self.bootstrap}.",
                hint="`noesium topics` lists those that there are; the first event makes its topic.",
            )
        return count

    def known(self, topic: str) -> int | None:
        """The partition count, if this process has created the topic or checked it."""
        return self._partitions.get(topic) if topic in self._ensured else None

    def forget(self, topics: Iterable[str]) -> None:
        """Drop these topics from the cache."""
        for topic in topics:
            self._partitions.pop(topic, None)
            self._ensured.discard(topic)

    async def forget_deleted(self, topics: Iterable[str]) -> list[str]:
        """Drop those of these topics from the cache that do not exist any more; return them, sorted.

        Raises:
            LogUnavailableError: no broker answers.
        """
        return [topic for topic in sorted(set(topics)) if await self.partitions(topic) is None]

    async def limits(self, topics: Iterable[str]) -> dict[str, int]:
        """The size limit of a write to each topic, in bytes.

        Raises:
            EventStoreError: no broker answers, or this user lacks the right to ask.
        """
        return {name: int(found[MOST_BYTES]) for name, found in (await self._configs([*topics])).items()}

    async def ensure(self, specs: Sequence[TopicSpec], *, exact: bool) -> None:
        """Create missing topics; check the settings of existing ones.

        With `exact` they need at least as many partitions as `specs` say; without it, any number is accepted.

        Raises:
            TopicConfigError: a topic has settings that lose or reorder events.
        """
        missing = [spec for spec in specs if await self.partitions(spec.name) is None]
        await self._check([spec for spec in specs if spec not in missing], exact)
        # Another process may have created one in between, or metadata may show it a moment later.
        await self._check(await self._create(missing) if missing else [], exact)
        self._ensured.update(spec.name for spec in specs)

    async def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        """First (`earliest`) or next (`latest`, the high watermark) offset of every partition.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        count = await self.existing(topic)
        try:
            found = await self._offsets({TopicPartition(topic, number): spec for number in range(count)})
        except TopicNotFoundError:
            self.forget([topic])  # deleted between the two requests
            raise
        return {number: found[topic, number] for number in range(count)}

    async def _offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[tuple[str, int], int]:
        connection = self._connection
        return await list_offsets(lambda: connection.client, connection.metadata, self.bootstrap, wanted)

    async def topic_id(self, topic: str) -> str:
        """The id that the cluster assigned to this topic at its creation.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        await self.existing(topic)
        answer = self._connection.client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_S)
        description = await self._connection.answer(answer[topic], f"the description of {topic}")
        return str(description.topic_id)

    async def layout(self, prefix: str) -> dict[str, TopicShape]:
        """Partitions and ids of the topics whose names begin with `prefix`.

        Raises:
            LogUnavailableError: no broker answers.
        """
        metadata = await self._connection.metadata()
        names = sorted(name for name in metadata.topics if name.startswith(prefix))
        if not names:
            return {}
        shapes = {}
        answers = self._connection.client.describe_topics(TopicCollection(names), request_timeout=REQUEST_S)
        for name in names:
            try:
                found = await self._connection.answer(answers[name], f"the description of {name}")
            except TopicNotFoundError:
                continue  # deleted since
            shapes[name] = TopicShape(len(found.partitions), str(found.topic_id))
        return shapes

    async def members(self, group: str) -> list[GroupShare]:
        """The members of a consumer group and their partitions; see `EventLog.members`.

        Raises:
            LogUnavailableError: no broker answers.
        """
        shares = [
            GroupShare(
                client_id if "/" in client_id else f"{client_id} at {host}",
                frozenset(Partition(topic, number) for topic, numbers in partitions for number in numbers),
            )
            for _, client_id, host, partitions in await group_members(
                self._settings, group, f"the members of {group}"
            )
        ]
        return sorted(shares, key=lambda share: share.member)

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """Leave a consumer group in the name of members that have died; see `EventLog.dismiss`.

        Raises:
            LogUnavailableError: no broker answers.
            LogForbiddenError: it refuses the request.
        """
        what = f"the members of {group}"
        for member_id, client_id, _, _ in await group_members(self._settings, group, what):
            if client_id in members:
                await leave_group(self._settings, group, member_id, what)

    async def infos(self, prefix: str) -> list[TopicInfo]:
        """All topics whose names begin with `prefix`, by name; with sizes if the brokers report them.

        Raises:
            LogUnavailableError: no broker answers.
        """
        metadata = await self._connection.metadata()
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
            for answer in self._connection.client.delete_records(wanted, request_timeout=REQUEST_S).values():
                await self._connection.answer(answer, f"the truncation of {topic}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def _check(self, specs: Sequence[TopicSpec], exact: bool) -> None:
        if not specs:
            return
        settings = await self._configs([spec.name for spec in specs])
        for spec in specs:
            count = await self.existing(spec.name) if exact else None
            check_topic(spec, count, settings[spec.name], self.bootstrap)

    async def _create(self, specs: Sequence[TopicSpec]) -> list[TopicSpec]:
        """Create topics; return those that existed already."""
        deadline = time.monotonic() + PATIENCE_S
        missing, there = {spec.name: spec for spec in specs}, list[TopicSpec]()
        while missing:
            new = await self._new_topics(missing.values())
            for name, answer in self._connection.client.create_topics(new, request_timeout=REQUEST_S).items():
                try:
                    await asyncio.wrap_future(answer)
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == KafkaError.TOPIC_ALREADY_EXISTS:
                        there.append(missing[name])
                    elif self._too_few_brokers(code, missing[name]) and time.monotonic() < deadline:
                        await asyncio.sleep(_AGAIN_S)
                        continue
                    else:
                        raise translated(error, self.bootstrap, f"making the topic {name}") from error
                del missing[name]
        for spec in specs:
            await self._visible(spec.name)
        return there

    async def _new_topics(self, specs: Iterable[TopicSpec]) -> list[NewTopic]:
        brokers = len((await self._connection.metadata()).brokers)
        new = []
        for spec in specs:
            replication = self._replication or min(brokers, 3)
            config = topic_settings(spec, replication)
            if spec.like is not None:
                replication, own = await self._settings_of(spec.like)
                config |= own
            new.append(NewTopic(spec.name, spec.partitions, replication, config=config))
        return new

    def _too_few_brokers(self, code: int, spec: TopicSpec) -> bool:
        """Whether a broker has gone since they were counted; a number that is given is not reduced."""
        counted = self._replication is None and spec.like is None
        return code == KafkaError.INVALID_REPLICATION_FACTOR and counted

    async def _settings_of(self, topic: str) -> tuple[int, dict[str, str]]:
        """A topic's replication factor, and its own settings, without the brokers' defaults."""
        described = (await self._connection.metadata(topic)).topics[topic]
        copies = min((len(partition.replicas) for partition in described.partitions.values()), default=1)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = self._connection.client.describe_configs([resource], request_timeout=REQUEST_S)[resource]
        entries = await self._connection.answer(answer, f"the settings of {topic}")
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return copies, {name: entry.value for name, entry in entries.items() if entry.source == own}

    async def _visible(self, topic: str) -> None:
        """Wait until every broker's metadata should show a new topic."""
        deadline = time.monotonic() + PATIENCE_S
        while await self.partitions(topic) is None:
            if time.monotonic() > deadline:
                raise unavailable(self.bootstrap, PATIENCE_S, f"{topic} was made and is not seen")
            await asyncio.sleep(0.02)

    async def _configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        for resource, answer in self._connection.client.describe_configs(
            resources, request_timeout=REQUEST_S
        ).items():
            entries = await self._connection.answer(answer, f"the settings of {resource.name}")
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found
