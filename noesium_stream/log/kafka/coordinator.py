"""Requests to the coordinator of a group or a transactional id, built from aiokafka's protocol parts.

Decision record: neither client supports them well. librdkafka 2.16 aborts the whole process if a request to a
group's coordinator (`describe_consumer_groups`) has timed out and its answer arrives after all. It reports a
producer's epoch only in its debug log, with each step of each transaction, and that delays a lone commit.
aiokafka has no DescribeTransactions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, MetadataEmptyBrokerList, NoError, UnknownMemberIdError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from noesium_stream.log.kafka.errors import PATIENCE_S, translated_aio
from noesium_stream.log.kafka.settings import KafkaSettings

_API: Final = 65
_TEXT: Final = CompactString("utf-8")
_REQUEST_S: Final = 5.0
_PAUSE_S: Final = 0.1


class _Answer(Response):
    API_KEY = _API
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("transaction_state", _TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(
                        ("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = _API
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), ("tags", TaggedFields))


class _DescribeTransactions(Request[_Question]):
    API_KEY = _API

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([self._id], {})


class Member(NamedTuple):
    """A member of a consumer group, and its partitions by topic."""

    member_id: str
    client_id: str
    host: str
    partitions: list[tuple[str, list[int]]]


async def producer_epoch(settings: KafkaSettings, transactional_id: str, what: str) -> int:
    """Producer id and epoch of the newest producer of this id, as one number that grows with each (KIP-664).

    It may be newer than the caller's own. Then another producer has taken the id, and no commit of the older
    one reaches the log any more.

    Raises:
        LogUnavailableError: no coordinator answers, or it refuses this client.
        LogForbiddenError, LogUnsupportedError: it refuses the request, or is older than Kafka 3.0.
    """
    question = _DescribeTransactions(transactional_id)
    answer = await _asked(
        settings,
        CoordinationType.TRANSACTION,
        transactional_id,
        question,
        what,
        lambda answer: answer.transaction_states[0][0],
    )
    _, _, _, _, _, producer_id, epoch, _, _ = answer.transaction_states[0]
    return int(producer_id) << 16 | int(epoch)


async def group_members(settings: KafkaSettings, group: str, what: str) -> list[Member]:
    """The members of a consumer group; none if there is no such group.

    Raises:
        LogUnavailableError: no coordinator answers, or it refuses this client.
        LogForbiddenError: it refuses the request.
    """
    question = DescribeGroupsRequest([group])
    answer = await _asked(
        settings, CoordinationType.GROUP, group, question, what, lambda answer: answer.groups[0][0]
    )
    members = answer.groups[0][5]
    return [Member(one[0], one[1], one[2], _assigned(one[4])) for one in members]


async def leave_group(settings: KafkaSettings, group: str, member_id: str, what: str) -> None:
    """Leave a consumer group in the name of a member; one that has left by now is no error.

    Raises:
        LogUnavailableError: no coordinator answers, or it refuses this client.
        LogForbiddenError: it refuses the request.
    """

    def code(answer: Any) -> int:
        found = int(answer.error_code)
        return NoError.errno if found == UnknownMemberIdError.errno else found

    await _asked(settings, CoordinationType.GROUP, group, LeaveGroupRequest(group, member_id), what, code)


def _assigned(assignment: bytes) -> list[tuple[str, list[int]]]:
    if not assignment:  # while the group is being balanced
        return []
    return list(ConsumerProtocolMemberAssignment.decode(assignment).assignment)


async def _asked(
    settings: KafkaSettings,
    kind: CoordinationType,
    key: str,
    question: Any,
    what: str,
    code: Callable[[Any], int],
) -> Any:
    """The answer to a request about one group or id; repeated while its coordinator is not available.

    Args:
        settings: of the log.
        kind: of the coordinator.
        key: the group or the id.
        question: the request.
        what: for errors.
        code: finds the error's code in an answer.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = AIOKafkaClient(**settings.aiokafka(), request_timeout_ms=round(_REQUEST_S * 1000))
        try:
            return await _answered(client, kind, key, question, code)
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise translated_aio(error, settings.bootstrap, what) from error
        finally:
            await client.close()
        await asyncio.sleep(_PAUSE_S)


async def _answered(
    client: AIOKafkaClient, kind: CoordinationType, key: str, question: Any, code: Callable[[Any], int]
) -> Any:
    await client.bootstrap()
    if not client.cluster.brokers():
        raise MetadataEmptyBrokerList  # a broker that has just started
    coordinator = await client.coordinator_lookup(kind, key)
    answer: Any = await client.send(coordinator, question, group=ConnectionGroup.COORDINATION)
    error = for_code(code(answer))
    if error is not NoError:
        raise error(key)
    return answer
