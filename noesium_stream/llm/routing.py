"""Which model is asked: declared by task, capability, cost and latency, with others in reserve (RFC-1001 §5).

The choice is a pure function of what is declared and of what is on the log: failures are recorded, and so
are the switches that they cause (`model.switched`). So a replay takes the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from noesium_stream.clock import derived_id
from noesium_stream.errors import ConfigError, ModelError, ModelTooDearError, brief
from noesium_stream.event.standard import ModelSwitched
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.llm.answer import ModelAnswer
from noesium_stream.llm.base import Messages
from noesium_stream.llm.journaled import JournaledLLM

Latency = Literal["fast", "medium", "slow"]
Prefer = Literal["order", "cost", "latency"]

FALL_BACK: Final = ("rate_limit", "outage", "timeout", "context", "refusal", "answer", "budget")
"""The classes of failures after which another model is asked, unless a router says fewer."""

_SPEED: Final[dict[str, int]] = {"fast": 0, "medium": 1, "slow": 2}
_MAX_REASON: Final = 1_000


@dataclass(frozen=True)
class Route:
    """A model, and what it is good for.

    Attributes:
        llm: the model.
        tasks: names of the tasks that it is for; empty: any.
        capabilities: what it can do (`tools`, `schema`, `images`, or names of your own).
        cost: how dear it is, for comparison: dollars per million tokens, say.
        latency: how fast it answers.
        context_tokens: the longest prompt that it takes; None: not declared.
    """

    llm: JournaledLLM
    tasks: Collection[str] = ()
    capabilities: Collection[str] = ()
    cost: float = 0.0
    latency: Latency = "medium"
    context_tokens: int | None = None

    def fits(self, task: str | None, needs: Collection[str]) -> bool:
        """Whether it is for a task and can do what is needed."""
        return (not self.tasks or task in self.tasks) and set(needs) <= set(self.capabilities)


class ModelRouter:
    """Asks the first model that fits, and after a failure of a declared class the next one.

        router = ModelRouter([Route(small, cost=0.6, latency="fast"), Route(large, cost=10)], prefer="cost")
        text = await router.complete(prompt, task="summary")

    After `context` only models with a longer context follow, after `budget` only cheaper ones, and only where
    the budget says `degrade`.

    Args:
        routes: the models, each once.
        prefer: the order in which those that fit are asked: as declared, the cheapest or the fastest first.
        fall_back: the classes of failures after which the next one is asked; see `FALL_BACK`.

    Raises:
        ConfigError: there are no routes, or a model is named twice, or a class of failures is not known.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        prefer: Prefer = "order",
        fall_back: Collection[str] = FALL_BACK,
    ) -> None:
        names = [route.llm.model for route in routes]
        if not names or len(set(names)) < len(names):
            raise ConfigError("A router needs models, each of them once.")
        unknown = sorted(set(fall_back) - set(FALL_BACK))
        if unknown:
            raise ConfigError(
                f"{unknown[0]!r} is no class of failures.", hint=f"Known: {', '.join(FALL_BACK)}."
            )
        self._routes = tuple(routes)
        self._prefer = prefer
        self._fall_back = frozenset(fall_back)

    def order(self, task: str | None = None, needs: Collection[str] = ()) -> list[Route]:
        """The models that are asked for a task, in order.

        Raises:
            ConfigError: none fits.
        """
        found = [route for route in self._routes if route.fits(task, needs)]
        if not found:
            raise ConfigError(f"No model is declared for the task {task!r} with {sorted(needs)}.")
        if self._prefer == "cost":
            found.sort(key=lambda route: route.cost)
        elif self._prefer == "latency":
            found.sort(key=lambda route: _SPEED[route.latency])
        return found

    async def complete(
        self, prompt: str | Messages, *, task: str | None = None, needs: Collection[str] = ()
    ) -> str:
        """The text of an answer; arguments and errors are those of `ask`."""
        return (await self.ask(prompt, task=task, needs=needs)).text

    async def ask(
        self,
        prompt: str | Messages,
        *,
        task: str | None = None,
        needs: Collection[str] = (),
        tools: Sequence[Any] = (),
        stream: bool = False,
    ) -> ModelAnswer:
        """The answer of the first model that gives one.

        Args:
            prompt: as in `JournaledLLM.ask`.
            task: what the answer is for, as in `Route.tasks`.
            needs: what the model has to be able to do, as in `Route.capabilities`.
            tools: as in `JournaledLLM.ask`; then `tools` is among the needs.
            stream: as in `JournaledLLM.ask`.

        Raises:
            ConfigError: no model is declared for this.
            ModelError: the failure of the last model that was asked.
        """
        needed = {*needs, "tools"} if tools else set(needs)
        left = self.order(task, needed)
        place = this_step()
        while True:
            route, *left = left
            try:
                return await route.llm.ask(prompt, tools=tools, stream=stream)
            except ModelError as error:
                left = self._reserve(route, error, left)
                if not left:
                    raise
                _tell(place, route, left[0], error)

    def _reserve(self, failed: Route, error: ModelError, left: list[Route]) -> list[Route]:
        """Those of the models left that may do better."""
        if error.kind not in self._fall_back:
            return []
        if error.kind == "context":
            known = failed.context_tokens
            return [
                route
                for route in left
                if known is None or route.context_tokens is None or route.context_tokens > known
            ]
        if error.kind == "budget":
            cheaper = [route for route in left if route.cost < failed.cost]
            return cheaper if isinstance(error, ModelTooDearError) else []
        return left


def _tell(place: Place, failed: Route, following: Route, error: ModelError) -> None:
    """Stage that another model is asked; once for each failure, however often the node runs again."""
    number = place.occurrence("model.switched")
    call_id = place.derived("switch", failed.llm.model, following.llm.model, str(number))
    if place.journal.limits is None or call_id in place.history.models.switched:
        return
    switched = ModelSwitched(
        call_id=call_id,
        run_id=place.run_id,
        from_model=failed.llm.model,
        to_model=following.llm.model,
        kind=error.kind,
        reason=brief(error, _MAX_REASON),
    )
    place.stage(switched, key=derived_id(call_id, "switched"))
