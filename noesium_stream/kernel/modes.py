"""Requirements of the execution modes on a step (RFC-1001 §12.3, RFC-0003 §7): helpers without effects.

STRICT: effects only by event; deterministic nodes are executed twice and compared; nothing that differs
between executions may be read (`guard.py`); the graph declares its writes and edges (`graph_check.py`);
models declare their sampling. PRAGMATIC: direct calls, journaled. SANDBOX: nothing enforced, everything
logged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.config import VARIABLES, ExecutionMode
from noesium_stream.errors import StrictModeError
from noesium_stream.event.payload.value import short_path

_WIDTH: Final = 80
MODE: Final[ContextVar[ExecutionMode]] = ContextVar("noesium_mode", default=ExecutionMode.PRAGMATIC)
"""The mode of the calling code."""


_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "model": ("agent.llm_model", '"NAME"'),
    "version": ("agent.llm_config", '{"version": "…"}'),
    "temperature": ("agent.llm_config", '{"temperature": 0}'),
    "seed": ("agent.llm_config", '{"seed": 1}'),
}
"""Required settings of a model call in STRICT mode: the setting's name, and an example value."""


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """The sampling parameters of a model, as its calls record them (RFC-0003 §7.3); None if unknown.

    Attributes:
        model: `provider:name`.
        version: the provider's version of the model, a date or a fingerprint.
        temperature: as passed to the provider; 0 takes the likeliest.
        seed: as passed to the provider.
        more: the provider's other parameters, as the event may have them: JSON, without secrets.
    """

    model: str | None
    version: str | None = None
    temperature: float | None = None
    seed: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def sampling(self) -> dict[str, Any]:
        """The first four parameters."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def to_dict(self) -> dict[str, Any]:
        """All parameters, as in the event; `more` only if it is not empty."""
        return {**self.sampling, "more": dict(self.more)} if self.more else self.sampling

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the unknown ones among those four."""
        return tuple(name for name, value in self.sampling.items() if value is None)


def current_mode() -> ExecutionMode:
    """The mode of the calling code; PRAGMATIC outside any run."""
    return MODE.get()


class in_mode:
    """Run a block in `mode`, with the tasks and threads that it starts."""

    __slots__ = ("_mode", "_token")

    def __init__(self, mode: ExecutionMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        """Set the mode."""
        self._token = MODE.set(self._mode)

    def __exit__(self, *raised: object) -> None:
        """Restore the previous mode."""
        MODE.reset(self._token)


def check_model_parameters(parameters: ModelParameters, mode: ExecutionMode) -> None:
    """Refuse a model call in STRICT mode whose sampling is not declared.

    Raises:
        StrictModeError: names the missing settings.
    """
    if mode is not ExecutionMode.STRICT or not parameters.missing:
        return
    missing = parameters.missing
    settings = dict.fromkeys(_SETTINGS[name][0] for name in missing)
    given = "; ".join(
        f"{setting} ({VARIABLES[setting]}) "
        + " and ".join(_SETTINGS[name][1] for name in missing if _SETTINGS[name][0] == setting)
        for setting in settings
    )
    raise StrictModeError(
        f"A call of the model {parameters.model or '(without a name)'} does not say its "
        f"{' and '.join([', '.join(missing[:-1]), missing[-1]] if missing[1:] else missing)}, which STRICT "
        "mode requires.",
        hint=f"Set {given}; a client of your own is given {', '.join(f'{name}=…' for name in missing)}. A "
        "model that takes no seed cannot be asked in STRICT mode.",
    )


def compare_runs(first: Any, second: Any, path: str = "delta") -> str | None:
    """The first difference between two executions of a deterministic node; None if there is none.

    Both are JSON values as the kernel records them. Numbers of different types differ (`1` and `1.0` are not
    the same bytes); the order of keys does not matter. Reports the first of several differences, in the order
    of the first value: `delta.items[3].score: 0.1 then 0.2`.
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _compare_objects(first, second, path)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return _compare_lists(first, second, path)
    if type(first) is type(second) and first == second:
        return None
    return f"{path}: {_text(first, second)} then {_text(second, first)}"


def _compare_objects(first: Mapping[str, Any], second: Mapping[str, Any], path: str) -> str | None:
    path = short_path(path)
    for key, value in first.items():
        place = f"{path}.{key}"
        if key not in second:
            return f"{place}: {_text(value)} then missing"
        if (difference := compare_runs(value, second[key], place)) is not None:
            return difference
    for key, value in second.items():
        if key not in first:
            return f"{path}.{key}: missing, then {_text(value)}"
    return None


def _compare_lists(first: Any, second: Any, path: str) -> str | None:
    path = short_path(path)
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if (difference := compare_runs(one, other, f"{path}[{index}]")) is not None:
            return difference
    if len(first) == len(second):
        return None
    return f"{path}: {len(first)} items then {len(second)}"


def _text(value: Any, other: Any = None) -> str:
    """A value on one line; for a long text, the part where it begins to differ from `other`."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    if len(text) <= _WIDTH:
        return text
    begin = 0
    if isinstance(value, str) and isinstance(other, str):
        same = (i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b)
        begin = max(0, next(same, min(len(value), len(other))) - _WIDTH // 4)
        text = json.dumps(value[begin:], ensure_ascii=False)
    cut = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
    return f"…{cut} (from character {begin})" if begin else cut
