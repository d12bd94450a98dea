"""Calls of agents of other systems: `Step.invoke` with an id that begins with a scheme (`a2a:`).

Such a call is an effect: intent on the log, the call with a stable key, its result on the log. What makes it
is a package above the kernel, one for each scheme, and is imported when a call is made: a replay needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from noesium_stream.durations import Duration
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import Place

CALLERS: Final[Mapping[str, tuple[str, str]]] = {"a2a": ("noesium_stream.a2a.call", "a2a")}
"""By scheme: the module whose `call` makes the calls, and the extra of this package that it needs."""
CALL: Final = timedelta(hours=1)
"""How long a call takes at most; then its outcome is unknown."""


def is_foreign(capability_id: str) -> bool:
    """Whether an id names an agent of another system, and no capability of the registry."""
    return isinstance(capability_id, str) and capability_id.partition(":")[0] in CALLERS


async def call_foreign(
    target: str, arguments: dict[str, Any], version: str | None, *, idempotency_key: str
) -> Any:
    """Make a call; the effect's function.

    Raises:
        ConfigError: the extra that it needs is not installed, or the settings do not allow the target.
        OutcomeUnknownError: the other side may have taken the call, and has not answered.
        CapabilityError: the other side refused it, or failed.
    """
    name, extra = CALLERS[target.partition(":")[0]]
    try:
        caller = await asyncio.to_thread(import_module, name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The call of {target} needs {error.name}, which is not installed here.",
            hint=f"Install the extra in the worker's environment: pip install 'noesium-stream[{extra}]'",
        ) from error
    return await caller.call(target, arguments, version=version, idempotency_key=idempotency_key)


class Foreign:
    """A step's calls of agents of other systems."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def invoke(
        self,
        target: str,
        arguments: Mapping[str, Any],
        *,
        version: str | None = None,
        side_effects: SideEffectClass | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """See `Step.invoke`."""
        return await Effects(self._place).perform(
            target,
            call_foreign,
            target,
            dict(arguments),
            version,
            effect_class=side_effects or SideEffectClass.EXTERNAL,
            timeout=CALL if timeout is None else timeout,
        )
