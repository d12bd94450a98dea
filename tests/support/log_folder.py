"""A folder with a log in it, a worker of that log in this process, and servers on it as processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import Worker
from tests.support.command import Folder


class LogFolder:
    """A folder with a log in it; `url` names another log."""

    def __init__(self, path: Path, url: str | None = None, **env: str) -> None:
        self.folder = Folder(path, **env)
        self.url = url or f"sqlite:///{path / 'log.db'}"

    @asynccontextmanager
    async def working(self, *agents: type[BaseGraphicAgent]) -> AsyncIterator[EventLog]:
        """A worker in this process; yields the log."""
        log = await open_log(self.url)
        try:
            async with Worker(log, list(agents), home=self.folder.path):
                yield log
        finally:
            await log.close()
