"""Answers by a model, with what is remembered, the last turns, and tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from agents.assistant.offline import SEARCHED, reason, told
from noesium_stream.agent import Dialogue, Reply, Turn, UserMessage
from noesium_stream.errors import AgentMemoryError, ToolError, brief
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.llm import JournaledLLM, ModelAnswer
from noesium_stream.memory import MemoryFilter, MemoryItem
from noesium_stream.tool import AtomicTool

MAX_ROUNDS: Final = 8
"""How often one turn asks the model."""
_MAX_CONTEXT: Final = 24_000
"""Characters of earlier turns in a prompt."""
_MAX_RESULT: Final = 20_000
_MAX_KNOWN: Final = 30
_MAX_QUERY: Final = 2_000

_SYSTEM: Final = (
    "You are an assistant. Answer the person briefly and truthfully. What you know of the person is listed "
    "below; if they ask why you know something, say who told you and when. Call `remember` for facts, wishes "
    "and preferences that will matter later, and `forget` when asked to. A tool that changes something may "
    "be refused by the person: accept that."
)
_REMEMBER: Final = {
    "type": "function",
    "function": {
        "name": "remember",
        "description": "Remember a fact about the person. The same key replaces what was there.",
        "parameters": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "description": "What it is about, in snake_case: favourite_colour"},
                "fact": {"type": "string", "description": "The fact as a sentence."},
            },
            "required": ["key", "fact"],
        },
    },
}
_FORGET: Final = {
    "type": "function",
    "function": {
        "name": "forget",
        "description": "Forget what is remembered under a key.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}


@dataclass(frozen=True, slots=True)
class Modelled:
    """Answers of a model.

    Attributes:
        llm: the model.
        tools: what it may ask to be called.
    """

    llm: JournaledLLM
    tools: tuple[AtomicTool, ...]

    async def answer(self, message: UserMessage, dialogue: Dialogue) -> Reply:
        """The answer to a message; raises what the model and memory raise."""
        known, turns = await looked_up(message, dialogue)
        prompt = prompt_of(message, turns, known, dialogue.user)
        sources = [f"model:{self.llm.model}", *(f"memory:{item.id}" for item in known)]
        texts: list[str] = []
        for _ in range(MAX_ROUNDS):
            answer = await self.llm.ask(prompt, tools=self._offered(), stream=True)
            if answer.text:
                texts.append(answer.text)
            if not answer.tool_calls:
                break
            if answer.text:
                await current_step().write("\n")
            prompt.append(answer.message)
            results = await self._called(answer, message, dialogue)
            for call, result in zip(answer.tool_calls, results, strict=True):
                content = result[:_MAX_RESULT]
                prompt.append({"role": "tool", "tool_call_id": call.id, "content": content})
                sources.append(f"tool:{call.name}")
        return Reply("\n".join(texts) or "I have no answer to that.", sources)

    def _offered(self) -> list[dict[str, Any]]:
        if not self.llm.takes_tools:
            return []
        return [_REMEMBER, _FORGET, *(_form(tool) for tool in self.tools)]

    async def _called(self, answer: ModelAnswer, message: UserMessage, dialogue: Dialogue) -> list[str]:
        """The results of the calls that the model asks for, one after the other."""
        results = []
        for call in answer.tool_calls:
            try:
                results.append(await self._call(call.name, call.arguments, message, dialogue))
            except (ToolError, AgentMemoryError) as error:
                results.append(f"error: {brief(error)}")
        return results

    async def _call(
        self, name: str, arguments: dict[str, Any], message: UserMessage, dialogue: Dialogue
    ) -> str:
        memory = dialogue.user_memory
        if name == "remember":
            key, fact = str(arguments.get("key", "")), str(arguments.get("fact", ""))
            said = {"told": fact[:500], "said": message.text[:500]}
            await memory.write(key, fact, said)
            return "remembered"
        if name == "forget":
            await memory.delete(str(arguments.get("key", "")), reason="asked for in a conversation")
            return "forgotten"
        result = await current_step().tool(name, **arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


async def looked_up(message: UserMessage, dialogue: Dialogue) -> tuple[list[MemoryItem], list[Turn]]:
    """What is remembered that may matter, and the last turns whose messages nobody has retracted.

    All of it is one effect: a replay reads what was read.
    """
    memory = dialogue.user_memory
    sources = [f"event:{turn['message_id']}" for turn in dialogue.turns]

    async def look(text: str, sources: list[str]) -> dict[str, Any]:
        found = [result.item for result in await memory.found(text, SEARCHED)]
        rest = await memory.durable.found(MemoryFilter(limit=_MAX_KNOWN))
        by_key = {item.key: item for item in (*found, *rest)}
        gone = await memory.durable.found_disbelieved(sources) if sources else []
        return {"known": [item.to_json() for item in by_key.values()][:_MAX_KNOWN], "gone": gone}

    seen = await current_step().effect(
        "look up", look, message.text[:_MAX_QUERY], sources, effect_class=SideEffectClass.PURE
    )
    known = [MemoryItem.from_json(item) for item in seen["known"]]
    turns = zip(dialogue.turns, sources, strict=True)
    return known, [turn for turn, source in turns if source not in seen["gone"]]


def prompt_of(
    message: UserMessage, turns: Iterable[Turn], known: Iterable[MemoryItem], user: str
) -> list[dict[str, Any]]:
    """The prompt for a message: what is known, the last turns that there is room for, the message."""
    facts = [f"- [{item.key}] {told(item)} {reason(item, user)}" for item in known]
    system = "\n".join([_SYSTEM, "", f"The person is {user}. You know:", *(facts or ["- nothing yet"])])
    said: list[dict[str, Any]] = []
    room = _MAX_CONTEXT
    for turn in reversed(list(turns)):
        room -= len(turn["said"]) + len(turn["answer"])
        if room < 0:
            break
        said[:0] = [
            {"role": "user", "content": turn["said"]},
            {"role": "assistant", "content": turn["answer"]},
        ]
    return [
        {"role": "system", "content": system},
        *said,
        {"role": "user", "content": message.text},
    ]


def _form(tool: AtomicTool) -> dict[str, Any]:
    shown = {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)}
    return {"type": "function", "function": shown}
