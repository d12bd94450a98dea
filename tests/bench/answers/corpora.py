"""The documents and the questions: manuals that Debian's packages ship, and what people may ask of them.

The packages are fetched by `apt-get download`, so the bench runs on Debian and what is made of it. A
question has a gold text, the shortest sentence, row or item that answers it; it was written from the
documents, without a look at the code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

QUESTIONS: Final = Path(__file__).parent / "questions"

Kind = Literal["words", "other", "alike", "none"]


@dataclass(frozen=True)
class Corpus:
    """Documents of one project.

    Attributes:
        name: also that of its questions' file.
        packages: of Debian.
        sources: what is taken of them: a folder within the packages and a pattern of names.
        unseen: whether it was looked at only for the last measurement.
        renamed: endings of names that are replaced, as the packages hide what a file is.
    """

    name: str
    packages: Sequence[str]
    sources: Sequence[tuple[str, str]]
    unseen: bool
    renamed: tuple[str, str] | None = None


CORPORA: Final = (
    Corpus(
        "sqlite",
        ["sqlite3-doc"],
        [("usr/share/doc/sqlite3", "*.html"), ("usr/share/doc/sqlite3", "c3ref/*.html")],
        False,
    ),
    Corpus("manuals", ["manpages"], [("usr/share/man", f"man{section}/*.gz") for section in "4578"], False),
    Corpus("postgres", ["postgresql-doc-15"], [("usr/share/doc/postgresql-doc-15/html", "*.html")], False),
    Corpus(
        "git",
        ["git-doc"],
        [("usr/share/doc/git-doc", pattern) for pattern in ("*.txt", "howto/*.txt", "technical/*.txt")],
        True,
    ),
    Corpus(
        "borg",
        ["borgbackup-doc"],
        [("usr/share/doc/borgbackup/html/_sources", "**/*.rst.txt")],
        True,
        (".rst.txt", ".rst"),
    ),
    Corpus(
        "policy",
        ["debian-policy", "developers-reference"],
        [
            ("usr/share/doc/debian-policy", "policy.html/*.html"),
            ("usr/share/doc/debian-policy", "perl-policy.html/*.html"),
            ("usr/share/developers-reference", "*.html"),
        ],
        True,
    ),
)


@dataclass(frozen=True)
class Question:
    """A question, its kind, and texts of which each answers it; none for a question without an answer."""

    text: str
    kind: Kind
    gold: tuple[str, ...]


def questions_of(corpus: Corpus) -> list[Question]:
    """The questions about a corpus."""
    lines = (QUESTIONS / f"{corpus.name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Question(row["q"], row["kind"], tuple(row["gold"])) for row in rows]


def documents_of(corpus: Corpus, folder: Path) -> Path:
    """The folder of a corpus' documents below `folder`, fetched if it is not there.

    Raises:
        subprocess.CalledProcessError: a package cannot be fetched or unpacked.
    """
    target = folder / corpus.name
    if target.is_dir():
        return target
    packed = folder / f"{corpus.name}.packages"
    packed.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *corpus.packages], cwd=packed, check=True)
    for package in sorted(packed.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, packed / "root"], check=True)
    for base, pattern in corpus.sources:
        for found in (packed / "root" / base).glob(pattern):
            if found.is_file() and not found.is_symlink():
                _copy(found, target / found.relative_to(packed / "root" / base), corpus.renamed)
    shutil.rmtree(packed)
    return target


def is_told(gold: str, text: str) -> bool:
    """Whether a text holds a gold text, but for punctuation and a fifth of it."""
    wanted, told = _words(gold), _words(text)
    if f" {' '.join(wanted)} " in f" {' '.join(told)} ":
        return True
    known = set(_threes(told))
    threes = list(_threes(wanted))
    return bool(threes) and sum(three in known for three in threes) >= 0.8 * len(threes)


def _copy(found: Path, target: Path, renamed: tuple[str, str] | None) -> None:
    if renamed is not None:
        target = target.with_name(target.name.replace(*renamed))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found, target)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _threes(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(words, words[1:], words[2:], strict=False)
