"""What `/help` lists is what the guide says."""

from __future__ import annotations

from noesium_stream.cli.commands.chat.asides import HELP
from noesium_stream.cli.guides import guide_text


def test_help_and_the_guide_name_the_same_forms_of_why() -> None:
    [forms] = [command.removeprefix("/why ").split("|") for command, _ in HELP if command.startswith("/why")]
    row = next(line for line in guide_text("chat").splitlines() if line.startswith("| `/why"))
    assert row.split(" | ")[0] == "| " + ", ".join(f"`/why {form}`" for form in forms)
