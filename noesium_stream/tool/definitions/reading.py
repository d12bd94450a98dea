"""Reading a definition of a tool: from a log, which anyone may have written."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_TEXT, MAX_VERSION
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolSource

_LONGEST: Final = 1_024
_MOST: Final = 1_000

_Text = Annotated[str, Field(max_length=_LONGEST)]
_Texts = Annotated[list[_Text], Field(max_length=_MOST)]


class _Form(BaseModel):
    """What a definition has; `AtomicTool` checks names, schemas and limits."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: _Text
    description: Annotated[str, Field(max_length=MAX_TEXT)]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    source: ToolSource
    toolkit_name: _Text | None
    determinism_class: DeterminismClass
    side_effect_class: SideEffectClass
    permissions: _Texts
    timeout_ms: Annotated[int, Field(strict=True)]
    tags: _Texts
    labels: _Texts
    version: Annotated[str, Field(max_length=MAX_VERSION)]


def tool_of_definition(definition: Any) -> AtomicTool:
    """The tool that a definition describes; nothing serves it.

    Raises:
        ConfigError: it is no definition of a tool; names the first fault.
    """
    try:
        form = _Form.model_validate(definition)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "it"
        raise ConfigError(f"That is no definition of a tool: {where}: {first['msg'][:200]}.") from None
    except RecursionError:
        raise ConfigError("That is no definition of a tool: it is too deep.") from None
    fields = {name: getattr(form, name) for name in _Form.model_fields}
    for several in ("permissions", "tags", "labels"):
        fields[several] = tuple(fields[several])
    return AtomicTool(**fields)
