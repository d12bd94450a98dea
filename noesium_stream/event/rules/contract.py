"""What a capability promises: the JSON Schemas of its input and output, and what a second call does.

Caller and provider judge by the same contract: that of the registry at the position which the call names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noesium_stream.errors import CapabilityInputError, CapabilityOutputError, EventValidationError
from noesium_stream.event.payload.judge import first_line, judge_of
from noesium_stream.event.standard import Capability, SideEffectClass


class Contract(NamedTuple):
    """The contract of one version of a capability at one agent.

    The default is that of an offer that is not known any more: any value, and nothing may be repeated.
    """

    input_schema: Mapping[str, Any] = {}
    output_schema: Mapping[str, Any] = {}
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL

    @property
    def repeatable(self) -> bool:
        """Whether a second call with the same input does no harm."""
        return self.side_effects is not SideEffectClass.EXTERNAL

    def check_input(self, capability_id: str, arguments: Any) -> None:
        """Check the arguments of a call.

        Raises:
            CapabilityInputError: they violate the input schema, or it cannot be used.
        """
        wrong = _violation(self.input_schema, arguments, "input")
        if wrong is not None:
            raise CapabilityInputError(f"{capability_id} does not take these arguments: {wrong}.")

    def check_output(self, capability_id: str, result: Any) -> None:
        """Check the result of a call.

        Raises:
            CapabilityOutputError: it violates the output schema, or that cannot be used.
        """
        wrong = _violation(self.output_schema, result, "output")
        if wrong is not None:
            raise CapabilityOutputError(f"The result of {capability_id} is not what it promises: {wrong}.")


def contract_of(capability: Capability) -> Contract:
    """The contract of an offer."""
    return Contract(capability.input_schema, capability.output_schema, capability.side_effects)


def _violation(schema: Mapping[str, Any], value: Any, name: str) -> str | None:
    if not schema:
        return None
    try:
        judge_of(schema).check(value, name)
    except EventValidationError as error:
        return f"{error.field}: {error.reason}".rstrip(".")
    except ValueError as error:
        return f"its {name} schema cannot be used: {first_line(error)}".rstrip(".")
    return None
