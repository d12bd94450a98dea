"""Questions in a limited English, without a model: words are matched to names of tables and columns. Pure.

    how many ORDERS [by COLUMN] [where …]
    sum | average | minimum | maximum of COLUMN [of TABLE] [by COLUMN | by month of COLUMN] [where …]
    top | bottom N TABLE by COLUMN [where …]        top N COLUMN by sum of COLUMN
    list [N] TABLE [COLUMN, COLUMN] [where …] [sorted by COLUMN [descending]]
    which tables                                    columns of TABLE
    where COLUMN is | is not | over | under | at least | at most | contains | starts with VALUE [and …]

Each word has to be understood: a question with one that is neither a name nor of this grammar is refused with
that word, because an answer to a part of a question would be wrong. `values` reads the values of conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agents.analyst.plan import PARTS, CannotAnswer, Column, Filter, Function, Operator, Plan, parts_of
from agents.analyst.values import filter_of
from agents.analyst.words import Token, mentions, text_of, tokens_of, words_of
from noesium_stream.event.envelope_fields import short

MAX_QUESTION: Final = 2_000
MAX_TOP: Final = 200

_FUNCTIONS: Final[Mapping[str, Function]] = {
    **dict.fromkeys(("sum", "total"), "SUM"),
    **dict.fromkeys(("average", "mean", "avg"), "AVG"),
    **dict.fromkeys(("minimum", "min", "smallest", "lowest", "least", "earliest"), "MIN"),
    **dict.fromkeys(("maximum", "max", "largest", "highest", "biggest", "latest"), "MAX"),
    **dict.fromkeys(("many", "count", "number"), "COUNT"),
}
_TOP: Final = {"top": True, "best": True, "most": True, "first": True, "bottom": False, "worst": False}
_LIST: Final = ("list", "show", "display", "give", "print")
_NOISE: Final = frozenset(
    (
        "a",
        "all",
        "an",
        "and",
        "are",
        "available",
        "do",
        "does",
        "each",
        "every",
        "exist",
        "for",
        "from",
        "have",
        "has",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "our",
        "please",
        "row",
        "rows",
        "record",
        "records",
        "the",
        "their",
        "there",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "which",
        "who",
        ",",
        "s",
        "value",
        "values",
    )
)
_WHERE: Final = ("where", "whose", "with", "having")
_BY: Final = ("by", "per")
_SAID: Final[Mapping[Operator, Sequence[str]]] = {
    "<>": ("is not", "are not", "was not", "not", "!=", "<>"),
    ">=": ("is at least", "at least", ">=", "since", "is since"),
    "<=": ("is at most", "at most", "<=", "until", "is until"),
    ">": ("over", "above", "more than", "greater than", "after", ">"),
    "<": ("under", "below", "less than", "fewer than", "before", "<"),
    "contains": ("contains", "containing", "contain"),
    "starts": ("starts with", "starting with", "begins with", "beginning with"),
    "=": ("is equal to", "equal to", "equals", "is", "are", "was", "=", "=="),
}
_OPERATORS: Final[Sequence[tuple[tuple[str, ...], Operator]]] = sorted(
    (
        (tuple(f"{before}{words}".split()), operator)
        for operator, every in _SAID.items()
        for words in every
        for before in ("", "is ")
    ),
    key=lambda said: -len(said[0]),
)


@dataclass(frozen=True, slots=True)
class AboutSchema:
    """A question about the schema: which columns a table has; None: which tables there are."""

    table: str | None


Names = list[tuple[tuple[str, ...], Column]]


@dataclass(frozen=True)
class SchemaNames:
    """The names of a schema, as words."""

    tables: list[tuple[tuple[str, ...], str]]
    columns: Names

    @classmethod
    def of(cls, tables: Sequence[Mapping[str, Any]]) -> SchemaNames:
        """The names of tables as the tool `analyst_schema` gives them."""
        named = [(words_of(parts_of(one["name"])[-1]), one["name"]) for one in tables]
        columns = [
            (words_of(column["name"]), Column(one["name"], column["name"], column["type"]))
            for one in tables
            for column in one["columns"]
        ]
        return cls(named, columns)

    def of_table(self, table: str) -> Names:
        """The columns of one table."""
        return [(words, column) for words, column in self.columns if column.table == table]


def understood(question: str, tables: Sequence[Mapping[str, Any]]) -> Plan | AboutSchema:
    """What a question asks of a schema.

    Raises:
        CannotAnswer: it is not in this grammar, or names nothing, or several things, of the schema.
    """
    question = question[:MAX_QUESTION]
    tokens = tokens_of(question)
    names = SchemaNames.of(tables)
    about = _about_schema(tokens, names)
    if about is not None:
        return about
    head, by, where = _split(tokens)
    plan, head, is_list = _intent(head)
    table = _table_of(head, by, where, names)
    own = names.of_table(table)
    plan = replace(plan, table=table, filters=_filters(question, where, own))
    if plan.function is None and by and not is_list:
        return _ranked(plan, head, by, own, names)
    if plan.function is None:
        return _listed(plan, head, by, own, names)
    return _computed(plan, head, by, own, names)


def _about_schema(tokens: Sequence[Token], names: SchemaNames) -> AboutSchema | None:
    left = [token for token in tokens if token.word not in (*_NOISE, *_LIST, "describe", "schema")]
    words = [words_of(token.text) for token in left]
    if words == [("table",)]:
        return AboutSchema(None)
    asks = any(token.word in ("describe", "column", "columns") for token in tokens)
    rest = [token for token in left if token.word not in ("column", "columns", "table")]
    found = mentions(rest, names.tables)
    if asks and len(found) == 1 and found[0].end - found[0].first == len(rest) and len(found[0].named) == 1:
        return AboutSchema(found[0].named[0])
    return None


def _split(tokens: Sequence[Token]) -> tuple[list[Token], list[Token], list[Token]]:
    """What is asked for, behind `by`, and behind `where`."""
    parts: dict[str, list[Token]] = {"head": [], "by": [], "where": []}
    now = "head"
    for at, token in enumerate(tokens):
        following = tokens[at + 1].word if at + 1 < len(tokens) else ""
        if token.word in ("sorted", "ordered", "grouped") and following == "by":
            continue
        if token.word in _WHERE and now != "where":
            now = "where"
        elif token.word in _BY and not parts["by"]:
            now = "by"
        else:
            parts[now].append(token)
    return parts["head"], parts["by"], parts["where"]


def _intent(head: Sequence[Token]) -> tuple[Plan, list[Token], bool]:
    """What is to be done, the words that do not say it, and whether rows are to be listed."""
    function: Function | None = None
    limit, descending, is_list = None, True, False
    left: list[Token] = []
    for at, token in enumerate(head):
        before = head[at - 1].word if at else ""
        if token.word in _TOP and not left and function is None:
            descending = _TOP[token.word]
            limit = 10 if limit is None else limit
        elif (before in _TOP or before in _LIST) and token.text.isdecimal() and len(token.text) < 6:
            limit = int(token.text)
        elif token.word in _LIST and not left:
            is_list = True
        elif token.word in _FUNCTIONS and function is None and limit is None and not is_list:
            function = _FUNCTIONS[token.word]
        else:
            left.append(token)
    if limit is not None and not 1 <= limit <= MAX_TOP:
        raise CannotAnswer(f"It asks for {limit} rows; from 1 to {MAX_TOP} are possible")
    if function is None and limit is None and not is_list:
        raise CannotAnswer("It does not begin with how many, sum, average, top, list or the like")
    return Plan("", function, limit=limit, descending=descending), left, is_list


def _table_of(head: Sequence[Token], by: Sequence[Token], where: Sequence[Token], names: SchemaNames) -> str:
    """The one table that has all that is named."""
    named = [one for mention in mentions(head, names.tables) for one in mention.named]
    columns = [mention.named for part in (head, by) for mention in mentions(part, names.columns)]
    columns += [found.named for found in mentions(where, names.columns)[:1]]

    def having(table: str, needed: Sequence[tuple[Column, ...]]) -> bool:
        return all(any(column.table == table for column in one) for one in needed)

    in_rest = [mention.named for mention in mentions(by, names.columns)]
    fitting = [table for table in dict.fromkeys(named) if having(table, in_rest)]
    if len(fitting) != 1:
        fitting = [table for _, table in names.tables if columns and having(table, columns)] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        raise CannotAnswer(f"It fits several tables: {_listing_of(fitting)}; name one of them")
    if named or columns:
        raise CannotAnswer("No single table has all the columns that it names; joins need a model")
    raise CannotAnswer(f"It names no table; there are {_listing_of([table for _, table in names.tables])}")


def _computed(plan: Plan, head: Sequence[Token], by: Sequence[Token], own: Names, names: SchemaNames) -> Plan:
    measured = _columns_in(head, plan.table, own, names)
    group, part = _group(by, own) if by else (None, None)
    if plan.function == "COUNT":
        if measured:
            raise CannotAnswer(f"It counts {short(measured[0].name)}; only rows are counted")
        return replace(plan, group=group, part=part)
    if len(measured) != 1:
        raise CannotAnswer("It does not say of which column" if not measured else "It names several columns")
    if plan.function in ("SUM", "AVG") and measured[0].type and not measured[0].is_number:
        raise CannotAnswer(f"The column {short(measured[0].name)} has no numbers")
    return replace(plan, measure=measured[0], group=group, part=part)


def _ranked(plan: Plan, head: Sequence[Token], by: Sequence[Token], own: Names, names: SchemaNames) -> Plan:
    """`top N … by …`: rows of the table by a column, or groups by what is computed for each."""
    function = next((_FUNCTIONS[token.word] for token in by if token.word in _FUNCTIONS), None)
    rest = [token for token in by if token.word not in _FUNCTIONS]
    measured = [mention.named[0] for mention in mentions(rest, own)]
    grouped = _columns_in(head, plan.table, own, names)
    if not grouped and function is None and len(measured) == 1:
        return replace(plan, order=measured[0])
    if len(grouped) == 1 and function == "COUNT" and not measured:
        return replace(plan, function="COUNT", group=grouped[0])
    if len(grouped) == 1 and len(measured) == 1:
        if not measured[0].is_number:
            raise CannotAnswer(f"The column {short(measured[0].name)} has no numbers")
        return replace(plan, function=function or "SUM", measure=measured[0], group=grouped[0])
    raise CannotAnswer("It does not say by which one column of which table")


def _listed(plan: Plan, head: Sequence[Token], by: Sequence[Token], own: Names, names: SchemaNames) -> Plan:
    columns = tuple(dict.fromkeys(_columns_in(head, plan.table, own, names)))
    down = any(token.word in ("descending", "desc") for token in by)
    rest = [token for token in by if token.word not in ("descending", "desc", "ascending", "asc")]
    order = _group(rest, own)[0] if rest else None
    return replace(plan, columns=columns, order=order, descending=down and order is not None)


def _columns_in(head: Sequence[Token], table: str, own: Names, names: SchemaNames) -> list[Column]:
    """The columns that the head names, beside the table; every other word has to be noise."""
    tables = [(words, None) for words, name in names.tables if name == table]
    known: list[tuple[tuple[str, ...], Column | None]] = [*tables, *own]
    found: list[Column] = []
    covered: set[int] = set()
    for mention in mentions(head, known):
        covered.update(range(mention.first, mention.end))
        if None not in mention.named:
            found += [column for column in mention.named[:1] if column is not None]
    for at, token in enumerate(head):
        if at not in covered and token.word not in _NOISE:
            raise CannotAnswer(f"{short(token.text)} is no table, and no column of {short(table)}")
    return found


def _group(by: Sequence[Token], own: Names) -> tuple[Column, str | None]:
    found = mentions(by, own)
    covered = {at for mention in found for at in range(mention.first, mention.end)}
    part = next(
        (token.word for at, token in enumerate(by) if at not in covered and token.word in PARTS), None
    )
    for at, token in enumerate(by):
        if at not in covered and token.word not in _NOISE and token.word != part:
            raise CannotAnswer(f"{short(token.text)} behind `by` is no column")
    if len(found) != 1:
        raise CannotAnswer("It does not say by which one column")
    return found[0].named[0], part


def _filters(question: str, where: Sequence[Token], own: Names) -> tuple[Filter, ...]:
    if any(token.word == "or" for token in where):
        raise CannotAnswer("It has `or` in its conditions, which need a model")
    parts: list[list[Token]] = [[]]
    for token in where:
        if token.word == "and":
            parts.append([])
        elif not (token.word in ("the", ",") or (token.word in _WHERE and not parts[-1])):
            parts[-1].append(token)
    return tuple(_filter(question, part, own) for part in parts if part or len(parts) > 1)


def _filter(question: str, part: Sequence[Token], own: Names) -> Filter:
    found = mentions(part, own)
    if not found or found[0].first != 0:
        condition = " ".join(token.text for token in part) or "nothing"
        raise CannotAnswer(f"The condition {short(condition)} does not begin with a column")
    rest = part[found[0].end :]
    said = [token.word for token in rest]
    words, operator = next((one for one in _OPERATORS if said[: len(one[0])] == [*one[0]]), ((), "="))
    rest = rest[len(words) :]
    column = found[0].named[0]
    value = text_of(question, rest) if rest else ""
    if not value and not any(token.quoted for token in rest):
        raise CannotAnswer(f"The condition on {short(column.name)} has no value")
    return filter_of(column, operator, value)


def _listing_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(short(one) for one in names[:8]) + more if names else "none"
