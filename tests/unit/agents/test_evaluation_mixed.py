"""How good the answers are where prose and code speak of the same things: over this very repository."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.corpora import Corpus, LocalResearcher, write_files

REPOSITORY = Path(__file__).parents[3]

PROSE = [
    ("Who takes over the partitions of a dead worker?", r"another worker|takes? over"),
    ("How do I start a broker?", r"noesium broker up"),
    ("How do I stop the broker?", r"noesium broker down"),
    ("What does exit code 3 mean?", r"\b3 \| .*not available"),
    ("What does exit code 130 mean?", r"\b130 \| .*Ctrl-C"),
    ("default number of partitions", r"`partitions` \| "),
    ("What is the default partition count?", r"`partitions` \| "),
    ("How long are journals kept?", r"for good"),
    ("What happens when a process dies?", r"process"),
    ("How do I cancel a run?", r"noesium cancel RUN"),
    ("What is a step?", r"is a transaction"),
    ("What is an inbox?", r"an inbox, where anyone writes|comes to an inbox is a request"),
    ("Who may write to the journal?", r"a journal, where the owner|only an agent\'s own workers may write"),
    ("How is the previous owner fenced?", r"fences the previous"),
    ("How durable is Kafka?", r"as durable as its settings"),
    ("What happens when a command is sent twice?", r"sent twice"),
]
CODE = [
    ("What does `partition_of` do?", "noesium_stream/log/topics.py", r"partition of a key"),
    ("What is LocalBroker.logs?", "noesium_stream/log/broker/local.py", r"."),
]
RIGHT = 10
"""So many questions in words have the right place of the prose as first citation; reached: 11 of 16."""


def is_prose(path: str) -> bool:
    return path == "README.md" or path.startswith("noesium_stream/guides/")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    root = tmp_path_factory.mktemp("mixed")
    shutil.copy(REPOSITORY / "README.md", root)
    for folder in ("noesium_stream", "tests/unit/log", "tests/unit/worker", "tests/unit/cli", "tests/bench"):
        if (REPOSITORY / folder).is_dir():
            shutil.copytree(
                REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
            )
    corpus = Corpus(root, tmp_path_factory.mktemp("home"))
    assert corpus.update().documents > 100
    return corpus


@pytest.fixture(scope="module")
def researcher(mixed: Corpus) -> LocalResearcher:
    return LocalResearcher(mixed.index)


async def test_questions_in_words_are_answered_from_the_prose(researcher: LocalResearcher) -> None:
    wrong = []
    for question, pattern in PROSE:
        citations = (await researcher.ask(question))["citations"]
        if (
            not citations
            or not is_prose(citations[0]["path"])
            or not re.search(pattern, " ".join(citations[0]["quote"].split()))
        ):
            wrong.append((question, citations[:1]))
    assert len(PROSE) - len(wrong) >= RIGHT, wrong


@pytest.mark.parametrize(("question", "path", "pattern"), CODE)
async def test_questions_that_name_code_are_answered_from_the_code(
    researcher: LocalResearcher, question: str, path: str, pattern: str
) -> None:
    first = (await researcher.ask(question))["citations"][0]
    assert first["path"] == path
    assert re.search(pattern, first["quote"])


@pytest.mark.parametrize("question", ["How tall is the lighthouse?", "Who pays the gardener on Sundays?"])
async def test_code_that_shares_a_word_is_no_answer(researcher: LocalResearcher, question: str) -> None:
    assert (await researcher.ask(question))["found"] is False


@pytest.mark.parametrize("question", ["the", "x", "who are you?"])
async def test_too_small_a_question_is_refused(researcher: LocalResearcher, question: str) -> None:
    result = await researcher.ask(question)
    assert result["answer"].startswith("There is too little to look for in the question.")
    assert (result["found"], result["citations"], result["sources"]) == (False, [], [])


@pytest.mark.parametrize("question", ["How long are journals kept?", "How do I start a broker?"])
def test_the_librarian_has_prose_first_too(mixed: Corpus, question: str) -> None:
    assert is_prose(mixed.index.search(question, 3)["passages"][0]["path"])


async def test_names_are_found_by_their_words(tmp_path: Path) -> None:
    files = {
        "limits.py": '"""Limits."""\n\nMAX_ATTEMPTS = 7\n',
        "queue.py": "class LetterBox:\n    colour = 'red'\n",
    }
    corpus = Corpus(write_files(tmp_path / "docs", files), tmp_path / "home")
    corpus.update()
    researcher = LocalResearcher(corpus.index)
    result = await researcher.ask("How many attempts are there?")
    assert result["outcome"] == "answer"
    assert "MAX_ATTEMPTS = 7" in result["citations"][0]["quote"]
    assert (await researcher.ask("What colour is the letter box?"))["citations"][0]["path"] == "queue.py"
    missing = await researcher.ask("Who attempts the red submarines of Pernambuco in winter?")
    assert "“attempts” (in 1 passage)" in missing["answer"]
    assert "“submarines” (nowhere)" in missing["answer"]


async def test_code_that_holds_the_question_is_no_answer(tmp_path: Path) -> None:
    question = "How long is the lease of a worker?"
    page = f'# Leases\n\n```\nask("{question}")\n```\n\n```\nlease_of_worker = 3\n```\n'
    corpus = Corpus(
        write_files(tmp_path / "docs", {"a.md": page, "b.md": "# B\n\nRed.\n"}), tmp_path / "home"
    )
    corpus.update()
    result = await LocalResearcher(corpus.index).ask(question)
    assert not any(question in citation["quote"] for citation in result["citations"])


def test_a_sentence_in_bold_heads_its_paragraph(tmp_path: Path) -> None:
    page = "# Work\n\n**What a lease is.** A right for\na time.\n\nOther words.\n"
    corpus = Corpus(write_files(tmp_path / "docs", {"a.md": page}), tmp_path / "home")
    corpus.update()
    first = corpus.index.search("lease", 1)["passages"][0]
    assert first["heading"] == "Work > What a lease is"
    assert (first["start_line"], first["end_line"]) == (3, 4)
    assert first["text"].startswith("What a lease is. A right")
