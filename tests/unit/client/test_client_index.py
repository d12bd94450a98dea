"""A client reads the index of runs where there is one, and imports it nowhere else."""

from __future__ import annotations

from pathlib import Path

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.projection.builtin.index import IndexProjection


async def test_an_index_is_read_where_its_projection_has_a_state(tmp_path: Path) -> None:
    log = await open_log("memory://")
    try:
        (tmp_path / "execution").mkdir()
        client = Client(log, index=tmp_path)
        assert client._index is None
        (tmp_path / IndexProjection.name).mkdir()
        assert client._index is not None
        assert Client(log)._index is None
    finally:
        await log.close()
