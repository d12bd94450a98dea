"""Scripts: answers in order, failures, repetitions, and the end of the script."""

from __future__ import annotations

import pytest

from noesium_stream.errors import RehearsalError, ScriptEndedError
from noesium_stream.testing import Call, ScriptedModel
from noesium_stream.testing.script import Script


async def test_a_model_says_what_was_written_and_keeps_the_prompts():
    model = ScriptedModel(["yes", "no"], model="test:small")
    first, second = await model.generate("a?"), await model.generate("b?")
    assert (first["text"], second["text"], first["model"]) == ("yes", "no", "test:small")
    assert model.prompts == ["a?", "b?"]


async def test_the_end_of_a_script_is_an_error_that_shows_the_call():
    model = ScriptedModel(["yes"])
    await model.generate("a?")
    with pytest.raises(ScriptEndedError, match=r"scripted:model has 1 answers, and this is call 2: 'b\?'"):
        await model.generate("b?")


async def test_a_call_that_is_repeated_under_its_key_is_answered_as_before():
    model = ScriptedModel(["yes", "no"])
    texts = [(await model.generate("a?", idempotency_key=key))["text"] for key in ("k1", "k1", "k2")]
    assert texts == ["yes", "yes", "no"]
    assert len(model.prompts) == 3


async def test_a_script_may_be_a_function_sync_or_async():
    async def slowly(text: str) -> str:
        return text.upper()

    assert await Script("x", lambda a, *, b: a + b).answer(Call((1,), {"b": 2})) == 3
    assert (await ScriptedModel(slowly).generate("loud"))["text"] == "LOUD"


async def test_a_failure_in_a_script_is_raised_and_the_next_call_goes_on():
    script = Script("x", [OSError("down"), "up"])
    with pytest.raises(OSError, match="down"):
        await script.answer(Call(key="1"))
    with pytest.raises(OSError, match="down"):
        await script.answer(Call(key="1"))
    assert await script.answer(Call(key="2")) == "up"


def test_one_text_is_no_script():
    with pytest.raises(RehearsalError, match="is one text"):
        ScriptedModel("yes")
