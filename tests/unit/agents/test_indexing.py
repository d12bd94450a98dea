"""The index follows the documents: only what changed is read, whatever happens in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agents.documents import parsing, reading
from agents.documents.listing import Found, Reason
from agents.librarian import searching
from agents.librarian.index import SCHEMA_VERSION, CorpusIndex
from agents.librarian.indexing import skipped_lines
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError
from tests.support.corpora import BRACKWATER, Corpus, write_files
from tests.support.pdf import make_bomb

REPOSITORY = Path(__file__).parents[3]
LONG_AGO_NS = 1_000_000_000_000_000_000


def age(folder: Path) -> None:
    """Let all files be old enough for their times of change to be trusted."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    root = write_files(tmp_path / "docs", {"a.md": "apples are red", "b.md": "bananas are yellow"})
    age(root)
    return Corpus(root, tmp_path / "home")


def test_a_second_run_reads_nothing(corpus: Corpus) -> None:
    first, second = corpus.update(), corpus.update()
    assert (first.read, first.unchanged, first.documents) == (2, 0, 2)
    assert (second.read, second.unchanged, second.documents) == (0, 2, 2)


def test_only_a_changed_file_is_read_again(corpus: Corpus) -> None:
    corpus.update()
    write_files(corpus.root, {"a.md": "cherries are black"})
    assert corpus.update().read == 1
    assert corpus.counts("apples cherries") == {"apples": 0, "cherries": 1}
    assert corpus.paths("cherries")[0] == "a.md"


def test_a_change_that_leaves_size_and_time_is_seen_while_the_time_is_fresh(corpus: Corpus) -> None:
    write_files(corpus.root, {"a.md": "apples are red"})
    corpus.update()
    before = (corpus.root / "a.md").stat()
    write_files(corpus.root, {"a.md": "grapes are red"})
    os.utime(corpus.root / "a.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    corpus.update()
    assert corpus.counts("apples grapes") == {"apples": 0, "grapes": 1}


def test_a_touched_file_with_the_same_bytes_is_not_indexed_again(corpus: Corpus) -> None:
    corpus.update()
    os.utime(corpus.root / "a.md", ns=(LONG_AGO_NS + 1, LONG_AGO_NS + 1))
    assert corpus.update().read == 0
    assert corpus.index.files()["a.md"].mtime_ns == LONG_AGO_NS + 1


def test_a_removed_file_is_forgotten(corpus: Corpus) -> None:
    corpus.update()
    (corpus.root / "b.md").unlink()
    summary = corpus.update()
    assert (summary.removed, summary.documents) == (1, 1)
    assert corpus.counts("bananas apples") == {"bananas": 0, "apples": 1}
    assert corpus.paths("bananas yellow") == ["a.md"], "what is left is found by meaning at most"


def test_a_file_that_goes_away_while_it_is_read_is_counted_and_forgotten(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.update()
    write_files(corpus.root, {"b.md": "changed"})
    read_all = reading.read_all

    def removing(root: Path, *args: object, **kwargs: object) -> object:
        (root / "b.md").unlink()
        return read_all(root, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("agents.librarian.indexing.read_all", removing)
    summary = corpus.update()
    assert [(item.path, item.reason) for item in summary.skipped] == [("b.md", Reason.VANISHED)]
    assert corpus.counts("bananas changed") == {"bananas": 0, "changed": 0}
    assert corpus.paths("bananas changed") == ["a.md"]


def test_no_documents_is_one_clear_error(tmp_path: Path) -> None:
    empty = Corpus(write_files(tmp_path / "docs", {}) or tmp_path, tmp_path / "home")
    empty.root.mkdir()
    with pytest.raises(ConfigError, match=r"There are no documents in .*the folder is empty"):
        empty.update()
    write_files(empty.root, {"a.bin": b"\0", "b.json": "{}"})
    with pytest.raises(ConfigError, match="2 files skipped: 1 another format, 1 binary"):
        empty.update()
    write_files(empty.root, {"a.pdf": b"not a pdf"})
    with pytest.raises(ConfigError, match="1 damaged"):
        empty.update()


def test_what_cannot_be_read_is_counted_and_named(corpus: Corpus) -> None:
    write_files(
        corpus.root,
        {
            "fake.pdf": b"<html>",
            "binary.txt": b"a\0b",
            "empty.md": "",
            "latin.txt": "caf\xe9".encode("latin-1"),
        },
    )
    with open(corpus.root / "big.txt", "wb") as file:
        file.truncate(1024**3)
    summary = corpus.update()
    assert {item.path: item.reason for item in summary.skipped} == {
        "big.txt": Reason.TOO_LARGE,
        "binary.txt": Reason.BINARY,
        "empty.md": Reason.EMPTY,
        "fake.pdf": Reason.DAMAGED,
    }
    lines = skipped_lines(summary)
    assert "skipped 1 file, damaged: fake.pdf (it is not a PDF, whatever its name says)" in lines
    assert corpus.paths("café")[0] == "latin.txt"
    assert corpus.index.search("café", 1)["skipped"] == 3, "those that were opened"
    assert corpus.update().skipped == summary.skipped, "what is known to be unreadable stays named"


def test_a_file_without_permission_is_named_and_tried_again(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"reason": Reason.UNREADABLE, "detail": "permission denied"}
    with monkeypatch.context() as patched:
        patched.setattr(reading._Process, "read", lambda self, root, found, known: refused)
        with pytest.raises(ConfigError, match="2 unreadable"):
            corpus.update()
    assert corpus.update().documents == 2


def test_an_operating_system_that_refuses_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert parsing.read_document(str(tmp_path / "a.md"), "a.md", "text", None) == {
        "reason": Reason.UNREADABLE,
        "detail": "permission denied",
    }


def test_a_parser_that_hangs_is_killed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "import threading\nfrom agents.documents.parsers import html\n"
    hangs += "html.parse = lambda data, path: threading.Event().wait()\n"
    write_files(tmp_path, {"code/sitecustomize.py": hangs})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    os.mkfifo(tmp_path / "pipe.txt")  # opened without blocking, it is refused
    write_files(tmp_path, {"slow.html": "slow", "ok.md": "fine"})
    found = [Found(name, form, 0, 0) for name, form in
             [("slow.html", "html"), ("pipe.txt", "text"), ("ok.md", "markdown")]]  # fmt: skip
    answers = {
        item.path: answer
        for item, answer in reading.read_all(tmp_path, found, {}, threading.Event(), deadline_s=1.5)
    }
    assert answers["slow.html"]["reason"] == Reason.TOO_SLOW
    assert answers["pipe.txt"]["reason"] == Reason.UNREADABLE
    assert answers["ok.md"]["passages"][0][1] == "fine"


def test_a_parser_that_breaks_down_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"a.md": "one", "b.md": "two"})
    requests: list[str] = []
    real = json.dumps

    def poisoned(request: dict[str, str]) -> str:
        requests.append(request["path"])
        return "no json" if len(requests) == 1 else real(request)

    monkeypatch.setattr(reading.json, "dumps", poisoned)
    found = [Found("a.md", "markdown", 3, 0), Found("b.md", "markdown", 3, 0)]
    answers = {item.path: answer for item, answer in reading.read_all(tmp_path, found, {}, threading.Event())}
    assert answers["a.md"]["reason"] == Reason.DAMAGED
    assert answers["b.md"]["passages"][0][1] == "two"


def test_a_pdf_that_unfolds_to_hundreds_of_megabytes_gives_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {"bomb.pdf": make_bomb(300_000_000)})
    [(_, answer)] = reading.read_all(tmp_path, [Found("bomb.pdf", "pdf", 0, 0)], {}, threading.Event())
    assert answer["reason"] in (Reason.DAMAGED, Reason.EMPTY)


def test_stopping_leaves_a_consistent_index_and_the_next_run_goes_on(corpus: Corpus) -> None:
    write_files(corpus.root, {f"n{number}.md": f"number {number}" for number in range(200)})
    corpus.stop.set()
    corpus.update()
    corpus.stop.clear()
    assert corpus.update().documents == 202
    assert len(corpus.paths("number")) == 50


def test_a_kill_at_any_moment_leaves_a_consistent_index(tmp_path: Path) -> None:
    root = write_files(
        tmp_path / "docs", {f"n{number}.md": f"# Head\n\nnumber {number} " * 30 for number in range(300)}
    )
    home = tmp_path / "home"
    program = (
        "import sys; from pathlib import Path; from tests.support.corpora import Corpus\n"
        "corpus = Corpus(Path(sys.argv[1]), Path(sys.argv[2])); print('begun', flush=True); corpus.update()"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for delay_ms in (1, 150, 220, 300, 400):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(root), str(home)], stdout=subprocess.PIPE, env=environment
        )
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(delay_ms / 1000)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
        child.stdout.close()
    corpus = Corpus(root, home)
    assert corpus.update().documents == 300
    assert_consistent(corpus.index)


def test_two_processes_may_index_at_once(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    shutil.copytree(BRACKWATER, root)
    program = (
        "import sys; from pathlib import Path; from tests.support.corpora import Corpus\n"
        "print(Corpus(Path(sys.argv[1]), Path(sys.argv[2])).update().documents)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(root), str(tmp_path / "home")],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for _ in range(3)
    ]
    assert [child.communicate()[0].strip() for child in children] == [b"19"] * 3
    assert_consistent(Corpus(root, tmp_path / "home").index)


def assert_consistent(index: CorpusIndex) -> None:
    """Every passage belongs to a file, and the terms are those of the passages."""
    with sqlite3.connect(index.path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute(
            "SELECT count(*) FROM passages WHERE file_id NOT IN (SELECT id FROM files)"
        ).fetchone() == (0,)
        db.execute("INSERT INTO terms (terms, rank) VALUES ('integrity-check', 1)")


def test_the_consistency_check_sees_a_broken_index(corpus: Corpus) -> None:
    corpus.update()
    with sqlite3.connect(corpus.index.path) as db:
        db.execute("UPDATE passages SET text = 'other words'")
    with pytest.raises(sqlite3.DatabaseError):
        assert_consistent(corpus.index)


def test_an_index_of_another_version_is_made_anew(corpus: Corpus) -> None:
    corpus.update()
    with sqlite3.connect(corpus.index.path) as db:
        db.execute("DROP TABLE terms")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    assert corpus.update().read == 2
    assert corpus.paths("apples") == ["a.md", "b.md"]


@pytest.mark.parametrize("damage", [b"not a database at all", b"", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_index_is_made_anew(corpus: Corpus, damage: bytes) -> None:
    corpus.update()
    corpus.index.discard()
    corpus.index.path.write_bytes(damage)
    assert corpus.update().read == 2
    assert corpus.paths("apples") == ["a.md", "b.md"]


def test_results_do_not_depend_on_the_order_of_indexing(tmp_path: Path) -> None:
    files = {f"n{number}.md": "the same words everywhere" for number in range(30)}
    one = Corpus(write_files(tmp_path / "docs", files), tmp_path / "one")
    one.update()
    two = Corpus(write_files(tmp_path / "docs", {}) or tmp_path / "docs", tmp_path / "two")
    for name in sorted(files, reverse=True):
        aside = tmp_path / "aside" / name
        aside.parent.mkdir(exist_ok=True)
        (tmp_path / "docs" / name).rename(aside)
    for name in sorted(files, reverse=True):
        (tmp_path / "aside" / name).rename(tmp_path / "docs" / name)
        two.update()
    assert one.index.search("same words", 12) == two.index.search("same words", 12)
    first = one.index.search("same words", 3)["passages"]
    assert [item["path"] for item in first] == ["n0.md", "n1.md", "n10.md"]


@pytest.mark.parametrize(
    "query", ['"', "NEAR(a b)", "a AND NOT", "text:apples", "*", "(", "a^2", "-apples", "\0", "' OR 1=1 --"]
)
def test_no_query_is_a_syntax_error(corpus: Corpus, query: str) -> None:
    corpus.update()
    found = corpus.index.search(query, 5)
    assert (found["documents"], found["passage_count"], found["skipped"]) == (2, 2, 0)
    assert found["passages"] == [] or any(c.isalnum() for c in query)


def test_phrases_are_found_as_phrases(corpus: Corpus) -> None:
    write_files(corpus.root, {"c.md": "red are apples", "d.md": "EventEnvelope"})
    corpus.update()
    assert corpus.paths('"apples are red"')[0] == "a.md"
    assert corpus.paths("envelope")[0] == "d.md"
    assert corpus.counts('"are red" yellow nothing') == {"are red": 1, "yellow": 1, "nothing": 0}


def test_search_gives_no_more_than_the_limit_best_first(corpus: Corpus) -> None:
    write_files(corpus.root, {f"n{number}.md": f"apples and number {number}" for number in range(20)})
    corpus.update()
    found = corpus.index.search("apples", 7)
    scores = [passage["score"] for passage in found["passages"]]
    assert (found["documents"], found["passage_count"], len(scores)) == (22, 22, 7)
    assert scores == sorted(scores, reverse=True)


def test_a_passage_is_found_by_its_meaning_without_a_common_word(corpus: Corpus) -> None:
    write_files(
        corpus.root,
        {
            "c.md": "The physician treats sick people in the hospital.",
            "d.md": "Trains stop at platform four.",
        },
    )
    corpus.update()
    found = corpus.index.search("doctor illness", 4)
    assert found["counts"] == {"doctor": 0, "illness": 0}
    assert found["passages"][0]["path"] == "c.md"
    assert found["passages"][0]["coverage"] == 0


def test_coverage_is_the_share_of_the_words_and_a_rare_one_counts_for_more(corpus: Corpus) -> None:
    write_files(corpus.root, {"c.md": "apples and pears", **{f"n{n}.md": f"apples {n}" for n in range(9)}})
    corpus.update()
    covered = {item["path"]: item["coverage"] for item in corpus.index.search("apples pears", 50)["passages"]}
    assert covered["c.md"] == 1
    assert covered["b.md"] == 0
    assert 0 < covered["n0.md"] < 0.5


def test_units_speak_of_their_headings_and_their_terms(corpus: Corpus) -> None:
    page = "# Engine\n\n| setting | default |\n|---|---|\n| oil | red |\n| water | blue |\n"
    write_files(corpus.root, {"c.md": page})
    corpus.update()
    units = corpus.index.search("default oil of the engine", 1)["passages"][0]["units"]
    assert [unit["kind"] for unit in units] == ["head", "row", "row"]
    assert [unit["first"] for unit in units] == [3, 5, 6]
    assert [unit["coverage"] == 1 for unit in units] == [False, True, False]
    assert units[2]["coverage"] > 0


def test_results_name_each_passage_once_and_for_good(corpus: Corpus) -> None:
    corpus.update()
    first = corpus.index.search("red yellow", 5)
    assert len({passage["passage_id"] for passage in first["passages"]}) == 2
    corpus.index.discard()
    corpus.update()
    assert corpus.index.search("red yellow", 5) == first


def test_another_score_orders_all_candidates_otherwise_and_only_the_wanted_ones_are_made(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.update()
    everything = corpus.index.search("red apples, yellow", 50)["passages"]
    made = []
    judged = searching._judged

    def count(row: searching.Row, *rest: Any) -> Any:
        made.append(row.path)
        return judged(row, *rest)

    monkeypatch.setattr(searching, "_judged", count)
    least = min(everything, key=lambda passage: float(passage["coverage"]))
    found = corpus.index.search(
        "red apples, yellow", 1, lambda features, kind, about_code: -features.coverage
    )
    assert [one["passage_id"] for one in found["passages"]] == [least["passage_id"]]
    assert made == [least["path"]], "the units of others are not judged"


def test_progress_is_told_during_long_work(tmp_path: Path) -> None:
    class Hurried(SystemClock):
        ticks = 0

        def monotonic(self) -> float:
            self.ticks += 1
            return float(self.ticks)

    corpus = Corpus(
        write_files(tmp_path / "d", {f"{n}.md": "x" for n in range(9)}), tmp_path / "h", Hurried()
    )
    corpus.update()
    assert any(line.startswith("indexed ") and line.endswith("of 9 files") for line in corpus.lines)
