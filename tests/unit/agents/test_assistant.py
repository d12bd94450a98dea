"""The assistant: what it takes from sentences, what it answers without a model and with one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.assistant import Assistant, AssistantOptions
from agents.assistant.agent import FirstAssistant
from agents.assistant.requests import Explain, Recall, Unclear, requests_of
from agents.assistant.sentences import (
    Ask,
    Forget,
    Remember,
    UseTool,
    content_words,
    request_of,
    share,
    slug,
)
from noesium_stream import Client, Worker
from noesium_stream.client.conversation import Conversation
from noesium_stream.clock import SystemClock
from noesium_stream.llm import ModelParameters
from noesium_stream.llm.base import Write
from noesium_stream.testing import Rehearsal, ScriptedModel
from noesium_stream.testing.agents import with_model

USER = "ada"


@pytest.mark.parametrize(
    ("said", "key", "value", "told"),
    [
        ("My name is Ada.", "name", "Ada", "Your name is Ada."),
        ("hi, call me Ada Lovelace", "name", "Ada Lovelace", "Your name is Ada Lovelace."),
        ("My favourite colour is green", "favourite_colour", "green", "Your favourite colour is green."),
        ("my keys are in the blue  bowl", "keys", "in the blue bowl", "Your keys are in the blue bowl."),
        ("I live in Rome!", "live_in", "Rome", "You live in Rome."),
        ("I like tea", "like.tea", "tea", "You like tea."),
        ("Remember that my dog is called Rex", "dog", "called Rex", "Your dog is called Rex."),
        ("remember that the parcel is in the shed", "parcel", "in the shed", "The parcel is in the shed."),
        ("Please remember: buy milk", None, "buy milk", "Buy milk."),
    ],
)
def test_a_sentence_that_tells_something_is_a_fact(said: str, key: str | None, value: str, told: str) -> None:
    found = request_of(said)
    assert isinstance(found, Remember)
    assert (found.value, found.told) == (value, told)
    assert found.key == key if key else found.key.startswith("note.")


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ("What is my favourite colour?", Ask("What is my favourite colour?", "favourite_colour")),
        ("who am I", Ask("who am I", "name")),
        ("Where is the parcel?", Ask("Where is the parcel?")),
        ("Is my name Ada?", Ask("Is my name Ada?")),
        ("hello", Ask("hello")),
        ("Forget my name", Forget("my name")),
        ("forget that I like tea", Forget("I like tea")),
        ("Write milk to list.txt", UseTool("write_file", {"path": "list.txt", "text": "milk\n"})),
        ("read a/b.txt", UseTool("read_file", {"path": "a/b.txt"})),
        ("list the files", UseTool("find_files", {"pattern": "**"})),
    ],
)
def test_any_other_sentence_asks_for_something(said: str, request_: Any) -> None:
    assert request_of(said) == request_


@pytest.mark.parametrize(
    "text", ["remember that " + "is " * 50_000, "my " * 50_000, "?" * 100_000, "\x00", "му"]
)
def test_no_sentence_takes_long_or_has_a_key_that_memory_refuses(text: str) -> None:
    found = request_of(text)
    if isinstance(found, Remember):
        assert 0 < len(found.key) <= 100
    assert 0 < len(slug(text)) <= 80


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        (
            "My name is Bob. I live in Oslo and I like tea.",
            {"name": "Bob", "live_in": "Oslo", "like.tea": "tea"},
        ),
        ("I live in Oslo, and my cat is called Tom", {"live_in": "Oslo", "cat": "called Tom"}),
        ("I live in Oslo, I like tea", {"live_in": "Oslo", "like.tea": "tea"}),
        ("My name is Bob\nI like tea", {"name": "Bob", "like.tea": "tea"}),
        ("remember that my car is red; my bike is blue", {"car": "red", "bike": "blue"}),
        ("remember that my car is red and my bike is blue.", {"car": "red", "bike": "blue"}),
        ("Remember that the cat is in. The key is under the mat.", {"cat": "in", "key": "under the mat"}),
        ("Hello! My name is Bob. Nice to meet you.", {"name": "Bob"}),
        ("And I moved to Rome", {"live_in": "Rome"}),
        ("I'm allergic to nuts.", {"allergy.nuts": "allergic nuts"}),
        ("I like bread and butter", {"like.bread_and_butter": "bread and butter"}),
        ("I like my dog and my cat", {"like.my_dog_and_my_cat": "my dog and my cat"}),
        ("my address is 5 St. John's Rd.", {"address": "5 St. John's Rd"}),
        ("my address is 5 St. John's Rd. I like tea", {"address": "5 St. John's Rd", "like.tea": "tea"}),
        ("I like Dr. Who", {"like.dr_who": "Dr. Who"}),
        ("my dog is Rex. He is brown.", {"dog": "Rex. He is brown"}),
        ("remember that the code is 12. Press the bell first", {"code": "12. Press the bell first"}),
    ],
)
def test_each_statement_of_a_message_is_a_fact_and_no_value_is_torn(said: str, facts: dict[str, str]) -> None:
    found = requests_of(said)
    assert {one.key: one.value for one in found if isinstance(one, Remember)} == facts
    assert len(found) == len(facts)


@pytest.mark.parametrize(
    ("said", "requests"),
    [
        ("My dog is Rex. Where is it?", [Remember("dog", "Rex", "Your dog is Rex."), Ask("Where is it?")]),
        ("Where is it, and I like tea, is that so?", [Ask("Where is it, and I like tea, is that so?")]),
        (
            "Write a. I like tea to b.txt",
            [UseTool("write_file", {"path": "b.txt", "text": "a. I like tea\n"})],
        ),
        ("Forget my name. Forget my dog.", [Forget("my name"), Forget("my dog")]),
        ("What do you know about me?", [Recall()]),
        ("what do you know", [Recall()]),
        ("What do you know about Oslo?", [Ask("What do you know about Oslo?")]),
        ("What can you do?", [Explain("abilities")]),
        ("Remind me tomorrow at nine to call Bob.", [Explain("reminders")]),
        ("Can you remind me where my keys are?", [Ask("Can you remind me where my keys are?")]),
        ("Please forget everything you know about me!", [Explain("forgetting")]),
        ("forget everything about the moon", [Forget("the moon")]),
        ("hello", [Unclear("hello")]),
        ("The sky is blue", [Unclear("The sky is blue")]),
        ("...", [Unclear("...")]),
    ],
)
def test_each_request_of_a_message_is_one(said: str, requests: list[Any]) -> None:
    assert requests_of(said) == requests


@pytest.mark.parametrize(
    "text",
    [
        "my a is b and " * 140,
        "i like a, " * 200,
        "a. " * 600,
        "the a is b. " * 160,
        "?" * 2_000,
        "\n" * 9,
        "",
    ],
)
def test_no_message_takes_long_to_take_apart(text: str) -> None:
    begun = time.process_time()
    assert requests_of(text)
    assert time.process_time() - begun < 2


def test_words_that_say_nothing_do_not_count() -> None:
    assert content_words("Where have you put the parcels?") == content_words("put parcel")
    assert share(content_words("Where is the parcel?"), "the parcel is in the shed") == 1
    assert share(content_words("What is it?"), "anything") == 0


def assistant(**options: Any) -> Rehearsal:
    return Rehearsal(Assistant, options=AssistantOptions(**options), clock=SystemClock())


async def ask(conversation: Conversation, text: str, *, yes: bool = True) -> str:
    """The answer to a message; questions are answered on the way."""
    sent = await conversation.say(text)
    async for event in conversation.events():
        if event.event_type == "approval.requested":
            answer = conversation.run.approve if yes else conversation.run.reject
            await answer(event.payload["approval_id"], by=USER)
        if event.event_type == "conversation.turn.completed" and event.payload["message_id"] == sent:
            return str(event.payload["answer"])
    raise AssertionError("the conversation has ended")


async def test_it_remembers_finds_corrects_and_forgets_and_says_why() -> None:
    async with assistant() as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        assert await ask(talk, "My name is Ada") == "I will remember: Your name is Ada."
        assert (await ask(talk, "My name is Bob")).endswith("Before that it was Ada.")
        assert await ask(talk, "Remember that the parcel is in the shed")
        answer = await ask(talk, "Where did I put the parcel?")
        assert answer.startswith("The parcel is in the shed. (client told me, "), answer
        assert "“Remember that the parcel is in the shed”" in answer
        [turn] = [one for one in talk.view.turns if one.answer == answer]
        item = await rehearsal.client.memory(f"user:{USER}").durable.recall("parcel")
        assert item is not None
        assert turn.sources == (f"memory:{item.id}",)
        assert item.sources == (f"event:{talk.view.turns[2].message_id}",)
        assert await ask(talk, "Forget the parcel") == "I have forgotten: The parcel is in the shed."
        assert (await ask(talk, "Where is the parcel?")).startswith("I do not know that yet.")
        assert await ask(talk, "forget the moon") == "I remember nothing like that."
        other = await rehearsal.client.start_conversation("assistant", user=USER)
        assert (await ask(other, "Who am I?")).startswith("Your name is Bob.")
        stranger = await rehearsal.client.start_conversation("assistant", user="eve")
        assert (await ask(stranger, "Who am I?")).startswith("I do not know that yet.")


async def test_what_it_does_not_understand_it_says_and_what_it_knows_it_lists() -> None:
    async with assistant() as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        assert (await ask(talk, "What do you know about me?")).startswith("I remember nothing of you yet.")
        told = await ask(talk, "My name is Ada. I live in Oslo, and I like tea.")
        assert told.splitlines() == [
            "I will remember: Your name is Ada.",
            "I will remember: You live in Oslo.",
            "I will remember: You like tea.",
        ]
        assert len(talk.view.turns[-1].sources) == 3
        assert (await ask(talk, "where do I live?")).startswith("You live in Oslo. (")
        listed = "like.tea = tea\nlive_in = Oslo\nname = Ada"
        assert await ask(talk, "what do you know about me?") == listed
        assert "noesium erase user:ada" in await ask(talk, "forget everything")
        assert await ask(talk, "what do you know?") == listed
        assert "noesium schedule" in await ask(talk, "Remind me tomorrow at nine to call Bob.")
        assert "remember that …" in await ask(talk, "What can you do?")
        assert (
            await ask(talk, "thanks")
            == "I do not understand “thanks” without a model. /help says what I can do."
        )
        for number in range(60):
            await rehearsal.client.memory(f"user:{USER}").write(f"n{number:02}", "x" * 300)
        lines = (await ask(talk, "what do you know?")).splitlines()
        assert len(lines) == 51
        assert max(map(len, lines)) < 300
        assert lines[-1] == "That is the first 50; /memory WORDS finds others."


class ShortFirst(FirstAssistant):
    """Version 1.0.0 with short segments."""

    segment_steps = 4


class Short(Assistant):
    """The newest version with short segments."""

    segment_steps = 4


@pytest.mark.parametrize("messages", [["hello"], ["My name is Ada. I like tea."] * 5])
async def test_a_conversation_of_the_first_version_goes_on_with_the_newest(
    tmp_path: Path, messages: list[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    async with Client(url, agent_id=USER) as client:
        async with Worker(client.log, [ShortFirst], home=tmp_path / "first"):
            talk = await client.start_conversation("assistant", user=USER)
            first = [await ask(talk, message) for message in messages]
        async with Worker(client.log, [Short], home=tmp_path / "newest"):
            told = await ask(talk, "My name is Bob. I like tea.")
            assert len(told.splitlines()) == 2
            assert [turn.answer for turn in talk.view.turns] == [*first, told]
            await talk.undo()
            info = await talk.run.info()
            assert info.agent_version == "1.1.0"


async def test_what_comes_from_a_retracted_message_is_not_known_any_more() -> None:
    async with assistant() as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        await ask(talk, "My name is Ada")
        await rehearsal.client.memory("shared").retract(f"event:{talk.view.turns[0].message_id}")
        assert (await ask(talk, "Who am I?")).startswith("I do not know that yet.")


async def test_it_asks_before_it_writes_and_not_before_it_reads(tmp_path: Path) -> None:
    async with assistant(workspace=tmp_path / "work") as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        refused = await ask(talk, "write milk to list.txt", yes=False)
        assert refused == "I could not answer: ada has refused the call of write_file."
        assert not (tmp_path / "work" / "list.txt").exists()
        assert await ask(talk, "write milk to list.txt") == "I have written list.txt (5 bytes)."
        assert await ask(talk, "read list.txt", yes=False) == "milk"
        assert await ask(talk, "list files", yes=False) == "list.txt  5 bytes"
        assert "could not answer" in await ask(talk, "read ../secret")
        reading = await rehearsal.client.start_conversation("assistant", user=USER, mode="ask")
        assert "only reads in mode ask" in await ask(reading, "write milk to list.txt")


async def test_it_quotes_documents_with_their_place(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "ships.md").write_text("# Ships\n\nThe Vasa sank in Stockholm in 1628 on her maiden voyage.\n")
    async with assistant(docs=docs) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        answer = await ask(talk, "Where did the Vasa sink, was it Stockholm?")
        assert "sank in Stockholm in 1628" in answer
        assert talk.view.turns[0].sources[0].startswith("document:ships.md#")
        assert "nor from the documents" in await ask(talk, "Who wrote Faust?")


class Talker:
    """A model that takes tools: it says what its script has for a message, by how far that turn is.

    One that is asked again, because its answer was lost with a process, says the same again.
    """

    model = "scripted:talker"
    parameters = ModelParameters("scripted:talker", version="1", temperature=0, seed=0)
    max_output_tokens = 100

    def __init__(self, script: Mapping[str, Sequence[Any]]) -> None:
        self._script = script
        self.prompts: list[Any] = []
        self.offered: list[str] = []

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        return 0

    async def generate(
        self,
        prompt: Any,
        *,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        schema: Mapping[str, Any] | None = None,
        write: Write | None = None,
    ) -> dict[str, Any]:
        self.prompts.append(json.loads(json.dumps(prompt)))
        self.offered = [tool["function"]["name"] for tool in tools or ()]
        last = max(at for at, one in enumerate(prompt) if one["role"] == "user")
        rounds = sum(one["role"] == "assistant" for one in prompt[last:])
        said = self._script[prompt[last]["content"]][rounds]
        text, calls = (said, []) if isinstance(said, str) else ("", said)
        if write is not None and text:
            await write(text)
        made = [{"id": f"c{n}", "name": name, "arguments": given} for n, (name, given) in enumerate(calls)]
        return {"text": text, "model": self.model, "tool_calls": made}

    async def embed(self, texts: Sequence[str]) -> dict[str, Any]:
        raise NotImplementedError


def with_model_of(model: Any, tmp_path: Path) -> Rehearsal:
    options = AssistantOptions(workspace=tmp_path / "work")
    # A rehearsal's own model would be asked without tools.
    return Rehearsal(with_model(Assistant, model), options=options, clock=SystemClock())


async def test_a_model_remembers_uses_tools_with_approval_and_is_told_what_is_known(tmp_path: Path) -> None:
    noted = [("remember", {"key": "colour", "fact": "Ada likes green."})]
    model = Talker(
        {
            "I like green; write a file": [
                [*noted, ("write_file", {"path": "a.txt", "text": "x"})],
                "Noted, and written.",
            ],
            "write another one": [
                [("write_file", {"path": "b.txt", "text": "x"}), ("nonsense", {})],
                "As you wish.",
            ],
            "What do I like?": ["Green."],
        }
    )
    async with with_model_of(model, tmp_path) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        assert await ask(talk, "I like green; write a file") == "Noted, and written."
        assert {"remember", "forget", "write_file", "read_file"} <= set(model.offered)
        assert (tmp_path / "work" / "a.txt").read_text() == "x"
        assert talk.view.turns[0].sources == ("model:scripted:talker", "tool:remember", "tool:write_file")
        assert await ask(talk, "write another one", yes=False) == "As you wish."
        assert not (tmp_path / "work" / "b.txt").exists()
        results = [one["content"] for one in model.prompts[3] if one["role"] == "tool"]
        assert results[0].startswith("error: ada has refused the call of write_file")
        assert results[1].startswith("error: assistant has no tool 'nonsense'")
        assert await ask(talk, "What do I like?") == "Green."
        system, *said = model.prompts[4]
        assert "- [colour] Ada likes green. (client told me, " in system["content"]
        assert [one["content"] for one in said] == [
            "I like green; write a file",
            "Noted, and written.",
            "write another one",
            "As you wish.",
            "What do I like?",
        ]


async def test_a_model_is_not_told_of_turns_that_were_retracted_or_taken_back(tmp_path: Path) -> None:
    model = Talker({"the code is 1234": ["A"], "the code is 5678": ["B"], "what is the code?": ["C"]})
    async with with_model_of(model, tmp_path) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        await ask(talk, "the code is 1234")
        await ask(talk, "the code is 5678")
        await rehearsal.client.memory("shared").retract(f"event:{talk.view.turns[0].message_id}")
        await talk.undo()
        await ask(talk, "what is the code?")
        assert [one["content"] for one in model.prompts[2][1:]] == ["what is the code?"]


async def test_a_model_that_takes_no_tools_answers_as_well(tmp_path: Path) -> None:
    async with with_model_of(ScriptedModel(["Hello."]), tmp_path) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        assert await ask(talk, "hi") == "Hello."


async def test_a_model_that_calls_tools_for_ever_is_stopped(tmp_path: Path) -> None:
    model = Talker({"loop": [[("find_files", {"pattern": "**"})]] * 20})
    async with with_model_of(model, tmp_path) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        assert await ask(talk, "loop") == "I have no answer to that."
        assert len(model.prompts) == 8


@pytest.mark.parametrize("kind", ["model.completed", "tool.completed", "memory.written", "effect.completed"])
@pytest.mark.parametrize("reaches_log", [True, False])
async def test_no_tool_is_called_twice_when_a_process_dies_in_a_turn_of_a_model(
    kind: str, reaches_log: bool, tmp_path: Path
) -> None:
    write = ("write_file", {"path": "a.txt", "text": "x"})
    model = Talker({"go": [[("remember", {"key": "k", "fact": "f"}), write], "Done."]})
    async with with_model_of(model, tmp_path) as rehearsal:
        talk = await rehearsal.client.start_conversation("assistant", user=USER)
        arm = rehearsal.crash_after if reaches_log else rehearsal.crash_before
        arm(kind)
        await ask(talk, "go")
        await rehearsal.wait_for_crash()
        assert rehearsal.crashes == 1
        [turn] = talk.view.turns
        assert turn.answer == "Done."
        events = [event async for event in talk.run.events(follow=False)]
        kinds = [event.event_type for event in events]
        assert kinds.count("tool.completed") == 1
        assert kinds.count("memory.written") == 1
        assert await rehearsal.client.memory(f"user:{USER}").recall("k") == "f"
