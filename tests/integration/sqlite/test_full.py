"""A full disk under SQLite: a clear error, nothing half written, and the log goes on when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.errors import LogFullError
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.sqlite.store import SqliteStore
from tests.support.events import catalogue, counted, outgoing
from tests.support.reading import numbers, stored


class Disk:
    """A file system of its own where this process may mount one; else a limit on the database's pages."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        self.folder = folder
        self._kilobytes = kilobytes
        self.real = self._mount(f"size={kilobytes}k,nr_inodes=16")

    def limit(self, log: object) -> None:
        """Where nothing can be mounted, let the database itself have no more room than this disk."""
        self._pages(log, self._kilobytes // 4)

    def grow(self, log: object) -> None:
        """Make room."""
        if self.real:
            assert self._mount("remount,size=8m")
        self._pages(log, 1 << 30)

    def _pages(self, log: object, pages: int) -> None:
        if not self.real and log is not None:
            assert isinstance(log, EmbeddedLog)
            store = log.store
            assert isinstance(store, SqliteStore)
            store.connection.execute(f"PRAGMA max_page_count={pages}")

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def remove(self) -> None:
        """Unmount."""
        if self.real:
            subprocess.run(["umount", str(self.folder)], capture_output=True, check=True)


@pytest.fixture(params=[200, 512])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path, request.param)
    yield disk
    disk.remove()


async def test_a_full_disk_is_an_error_and_no_end(disk: Disk) -> None:
    log = await open_log(f"sqlite:///{disk.folder}/log.db", catalogue=catalogue())
    disk.limit(log)
    journal = log.topology.journal("demo")
    await log.ensure_topics([log.topology.spec(journal)])
    writer = await log.writer("w")
    written = 0

    async def commit(number: int) -> None:
        await writer.commit(
            [
                *outgoing([counted(number, text="x" * 3000)] * 2, journal, 0),
                *outgoing([counted(number)], journal, 1),
            ]
        )

    async def fill() -> None:
        nonlocal written
        for _ in range(1000):
            await commit(written)
            written += 1

    with pytest.raises(LogFullError, match=r"log\.db.*no room"):
        await fill()
    for _ in range(3):
        with pytest.raises(LogFullError):
            await commit(written)
    expected = [n for n in range(written) for _ in range(2)] + list(range(written))
    assert numbers(await stored(log, journal)) == expected
    disk.grow(log)
    await commit(written)
    await log.append([counted(7, "k")])
    await log.close()
    again = await open_log(f"sqlite:///{disk.folder}/log.db", catalogue=catalogue())
    assert numbers(await stored(again, journal)) == [n for n in range(written + 1) for _ in range(2)] + list(
        range(written + 1)
    )
    assert numbers(await stored(again, again.topology.events("demo"))) == [7]
    await again.close()


@pytest.mark.parametrize("kilobytes", [4, 16, 36, 44])
async def test_a_disk_too_full_to_make_a_log_is_an_error_and_no_end(tmp_path: Path, kilobytes: int) -> None:
    disk = Disk(tmp_path, kilobytes)
    try:
        url = f"sqlite:///{tmp_path}/log.db"
        if disk.real:
            with pytest.raises(LogFullError):
                await open_log(url, catalogue=catalogue())
            disk.grow(None)
        log = await open_log(url, catalogue=catalogue())
        await log.append([counted(1, "k")])
        assert numbers(await stored(log, log.topology.events("demo"))) == [1]
        await log.close()
    finally:
        disk.remove()
