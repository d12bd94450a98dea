"""Values that refer to others: how a skill's steps say their arguments.

    "$input.topic"                  the value itself, whatever its type
    "$search.hits[0].url"           a field, an item
    "$draft.feedback?"              null if it is not there
    "A report on ${input.topic}."   put into a text: texts, numbers and booleans
    "$$5"                           a text that begins with a dollar

Lists and objects may hold such texts at any depth. There is nothing to compute: conditions of steps are in
`event/trust/condition.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from noesium_stream.errors import ConfigError, ToolExecutionError

MAX_DEPTH: Final = 20
_PATH: Final = r"([A-Za-z_][A-Za-z0-9_]*)((?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,6}\])*)(\?)?"
_WHOLE: Final = re.compile(rf"\${_PATH}")
_TOKEN: Final = re.compile(rf"(\$\$)|\$\{{{_PATH}\}}")
_PART: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]+)\]")
_MISSING: Final = object()


def check_template(template: Any, known: frozenset[str], where: str) -> None:
    """Check the references of a template.

    Args:
        template: any JSON value.
        known: the names that a reference may begin with.
        where: what it belongs to, for messages.

    Raises:
        ConfigError: one cannot be read, or begins with another name; or it is nested too deep.
    """
    for text in _texts(template, where, MAX_DEPTH):
        whole = _WHOLE.fullmatch(text)
        if whole is None and re.match(r"\$[A-Za-z_]", text):
            raise ConfigError(
                f"{where}: {text[:200]!r} is no reference.",
                hint='Write "${input.topic}" within a text, and "$$" for a dollar at its begin.',
            )
        if whole is None and "${" in _TOKEN.sub("", text):
            raise ConfigError(f"{where}: {text[:200]!r} has a reference that cannot be read.")
        found = [whole] if whole else [token for token in _TOKEN.finditer(text) if token[1] is None]
        for name in (whole[1] if whole else token[2] for token in found):
            if name not in known:
                raise ConfigError(
                    f"{where}: {text[:200]!r} refers to {name}, which is not there.",
                    hint=f"There are {', '.join(sorted(known))}.",
                )


def filled(template: Any, scope: Mapping[str, Any], where: str) -> Any:
    """The value of a template: its references replaced by what they refer to.

    Raises:
        ToolExecutionError: what a reference names is not there, or cannot be put into a text.
    """
    if isinstance(template, str):
        return _filled_text(template, scope, where)
    if isinstance(template, Mapping):
        return {name: filled(value, scope, where) for name, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled(value, scope, where) for value in template]
    return template


def _filled_text(text: str, scope: Mapping[str, Any], where: str) -> Any:
    if "$" not in text:
        return text
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return _referred(whole[1], whole[2], bool(whole[3]), scope, where)

    def replaced(token: re.Match[str]) -> str:
        if token[1]:
            return "$"
        value = _referred(token[2], token[3], bool(token[4]), scope, where)
        if isinstance(value, dict | list):
            raise ToolExecutionError(f"{where}: {token.group()} is no text that can be put into another one.")
        return value if isinstance(value, str) else "" if value is None else json.dumps(value)

    return _TOKEN.sub(replaced, text)


def _referred(name: str, path: str, optional: bool, scope: Mapping[str, Any], where: str) -> Any:
    value: Any = scope.get(name, _MISSING)
    for part in _PART.finditer(path):
        if part[1] is not None:
            value = value.get(part[1], _MISSING) if isinstance(value, Mapping) else _MISSING
        else:
            at = int(part[2])
            value = value[at] if isinstance(value, list | tuple) and at < len(value) else _MISSING
    if value is not _MISSING:
        return value
    if optional:
        return None
    raise ToolExecutionError(
        f"{where}: there is no ${name}{path} here.", hint=f"Write ${name}{path}? where it may be missing."
    )


def _texts(template: Any, where: str, depth: int) -> Iterator[str]:
    if depth == 0:
        raise ConfigError(f"{where}: it is nested too deep.")
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _texts(value, where, depth - 1)
    elif isinstance(template, list | tuple):
        for value in template:
            yield from _texts(value, where, depth - 1)
