"""The agents of a simulated world that call tools: `tooler` asks people before what is external,
`free_tooler` does not. An order `["tool", NAME, WORDS]` is one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import Mode, tool
from tests.sim.cast import Caller
from tests.sim.world import WORLD

TOOLER: Final = "tooler"
FREE_TOOLER: Final = "free_tooler"
TOOLERS: Final = (TOOLER, FREE_TOOLER)
EDITED: Final = "edited"
"""The words that people put in the place of others."""


@tool(side_effects=SideEffectClass.PURE)
async def look(words: str, idempotency_key: str) -> str:
    """Look at a parcel."""
    return await WORLD.get().do("pure", words, idempotency_key)


@tool(side_effects=SideEffectClass.IDEMPOTENT, max_retries=4)
async def label(words: str, idempotency_key: str) -> str:
    """Label a parcel."""
    return await WORLD.get().do("idempotent", words, idempotency_key)


@tool(side_effects=SideEffectClass.EXTERNAL)
async def send(words: str, idempotency_key: str) -> str:
    """Send a parcel."""
    return await WORLD.get().do("external", words, idempotency_key)


@tool(side_effects=SideEffectClass.EXTERNAL, timeout=1.0)
async def send_soon(words: str, idempotency_key: str) -> str:
    """Send a parcel at once, or nobody knows."""
    return await WORLD.get().do("external", words, idempotency_key)


@tool(side_effects=SideEffectClass.IDEMPOTENT, timeout=1.0)
async def label_soon(words: str, idempotency_key: str) -> str:
    """Label a parcel at once, or not."""
    return await WORLD.get().do("idempotent", words, idempotency_key)


@tool(side_effects=SideEffectClass.EXTERNAL, permissions=("parcel:open",))
async def open_it(words: str, idempotency_key: str) -> str:
    """Open a parcel, which nobody may."""
    return await WORLD.get().do("external", words, idempotency_key)


class Tooler(Caller):
    agent_type = TOOLER
    tools: ClassVar[Sequence[Any]] = (look, label, send, send_soon, label_soon, open_it)
    mode = Mode.ACT
    permissions = ("parcel:send",)


class FreeTooler(Tooler):
    agent_type = FREE_TOOLER
    mode = Mode.AUTO
