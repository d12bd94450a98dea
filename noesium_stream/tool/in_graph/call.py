"""One call of a tool of LangChain by a `ToolNode`, made by the agent's executor.

Decision record: `ToolNode` keeps all that it does around a call: injection of state and store, the forms of
results, errors as messages. Only the tool that it invokes is another one: `JournaledTool`, which has the
executor call the tool behind it. So what a tool returns and raises reaches LangGraph's code as it would
without an agent, from the log as well as live.

- Arguments are judged as LangChain judges them, by the tool's own `args_schema` and with its conversions, and
  an invalid call raises the same `ValidationError`; beside that it is a refused call on the log.
- A refusal is for the model to read: it is an error of the kind that `ToolNode` turns into a message by
  default. Where the node handles no errors, it is raised.
- The text that the node makes of an error is recorded: an error that is read from the log has lost its
  attributes, and a handler could say something else about it.
- A tool that asks by `interrupt()` is called again from its first line with the answer, as in LangGraph; each
  time is a call of its own on the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import orjson
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolInvocationError
from pydantic import ValidationError
from pydantic.v1 import ValidationError as ValidationErrorV1

from noesium_stream.clock import derived_id
from noesium_stream.errors import RemoteError, ToolError, ToolInputError, ToolPermissionError, brief
from noesium_stream.event.payload.judge import first_line
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.graph.node_config import answering
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.tool.executor import Service
from noesium_stream.tool.in_graph.record import interrupt_of, interrupt_record, record_of, returned_of
from noesium_stream.tool.langchain_form import CALL_KEY, atomic_tool, shown_tool
from noesium_stream.tool.toolbox import AgentToolbox

WHOLE: Final = 262_144
"""Characters of a text that stay in the message; of a longer one it has the beginning (see `set_aside`)."""
_NOT_VALID: Final = "Tool input validation error"
"""LangChain's own words."""

_SERVING: Final[ContextVar[bool]] = ContextVar("noesium_serving_tool", default=False)


def is_serving() -> bool:
    """Whether the calling code is a tool's: what it calls in turn belongs to that tool's call."""
    return _SERVING.get()


class RefusedError(ToolInvocationError):
    """A call that the executor has refused, as `ToolNode` takes it; `refusal` says why."""

    def __init__(self, name: str, arguments: dict[str, Any], refusal: ToolError) -> None:
        Exception.__init__(self, refusal.message)
        self.message = refusal.message
        self.tool_name = name
        self.tool_kwargs = arguments
        self.source = refusal  # type: ignore[assignment]  # LangGraph has a ValidationError there
        self.filtered_errors = None
        self.refusal = refusal


class JournaledTool:
    """A tool in the place of one of LangChain, for one call.

    Args:
        tool: the tool behind it.
        asked: the call as the model has asked for it: name, args, id.
        place: the step.
        toolbox: of the agent.

    Attributes:
        failed: whether the call was refused, or has failed.
    """

    def __init__(self, tool: BaseTool, asked: dict[str, Any], place: Place, toolbox: AgentToolbox) -> None:
        self.failed = False
        self._tool = tool
        self._asked = asked
        self._id: str | None = asked.get("id")
        self._place = place
        self._toolbox = toolbox
        self._invalid: Exception | None = None
        self._raised: Exception | None = None
        self._recorded: RemoteError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def ainvoke(self, call: dict[str, Any], config: RunnableConfig | None = None) -> Any:
        """Have the call made; `call` has the injected arguments, too.

        Raises:
            RefusedError: the executor has refused it.
            Exception: the tool's own error.
        """
        try:
            if shown_tool(self._tool) is not None:
                return await self._shown(call, config)
            return await self._answered(call, config)
        except Exception as error:
            self.failed = not isinstance(error, GraphInterrupt)
            if isinstance(error, ToolInputError | ToolPermissionError):
                raise RefusedError(self._tool.name, self._asked["args"], error) from error
            if isinstance(error, RemoteError) and self._raised is not None:
                # No handler of the node can tell them apart by class, and this one says more.
                self._recorded = error
                raise self._raised from None
            raise

    def as_recorded(self, error: Exception) -> Exception:
        """An error that the node has not handled, as a later execution gets it from the log."""
        return self._recorded if self._recorded is not None and error is self._raised else error

    async def told(self, message: ToolMessage) -> ToolMessage:
        """The message about a failed call, with its text as recorded."""

        async def text(**of: Any) -> Any:
            return message.content

        said = await Effects(self._place).perform(
            self._text_name, text, effect_class=SideEffectClass.PURE, **self._text_of
        )
        return message.model_copy(update={"content": said})

    def told_before(self) -> ToolMessage | None:
        """The message about a failed call that an earlier execution of the node has made of it."""
        identity = {"args": [], "kwargs": self._text_of}
        base = self._place.next_call_id("effect", self._text_name, identity)
        effect_id, place = derived_id(base, "0"), self._place
        if effect_id not in place.history.outcomes and place.journal.recorded(effect_id) is None:
            return None
        return ToolMessage("", name=self._asked["name"], tool_call_id=self._id, status="error")

    @property
    def _text_name(self) -> str:
        return f"{self._tool.name}: text of the error"

    @property
    def _text_of(self) -> dict[str, Any]:
        return {"call": self._id, "attempt": self._place.attempt}

    async def _shown(self, call: dict[str, Any], config: RunnableConfig | None) -> Any:
        """Call a tool that calls the executor by itself."""
        token = CALL_KEY.set(self._id)
        try:
            return await self._tool.ainvoke(call, config)
        finally:
            CALL_KEY.reset(token)

    async def _answered(self, call: dict[str, Any], config: RunnableConfig | None) -> Any:
        """Call until the tool asks no question any more."""
        answers: list[Any] = []
        while True:
            try:
                recorded = await self._called(call, config, answers)
            except ToolInputError as refused:
                return self._not_valid(call, refused)
            asked = interrupt_of(recorded)
            if asked is None:
                return returned_of(recorded, self._tool.name, self._id)
            answers.append(await Waits(self._place).interrupt(*asked))

    async def _called(self, call: dict[str, Any], config: RunnableConfig | None, answers: list[Any]) -> Any:
        given, injected = _split(self._asked["args"], call["args"])
        key = self._id if not answers else f"{self._id or ''}/{len(answers)}"
        service = Service(
            partial(self._served, call, injected, config, answers), partial(self._check, injected)
        )
        tool = self._toolbox.of_graph(self._tool) or atomic_tool(self._tool)
        return await self._toolbox.executor.call(self._place, tool, given, key=key, service=service)

    async def _served(
        self,
        call: dict[str, Any],
        injected: dict[str, Any],
        config: RunnableConfig | None,
        answers: list[Any],
        arguments: dict[str, Any],
    ) -> Any:
        made = {**call, "args": {**arguments, **injected}}
        try:
            with _serving(), answering(config, answers) as answered:
                returned = await self._tool.ainvoke(made, answered)
        except GraphInterrupt as bubble:
            (interrupt,) = bubble.args[0]
            return interrupt_record(interrupt)
        except Exception as error:
            self._raised = error
            raise
        recorded = record_of(returned, self._tool.name, self._id)
        if isinstance(recorded, str) and len(recorded) > WHOLE:
            recorded = orjson.dumps(await self._toolbox.executor.set_aside(recorded)).decode()
        return recorded

    def _check(self, injected: dict[str, Any], arguments: dict[str, Any]) -> None:
        """Judge arguments as LangChain does."""
        try:
            self._tool._parse_input({**arguments, **injected}, self._id)
        except Exception as error:  # a validator of the tool may raise anything
            self._invalid = error
            raise ToolInputError(
                f"{self._tool.name} does not take these arguments: {_fault(error)}"
            ) from None

    def _not_valid(self, call: dict[str, Any], refused: ToolInputError) -> Any:
        """What LangChain makes of arguments that are not valid; raises unless the tool handles that."""
        if self._invalid is None:  # the refusal was recorded earlier
            given, injected = _split(self._asked["args"], call["args"])
            with suppress(ToolInputError):
                self._check(injected, given)
        error, flag = self._invalid, self._tool.handle_validation_error
        if error is None:
            raise refused
        if not flag or not isinstance(error, ValidationError | ValidationErrorV1):
            raise error
        self.failed = True
        text: Any = flag(error) if callable(flag) else flag if isinstance(flag, str) else _NOT_VALID
        return ToolMessage(text, name=self._tool.name, tool_call_id=self._id, status="error")


@contextmanager
def _serving() -> Iterator[None]:
    token = _SERVING.set(True)
    try:
        yield
    finally:
        _SERVING.reset(token)


def _split(asked: dict[str, Any], args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of the model, and those that LangGraph has injected."""
    given = {name: value for name, value in args.items() if name in asked and asked[name] is value}
    return given, {name: value for name, value in args.items() if name not in given}


def _fault(error: Exception) -> str:
    """The first fault, without the value that has it."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'all of them'}: {first['msg']}"
    return first_line(error) if isinstance(error, ValueError) else brief(error)
