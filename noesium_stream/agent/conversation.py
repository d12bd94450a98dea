"""`BaseHitlAgent`: an agent that people talk to; a conversation is one run (RFC-1001 §11.1, RFC-1002).

    open ─▸ listen ─▸ respond ─▸ listen ─▸ …         with reviews: respond ─▸ deliver ─▸ listen
              │  ▴ taken back, or no message
              ▾  closed: the run's end

`listen` waits for the next signal `message`, on the log and without a slot. What is needed for the next turn
is in the state: the last turns, and not all of them, so that turn 10,000 costs what turn 10 does. All turns
are on the log. After each hundred of them the run goes on in a new segment, so that whoever takes it over
reads no more than these.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.agent.dialogue import ConversationState, Dialogue, Reply, Turn, UserMessage
from noesium_stream.errors import (
    AgentMemoryError,
    CapabilityError,
    ConfigError,
    EffectFailedError,
    ModelError,
    NoesiumError,
    StateError,
    ToolError,
    brief,
)
from noesium_stream.event.standard import (
    ConversationMessageRefused,
    ConversationOpened,
    ConversationTurnCompleted,
    ConversationTurnUndone,
)
from noesium_stream.event.standard.conversation import (
    MAX_SOURCE,
    MAX_SOURCES,
    MAX_TITLE,
    MAX_USER,
    MESSAGE,
)
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.step.answer import Answer
from noesium_stream.memory import MemoryManager

DELIVER: Final = "deliver"
MAX_MESSAGE: Final = 100_000
"""Characters of a message."""
MAX_ANSWER: Final = 200_000
"""Characters of an answer; what is longer is cut."""

_FAILURES: Final = (AgentMemoryError, CapabilityError, EffectFailedError, ModelError, ToolError)
"""Errors that end a turn and not the conversation; all of them are recorded where they arise."""

_OWN: Final = frozenset(ConversationState.__annotations__)

_MESSAGE: ContextVar[UserMessage | None] = ContextVar("noesium_message", default=None)


class BaseHitlAgent(BaseGraphicAgent):
    """An agent that people talk to (RFC-1002): it answers messages, one after the other, for months.

    A subclass answers in `process_user_message`. A conversation is one run, and the run's id is its session:
    `Client.start_conversation` begins it, `noesium chat` talks to it. All that a turn writes to `memory` has
    the message as its source, and who sent it as the one who said it; so `/undo` takes it back.

    Class attributes:
        review_nodes: nodes of the graph before which a person is asked, as `deliver`: the answer is sent when
            somebody has approved it, and the value of the approval, a text, is sent in its place.
        reviewers: who may approve: names, and roles as `role:NAME`; empty: anyone.
        window: how many turns the state holds, 1 to 1,000. So many can be taken back.
    """

    max_supersteps: ClassVar[int] = 1_000_000_000
    segment_steps: ClassVar[int | None] = 200
    review_nodes: ClassVar[tuple[str, ...]] = ()
    reviewers: ClassVar[tuple[str, ...]] = ()
    window: ClassVar[int] = 20

    async def start_conversation(self, dialogue: Dialogue) -> str | None:
        """What the agent says first; None: it waits for the person."""
        return None

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply | str:
        """Answer a message; called in a node, so that `current_step`, models, tools and memory work.

        An error of a model, a tool, a capability or of memory becomes the answer of the turn, which says what
        has failed; any other one fails the run.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it answers.")

    @property
    def memory(self) -> MemoryManager:
        """The agent's memory; what is written while a message is answered comes from that message."""
        memory, message = super().memory, _MESSAGE.get()
        return memory if message is None else memory.said(message.source, message.said_by)

    # -- the graph -------------------------------------------------------------------------------------

    def get_state_class(self) -> type[Any]:
        """See `ConversationState`."""
        return ConversationState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        unknown = sorted({*self.review_nodes}.difference(("respond", DELIVER)))
        if unknown:
            raise ConfigError(
                f"{self.agent_type} wants a review before the node {unknown[0]}.",
                hint="Name respond, deliver, or both.",
            )
        state = self.get_state_class()
        graph = StateGraph(state)
        # Without it a node gets the keys alone that its annotation has, and not those of a subclass.
        graph.add_node("open", self._open, input_schema=state)
        graph.add_node("listen", self._listen, input_schema=state)
        graph.add_node("respond", self._respond, input_schema=state)
        if DELIVER in self.review_nodes:
            graph.add_node(DELIVER, self._deliver, input_schema=state)
            graph.add_edge("respond", DELIVER)
            graph.add_edge(DELIVER, "listen")
        else:
            graph.add_edge("respond", "listen")
        graph.add_edge(START, "open")
        graph.add_edge("open", "listen")
        graph.add_conditional_edges("listen", _after_listen, ["listen", "respond", END])
        return graph

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """The first state of a conversation, from `{"user", "title"}`.

        Raises:
            ConfigError: there is no user, or it is no name.
        """
        self.check_input(input)
        more = {key: value for key, value in input.items() if key not in ("user", "title")}
        first = {"user": input["user"], "title": input.get("title"), "heard": 0, "number": 0, "turns": []}
        return {**more, **first, "message": None, "draft": None, "next": "listen"}

    @classmethod
    def check_input(cls, input: dict[str, Any]) -> None:
        """Refuse what is no beginning of a conversation; raises as `initial_state`."""
        user, title = input.get("user"), input.get("title")
        if not isinstance(user, str) or not 0 < len(user) <= MAX_USER or not user.isprintable():
            raise ConfigError(
                f"A conversation with {cls.agent_type} needs a user: a name of 1 to {MAX_USER} characters.",
                hint='Start it by `noesium chat`, or with the input {"user": "ada"}.',
            )
        if title is not None and (not isinstance(title, str) or len(title) > MAX_TITLE):
            raise ConfigError(f"The title of a conversation is a text of at most {MAX_TITLE} characters.")

    @classmethod
    def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
        """Refuse a question: a conversation has several.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{cls.agent_type} is an agent to talk to, and takes no single question.",
            hint="Talk to it: noesium chat",
        )

    def result(self, state: dict[str, Any]) -> Any:
        """`{"user", "title", "turns"}`: the last turns, as they were said."""
        turns = [{"said": turn["said"], "answer": turn["answer"]} for turn in state.get("turns", [])]
        return {"user": state["user"], "title": state.get("title"), "turns": turns}

    # -- its nodes -------------------------------------------------------------------------------------

    @kernel_node(deterministic=False, entropy_sources=["agent"])
    async def _open(self, state: ConversationState) -> dict[str, Any]:
        greeting = await self.start_conversation(self._dialogue(state))
        opened = ConversationOpened(
            run_id=current_step().run_id,
            user=state["user"],
            title=state.get("title"),
            greeting=greeting,
        )
        return {"_pending_events": [opened]}

    @kernel_node(deterministic=False, entropy_sources=["people"])
    async def _listen(self, state: ConversationState) -> dict[str, Any]:
        step, number = current_step(), state["heard"]
        heard = await step.nth_signal(MESSAGE, number)
        update: dict[str, Any] = {"heard": number + 1, "next": "listen"}
        value, run_id = heard.value, step.run_id
        if isinstance(value, Mapping) and value.get("undo") is True:
            return {**update, **await self._undo(state, run_id, heard.event_id)}
        if isinstance(value, Mapping) and value.get("close") is True:
            return {**update, "next": END}
        text = value.get("text") if isinstance(value, Mapping) else value
        wrong = _wrong_with(text)
        if wrong is not None:
            refused = ConversationMessageRefused(run_id=run_id, message_id=heard.event_id, reason=wrong)
            return {**update, "_pending_events": [refused]}
        message = {
            "text": text,
            "said_by": heard.sent_by,
            "id": heard.event_id,
            "sent_ms": heard.sent_ms,
        }
        return {**update, "message": message, "next": "respond"}

    async def _undo(self, state: ConversationState, run_id: str, request_id: str) -> dict[str, Any]:
        """The state without its last turn; memory does not believe what was said in it."""
        turns = state["turns"]
        if not turns:
            return {"_pending_events": [ConversationTurnUndone(run_id=run_id, request_id=request_id)]}
        last = turns[-1]
        await self.memory.retract(f"event:{last['message_id']}", reason="taken back")
        undone = ConversationTurnUndone(
            run_id=run_id, request_id=request_id, turn=last["number"], message_id=last["message_id"]
        )
        back = {"number": last["number"] - 1, "turns": {"drop": 1}}
        return {**last["before"], **back, "_pending_events": [undone]}

    @kernel_node(deterministic=False, entropy_sources=["agent", "model", "people"])
    async def _respond(self, state: ConversationState) -> dict[str, Any]:
        message = UserMessage(**state["message"])  # type: ignore[arg-type]
        reply, failed = await self._answered(message, state)
        draft = _draft(reply, failed, {key: state.get(key) for key in reply.update})
        if DELIVER in self.review_nodes:
            return {**reply.update, "draft": draft}
        return {**reply.update, **self._delivered(state, draft)}

    async def _answered(self, message: UserMessage, state: ConversationState) -> tuple[Reply, bool]:
        """The answer to a message, and whether it says why there is none."""
        review = await self._reviewed("respond", {"said": message.text})
        if review is not None and not review.approved:
            return Reply(f"{review.answered_by} has refused this message."), True
        token = _MESSAGE.set(message)
        try:
            return self._reply(await self.process_user_message(message, self._dialogue(state))), False
        except _FAILURES as error:
            return Reply(_told(error)), True
        finally:
            _MESSAGE.reset(token)

    def _reply(self, answered: Any) -> Reply:
        reply = Reply(answered) if isinstance(answered, str) else answered
        if not isinstance(reply, Reply) or not isinstance(reply.text, str):
            raise StateError(
                f"{self.agent_type} answers with {type(getattr(reply, 'text', reply)).__name__}, not a text.",
                hint="Return a text, or a Reply whose text is one.",
            )
        taken = sorted(_OWN.intersection(reply.update))
        if taken:
            raise StateError(
                f"{self.agent_type} updates {taken[0]!r} of the state, which belongs to the conversation.",
                hint="Give the key another name.",
            )
        return reply

    @kernel_node(deterministic=False, entropy_sources=["people"])
    async def _deliver(self, state: ConversationState) -> dict[str, Any]:
        message, draft = state["message"], state["draft"]
        assert message is not None
        assert draft is not None
        review = await self._reviewed(DELIVER, {"said": message["text"], "answer": draft["text"]})
        if review is not None and not review.approved:
            draft = {**draft, "text": f"{review.answered_by} has held the answer back.", "failed": True}
        elif review is not None and isinstance(review.value, str):
            draft = {**draft, "text": review.value[:MAX_ANSWER]}
        return self._delivered(state, draft)

    def _delivered(self, state: ConversationState, draft: dict[str, Any]) -> dict[str, Any]:
        """The state after a turn, with the event that tells of it."""
        message, number = state["message"], state["number"] + 1
        assert message is not None
        turn: Turn = {
            "number": number,
            "message_id": message["id"],
            "said_by": message["said_by"],
            "said": message["text"],
            "answer": draft["text"],
            "before": draft["before"],
        }
        done = ConversationTurnCompleted(
            run_id=current_step().run_id,
            turn=number,
            message_id=message["id"],
            answer=draft["text"],
            sources=draft["sources"] or None,
            failed=draft["failed"] or None,
        )
        change = {"add": turn, "window": self.window}
        over = {"turns": change, "number": number, "message": None, "draft": None}
        return {**over, "_pending_events": [done]}

    async def _reviewed(self, node: str, shown: dict[str, Any]) -> Answer | None:
        """A person's answer to whether a node may go on; None: nobody is asked."""
        if node not in self.review_nodes:
            return None
        question = {"review": node, **shown}
        return await current_step().interrupt(question, approvers=self.reviewers)

    def _dialogue(self, state: Mapping[str, Any]) -> Dialogue:
        memory = self.memory
        return Dialogue(
            user=state["user"],
            turns=state.get("turns", ()),
            state=state,
            user_memory=memory.at(f"user:{state['user']}"),
            session_memory=memory.at("session"),
        )


def _after_listen(state: ConversationState) -> str:
    return state["next"]


def _wrong_with(text: Any) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return 'A message is a text, or {"text": …}, {"undo": true} or {"close": true}.'
    if len(text) > MAX_MESSAGE:
        return f"A message has at most {MAX_MESSAGE:,} characters, and this one has {len(text):,}."
    return None


def _draft(reply: Reply, failed: bool, before: dict[str, Any]) -> dict[str, Any]:
    sources = [source[:MAX_SOURCE] for source in dict.fromkeys(reply.sources) if source]
    return {
        "text": reply.text[:MAX_ANSWER],
        "sources": sources[:MAX_SOURCES],
        "failed": failed,
        "before": before,
    }


def _told(error: NoesiumError) -> str:
    hint = f" {error.hint}" if error.hint else ""
    return f"I could not answer: {brief(error)}{hint}"[:MAX_ANSWER]
