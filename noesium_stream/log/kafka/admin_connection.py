"""The connection of an admin client to its cluster: checked, retried, and replaced when it is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Executor, Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka.errors import (
    OPEN_TIMEOUT_S,
    PATIENCE_S,
    ClientLog,
    hangs_up,
    refused,
    translated,
    unavailable,
)
from noesium_stream.log.kafka.lost_client import is_lost
from noesium_stream.log.kafka.settings import KafkaSettings

REQUEST_S: Final = 10.0
_RECHECK_S: Final = 2.0
_UNREACHABLE: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


class AdminConnection:
    """One admin client; its blocking calls run on the executor.

    Attributes:
        client: the admin client, which is replaced when it has lost its cluster.
    """

    def __init__(self, settings: KafkaSettings, executor: Executor) -> None:
        self._settings = settings
        self._bootstrap = settings.bootstrap
        self._executor = executor
        self.client, self._log = _client(settings)
        self._replacing = threading.Lock()
        self._replaced: list[AdminClient] = []
        """Kept, because the answers that others await of a client never come once it is destroyed."""

    async def probe(self) -> None:
        """Return when a broker answers.

        Raises:
            LogUnavailableError: none did within ten seconds, or it refuses this client.
        """
        await self._blocking(self._probe, self.client, self._log, OPEN_TIMEOUT_S)

    async def still_let_in(self) -> None:
        """Check over a new connection whether we are still accepted: old ones outlive a changed password.

        Raises:
            LogUnavailableError: a broker has answered, and refuses this client.
        """
        client, log = await self._blocking(_client, self._settings)
        try:
            await self._blocking(self._probe, client, log, _RECHECK_S)
        except LogUnavailableError:
            if log.refusal is not None:
                raise

    async def metadata(self, topic: str | None = None) -> Any:
        """Metadata of one or all topics; retries while a broker restarts, or none is in service.

        A broker that has lost touch with its controller (a machine that stood still) is fenced until the two
        have talked again: it answers, and names no broker at all.

        Raises:
            LogUnavailableError: no broker answers.
        """
        return await self._blocking(self._metadata, topic)

    async def partition_count(self, topic: str) -> int | None:
        """A topic's partition count; waits while the topic is being created. None: there is no such topic.

        Raises:
            LogUnavailableError: no broker answers.
        """
        count: int | None = await self._blocking(self._count, topic)
        return count

    async def answer(self, answer: Future[Any], what: str) -> Any:
        """Wait for an answer of the client.

        Raises:
            EventStoreError: the request failed; the message names `what` was requested.
        """
        try:
            return await asyncio.wrap_future(answer)
        except KafkaException as error:
            raise translated(error, self._bootstrap, what) from error

    def close(self) -> None:
        """Close the connection."""
        self.client.poll(0)

    def _probe(self, client: AdminClient, log: ClientLog, timeout_s: float) -> None:
        # A question counts for its second at most: a machine that stands still does so in one of them.
        spent_s, question_s = 0.0, 1.0
        while spent_s < timeout_s:
            began_s = time.monotonic()
            try:
                client.list_topics(timeout=min(timeout_s - spent_s, question_s))
            except KafkaException as error:
                client.poll(0)
                if log.refusal is not None:
                    raise refused(self._bootstrap, log.refusal.str()) from error
                code = error.args[0].code()
                if code == KafkaError._PARTIAL:
                    return  # an answer, of a cluster whose brokers are all fenced
                if code not in _UNREACHABLE:
                    raise translated(error, self._bootstrap, "opening") from error
            else:
                return
            spent_s += min(time.monotonic() - began_s, question_s)
        if log.hung_up:
            raise hangs_up(self._bootstrap, self._settings.security, timeout_s)
        raise unavailable(self._bootstrap, timeout_s)

    def _metadata(self, topic: str | None = None) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = self.client
            try:
                found = client.list_topics(topic, timeout=REQUEST_S)
                if found.brokers:
                    return found
                if time.monotonic() > deadline:
                    raise unavailable(self._bootstrap, PATIENCE_S, "All brokers of the cluster are fenced")
                time.sleep(0.1)
            except KafkaException as error:
                client.poll(0)
                if time.monotonic() > deadline or not isinstance(
                    translated(error, self._bootstrap, "metadata"), LogUnavailableError
                ):
                    raise translated(error, self._bootstrap, "asking for topics") from error
                if error.args[0].code() in _UNREACHABLE:
                    self._replace_if_lost(client, topic)
                time.sleep(0.1)

    def _replace_if_lost(self, client: AdminClient, topic: str | None) -> None:
        """Replace a client that has lost its cluster (see `lost_client`), unless another thread has."""
        with self._replacing:
            if self.client is client and is_lost(client, self._settings, topic):
                self._replaced.append(client)
                self.client, self._log = _client(self._settings)

    def _count(self, topic: str) -> int | None:
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
            if problem is not None and problem.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise translated(problem, self._bootstrap, f"describing {topic}")
            if time.monotonic() > deadline:
                raise unavailable(self._bootstrap, PATIENCE_S, f"{topic} has no leader")
            time.sleep(0.05)

    async def _blocking(self, function: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        except KafkaException as error:
            raise translated(error, self._bootstrap, "asking the cluster") from error


def _client(settings: KafkaSettings) -> tuple[AdminClient, ClientLog]:
    log = ClientLog()
    config = {**settings.confluent(), "error_cb": log.on_error}
    return AdminClient(config, logger=log), log
