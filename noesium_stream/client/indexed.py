"""Where runs lie, by the state of the index projection on this machine (`noesium project index`).

The index says where to begin to read, never what there is: what came after it is read from the log, and
where its state is missing, damaged, or of another log, everything is. So the answers are the same without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import orjson

from noesium_stream.errors import ProjectionError
from noesium_stream.log.port import EventLog, TopicPartition, TopicShape
from noesium_stream.log.topics import TopicKind, partition_of
from noesium_stream.projection.changed import STATE
from noesium_stream.projection.folder import state_path
from noesium_stream.projection.manifest import Identity, Manifest
from noesium_stream.projection.same_log import other_logs
from noesium_stream.projection.shipped import IndexProjection
from noesium_stream.projection.shipped.index import RUN
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import StateFile


class RunIndex:
    """The index of one log.

    Args:
        log: what it is of.
        folder: where projections keep their states on this machine.
    """

    def __init__(self, log: EventLog, folder: Path) -> None:
        self._log = log
        self._folder = folder
        self._projection = IndexProjection()
        self._shape = StateCodec(self._projection).shape

    async def start(self, journal: str, run_id: str) -> int | None:
        """No record of the run lies before this offset of its partition; None: the index cannot tell.

        Raises:
            LogUnavailableError, TopicNotFoundError
        """
        end = await self._log.end(journal)
        partition = partition_of(run_id, len(end))
        topic_id = await self._log.topic_id(journal)
        with self._open(TopicPartition(journal, partition), topic_id, end[partition]) as file:
            if file is None or await other_logs(self._log, journal, [file.manifest]):
                return None
            try:
                row = file.get(STATE + f"{RUN}{run_id}".encode())
            except ProjectionError:
                return None
            if row is None:
                return file.manifest.cursor
            extent = orjson.loads(row).get(f"{journal}/{partition}")
            return file.manifest.cursor if extent is None else int(extent[0])

    async def runs(self, prefix: str) -> tuple[set[tuple[str, str]], dict[str, dict[int, int]]]:
        """Agent types and ids of runs whose ids begin with `prefix`; and from where each journal is to be
        read for what the index has not seen.

        Raises:
            LogUnavailableError
        """
        found: set[tuple[str, str]] = set()
        rest: dict[str, dict[int, int]] = {}
        topology = self._log.topology
        layout: Mapping[str, TopicShape] = await self._log.layout()
        for topic, shape in layout.items():
            if topology.kind(topic) is not TopicKind.JOURNAL:
                continue
            cursors = rest.setdefault(topic, {})
            agent_type = topic.split(".")[2]
            known: list[tuple[Manifest, list[str]]] = []
            for partition, end in (await self._log.end(topic)).items():
                with self._open(TopicPartition(topic, partition), shape.topic_id, end) as file:
                    ids = None if file is None else _ids(file, prefix)
                    if file is not None and ids is not None:
                        known.append((file.manifest, ids))
            others = await other_logs(self._log, topic, (manifest for manifest, _ in known))
            for manifest, ids in known:
                if manifest.identity.partition not in others:
                    found.update((agent_type, run_id) for run_id in ids)
                    cursors[manifest.identity.partition] = manifest.cursor
        return found, rest

    @contextmanager
    def _open(self, tp: TopicPartition, topic_id: str, end: int) -> Iterator[StateFile | None]:
        """The state of a partition, if it is one and of this very topic."""
        path = state_path(self._folder, self._projection, tp)
        try:
            file = StateFile.open_to_read(path)
        except ProjectionError:
            yield None
            return
        with closing(file):
            projection = self._projection
            wanted = Identity(
                projection.name, projection.version, self._shape, tp.topic, topic_id, tp.partition
            )
            usable = file.manifest.identity == wanted and file.manifest.cursor <= end
            yield file if usable else None


def _ids(file: StateFile, prefix: str) -> list[str] | None:
    """The ids of runs that begin so; None where the file is damaged."""
    start = f"{RUN}{prefix}".encode()
    try:
        return [key[len(STATE) + len(RUN) :].decode() for key, _ in file.scan(STATE + start)]
    except ProjectionError:
        return None
