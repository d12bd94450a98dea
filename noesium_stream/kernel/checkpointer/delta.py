"""Differences between two trees, as JSON: appended tails, changed keys, else the whole value.

A delta is one of

    {"set": tree}                                          the whole value
    {"keys": {key: delta}, "gone": [key], "order": [key]}  of a dict; `order` only if it changed
    {"drop": n, "keep": n, "tail": [tree], "rest": n}      of a list: n dropped in front, n kept, new ones,
                                                           and the last n of the old ones
    {"items": {index: delta}, "tail": [tree]}              of a list: some changed in place, new ones after

Zero and empty parts are left out. None means that nothing changed.
"""

from __future__ import annotations

from typing import Any

import orjson

from noesium_stream.kernel.checkpointer.values import TYPED, Tree, same, size_of

Delta = dict[str, Any]


def diff(old: Tree, new: Tree) -> Delta | None:
    """The delta that turns `old` into `new`; None if they are the same."""
    if old is new:
        return None
    if type(old) is dict and type(new) is dict and TYPED not in old and TYPED not in new:
        return _diff_dict(old, new)
    if type(old) is list and type(new) is list:
        return _diff_list(old, new)
    return None if same(old, new) else {"set": new}


def apply(old: Tree, delta: Delta | None) -> Tree:
    """Apply the delta to `old`; returns a new tree that shares unchanged parts."""
    if delta is None:
        return old
    if "set" in delta:
        return delta["set"]
    if type(old) is dict:
        return _apply_dict(old, delta)
    if "items" in delta:
        made = list(old)
        for index, change in delta["items"].items():
            made[int(index)] = apply(made[int(index)], change)
        return made + delta.get("tail", [])
    drop, rest = delta.get("drop", 0), delta.get("rest", 0)
    made = old[drop : drop + delta.get("keep", 0)]
    made += delta.get("tail", [])
    if rest:
        made += old[len(old) - rest :]
    return made


def _diff_dict(old: dict[str, Tree], new: dict[str, Tree]) -> Delta | None:
    keys: dict[str, Delta] = {}
    for key, value in new.items():
        change = diff(old[key], value) if key in old else {"set": value}
        if change is not None:
            keys[key] = change
    gone = [key for key in old if key not in new]
    order = [key for key in old if key in new]
    order += [key for key in keys if key not in old]
    delta: Delta = {"keys": keys} if keys else {}
    if gone:
        delta["gone"] = gone
    if order != list(new):
        delta["order"] = list(new)
    return delta or None


def _apply_dict(old: dict[str, Tree], delta: Delta) -> Tree:
    gone = delta.get("gone")
    made = {key: value for key, value in old.items() if key not in gone} if gone else dict(old)
    for key, change in delta.get("keys", {}).items():
        made[key] = apply(made.get(key), change)
    order = delta.get("order")
    return made if order is None else {key: made[key] for key in order}


def _diff_list(old: list[Tree], new: list[Tree]) -> Delta | None:
    kept = len(old)
    # The most frequent change of a list, detected by two calls of C.
    if len(new) >= kept and same(old, new[:kept]):
        return {"keep": kept, "tail": new[kept:]} if len(new) > kept else None
    before = [orjson.dumps(item) for item in old]
    after = [orjson.dumps(item) for item in new]
    candidates = [{"set": new}, _spliced(before, after, new), _shifted(before, after, new)]
    if len(new) >= kept:
        candidates.append(_changed(old, new, before, after))
    return min(candidates, key=size_of)


def _spliced(before: list[bytes], after: list[bytes], new: list[Tree]) -> Delta:
    """A list with a common beginning, a new middle and a common end."""
    keep = _common(before, after)
    rest = _common(before[keep:][::-1], after[keep:][::-1])
    return _list_delta(0, keep, new[keep : len(new) - rest], rest)


def _shifted(before: list[bytes], after: list[bytes], new: list[Tree]) -> Delta:
    """A list with items dropped in front, then a common part, then new ones: a window that moved."""
    drop = before.index(after[0]) if after and after[0] in before else 0
    keep = _common(before[drop:], after)
    return _list_delta(drop, keep, new[keep:], 0)


def _changed(old: list[Tree], new: list[Tree], before: list[bytes], after: list[bytes]) -> Delta:
    """A list with some items changed in place."""
    items = {str(n): diff(old[n], new[n]) for n, text in enumerate(before) if text != after[n]}
    delta: Delta = {"items": items}
    if len(new) > len(old):
        delta["tail"] = new[len(old) :]
    return delta


def _list_delta(drop: int, keep: int, tail: list[Tree], rest: int) -> Delta:
    delta: Delta = {"keep": keep}
    if drop:
        delta["drop"] = drop
    if tail:
        delta["tail"] = tail
    if rest:
        delta["rest"] = rest
    return delta


def _common(one: list[bytes], other: list[bytes]) -> int:
    """The number of equal leading items."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
