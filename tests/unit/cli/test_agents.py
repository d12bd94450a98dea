"""From an agent's `Options` to options of a command, and back."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional

import click
import pytest
from pydantic import BaseModel, Field

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.cli.agents import AgentChoice, AgentCommand, agent_options, agents_here
from noesium_stream.errors import ConfigError
from tests.support.pages import ROOT


class Shape(Enum):
    ROUND = "round"
    FLAT = "flat"


class DrawOptions(BaseModel):
    needed: str = Field(description="Something.")
    many: list[int] = Field(default_factory=list, description="Numbers.")
    deep_path: Path | None = Field(None, description="A folder.")
    shape: Shape = Field(Shape.FLAT, description="Which.")
    mode: Literal["a", "b"] = Field("a", description="How.")
    old: Optional[float] = Field(None, description="A number.")  # noqa: UP045 - the old spelling works, too
    fast: bool = Field(True, description="Quick.")
    model: str | None = Field(None, description="A model.")


class Draw(BaseGraphicAgent):
    agent_type = "draw"
    Options = DrawOptions

    def get_state_class(self) -> type[Any]:
        raise NotImplementedError

    def _build_graph(self) -> Any:
        raise NotImplementedError


class Other(Draw):
    agent_type = "other"


def parsed(*args: str) -> dict[str, Any]:
    command = click.Command("x", params=agent_options([Draw]))
    context = command.make_context("x", list(args))
    given = {name.removeprefix("agent_option_"): value for name, value in context.params.items()}
    return {name: value for name, value in given.items() if value not in (None, ())}


def test_each_field_is_an_option_with_its_description_and_default() -> None:
    options = {option.opts[0]: option for option in agent_options([Draw])}
    assert list(options) == [
        "--needed",
        "--many",
        "--deep-path",
        "--shape",
        "--mode",
        "--old",
        "--fast",
        "--model",
    ]
    assert options["--needed"].required
    assert options["--many"].multiple
    assert options["--shape"].help == "Which. [draw; default: flat]"
    assert options["--deep-path"].metavar == "PATH"
    assert options["--old"].metavar == "NUMBER"
    assert isinstance(options["--mode"].type, click.Choice)
    assert options["--fast"].secondary_opts == ["--no-fast"]


def test_an_option_that_two_agents_have_stands_once() -> None:
    assert len(agent_options([Draw, Other])) == len(DrawOptions.model_fields)


def test_what_is_given_becomes_the_agents_options_and_the_rest_are_its_defaults() -> None:
    given = parsed(
        "--needed", "x", "--many", "1", "--many", "2", "--shape", "round", "--no-fast", "--old", "1.5"
    )
    given["many"] = list(given["many"])
    options = AgentChoice({}, given).options_for(Draw)
    assert options == DrawOptions(needed="x", many=[1, 2], shape=Shape.ROUND, fast=False, old=1.5)


def test_a_default_of_the_settings_is_beaten_by_the_option() -> None:
    plain = AgentChoice({}, {"needed": "x"}).options_for(Draw, {"model": "ollama:small"})
    assert plain == DrawOptions(needed="x", model="ollama:small")
    chosen = AgentChoice({}, {"needed": "x", "model": "p:n"}).options_for(Draw, {"model": "ollama:small"})
    assert chosen == DrawOptions(needed="x", model="p:n")
    none = AgentChoice({}, {"needed": "x"}).options_for(Draw, {"model": None, "unknown": 1})
    assert none == DrawOptions(needed="x")


def test_a_value_that_is_not_allowed_names_the_option_and_the_agent() -> None:
    with pytest.raises(ConfigError, match=r"--many of draw: .*integer") as caught:
        AgentChoice({}, {"needed": "x", "many": ["one"]}).options_for(Draw)
    assert caught.value.hint == "Numbers."


def test_the_agents_of_a_folder_are_found_without_importing_them(tmp_path: Path) -> None:
    package = tmp_path / "agents"
    (package / "deep").mkdir(parents=True)
    (package / "one.py").write_text("raise RuntimeError\nAGENT = 1\n")
    (package / "two.py").write_text("x = 1\n")
    (package / "deep" / "__init__.py").write_text("from x import AGENT\n")
    assert agents_here(tmp_path) == ["agents.deep", "agents.one"]
    assert agents_here(tmp_path / "nothing") == []


def test_the_agents_of_this_repository_are_found() -> None:
    assert {"agents.librarian", "agents.researcher"} <= set(agents_here(ROOT))


def test_an_option_that_the_command_has_already_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class SplitOptions(BaseModel):
        partitions: int = Field(2, description="Parts.")

    class Split(Draw):
        Options = SplitOptions

    monkeypatch.setattr("noesium_stream.cli.agents.find_agent", lambda reference: Split)
    taken = click.Option(["--partitions"])
    command = AgentCommand("worker", params=[click.Argument(["agent"], nargs=-1), taken])
    with pytest.raises(ConfigError, match=r"--partitions is an agent's option .* and one of noesium worker"):
        command.make_context("worker", ["split", "--partitions", "3"])
