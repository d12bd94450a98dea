"""Settings of a provider's client: which it knows, and what of them the event may have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.config import VARIABLES
from noesium_stream.errors import ConfigError
from noesium_stream.redaction import hide_secrets

SETTING: Final = "agent.llm_config"


def names_of(client: type[Any]) -> frozenset[str] | None:
    """The names of a client's settings; None if it does not declare them."""
    fields = getattr(client, "model_fields", None)
    if fields is None:
        return None
    return frozenset(fields) | {field.alias for field in fields.values() if field.alias}


def refuse_unknown(model: str, client: str, known: frozenset[str], names: list[str]) -> None:
    """Refuse settings that a client does not know.

    A client drops them, or sends them to a provider that refuses every call.

    Raises:
        ConfigError: names them.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], sorted(known), 1)
    raise ConfigError(
        f"{SETTING}: {client}, the client of the model {model}, takes no "
        f"{', '.join(repr(name) for name in unknown)}.",
        hint=(f"Did you mean {near[0]!r}? " if near else "")
        + f"It is set in {SETTING} ({VARIABLES[SETTING]})."
        + (
            " What the provider takes and its client has no name for goes into 'model_kwargs'."
            if "model_kwargs" in known
            else ""
        ),
    )


def recordable(more: Mapping[str, Any]) -> dict[str, Any]:
    """Provider settings for the event: strings under names that look secret are removed."""
    found: dict[str, Any] = hide_secrets({name: _plain(value) for name, value in more.items()})
    # Only strings can be secrets: `max_tokens` is a number.
    return {
        name: more[name] if isinstance(more[name], bool | int | float) else value
        for name, value in found.items()
    }


def _plain(value: Any) -> Any:
    """A setting as JSON; a value that is not JSON is represented by its type."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | bool | int | float) else type(value).__name__
