"""The API reference: every public name with its signature and docstring, read from the installed package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, get_type_hints

from pydantic import BaseModel

from noesium_stream.cli.guides import API_SUMMARY

_PACKAGE: Final = "noesium_stream"
_MODULES: Final = (_PACKAGE, f"{_PACKAGE}.tool", f"{_PACKAGE}.testing")
"""Modules whose names are public: read as data, not used."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_QUALIFIED: Final = re.compile(r"\b(?:[a-z_][a-z0-9_]*\.)+(?=[A-Za-z_])")
_LAYERS: Final = {
    "agent": "Agents",
    "capabilities": "Capabilities",
    "tool": "Tools",
    "subagent": "Command-line sub-agents",
    "kernel": "Steps and graphs",
    "goals": "Goals",
    "llm": "Models",
    "client": "Clients",
    "worker": "Workers",
    "projection": "Projections",
    "log": "The log",
    "event": "Events",
    "config": "Settings",
    "errors": "Errors",
    "testing": "Tests",
}
"""Layer of a name's module → heading, in the order of the page."""


class _Text:
    """An annotation or a default that is shown as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def api_reference() -> str:
    """Return the reference as Markdown; the same for the same package, in every process."""
    parts = ["# API reference", API_SUMMARY, _FOREWORD]
    public = _public()
    for layer, heading in _LAYERS.items():
        names = [name for name, (found, _) in public.items() if found == layer]
        if names:
            parts.append(f"## {heading}")
            parts += [part for name in names for part in _entry(name, public[name][1], public)]
    return "\n\n".join(parts) + "\n"


_FOREWORD: Final = (
    "What is below *Tests* is imported from `noesium_stream.testing`, everything else from `noesium_stream`. "
    "The guides say how the parts work together: `noesium guide`."
)


def _public() -> dict[str, tuple[str, Any]]:
    """Each public name: its layer, and the object."""
    found: dict[str, tuple[str, Any]] = {}
    for module in map(import_module, _MODULES):
        for name in _all(module):
            value = getattr(module, name)
            layer = (value.__module__ if module.__name__ == _PACKAGE else module.__name__).split(".")[1]
            found[name] = (layer, value)
    return found


def _all(module: ModuleType) -> list[str]:
    names: list[str] = module.__all__
    return names


def _entry(name: str, value: Any, public: dict[str, tuple[str, Any]]) -> Iterator[str]:
    yield f"### {name}"
    if not inspect.isclass(value):
        yield _code(f"{_async(value)}{name}{_signature(value)}")
        yield _doc(value)
        return
    if issubclass(value, BaseModel):
        value.model_rebuild()  # one that is built on first use has no signature before
    bases = [base.__name__ for base in value.__mro__[1:] if base.__name__ in public]
    of = f"({bases[0]})" if bases else ""
    if issubclass(value, Exception):
        yield _code(f"class {name}{of}")
        yield _doc(value)
        return
    if issubclass(value, Enum):
        yield _code(f"class {name}({value.__mro__[1].__name__})")
        yield _doc(value)
        yield "\n".join(f"- `{name}.{member.name}` = `{member.value!r}`" for member in value)
        return
    yield _code(f"class {name}{of}\n{name}{_signature(value)}" if of else f"{name}{_signature(value)}")
    yield _doc(value)
    for member, found in _members(value, public):
        yield f"#### {name}.{member}"
        yield _code(_head(member, found))
        yield _doc(getattr(value, member) if inspect.isroutine(getattr(value, member)) else found)


def _members(kind: type, public: dict[str, tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that have docstrings and that no public base has."""
    seen: set[str] = set()
    for base in kind.__mro__:
        own = base is kind or base.__name__ not in public
        if not base.__module__.startswith(f"{_PACKAGE}."):
            continue
        for name, found in vars(base).copy().items():
            hidden = name.startswith("_") and not getattr(found, "__isabstractmethod__", False)
            if hidden or name in seen or not _is_member(found):
                continue
            seen.add(name)
            if own and inspect.getdoc(getattr(kind, name, None)) and inspect.getdoc(found):
                yield name, found


def _is_member(found: Any) -> bool:
    return inspect.isfunction(found) or isinstance(
        found, classmethod | staticmethod | property | cached_property
    )


def _head(name: str, found: Any) -> str:
    if isinstance(found, property | cached_property):
        getter: Any = found.fget if isinstance(found, property) else found.func
        returns = inspect.signature(getter).return_annotation
        return name if returns is inspect.Signature.empty else f"{name}: {_written(returns)}"
    function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    kind = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(type(found), "")
    bound = not isinstance(found, staticmethod)
    return f"{kind}{_async(function)}{name}{_signature(function, bound=bound)}"


def _async(function: Any) -> str:
    return "async " if inspect.iscoroutinefunction(function) else ""


def _signature(function: Any, *, bound: bool = False) -> str:
    """The signature with its annotations as they are written; `bound`: without the first parameter."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    # The fields of a model have bounds and forms, which `get_type_hints` leaves out.
    is_model = inspect.isclass(function) and issubclass(function, BaseModel)
    hints = get_type_hints(function) if is_model else {}
    parameters = [
        one.replace(annotation=hints.get(one.name, one.annotation)) for one in signature.parameters.values()
    ]
    returns = signature.return_annotation
    text = _wrapped([_shown(one) for one in parameters[1 if bound else 0 :]])
    if returns is signature.empty or returns in (None, "None") or inspect.isclass(function):
        return text
    return f"{text} -> {_written(returns)}"


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation, default = parameter.annotation, parameter.default
    return parameter.replace(
        annotation=annotation if annotation is parameter.empty else _Text(_written(annotation)),
        default=default if default is parameter.empty else _Text(_default(default)),
    )


def _wrapped(parameters: list[inspect.Parameter]) -> str:
    """The parameters in brackets, each on a line of its own if they are long."""
    flat = str(inspect.Signature(parameters))
    if len(flat) <= 80:
        return flat
    parts: list[str] = []
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts.append(str(one))
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _written(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _QUALIFIED.sub("", text)


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isclass(value) or inspect.isroutine(value):
        return "..." if value.__name__ == "<lambda>" else str(value.__name__)
    text = _ADDRESS.sub("", repr(value))
    return "..." if text == "<factory>" else text


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""
