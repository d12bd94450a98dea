"""Index of the runs' journal offsets: the state of the index projection on this machine.

`noesium project index` makes it. The index only tells where to begin to read. Later records are read from the
log, and if the state is missing, damaged, or belongs to another log, the whole journal is read. So the
answers are the same without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import orjson

from noesium_stream.errors import ProjectionError
from noesium_stream.log.port import EventLog, TopicPartition, TopicShape
from noesium_stream.log.topics import TopicKind, partition_of
from noesium_stream.projection.builtin.index import RUN, IndexProjection
from noesium_stream.projection.fold.changed_rows import STATE
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Identity, Manifest
from noesium_stream.projection.state.same_log import other_logs
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path


class RunIndex:
    """The index of one log.

    Args:
        log: the indexed log.
        folder: folder of the projections' states on this machine.
    """

    def __init__(self, log: EventLog, folder: Path) -> None:
        self._log = log
        self._folder = folder
        self._projection = IndexProjection()
        self._shape = StateCodec(self._projection).shape

    async def start(self, journal: str, run_id: str) -> int | None:
        """Return an offset below which its partition has no record of the run; None: the index cannot tell.

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
        """Find the indexed runs (agent type and id) by a prefix of their ids.

        Return them with the offsets from which each journal must be read for records after the index.

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
        """Open the state of a partition; None: it is missing, damaged or belongs to another topic."""
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
    """Return the run ids with this prefix; None: the file is damaged."""
    start = f"{RUN}{prefix}".encode()
    try:
        return [key[len(STATE) + len(RUN) :].decode() for key, _ in file.scan(STATE + start)]
    except ProjectionError:
        return None
