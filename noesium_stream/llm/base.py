"""Language models behind one small interface (RFC-1001 §5 `llm/`); every call is an effect of its step.

The call's event says how the model samples: `model`, `version`, `temperature`, `seed` (RFC-0003 §7), and in
`more` what else the provider is given. STRICT mode refuses a call that leaves one of the four out.
"""

from __future__ import annotations

from typing import Any, Protocol

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.modes import ModelParameters, check_model_parameters, current_mode


class BaseLLMClient(Protocol):
    """A chat model."""

    @property
    def model(self) -> str:
        """`provider:name`."""

    @property
    def parameters(self) -> ModelParameters:
        """How it samples; None for what it does not fix."""

    async def generate(self, prompt: str, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the model outside any run; return `{"text", "model", "tokens"}` and more.

        `parameters` are the client's own, as the event has them.
        """


class JournaledLLM:
    """A model as nodes use it: the answer is recorded, and a replay reads it instead of asking again."""

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
            StrictModeError: the client does not fix seed, temperature, name and version, in STRICT mode.
            Exception: what the provider's client raises, after it is recorded.
        """
        step = current_step()
        parameters = self._client.parameters
        check_model_parameters(parameters, current_mode())
        answer = await step.journaled(
            f"model:{self.model}",
            self._client.generate,
            prompt,
            parameters=parameters.to_dict(),
            effect_class=SideEffectClass.PURE,
        )
        return str(answer["text"])
