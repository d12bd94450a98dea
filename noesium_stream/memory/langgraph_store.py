"""`LogStore`: LangGraph's `BaseStore` over an agent's memory, durable and atomic with the step.

A graph's nodes and tools get it as LangGraph gives them a store (`store: BaseStore`, `InjectedStore`). Within
a node a put commits with the step, and what was read is recorded; elsewhere a put is on the log when it
returns. An item's key in memory is `label.label/key`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from noesium_stream.clock import to_datetime
from noesium_stream.errors import AgentMemoryError
from noesium_stream.kernel.step.position import enclosing_step
from noesium_stream.kernel.step.step import current_step
from noesium_stream.memory.durable import DurableMemory, as_effect
from noesium_stream.memory.item import MAX_FOUND, MemoryFilter, MemoryItem
from noesium_stream.memory.manager import MemoryManager
from noesium_stream.memory.semantic import MAX_TOP

NAME: Final = "memory.store"
"""The effect of the reads of one batch."""

_LONGEST_TTL: Final = 100 * 365 * 24 * 60
"""Minutes, a hundred years: what is to live longer does not expire."""

Namespace = tuple[str, ...]


class LogStore(BaseStore):
    """See the module.

    A search with a `query` ranks by words, or by what the memory's index has, and looks at the best 200. An
    item that has expired is not found; reading one does not prolong it. `index` of a put is ignored: every
    text of a value is found.

    Args:
        memory: whose items they are; or a function that returns it, called when it is first needed.
    """

    supports_ttl = True

    def __init__(self, memory: MemoryManager | Callable[[], MemoryManager]) -> None:
        self._given = memory
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    @property
    def _memory(self) -> MemoryManager:
        given = self._given
        return given if isinstance(given, MemoryManager) else given()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.batch`; from sync nodes and from threads.

        Raises:
            KernelError, AgentMemoryError: called on the event loop, which must not be blocked: use `abatch`.
        """
        work = self.abatch(list(ops))
        if enclosing_step() is not None:
            return current_step().run_sync(work)
        if self._loop is None or self._loop is _running():
            work.close()
            raise AgentMemoryError(
                "A store on the log is asked on the event loop, which must not be blocked.",
                hint="Use its asynchronous methods: aget, aput, asearch, adelete.",
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.abatch`: reads see what was there before the batch, puts are applied in order.

        Raises:
            InvalidNamespaceError: a label is empty or contains a period.
            AgentMemoryError: an item is too large, or an operation is not known.
        """
        given = list(ops)
        for op in given:
            validate_op_namespace(op)
        reads = [(number, op) for number, op in enumerate(given) if not isinstance(op, PutOp)]
        results: list[Result] = [None] * len(given)
        if reads:
            asked = {"ops": [_described(op) for _, op in reads]}
            found = await as_effect(NAME, lambda: self._read([op for _, op in reads]), asked)
            for (number, op), one in zip(reads, found, strict=True):
                results[number] = _result(op, one)
        for put in {(op.namespace, op.key): op for op in given if isinstance(op, PutOp)}.values():
            await self._put(put)
        return results

    async def _put(self, op: PutOp) -> None:
        durable, key = self._memory.durable, _key(op.namespace, op.key)
        if op.value is None:
            await durable.delete(key)
            return
        step = enclosing_step()
        now = to_datetime(durable.clock.now_ms()) if step is None else current_step().now()
        forever = op.ttl is None or op.ttl > _LONGEST_TTL
        expires = None if forever else now + timedelta(minutes=op.ttl or 0)
        await durable.write(key, dict(op.value), expires=expires)

    async def _read(self, ops: list[Op]) -> list[Any]:
        return [await self._read_one(op) for op in ops]

    async def _read_one(self, op: Op) -> Any:
        durable = self._memory.durable
        if isinstance(op, GetOp):
            item = await _outside_effect(durable, _key(op.namespace, op.key))
            return None if item is None else await self._told(item)
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            return await self._namespaces(op)
        raise AgentMemoryError(f"A store on the log does not know the operation {type(op).__name__}.")

    async def _search(self, op: SearchOp) -> list[Any]:
        wanted = op.offset + op.limit
        found: list[tuple[MemoryItem, float | None]] = []
        if op.query:
            results = await self._memory.found(op.query, MAX_TOP)
            ranked = [(result.item, result.score) for result in results]
            found += [(item, score) for item, score in ranked if _fits(item, op)]
        if len(found) < wanted:
            known = {item.key for item, _ in found}
            async for item in self._items(op.namespace_prefix):
                if item.key not in known and _fits(item, op):
                    found.append((item, None))
                    if len(found) >= wanted:
                        break
        return [[await self._told(item), score] for item, score in found[op.offset : wanted]]

    async def _namespaces(self, op: ListNamespacesOp) -> list[Any]:
        found = {_parts(item.key)[0] async for item in self._items(()) if "/" in item.key}
        kept = (one for one in found if all(_matches(rule, one) for rule in op.match_conditions or ()))
        cut = sorted({one if op.max_depth is None else one[: op.max_depth] for one in kept})
        return [list(one) for one in cut[op.offset : op.offset + op.limit]]

    async def _items(self, prefix: Namespace) -> Any:
        """The items below a namespace, page by page."""
        start, after = ".".join(map(_label, prefix)), ""
        while True:
            page = await self._memory.durable.found(MemoryFilter(prefix=start, after=after, limit=MAX_FOUND))
            for item in page:
                if "/" in item.key and _parts(item.key)[0][: len(prefix)] == prefix:
                    yield item
            if len(page) < MAX_FOUND:
                return
            after = page[-1].key

    async def _told(self, item: MemoryItem) -> dict[str, Any]:
        created = self._memory.durable.created_ms(item.key)
        return {
            "key": item.key,
            "value": item.value,
            "at_ms": item.at_ms,
            "created_ms": item.at_ms if created is None else min(created, item.at_ms),
        }


async def _outside_effect(durable: DurableMemory, key: str) -> MemoryItem | None:
    found = await durable.found_key(key)
    return found if found is None or isinstance(found.value, Mapping) else None


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _label(label: str) -> str:
    return quote(label, safe="")


def _key(namespace: Namespace, key: str) -> str:
    return f"{'.'.join(map(_label, namespace))}/{key}"


def _parts(key: str) -> tuple[Namespace, str]:
    labels, _, name = key.partition("/")
    return tuple(unquote(label) for label in labels.split(".")), name


def _described(op: Op) -> list[Any]:
    """An operation as JSON, to tell it from others."""
    if isinstance(op, GetOp):
        return ["get", list(op.namespace), op.key]
    if isinstance(op, SearchOp):
        return ["search", list(op.namespace_prefix), op.filter, op.limit, op.offset, op.query]
    if isinstance(op, ListNamespacesOp):
        rules = [[rule.match_type, list(rule.path)] for rule in op.match_conditions or ()]
        return ["list_namespaces", rules, op.max_depth, op.limit, op.offset]
    return [type(op).__name__]


def _result(op: Op, found: Any) -> Result:
    if isinstance(op, ListNamespacesOp):
        return [tuple(one) for one in found]
    if isinstance(op, SearchOp):
        return [SearchItem(**_fields(one), score=score) for one, score in found]
    return None if found is None else Item(**_fields(found))


def _fields(told: dict[str, Any]) -> dict[str, Any]:
    namespace, key = _parts(told["key"])
    created, updated = (to_datetime(told[name]) for name in ("created_ms", "at_ms"))
    moments: dict[str, datetime] = {"created_at": created, "updated_at": updated}
    return {"namespace": namespace, "key": key, "value": told["value"], **moments}


def _fits(item: MemoryItem, op: SearchOp) -> bool:
    if "/" not in item.key or not isinstance(item.value, Mapping):
        return False
    below = _parts(item.key)[0][: len(op.namespace_prefix)] == op.namespace_prefix
    return below and all(_equals(item.value.get(name), value) for name, value in (op.filter or {}).items())


def _equals(value: Any, wanted: Any) -> bool:
    """Whether a value fulfils a condition of `SearchOp.filter`."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, other) for name, other in wanted.items())
        return isinstance(value, Mapping) and all(
            _equals(value.get(name), one) for name, one in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple) and len(value) == len(wanted) and all(map(_equals, value, wanted))
        )
    return bool(value == wanted)


def _compares(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    if operator not in _ORDER:
        raise AgentMemoryError(
            f"{operator[:60]!r} is no comparison of a store.", hint=f"Use $eq, $ne, {', '.join(_ORDER)}."
        )
    if not (isinstance(value, int | float) and isinstance(other, int | float)):
        return False
    below, equal = value < other, value == other
    return {"$lt": below, "$lte": below or equal, "$gt": not (below or equal), "$gte": not below}[operator]


_ORDER: Final = ("$lt", "$lte", "$gt", "$gte")


def _matches(rule: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(rule.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if rule.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
