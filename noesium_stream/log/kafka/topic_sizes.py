"""Topic sizes on the brokers' disks, in bytes: DescribeLogDirs (KIP-113), which neither client offers.

Built from aiokafka's own parts for protocol messages. Followers hold the same bytes as the leader, so the
largest of a partition's replicas counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Int64, Schema, String

from noesium_stream.log.kafka.settings import KafkaSettings

_TEXT = String("utf-8")


class _Answer(Response):
    API_KEY = 35
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("error_code", Int16),
                ("log_dir", _TEXT),
                (
                    "topics",
                    Array(
                        ("name", _TEXT),
                        (
                            "partitions",
                            Array(
                                ("partition_index", Int32),
                                ("partition_size", Int64),
                                ("offset_lag", Int64),
                                ("is_future_key", Boolean),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


class _Question(RequestStruct):
    API_KEY = 35
    API_VERSION = 1
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(("topics", Array(("name", _TEXT), ("partitions", Array(Int32)))))


class _DescribeLogDirs(Request[_Question]):
    API_KEY = 35

    def __init__(self, topics: list[tuple[str, list[int]]]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class(self._topics)


async def topic_sizes(settings: KafkaSettings, partitions: dict[str, int]) -> dict[str, int]:
    """Bytes by topic, for topics with these partition counts; empty if the brokers do not report them.

    A user who may list topics may still lack the right to ask for sizes; then the result is empty.
    """
    wanted = [(topic, list(range(count))) for topic, count in partitions.items()]
    sizes: defaultdict[tuple[str, int], int] = defaultdict(int)
    client = AIOKafkaClient(**settings.aiokafka())
    try:
        await client.bootstrap()
        for broker in client.cluster.brokers():
            answer: Any = await client.send(broker.nodeId, _DescribeLogDirs(wanted))
            for _, _, topics in answer.results:
                for topic, found in topics:
                    for partition, size, _, is_future in found:
                        place = (topic, partition)
                        sizes[place] = max(sizes[place], 0 if is_future else size)
    except KafkaError:
        return {}
    finally:
        await client.close()
    totals: Counter[str] = Counter()
    for (topic, _), size in sizes.items():
        totals[topic] += size
    return dict(totals)
