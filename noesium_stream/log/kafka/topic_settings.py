"""The required settings of a topic in Kafka, and checks for wrong ones; pure functions.

Decision record: time is the broker's (`LogAppendTime`), so that offsets, times and `ttl` agree on one clock.
Compaction is never allowed, because the history is the state. Journals have no retention at all, neither by
time nor by size. Unclean leader election is off, because it loses acknowledged records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noesium_stream.errors import TopicConfigError
from noesium_stream.log.topics import TopicSpec

_WEEK_MS: Final = 7 * 86_400_000


def topic_settings(spec: TopicSpec, replication: int) -> dict[str, str]:
    """The settings of a new topic on a cluster with `replication` copies of it."""
    settings = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1" if spec.retention_ms is None else str(spec.retention_ms),
        "retention.bytes": "-1",
        "min.insync.replicas": str(max(1, replication - 1)),
        "unclean.leader.election.enable": "false",
    }
    if spec.retention_ms is not None:
        # Only closed segments are ever removed: several of them have to fit into the retention time.
        settings["segment.ms"] = str(min(_WEEK_MS, max(60_000, spec.retention_ms // 4)))
    return settings


def check_topic(spec: TopicSpec, partitions: int | None, settings: Mapping[str, str], bootstrap: str) -> None:
    """Refuse a topic whose settings lose or reorder events; `partitions` None: do not check the count.

    Raises:
        TopicConfigError: names topic, setting, value and wanted value, and the command that repairs it.
    """
    if partitions is not None and partitions < spec.partitions and not spec.as_is:
        raise TopicConfigError(
            f"{spec.name} has {partitions} partitions, {spec.partitions} are wanted.",
            hint=f"Work with what it has (?partitions={partitions} in the log's URL); or, only while it is "
            f"empty, since keys move to other partitions: kafka-topics.sh --bootstrap-server {bootstrap} "
            f"--alter --topic {spec.name} --partitions {spec.partitions}",
        )
    for name, wanted, why in _wrong(spec, settings):
        raise TopicConfigError(
            f"{spec.name} has {name}={settings.get(name)}, {wanted} is wanted: {why}.",
            hint=f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics "
            f"--entity-name {spec.name} --add-config {name}={wanted}",
        )


def _wrong(spec: TopicSpec, settings: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Wrong settings: name, required value, consequence."""
    wrong = []
    if settings.get("cleanup.policy", "delete") != "delete":
        wrong.append(("cleanup.policy", "delete", "compaction removes all but the last event of a key"))
    if settings.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        wrong.append(
            ("message.timestamp.type", "LogAppendTime", "times would be the senders', not the log's")
        )
    if settings.get("unclean.leader.election.enable", "false") != "false":
        wrong.append(("unclean.leader.election.enable", "false", "acknowledged events could be forgotten"))
    retention = int(settings.get("retention.ms", "-1"))
    if retention >= 0 and (spec.retention_ms is None or retention < spec.retention_ms):
        wanted = "-1" if spec.retention_ms is None else str(spec.retention_ms)
        wrong.append(("retention.ms", wanted, "events that are still needed would be removed"))
    if spec.retention_ms is None and int(settings.get("retention.bytes", "-1")) >= 0:
        wrong.append(("retention.bytes", "-1", "events that are still needed would be removed"))
    return wrong
