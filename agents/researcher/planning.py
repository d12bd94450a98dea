"""From a question to what is asked for and where to look: without a model, the same for ever.

A plan is plain data, since it is part of a run's state:

    {"question", "kind", "about_code", "phrases", "queries",
     "terms": [{"text", "weight", "forms": [{"stems", "credit", "text"}]}]}

A question of nothing but small words has no terms and no queries: there is too little to look for.

A *term* is one thing that the answer should speak of; its *forms* are sequences of stems that stand for
it, the word itself first (credit 1), then synonyms and parts (less). `weight` says how much of the
question it carries before rarity is considered.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from agents.documents.kinds import asks_for_code
from agents.documents.words import STOP_WORDS, camel_parts, fold, stem, stems
from agents.researcher.synonyms import synonyms, word_of

MAX_TERMS = 16

_QUOTED = re.compile(r'["“”`]([^"“”`]{2,100})["“”`]')
_TOKEN = re.compile(r"--?[A-Za-z][\w-]*|[^\W_][\w]*(?:[.:/-]+\w+)*|_\w+")
_QUOTED_ANY = re.compile(r'["“”`]([^"“”`]{1,100})["“”`]')
_COUNTED = re.compile(r"\b(?:number|amount)(?=s? of\b)", re.I)
_TAKES_OVER = re.compile(r"\b(?:take[sn]?|took|taking)\s+over\b", re.I)
_KINDS = (
    ("duration", r"\bhow (long|soon|old|quickly)\b|\bfor how long\b"),
    (
        "count",
        r"\bhow (many|much|big|large|often|fast|far|high|tall|deep|heavy|wide|small|hot|cold|strong)\b",
    ),
    ("count", r"\b(maximum|minimum|limit|most|number of|count|percentage|price|cost)\b"),
    ("how", r"\bhow\b"),
    ("why", r"\bwhy\b|\breasons? (for|why)\b|\bwhat for\b"),
    ("when", r"\bwhen\b|\bwhat (date|day|year|time)\b|\bin (what|which) year\b"),
    ("where", r"\bwhere\b|\bin (what|which) (file|folder|directory|place|module)\b"),
    ("who", r"\bwho(m|se)?\b"),
    ("which", r"\bwhich\b|\bwhat (are|kinds?|types?)\b"),
    ("what", r"\bwhat\b|\bdefine\b|\bdefinition\b|\bmeaning of\b|\bexplain\b"),
    ("whether", r"^\W*(is|are|was|were|do|does|did|can|could|may|should|will|would|has|have|must)\b"),
)
_KIND_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
# a verb says less than the thing that is asked about: it often has another word in the documents
_VERB_AFTER_TEXT = "i you we they one to do does did can could should must will would may it"
_VERB_AFTER = frozenset(_VERB_AFTER_TEXT.split())
_VAGUE_TEXT = """
work works working handle handles manage do call called name named define defined type types
different difference example examples possible best good better reason purpose important main part
parts behave behavior behaviour support supported provide provided return returned returns contain
contains include includes find found look happen deal come comes become cause causes involve look
looks mention mentioned give allow allowed keep kept time times set people person company user users
project program system value values first last new put right wrong number maximum minimum limit many
often large big high fast expect expected count amount occur affect
"""
_VAGUE = frozenset(stem(word) for word in _VAGUE_TEXT.split())
# at the end of "why was X chosen", "how is X measured"
_PARTICIPLE = re.compile(r"(?:ed|[aeiou]?[wksrt]en|ent|ept|own|orn|ought|aught|elt)$")
_WORD_AFTER = re.compile(r"\w")
SYNONYM_CREDIT = 0.75
_PART_CREDIT = 0.5


def plan(question: str) -> dict[str, Any]:
    """What `question` asks for, and the queries that may find it."""
    terms = _terms(question)
    phrases = _phrases(question, terms)
    return {
        "question": question,
        "kind": kind_of(question),
        "about_code": asks_for_code(question),
        "terms": terms,
        "phrases": phrases,
        "queries": _queries(terms, phrases),
    }


def kind_of(question: str) -> str:
    """What sort of answer is wanted: duration, count, how, why, when, where, who, which, what, …"""
    return next((kind for kind, pattern in _KIND_PATTERNS if pattern.search(question)), "other")


def refined_queries(made: dict[str, Any], missing: list[str]) -> list[str]:
    """Further queries for a plan whose terms `missing` (their texts) have not been found."""
    terms = made["terms"]
    synonym_words = [form["text"] for term in terms if term["text"] in missing for form in term["forms"][1:]]
    strong = [
        term["forms"][0]["text"] for term in terms if term["text"] not in missing and term["weight"] >= 1
    ]
    parts = [part for term in terms if term["text"] in missing for part in _split_compound(term["text"])]
    queries = [
        " ".join(dict.fromkeys([*map(_as_query, synonym_words), *map(_as_query, strong)])),
        " ".join(dict.fromkeys([*parts, *map(_as_query, strong)])) if parts else "",
        " ".join(map(_as_query, missing)),
    ]
    return [query for query in dict.fromkeys(queries) if query and query not in made["queries"]]


def _terms(question: str) -> list[dict[str, Any]]:
    terms: dict[str, dict[str, Any]] = {}
    before = ""
    counted = {match.start() for match in _COUNTED.finditer(question)}
    if taken := _TAKES_OVER.search(question):
        # both words are too small to be looked for by themselves
        terms["take over"] = _phrasal(taken.group())
    for position, match in enumerate(_TOKEN.finditer(question)):
        token = match.group().strip(".:/-")
        word = fold(token)
        if token and match.start() not in counted and not _is_grammar(token, word):
            weight = _weight(token, word, before, position, not _WORD_AFTER.search(question, match.end()))
            term = _term(token, weight)
            key = " ".join(term["forms"][0]["stems"])
            if term["forms"][0]["stems"] and (key not in terms or terms[key]["weight"] < weight):
                terms[key] = term
        before = word
    if not terms:
        # small words count where they are quoted: what is `if`?
        words = [word for quote in _QUOTED_ANY.findall(question) for word in _TOKEN.findall(quote)]
        terms = {word: _term(word, 1.0) for word in words if any(c.isalnum() for c in word)}
    return list(terms.values())[:MAX_TERMS]


def _is_grammar(token: str, word: str) -> bool:
    if word in STOP_WORDS:
        # an acronym is a word of its own: IT, US, WHO
        return not (token.isupper() and len(token) > 1)
    return len(word) == 1 and word.isascii() and not word.isdigit() and not token.isupper()


def _weight(token: str, word: str, before: str, position: int, is_last: bool) -> float:
    if _is_identifier(token):
        return 1.5
    if position > 0 and token[0].isupper():
        return 1.5
    if stem(word) in _VAGUE:
        return 0.4
    return 0.6 if before in _VERB_AFTER or (is_last and _PARTICIPLE.search(word)) else 1.0


def _is_identifier(token: str) -> bool:
    return any(c in token for c in "._/:") or token.startswith("-") or len(camel_parts(token)) > 1


def _term(token: str, weight: float) -> dict[str, Any]:
    sequence = stems(token)
    forms = [{"stems": sequence, "credit": 1.0, "text": token}]
    if len(sequence) > 1:
        forms.append(
            {"stems": [stem(fold(token.replace("-", "")))], "credit": 1.0, "text": token.replace("-", "")}
        )
        forms += [
            {"stems": [part], "credit": _PART_CREDIT / len(sequence), "text": part}
            for part in dict.fromkeys(sequence)
            if len(part) > 2
        ]
    elif sequence:
        forms += [
            {"stems": [other], "credit": SYNONYM_CREDIT, "text": word_of(other)}
            for other in synonyms(sequence[0])
        ]
    return {"text": token, "forms": forms, "weight": weight}


def _phrasal(text: str) -> dict[str, Any]:
    """The term "take over", whose parts may stand apart: "takes the partition over"."""
    forms = [
        {"stems": [verb, "over"], "credit": 1.0, "text": text, "apart": 3}
        for verb in ("take", "taken", "took")
    ]
    return {
        "text": text,
        "weight": 0.6,
        "forms": [*forms, {"stems": ["takeov"], "credit": 1.0, "text": "takeover"}],
    }


def _phrases(question: str, terms: list[dict[str, Any]]) -> list[str]:
    """Quoted strings, identifiers of several parts, and words that stand side by side."""
    quoted = [match.group(1).strip() for match in _QUOTED.finditer(question)]
    compound = [term["text"] for term in terms if len(term["forms"][0]["stems"]) > 1]
    words = [match.group().strip(".:/-") for match in _TOKEN.finditer(question)]
    known = {term["text"] for term in terms if len(term["forms"][0]["stems"]) == 1}
    pairs = [f"{first} {second}" for first, second in pairwise(words) if first in known and second in known]
    return list(dict.fromkeys([*quoted, *compound, *pairs]))


def _queries(terms: list[dict[str, Any]], phrases: list[str]) -> list[str]:
    """The words; the phrases; the words with their synonyms. Each finds what the others rank too low."""
    words = [_as_query(term["text"]) for term in terms]
    strong = [_as_query(term["text"]) for term in terms if term["weight"] >= 1]
    # `functools.lru_cache` may be the section `lru_cache` of functools.py
    dotted = [
        _as_query(part) for term in terms if "." in term["text"] for part in term["text"].split(".") if part
    ]
    wider = [
        _as_query(form["text"])
        for term in terms
        for form in term["forms"]
        if len(form["stems"]) == 1 and form["credit"] >= SYNONYM_CREDIT
    ]
    queries = [
        " ".join(words),
        " ".join([*map(_as_phrase, phrases), *strong]) if phrases else " ".join(strong),
        " ".join(dotted),
        " ".join(wider),
    ]
    return [query for query in dict.fromkeys(queries) if query]


def _as_query(text: str) -> str:
    """One word as it is; what the index would cut in pieces as a phrase."""
    return text if text.isalnum() else _as_phrase(text)


def _as_phrase(text: str) -> str:
    return '"' + text.replace('"', " ") + '"'


def _split_compound(text: str) -> list[str]:
    return [fold(part) for part in re.findall(r"[^\W_]+", text) for part in camel_parts(part)]
