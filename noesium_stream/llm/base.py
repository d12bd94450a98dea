"""Language models behind one small interface (RFC-1001 §5 `llm/`); every call is an effect of its step.

The call's event contains the sampling settings: `model`, `version`, `temperature`, `seed` (RFC-0003 §7), and
in `more` the provider's other settings. STRICT mode refuses a call without one of the four.
"""

from __future__ import annotations

from typing import Any, Protocol

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.modes import ModelParameters, check_model_parameters, current_mode
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import this_step


class BaseLLMClient(Protocol):
    """A chat model."""

    @property
    def model(self) -> str:
        """`provider:name`."""

    @property
    def parameters(self) -> ModelParameters:
        """The sampling settings; None for settings that it does not fix."""

    async def generate(self, prompt: str, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the model outside any run; return `{"text", "model", "tokens"}` and more.

        `parameters` are the client's own, as in the event.
        """


class JournaledLLM:
    """A model for nodes: the answer is recorded, and a replay reads it instead of calling again."""

    def __init__(self, client: BaseLLMClient) -> None:
        self._client = client

    @property
    def model(self) -> str:
        """`provider:name`."""
        return self._client.model

    async def complete(self, prompt: str) -> str:
        """The model's answer to a prompt.

        Raises:
            KernelError: called outside a node.
            StrictModeError: in STRICT mode, the client does not fix seed, temperature, name and version.
            Exception: any error of the provider's client, after it is recorded.
        """
        place = this_step()
        parameters = self._client.parameters
        check_model_parameters(parameters, current_mode())
        answer = await Effects(place).perform(
            f"model:{self.model}",
            self._client.generate,
            prompt,
            parameters=parameters.to_dict(),
            effect_class=SideEffectClass.PURE,
        )
        return str(answer["text"])
