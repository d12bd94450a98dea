"""Search attributes: what a run is about, as typed values by name, by which people find it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Whole

MAX_ATTRIBUTES: Final = 50
"""Attributes of a run."""
MAX_ATTRIBUTE_TEXT: Final = 1_000
"""Characters of an attribute's text."""
MAX_ATTRIBUTE_NAME: Final = 64
ATTRIBUTE_NAME: Final = f"^[A-Za-z_][A-Za-z0-9_]{{0,{MAX_ATTRIBUTE_NAME - 1}}}$"


class Moment(BaseModel, defer_build=True):
    """A point in time, in milliseconds since the epoch."""

    model_config = ConfigDict(frozen=True)

    time_ms: Whole


MAX_NUMBER: Final = 1e300
"""Largest size of an attribute that is a fraction."""

Number = Annotated[float, Form(minimum=-MAX_NUMBER, maximum=MAX_NUMBER)]
Value = Annotated[str, Form(maxLength=MAX_ATTRIBUTE_TEXT)] | bool | Whole | Number | Moment | None
Attributes = Annotated[
    dict[str, Value], Form(maxProperties=MAX_ATTRIBUTES, propertyNames={"pattern": ATTRIBUTE_NAME})
]
"""Attributes by name: a text, a number, a boolean, a point in time; None takes the attribute away."""


class AttributesSet(StandardEvent, event_type="attributes.set"):
    """A step has set search attributes of its run, and left the others as they are."""

    PERSONAL: ClassVar[tuple[str, ...]] = ("attributes",)

    attributes: Attributes = Field(min_length=1)
