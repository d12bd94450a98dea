"""The form and the bound of every field of the standard events: one small set of types.

Each is a plain `str`, `int`, `list` or `dict` to a program; its bound is a part of the JSON Schema, by which
the catalogue judges a payload when it is encoded and again when it is decoded, before anything acts upon it.
The bounds are far above what was ever legal: a journal of any age can be read. A record has at most a
megabyte, and so many levels (`event/limits.py`); that bounds the fields that hold any JSON value.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from noesium_stream.event.domain_event import Form
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.limits import MAX_AGENT_TYPE, MAX_LISTED, MAX_NAME, MAX_PATH, MAX_TEXT, MAX_VERSION

AGENT_TYPE: Final = f"^[a-z][a-z0-9_-]{{0,{MAX_AGENT_TYPE - 1}}}$"

AgentType = Annotated[str, Form(maxLength=MAX_AGENT_TYPE, pattern=AGENT_TYPE)]
"""A type of agents, which is a part of the names of their topics."""
Version = Annotated[str, Form(maxLength=MAX_VERSION)]
"""A version, or a range of versions."""
Identifier = Annotated[str, Form(minLength=1, maxLength=MAX_NAME)]
"""What names one run, call, effect, question or timer."""
Name = Annotated[str, Form(maxLength=MAX_NAME)]
"""What names anything else, or refers to it; it may be empty."""
Text = Annotated[str, Form(maxLength=MAX_TEXT)]
"""A text for people, or encoded bytes."""
Whole = Annotated[int, Form(minimum=-MAX_INT, maximum=MAX_INT)]
"""A whole number that every JSON implementation has."""
Names = Annotated[list[Name], Form(maxItems=MAX_LISTED)]
Texts = Annotated[list[Text], Form(maxItems=MAX_LISTED)]
Permissions = Annotated[list[Annotated[str, Form(maxLength=1_024)]], Form(maxItems=200)]
"""Limits of a run: permissions of tools, each as in `event/trust/permission.py`."""
Path = Annotated[list[AgentType], Form(maxItems=MAX_PATH)]
"""The agent types of runs that call one another, from the first one on."""
Object = Annotated[dict[str, Any], Form(maxProperties=MAX_LISTED)]
"""Any JSON object."""
