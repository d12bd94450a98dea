"""The weights of the ranking and of the probability, fitted to questions by plain gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy

from agents.documents.kinds import Kind
from agents.librarian import ranking
from agents.librarian.index import CorpusIndex
from agents.librarian.searching import POOL
from agents.researcher import weighing
from agents.researcher.planning import plan
from tests.bench.answers.corpora import Question, is_told
from tests.bench.answers.measuring import Result, claimed, refused, results_of, wrong
from tests.bench.answers.searchers import product

NAMES: Final = tuple(ranking.WEIGHTS)
_STEPS: Final = 400
_RATE: Final = 0.05
_DECAY: Final = 1.0

Asked = Mapping[str, tuple[Path, Sequence[Question]]]


def fit(asked: Asked) -> None:
    """Print weights that put passages with a gold text first, those of the probability, and its curve.

    The probability is that of the product as it is, so copy the weights and call it again for the next.
    """
    pools = [_pool(path, question) for path, questions in asked.values() for question in questions]
    weights = _order(pools)
    print("WEIGHTS:", {name: round(float(one), 2) for name, one in zip(NAMES, weights, strict=True)})
    results = [one for path, questions in asked.values() for one in results_of(product(path), questions)]
    found = [one for one in results if one.said.weighed["evidence"]]
    right = numpy.array([float(one.place is not None) for one in found])
    signs = [
        [1.0, weighing.coverage(evidence), weighing.sentence(evidence)]
        for evidence in (one.said.weighed["evidence"] for one in found)
    ]
    chosen = _logistic(numpy.array(signs), right)
    print("BIAS, COVERAGE, SENTENCE:", [round(float(one), 2) for one in chosen])
    _curve(results)


def _pool(path: Path, question: Question) -> tuple[Any, list[bool], list[dict[str, Any]], tuple[str, ...]]:
    """Features of all passages that are looked at for a question, and which of them hold a gold text."""
    kept: list[ranking.Features] = []

    def note(features: ranking.Features, kind: Kind, about_code: bool) -> float:
        kept.append(features)
        return float(len(kept))

    query = plan(question.text)["queries"]
    passages = CorpusIndex(path).search(query[0], 2 * POOL, note)["passages"] if query else []
    passages = sorted(passages, key=lambda passage: passage["score"])
    features = numpy.array([[getattr(one, name) for name in NAMES] for one in kept]).reshape(-1, len(NAMES))
    golds = [any(is_told(gold, passage["text"]) for gold in question.gold) for passage in passages]
    return features, golds, passages, question.gold


def _order(pools: Sequence[tuple[Any, list[bool], Any, Any]]) -> Any:
    """Weights by a softmax over each pool: the probability of its gold passages is to be high."""
    taught = [(features, numpy.array(golds, dtype=float)) for features, golds, _, _ in pools if any(golds)]
    spread = numpy.concatenate([features for features, _ in taught]).std(axis=0) + 1e-6
    weights = numpy.zeros(len(NAMES))
    for _ in range(_STEPS * 4):
        slope = _DECAY * weights / len(taught)
        for features, golds in taught:
            scaled = features / spread
            worth = scaled @ weights
            chances = numpy.exp(worth - worth.max())
            chances /= chances.sum()
            wanted = chances * golds
            slope -= scaled.T @ (wanted / wanted.sum() - chances) / len(taught)
        weights -= 4 * _RATE * slope
    return weights / spread


def _logistic(rows: Any, right: Any) -> Any:
    weights = numpy.zeros(rows.shape[1])
    for _ in range(_STEPS * 100):
        chances = 1 / (1 + numpy.exp(-(rows @ weights)))
        weights -= 0.5 * (rows.T @ (chances - right) / len(rows) + 1e-4 * weights)
    return weights


def _curve(results: Sequence[Result]) -> None:
    print("claimed from   refused of none   claimed of answerable   wrong of claimed")
    for least in (step / 20 for step in range(1, 20)):
        judged = [
            replace(one, said=replace(one.said, outcome="answer" if _claims(one, least) else "close"))
            for one in results
        ]
        print(f"{least:12.2f}{refused(judged):18.0f}{claimed(judged):24.0f}{wrong(judged):19.1f}")


def _claims(result: Result, least: float) -> bool:
    return float(result.said.weighed["probability"]) >= least
