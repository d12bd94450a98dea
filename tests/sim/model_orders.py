"""A model of a simulated world, and the order to call it: `["model", WORDS]`."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from noesium_stream.errors import BudgetExceededError
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm import JournaledLLM
from tests.sim.world import WORLD

NO_ROOM: Final = "no room"
"""What a call gives that no budget has room for."""

MOST_OUTPUT: Final = 100
_PROMPT: Final = 20


def usage_of(words: str) -> tuple[int, int]:
    """Tokens of the prompt and of the answer: the same for the same words."""
    return _PROMPT, Random(f"usage {words}").randrange(1, MOST_OUTPUT + 1)


class SimModel:
    """It takes a nano-dollar per token, and says truly what it took."""

    model = "sim:model"
    parameters = ModelParameters("sim:model", "1", 0, 0)
    max_output_tokens = MOST_OUTPUT

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int:
        return input_tokens + output_tokens

    async def generate(
        self, prompt: Any, *, idempotency_key: str, parameters: Any = None, tools: Any = None, **_: Any
    ) -> dict[str, Any]:
        words = str(prompt).strip()
        text = await WORLD.get().do("model", words, idempotency_key)
        asked, made = usage_of(words)
        usage = {"input_tokens": asked, "output_tokens": made, "cached_tokens": None, "estimated": False}
        return {"text": text, "usage": usage, "cost_nano_usd": asked + made}


async def ask_model(words: str) -> str:
    """Ask it, with a prompt of a fixed length."""
    try:
        return await JournaledLLM(SimModel()).complete(f"{words:<30}")
    except BudgetExceededError:
        return NO_ROOM
