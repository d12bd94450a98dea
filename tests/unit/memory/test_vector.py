"""LangChain's vector store over memory: the standard suite, from threads and on the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

from noesium_stream import AgentMemoryError
from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.memory import LogVectorStore, MemoryManager, memory_of

EMBEDDINGS = VectorStoreIntegrationTests.get_embeddings()


def memory_on(log: EventLog, folder: Path) -> MemoryManager:
    producer = AgentRef("p", "client", "local", "i")
    return memory_of(log, folder, producer, "agent:p", clock=SystemClock())


async def opened(folder: Path) -> tuple[EventLog, LogVectorStore]:
    log = await open_log("memory://")
    return log, LogVectorStore(memory_on(log, folder), EMBEDDINGS, name="fake")


class TestInThreads(VectorStoreIntegrationTests):
    """The suite's synchronous part."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        with start_blocking_portal() as portal:
            log, store = portal.call(opened, tmp_path)
            yield store
            portal.call(log.close)

    @property
    def has_async(self) -> bool:
        return False


class TestOnTheLoop(VectorStoreIntegrationTests):
    """The suite's asynchronous part."""

    @pytest.fixture
    async def vectorstore(self, tmp_path: Path) -> AsyncIterator[VectorStore]:  # type: ignore[override]
        log, store = await opened(tmp_path)
        yield store
        await log.close()

    @property
    def has_sync(self) -> bool:
        return False


async def test_collections_models_and_metadata_are_kept_apart(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = memory_on(log, tmp_path)
    first = LogVectorStore(memory, EMBEDDINGS, name="fake")
    other = LogVectorStore(memory, EMBEDDINGS, name="fake/2", collection="notes")
    await first.aadd_documents(
        [Document("rain", metadata={"year": 1}), Document("snow", metadata={"year": 2})]
    )
    await other.aadd_texts(["rain in May"])
    assert {one.page_content for one in await first.asimilarity_search("rain", 5)} == {"rain", "snow"}
    assert [one.page_content for one in await first.asimilarity_search("rain", 5, filter={"year": 2})] == [
        "snow"
    ]
    assert [one.page_content for one in await other.asimilarity_search("rain", 5)] == ["rain in May"]
    with pytest.raises(AgentMemoryError, match="on the event loop"):
        first.similarity_search("rain")
    with pytest.raises(AgentMemoryError, match="no name of a collection"):
        LogVectorStore(memory, EMBEDDINGS, name="fake", collection="a/b")
    await log.close()
