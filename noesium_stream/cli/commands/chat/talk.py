"""The loop of `noesium chat`: lines of the person, events and pieces of the run, one after the other."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from noesium_stream.cli.commands.chat import asides
from noesium_stream.cli.commands.chat.lines import Lines
from noesium_stream.cli.commands.chat.streamed import RESPOND, StreamedAnswer
from noesium_stream.cli.commands.runs.questions import whole_lines
from noesium_stream.cli.output import PartialLine, dim, duration, json_text, note, result_part, shorten
from noesium_stream.cli.progress import progress_line
from noesium_stream.client.conversation import Conversation
from noesium_stream.client.views.unresolved_effects import Decision
from noesium_stream.errors import ApprovalError, EffectDecisionError, NoesiumError, RunFailedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.rules.stream_pieces import Piece
from noesium_stream.event.standard import EffectOutcomeUnknown
from noesium_stream.memory import MemoryManager

_TOLD: Final = (
    "kernel.node.failed",
    "kernel.node.retried",
    "run.parked",
    "run.resumed",
)
"""Events that are shown as `noesium run` shows them."""
_ANSWERS: Final = {
    "conversation.turn.completed": "message_id",
    "conversation.turn.undone": "request_id",
    "conversation.message.refused": "message_id",
}
"""Events that answer what was sent, with the field that names it."""
_DECISIONS: Final[dict[str, Decision]] = {
    **dict.fromkeys(("d", "done"), "result"),
    **dict.fromkeys(("a", "again"), "retry"),
    **dict.fromkeys(("f", "failed"), "fail"),
}
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_ARGUMENTS: Final = 500


class Talk:
    """One person's conversation on a terminal.

    Args:
        conversation: what is talked in; read up to now.
        memory: that of its user.
        name: in whose name the person answers questions.
        watch: is given each event of the run.
    """

    def __init__(
        self,
        conversation: Conversation,
        memory: MemoryManager,
        name: str,
        watch: Callable[[EventEnvelope], None],
    ) -> None:
        self._conversation = conversation
        self._watch = watch
        self._memory = memory
        self._name = name
        self._happened: asyncio.Queue[Any] = asyncio.Queue()
        self._typed: deque[str] = deque()
        self._questions: dict[str, Any] = {}
        self._effects: set[str] = set()
        """Questions about calls of unknown outcome; the others are approvals."""
        self._asked: set[str] = set()
        self._answer = StreamedAnswer()
        self._ends = False
        self._prompts = sys.stdin.isatty() and sys.stdout.isatty()
        self._prompted = False
        self._open: set[str] = set()
        """Messages and requests that have no answer yet, by the id of their event."""

        self._shows: dict[str, Callable[[dict[str, Any]], None]] = {
            "conversation.opened": self._say_opened,
            "kernel.node.entered": self._note_step,
            "conversation.turn.completed": self._say_answer,
            "conversation.turn.undone": self._say_undone,
            "conversation.message.refused": lambda payload: self._note(f"  {payload['reason']}"),
            "effect.resolved": lambda payload: self._close_question(payload["effect_id"]),
            "approval.requested": lambda payload: self._ask(payload["approval_id"], payload["question"]),
            "approval.answered": lambda payload: self._close_question(payload["approval_id"]),
            "approval.expired": lambda payload: self._close_question(payload["approval_id"]),
        }

    @property
    def _done(self) -> bool:
        return self._ends and not self._typed and (not self._open or bool(self._questions))

    async def until_left(self) -> None:
        """Talk until the person leaves, or the conversation ends.

        Raises:
            RunFailedError: it has failed.
            NoesiumError: the log cannot be read or written.
        """
        lines = Lines(self._happened.put_nowait)
        readers = [asyncio.create_task(self._follow()), asyncio.create_task(self._follow_pieces())]
        await self._take_up()
        lines.start()
        try:
            while not self._done:
                self._prompt()
                await self._take(await self._happened.get())
        finally:
            lines.close()
            result_part.end()
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    def say_how_to_resume(self, command: str) -> None:
        """Print how the conversation is gone on with."""
        if self._conversation.view.ended:
            note("The conversation has ended.")
        else:
            self._break_line()
            note(f"The conversation stays on the log. Go on with: {command}")

    async def _take_up(self) -> None:
        """Show where an earlier process was: what waits for an answer, of the agent or of the person."""
        view = self._conversation.view
        if view.turns:
            asides.print_history(view.live, limit=3, show=note)
        self._open.update(view.waiting)
        for event in view.waiting.values():
            value = event.payload.get("value")
            text = value.get("text") if isinstance(value, dict) else value
            if isinstance(text, str):
                note(f"  not answered yet: {shorten(text, 200)}")
        for question in await self._conversation.run.approvals():
            if question.status == "open":
                self._ask(question.approval_id, question.question)
        await self._ask_outcomes()

    async def _follow(self) -> None:
        try:
            async with aclosing(self._conversation.events()) as events:
                async for event in events:
                    self._happened.put_nowait(event)
        except NoesiumError as error:
            self._happened.put_nowait(error)

    async def _follow_pieces(self) -> None:
        try:
            async with aclosing(self._conversation.run.pieces()) as pieces:
                async for piece in pieces:
                    self._happened.put_nowait(piece)
        except NoesiumError as error:
            note(f"The pieces of the answers cannot be shown: {error.message}")

    async def _take(self, happened: Any) -> None:
        if isinstance(happened, NoesiumError):
            raise happened
        if isinstance(happened, Piece):
            self._break_line()
            self._answer.show(happened)
        elif isinstance(happened, EventEnvelope):
            self._see(happened)
            if happened.event_type == EffectOutcomeUnknown.TYPE:
                await self._ask_outcomes()
        elif happened is None:
            self._ends = True
        else:
            self._prompted = False  # the person has ended the line
            self._typed.append(happened)
        while self._typed and (self._questions or not self._open):
            await self._act(self._typed.popleft())

    # -- what the person does --------------------------------------------------------------------------

    async def _act(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if text.startswith("/"):
            await self._command(*text[1:].partition(" ")[::2])
        elif self._questions:
            await self._decide(text)
        else:
            self._open.add(await self._conversation.say(line))

    async def _command(self, name: str, rest: str) -> None:
        rest = rest.strip()
        match name:
            case "memory":
                await asides.print_memory(self._memory, rest)
            case "why":
                await asides.print_why(self._memory, self._conversation, rest)
            case "forget":
                await asides.forget(self._memory, rest)
            case "history":
                asides.print_history(self._conversation.view.turns)
            case "undo":
                self._open.add(await self._conversation.request_undo())
            case "close":
                await self._conversation.close()
                self._open.add("close")  # until the end of the run
            case "quit" | "exit" | "q":
                self._ends = True
                self._typed.clear()
                self._open.clear()
            case "help" | "?":
                asides.print_help()
            case _:
                note(f"There is no /{shorten(name, 40)}. /help lists what there is.")

    async def _decide(self, said: str) -> None:
        """Answer the oldest open question."""
        question_id = next(iter(self._questions))
        try:
            if question_id in self._effects:
                understood = await self._decide_outcome(question_id, said)
            else:
                understood = await self._approve(question_id, said)
        except (ApprovalError, EffectDecisionError) as error:
            note(f"  {error.message}")
            understood = True
        if understood:
            self._questions.pop(question_id, None)

    async def _approve(self, approval_id: str, said: str) -> bool:
        run, said = self._conversation.run, said.lower()
        if said in _YES:
            await run.approve(approval_id, by=self._name)
        elif said == "always":
            await run.approve(approval_id, value={"always": True}, by=self._name)
        elif said in _NO:
            await run.reject(approval_id, by=self._name)
        else:
            note("  Answer y or n, or always for equal calls in this conversation.")
            return False
        return True

    async def _decide_outcome(self, effect_id: str, said: str) -> bool:
        word, _, rest = said.partition(" ")
        decision = _DECISIONS.get(word.lower())
        if decision is None:
            note("  Answer again, failed, or done with what it has returned.")
            return False
        result = _value(rest.strip()) if decision == "result" else None
        await self._conversation.run.resolve_effect(effect_id, decision, result, by=self._name)
        return True

    # -- what the agent does ---------------------------------------------------------------------------

    def _see(self, event: EventEnvelope) -> None:
        payload, kind = event.payload, event.event_type
        self._watch(event)
        if kind in _ANSWERS:
            self._open.discard(payload[_ANSWERS[kind]])
        if kind in ENDINGS:
            self._end(event)
        elif kind in _TOLD:
            self._note(progress_line(event, self._conversation.id))
        elif kind.startswith("tool."):
            self._note(_tool_line(kind, payload))
        else:
            show = self._shows.get(kind)
            if show is not None:
                show(payload)

    def _end(self, event: EventEnvelope) -> None:
        self._ends = True
        self._typed.clear()
        self._open.clear()
        if event.event_type == "run.failed":
            raise RunFailedError(
                f"The conversation has failed: {shorten(str(event.payload.get('message', '')), 500)}",
                hint=f"See: noesium show {self._conversation.id}",
            )

    def _note(self, line: str | None) -> None:
        if line:
            self._break_line()
            note(line)

    def _say_opened(self, payload: dict[str, Any]) -> None:
        if payload.get("greeting"):
            self._say_answer({"answer": payload["greeting"]})

    def _say_answer(self, payload: dict[str, Any]) -> None:
        self._break_line()
        self._answer.finish(payload["answer"])

    def _note_step(self, payload: dict[str, Any]) -> None:
        if payload["node"] == RESPOND:
            self._answer.note_step(payload["step"])

    def _close_question(self, question_id: str) -> None:
        self._questions.pop(question_id, None)
        self._asked.discard(question_id)

    async def _ask_outcomes(self) -> None:
        """Ask about calls of which nobody knows whether they were made."""
        for effect in await self._conversation.run.unresolved_effects():
            if effect.effect_id not in self._asked:
                self._asked.add(effect.effect_id)
                self._effects.add(effect.effect_id)
                self._questions[effect.effect_id] = effect
                what = f"was {shorten(effect.name, 100)} done? {shorten(effect.reason, 300)}"
                self._note(f"  ? {what}  {dim('[d]one RESULT, [a]gain, [f]ailed')}")

    def _say_undone(self, payload: dict[str, Any]) -> None:
        self._break_line()
        if payload["message_id"] is None:
            note("There is no turn that can be taken back.")
            return
        turns = self._conversation.view.turns
        said = next((turn.said for turn in turns if turn.message_id == payload["message_id"]), "")
        note(f"Taken back, with all that was remembered because of it: {shorten(said, 200)}")

    def _ask(self, approval_id: str, question: Any) -> None:
        if approval_id in self._asked:
            return  # its event follows what was read of it when the conversation was taken up
        self._asked.add(approval_id)
        self._questions[approval_id] = question
        self._break_line()
        shown, is_whole = _question(question)
        if not is_whole:
            note("\n".join(f"  {line}" for line in whole_lines(question)))
        note(f"  ? {shown}  {dim('[y]es, [n]o, always')}")

    # -- the line of the terminal ----------------------------------------------------------------------

    def _prompt(self) -> None:
        if not self._prompts or self._prompted or self._ends or self._typed:
            return
        if self._open and not self._questions:
            return
        PartialLine(err=False).add("? " if self._questions else "> ")
        self._prompted = True

    def _break_line(self) -> None:
        """End a prompt that the person has not answered, before something else is printed."""
        if self._prompted:
            PartialLine(err=False).add("\n")
            self._prompted = False


def _value(text: str) -> Any:
    """A value as JSON; any other text as it is; None: none was given."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _tool_line(kind: str, payload: dict[str, Any]) -> str | None:
    name = shorten(payload.get("tool_name", ""), 100)
    if kind == "tool.completed":
        return f"  ⚙ {name}  {duration(payload['duration_ms'])}"
    if kind == "tool.failed":
        return f"  ⚙ {name}  failed: {shorten(payload['error'], 200)}"
    return f"  ⚙ {name}  refused: {shorten(payload['reason'], 200)}" if kind == "tool.denied" else None


def _question(question: Any) -> tuple[str, bool]:
    """A question as one line, that of a tool as the call that it is about; and whether all of it is there."""
    if isinstance(question, dict) and isinstance(question.get("tool"), str):
        arguments = question.get("arguments")
        shown = arguments if isinstance(arguments, dict) else {}
        call = ", ".join(f"{name}={json_text(value)}" for name, value in shown.items())
        tool, line = shorten(question["tool"], 100), shorten(call, _ARGUMENTS)
        return f"{tool}({line})", (tool, line) == (question["tool"], call)
    text = question if isinstance(question, str) else json_text(question)
    line = shorten(text, _ARGUMENTS)
    return line, line == text.strip()
