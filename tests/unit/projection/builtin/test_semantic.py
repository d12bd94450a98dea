"""Semantic indexes: found by words and by meaning, kept up with the rows, and never read by a fold."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noesium_stream.errors import ImpureProjectionError, ProjectionError
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.builtin.embedding import WordLlamaEmbedder
from noesium_stream.projection.builtin.semantic import SemanticIndex, texts_of
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import StoredProjection, describe
from noesium_stream.state_file.claim import discard
from tests.support.folding import fold_of, numbered

REPOSITORY = Path(__file__).parents[4]
WORDS = ["nothing", "an invoice was paid", "a cat sleeps", "money was transferred", "Überweisung", "rain"]


class Notes(BaseProjection[dict[str, Any]]):
    """A text per key, by its number; 0 removes it."""

    name = "notes"
    topics = ("events.*",)

    def initial_state(self) -> dict[str, Any]:
        return {}

    def key(self, event: Any) -> str | None:
        return str(event.partition_key)

    def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any] | None:
        n = event.payload["n"]
        return {"n": n, "text": [WORDS[n % len(WORDS)]]} if n else None


class Letters:
    """An embedder that counts letters: the same in every process, and near for texts that look alike."""

    name = "letters/1"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Any) -> list[list[float]]:
        self.texts += texts
        return [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


class Source:
    """A state folder with one partition, which is folded on as asked."""

    def __init__(self, folder: Path, projection: BaseProjection[Any] | None = None) -> None:
        self.projection = projection or Notes()
        describe(folder, self.projection, "g", None)
        self.path = folder / "notes" / "v1"
        self.state = self.path / "t.events.demo-0.state"
        self.records: list[Any] = []

    @property
    def stored(self) -> StoredProjection:
        return StoredProjection(self.path, load_projection)

    def fold(self, *numbers: tuple[str, int]) -> None:
        self.records += numbered(numbers, start=len(self.records))
        self.fold_again()

    def fold_again(self) -> None:
        fold = fold_of(self.projection, self.state)
        fold.take(self.records)
        fold.flush()
        fold.file.close()

    def texts(self) -> list[tuple[str, str]]:
        return [(key, state["text"][0]) for key, state in self.stored.rows()]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    found = Source(tmp_path)
    found.fold(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    return found


def drop_table(path: Path) -> None:
    """Damage an index file as another program could."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE item")


async def test_rows_are_found_by_their_words_and_only_what_changed_is_taken(source: Source) -> None:
    async with SemanticIndex(source.stored) as index:
        assert await index.refresh() == 4
        assert [hit.key for hit in await index.search("WAS paid")] == ["a", "c"]
        assert [hit.key for hit in await index.search("uberweisung")] == ["d"]
        assert [hit.key for hit in await index.search("was", top_k=1)] in (["a"], ["c"])
        assert await index.search('" OR *') == []
        assert await index.refresh() == 0
        source.fold(("a", 5), ("e", 2), ("b", 0))
        assert [hit.key for hit in await index.search("cat")] == ["b"]  # as of the last refresh
        assert await index.refresh() <= 4  # the row before a new or removed one is written with it
        assert [hit.key for hit in await index.search("cat")] == ["e"]
        assert [hit.key for hit in await index.search("rain paid")] == ["a"]
        assert index.contents() == source.texts()


async def test_an_embedder_finds_what_looks_alike_and_embeds_nothing_twice(source: Source) -> None:
    letters = Letters()
    async with SemanticIndex(source.stored, letters) as index:
        await index.refresh()
        assert sorted(letters.texts) == sorted(text for _, text in source.texts())
        assert (await index.search("cats sleep", top_k=1))[0].key == "b"
        assert (await index.search("money was transferred", top_k=1))[0].score == pytest.approx(1.0)
        letters.texts.clear()
        source.fold(("e", 5))
        await index.refresh()
        assert "rain" in letters.texts
        assert len(letters.texts) <= 2


async def test_the_model_of_the_package_finds_by_meaning(source: Source) -> None:
    async with SemanticIndex(source.stored, WordLlamaEmbedder()) as index:
        await index.refresh()
        assert (await index.search("the bill has been settled", top_k=1))[0].key == "a"
        assert (await index.search("a sleeping kitten", top_k=1))[0].key == "b"


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    parts=st.lists(
        st.lists(st.tuples(st.sampled_from(["", "a", "b", "é", "aa", "~"]), st.integers(0, 5)), max_size=6),
        max_size=5,
    )
)
def test_an_index_that_follows_is_the_one_that_is_made_at_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, int]]]
) -> None:
    source = Source(tmp_path_factory.mktemp("s"))
    source.fold()
    follows = SemanticIndex(source.stored)
    asyncio.run(follows.refresh())
    for part in parts:
        source.fold(*((f"k{key}", n) for key, n in part))
        asyncio.run(follows.refresh())
        assert follows.contents() == source.texts()
    follows.close()


async def test_what_does_not_fit_is_made_again(source: Source) -> None:
    async with SemanticIndex(source.stored) as index:
        await index.refresh()
        path = index.path
    for version, taken in ((1, 0), (2, 4), (2, 0), (1, 4)):
        async with SemanticIndex(source.stored, version=version) as index:
            assert await index.refresh() == taken
    path.write_bytes(b"no database, " * 1000)
    async with SemanticIndex(source.stored) as index:
        assert await index.refresh() == 4
        drop_table(index.path)
        assert [hit.key for hit in await index.search("paid")] == ["a"]
    discard(source.state)
    source.records.clear()
    source.fold(("z", 2))  # another file, at an earlier position
    async with SemanticIndex(source.stored) as index:
        assert await index.refresh() == 1
        assert index.contents() == [("z", "a cat sleeps")]
        assert await index.rebuild() == 1


async def test_an_index_that_another_process_has_open_is_emptied_not_taken_away(source: Source) -> None:
    async with SemanticIndex(source.stored) as one, SemanticIndex(source.stored) as other:
        await one.refresh()
        file = one.path.stat().st_ino
        assert await other.rebuild() == 4
        assert one.path.stat().st_ino == file
        source.fold(("e", 2))
        assert await one.refresh() >= 1
        assert [hit.key for hit in await other.search("cat")] == ["b", "e"]
        drop_table(one.path)
        assert await other.rebuild() == 5
        assert [hit.key for hit in await one.search("paid")] == ["a"]
        source.fold(("f", 2))
        await one.refresh()
        assert one.contents() == other.contents() == source.texts()


async def test_an_index_is_changed_by_one_process_at_a_time(source: Source) -> None:
    others: list[asyncio.Task[int]] = []
    loop = asyncio.get_running_loop()

    def other_comes(key: str, state: Any) -> str | None:
        """Before what has changed is written the state goes on, and another process comes."""
        if not others:
            source.fold(("a", 5))
            others.append(asyncio.run_coroutine_threadsafe(came(), loop).result())
        return texts_of(key, state)

    async def came() -> asyncio.Task[int]:
        task = asyncio.create_task(other.refresh())
        await asyncio.wait((task,), timeout=0.3)
        return task

    async with (
        SemanticIndex(source.stored, text=other_comes) as one,
        SemanticIndex(source.stored) as other,
    ):
        await one.refresh()
        await others[0]
        assert other.contents() == source.texts()


def test_a_sound_index_that_cannot_be_written_now_is_not_taken_away(source: Source) -> None:
    path = source.path / "index.db"
    path.write_bytes(b"")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, timeout=0))
        with pytest.raises(ProjectionError, match="is locked"):
            SemanticIndex(source.stored, path=path)
    holder.execute("ROLLBACK")
    assert path.exists()


def test_changed_rows_of_a_damaged_state_are_an_error(source: Source) -> None:
    file = StateFile.open(source.state, StateFile.open_to_read(source.state).manifest.identity)
    file._db.execute("UPDATE row SET value = '{}' WHERE key = ?", (b"sb",))
    with pytest.raises(Exception, match="is damaged"):
        list(file.changed(-1))
    file.close()


class Reads(Notes):
    """Asks an index in its `apply`."""

    def __init__(self, ask: Any) -> None:
        self.ask = ask

    def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any] | None:
        self.ask()
        return state


async def test_a_fold_that_reads_an_index_is_stopped(source: Source, tmp_path: Path) -> None:
    async with SemanticIndex(source.stored) as index:
        await index.refresh()
        for ask in (lambda: index.search("cat"), index.refresh, index.rebuild):
            fold = fold_of(Reads(ask), tmp_path / "reads.state")
            with pytest.raises(ImpureProjectionError, match=r"@4: .*semantic index"):
                fold.take(numbered([("a", 1)], start=4))
            assert (fold.cursor, fold.manifest.held) == (0, 0)
            fold.file.close()
            with pytest.raises(ImpureProjectionError):
                Reads(ask).fold([numbered([("a", 1)])[0].envelope])
        with pytest.raises(ImpureProjectionError, match=r"Reads\.ask is a SemanticIndex"):
            Reads(index).check()
        assert await index.search("cat") != []


GOOD = """
from noesium_stream import BaseProjection, ProjectionEngine, compose
from noesium_stream import IndexProjection, SemanticIndex
from noesium_stream.event.envelope import EventEnvelope

class Counts(BaseProjection[int]):
    name = "counts"
    def __init__(self, index: SemanticIndex) -> None:
        self.index = index
    def initial_state(self) -> int:
        return 0
    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1

async def look(index: SemanticIndex, engine: ProjectionEngine) -> int:
    engine.register("index", IndexProjection())
    compose("all", a=IndexProjection())
    return len(await index.search("x"))
"""
BAD = {
    "return state + 1": 'return state + len(self.index.search("x"))',
    "    def apply(": "    async def apply(",
    'engine.register("index", IndexProjection())': 'engine.register("index", index)',
    'compose("all", a=IndexProjection())': 'compose("all", a=index)',
}


@pytest.mark.dev
def test_a_fold_that_is_handed_an_index_does_not_pass_the_type_checker(tmp_path: Path) -> None:
    modules = {"good": GOOD, **{f"bad{n}": GOOD.replace(*bad) for n, bad in enumerate(BAD.items())}}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-error-summary"]
    command += ["--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent"]
    done = subprocess.run(
        [*command, *(str(tmp_path / f"{name}.py") for name in modules)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    found = {
        line.rpartition("/")[2].partition(".py")[0] for line in done.stdout.splitlines() if ": error:" in line
    }
    assert found == modules.keys() - {"good"}, done.stdout
