"""The guide "chat", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide
from tests.support.terminal import Terminal


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("chat", tmp_path)
    told = reader.bash("told").stdout.splitlines()
    assert told[:2] == ["I will remember: Your name is Ada.", "I will remember: The parcel is in the shed."]
    assert told[2].startswith("The parcel is in the shed. (you told me, ")
    with Terminal(reader.words("begun"), reader.path, reader.env) as terminal:
        terminal.wait_for("> ")
        terminal.type("My favourite colour is green.")
        terminal.wait_for("I will remember: Your favourite colour is green.")
        terminal.kill()
    back = reader.bash("back").stdout
    assert back.count("  ada\n") == 2, "two conversations are listed"
    assert "Your favourite colour is green. (you told me, " in back
    assert "favourite_colour = green  said by ada, " in back
    assert "  in turn 1 of this conversation: My favourite colour is green.\n  event:" in back
    retracted = reader.bash("retracted").stdout
    assert "I do not know that yet." in retracted
    forgotten = reader.bash("forgotten")
    assert "I will remember: Your birthday is the third of May." in forgotten.stdout
    assert "user:bo is erased: " in forgotten.stderr
    assert "None of them was found." in forgotten.stderr
    written = reader.bash("written")
    assert written.stdout.endswith("I have written list.txt (5 bytes).\nmilk\nmilk\n")
    assert '? write_file(path="list.txt", text="milk\\n")' in written.stderr
    assert reader.bash("own").stdout.splitlines() == [
        "Hello, ada.",
        "That was message 1.",
        "That was message 2.",
        "That was message 2.",
    ]
    program = reader.bash("program").stdout
    assert program.startswith("That was message 3. ('memory:")
    assert program.endswith("\n[]\n")
    reader.end()
