"""The command.

    python -m tests.bench answers [--documents DIR] [--only NAME,...] [--half tuned|unseen] [--fit] [--show]

The documents are fetched into DIR (by default into a folder below the temporary one, which is kept), indexed,
and asked. `--show` prints each question that fails, `--fit` the weights of `agents/librarian/ranking.py` and
`agents/researcher/weighing.py` that fit the tuned half.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from agents.librarian.index import CorpusIndex
from agents.librarian.indexing import bring_up_to_date
from noesium_stream.clock import SystemClock
from tests.bench.answers import measuring, searchers
from tests.bench.answers.corpora import CORPORA, Corpus, documents_of, questions_of
from tests.bench.answers.fitting import fit
from tests.bench.answers.measuring import Result

SEARCHERS = {
    "this product": searchers.product,
    "BM25": searchers.by_words,
    "BM25 and embedder": searchers.by_words_and_meaning,
}


def main(arguments: Sequence[str]) -> int:
    """Measure and print; the exit code."""
    asked = _parser().parse_args(arguments)
    chosen = [
        corpus
        for corpus in CORPORA
        if corpus.name in asked.only and asked.half in ("both", "unseen" if corpus.unseen else "tuned")
    ]
    paths = {corpus.name: indexed(corpus, asked.documents) for corpus in chosen}
    if asked.fit:
        fit(
            {
                corpus.name: (paths[corpus.name], questions_of(corpus))
                for corpus in chosen
                if not corpus.unseen
            }
        )
        return 0
    for unseen in (False, True):
        half = [corpus for corpus in chosen if corpus.unseen is unseen]
        if half:
            print(f"\n{'unseen' if unseen else 'tuned'}: {', '.join(corpus.name for corpus in half)}")
            _table(half, paths, show=asked.show)
    return 0


def indexed(corpus: Corpus, folder: Path) -> Path:
    """The index of a corpus, brought up to date."""
    root = documents_of(corpus, folder)
    path = folder / "indexes" / f"{corpus.name}.db"
    index = CorpusIndex(path)
    began, processor = time.monotonic(), time.process_time()
    summary = bring_up_to_date(
        root, index, clock=SystemClock(), progress=lambda line: None, stop=threading.Event()
    )
    print(
        f"{corpus.name}: {summary.documents} documents, {summary.passages} passages, {summary.read} read in "
        f"{time.monotonic() - began:.1f} s ({time.process_time() - processor:.1f} s of this process)"
    )
    return path


def _table(half: Sequence[Corpus], paths: dict[str, Path], *, show: bool) -> None:
    print(
        f"{'percent of questions':22}{'in a quote':>12}{'first':>7}{'words':>7}{'other':>7}{'alike':>7}"
        f"{'none: refused':>15}{'claimed':>9}{'of these wrong':>16}"
    )
    for name, searcher in SEARCHERS.items():
        results: list[Result] = []
        for corpus in half:
            results += measuring.results_of(searcher(paths[corpus.name]), questions_of(corpus))
        kinds = "".join(f"{measuring.share(results, kind=kind):7.0f}" for kind in ("words", "other", "alike"))
        line = f"{name:22}{measuring.share(results):12.0f}{measuring.share(results, first=True):7.0f}{kinds}"
        if name == "this product":
            line += f"{measuring.refused(results):15.0f}{measuring.claimed(results):9.0f}"
            line += f"{measuring.wrong(results):16.0f}"
        print(line)
        if show and name == "this product":
            _show(results)


def _show(results: Sequence[Result]) -> None:
    for one in results:
        if one.question.kind != "none" and one.place is None:
            print(f"  {one.question.kind}: {one.question.text}\n    gold: {one.question.gold[0]}")
            print(f"    said ({one.said.outcome}): {' '.join((one.said.quotes or ['-'])[0].split())[:300]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench answers", description=__doc__)
    parser.add_argument(
        "--documents", type=Path, default=Path(tempfile.gettempdir()) / "noesium-bench-answers"
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[corpus.name for corpus in CORPORA]
    )
    parser.add_argument("--half", choices=("both", "tuned", "unseen"), default="both")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--show", action="store_true")
    return parser
