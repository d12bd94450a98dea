"""Agents on the command line: finds them by reference and offers their `Options` as command options.

Decision record: a command that takes agents does not know all its options before it has imported them. So
`AgentCommand` parses twice: first only for the references, skipping unknown options; then with the options of
these agents added to its own. The layer of agents, and LangGraph with it, is imported with the first of them:
`noesium run --help` needs neither.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import click
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from noesium_stream import agent as agent_layer
from noesium_stream.errors import AgentLoadError, ConfigError, NoesiumError
from noesium_stream.shipped_agents import shipped_folder

if TYPE_CHECKING:
    from noesium_stream.agent import BaseAgent, BaseGraphicAgent

AgentClass: TypeAlias = "type[BaseAgent]"
_EXPORT: Final = re.compile(r"^AGENT\b|^from .+ import .*\bAGENT\b|[\"']AGENT[\"']", re.MULTILINE)
_PREFIX: Final = "agent_option_"
ALSO: Final = "--also"


def find_agent(reference: str, agent_type: str | None = None) -> AgentClass:
    """Load the agent class of `module[:Class]`; `agent_type` as in `load_agent`.

    Raises:
        AgentLoadError: there is no such agent; the error lists those that exist.
    """
    try:
        found = agent_layer.load_agent(reference, agent_type)
    except AgentLoadError as error:
        if error.__cause__ is None:
            raise
        raise AgentLoadError(error.message, hint=_hint(reference, error, error.__cause__)) from error
    if not issubclass(found, agent_layer.BaseGraphicAgent | agent_layer.BaseHandler):
        raise AgentLoadError(f"{reference} has nothing to do: it is no BaseGraphicAgent and no BaseHandler.")
    return found


def other_version(reference: str, agents: Iterable[AgentClass]) -> type[BaseGraphicAgent]:
    """Load another version of one of these agents: `[TYPE=]MODULE[:NAME]`.

    The module of a bare graph names its agent type, unless TYPE is given. If no agent has the module's name,
    the graph belongs to the only agent that has a graph.

    Raises:
        AgentLoadError: there is no such module or name, it has no graph, or it is not a version of any of
            these agents.
    """
    types = [agent.agent_type for agent in agents if issubclass(agent, agent_layer.BaseGraphicAgent)]
    wanted, said, found_at = reference.rpartition("=")
    if not said:
        own = with_runs(found_at, find_agent(found_at)).agent_type
        wanted = own if own in types or len(types) != 1 else types[0]
    if wanted not in types:
        raise AgentLoadError(
            f"{ALSO} {reference} is a version of {wanted}, which this worker does not run.",
            hint=f"Say whose version it is: {ALSO} TYPE={found_at}, with TYPE one of {', '.join(types)}."
            if types
            else "Name the agent that new runs begin with, too.",
        )
    return with_runs(found_at, find_agent(found_at, wanted))


def with_runs(reference: str, agent: AgentClass) -> type[BaseGraphicAgent]:
    """Return the agent class if it has runs.

    Raises:
        AgentLoadError: the agent has no graph.
    """
    if not issubclass(agent, agent_layer.BaseGraphicAgent):
        raise AgentLoadError(
            f"{reference} has no graph, and no runs: it handles events.",
            hint=f"Let a worker do that: noesium worker {reference}",
        )
    return agent


def _hint(reference: str, error: AgentLoadError, cause: BaseException) -> str | None:
    """Make the hint: existing modules if the module is missing, or the place where its import fails."""
    if _is_of(reference, cause):
        here = agents_here(Path.cwd())
        known = f"Here are: {', '.join(here)}." if here else "This folder has no agents in agents/."
        others = sorted({*shipped_agents()}.difference(here))
        known += f" With the package come: {', '.join(others)}." if others else ""
        return f"{known}\n{error.hint}"
    place = _place(cause)
    if place is None:
        return error.hint
    advice = f"{cause.hint}\n" if isinstance(cause, NoesiumError) and cause.hint else ""
    return f"{advice}In {place}. The whole traceback: noesium --debug ..."


def _is_of(reference: str, cause: BaseException | None) -> bool:
    """Whether the module of a reference is what is missing, and not one that it imports."""
    module = reference.partition(":")[0]
    return isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}.")


def is_missing(word: str, error: AgentLoadError) -> bool:
    """Whether a plain word (no dots, no name in a module) is not an agent because no module has its name."""
    found = error.__cause__
    return "." not in word and ":" not in word and found is not None and _is_of(word, found.__cause__)


def agents_here(folder: Path) -> list[str]:
    """List the references of the agents in `folder/agents`, without importing them."""
    candidates = [*folder.glob("agents/*.py"), *folder.glob("agents/*/__init__.py")]
    found = []
    for path in candidates:
        module = path.parent if path.name == "__init__.py" else path.with_suffix("")
        if _EXPORT.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(".".join(module.relative_to(folder).parts))
    return sorted(found)


def shipped_agents() -> list[str]:
    """List the references of the agents that come with the package."""
    folder = shipped_folder()
    return [] if folder is None else agents_here(folder)


def _place(error: BaseException) -> str | None:
    """Find the place in the user's own files at which an import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    folder = f"{Path.cwd()}{os.sep}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)
    ]
    if not frames:
        return None
    return f"{frames[-1].filename.removeprefix(folder)}, line {frames[-1].lineno}"


class AgentCommand(click.Command):
    """A command whose first argument (`agent`, one or several) adds options to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Import the named agents, then parse with their options."""
        agents: dict[str, AgentClass] = {}
        named, also = self._references(ctx, args)
        for reference in named:
            agents[reference] = find_agent(reference)
        others = [other_version(reference, agents.values()) for reference in also]
        options = agent_options([*agents.values(), *others])
        taken = {flag for param in self.get_params(ctx) for flag in param.opts}
        for option in options:
            if taken.intersection(option.opts):
                raise ConfigError(
                    f"{option.opts[0]} is an agent's option ({option.help}), and one of noesium {self.name}.",
                    hint="Give the field of the agent's Options another name.",
                )
        known = click.Command(
            self.name,
            params=[*self.params, *options],
            help=self.help,
            callback=self.callback,
            epilog=None if agents else self.epilog,
        )
        ctx.command = known
        rest = known.parse_args(ctx, list(args))
        given = ctx.params.get("agent") or ()
        for reference in (given,) if isinstance(given, str) else given:
            if reference not in agents:  # it follows a flag of an agent, which the first pass does not know
                agents[reference] = find_agent(reference)
        ctx.obj = AgentChoice(agents, _given_options(ctx), others)
        return rest

    def _references(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Find the agents' references, before their options are known, and the values of `--also`."""
        takes_value = {
            name: not option.is_flag
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            for name in option.opts
        }
        found: list[str] = []
        also: list[str] = []
        several = any(param.name == "agent" and param.nargs == -1 for param in self.params)
        skip = False
        before = ""
        for arg in args:
            if skip:
                skip = False
                if before == ALSO and ALSO in takes_value:
                    also.append(arg)
            elif arg == "--":
                break
            elif arg.startswith("-"):
                skip = "=" not in arg and takes_value.get(arg, True)
                before = arg
                if arg.startswith(f"{ALSO}=") and ALSO in takes_value:
                    also.append(arg.removeprefix(f"{ALSO}="))
            else:
                found.append(arg)
                if not several:
                    break
        return found, also


class AgentChoice:
    """The agents that a command line names, the values of their options, and other versions of them."""

    def __init__(
        self, agents: Mapping[str, AgentClass], given: Mapping[str, Any], also: Sequence[AgentClass] = ()
    ) -> None:
        self.agents = dict(agents)
        self.given = dict(given)
        self.also = list(also)

    def options_for(self, agent: AgentClass, defaults: Mapping[str, Any] | None = None) -> BaseModel:
        """Make this agent's `Options` from the given values, with `defaults` for the other fields.

        Raises:
            ConfigError: a value is not valid, or a required one is missing; the error names the option.
        """
        fields = agent.Options.model_fields
        values = {
            name: value for name, value in (defaults or {}).items() if name in fields and value is not None
        }
        values |= {name: value for name, value in self.given.items() if name in fields}
        try:
            return agent.Options.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0]) if first["loc"] else "options"
            raise ConfigError(
                f"{_flag(field)} of {agent.agent_type}: {first['msg'][:1].lower()}{first['msg'][1:]}.",
                hint=fields[field].description if field in fields else None,
            ) from error

    def arguments_for(self, agent: AgentClass) -> list[str]:
        """Return the given options of this agent as command-line arguments."""
        arguments: list[str] = []
        for name, value in self.given.items():
            if name not in agent.Options.model_fields:
                continue
            if isinstance(value, bool):
                arguments.append(_flag(name) if value else f"--no-{_flag(name)[2:]}")
                continue
            for item in value if isinstance(value, list) else [value]:
                arguments += [_flag(name), str(item)]
        return arguments


def agent_options(agents: Iterable[AgentClass]) -> list[click.Option]:
    """Make the options of all `agents`; an option that several have appears once."""
    options: dict[str, click.Option] = {}
    for agent in agents:
        for name, info in agent.Options.model_fields.items():
            options.setdefault(name, _option(name, info, agent.agent_type))
    return list(options.values())


def _option(name: str, info: FieldInfo, agent_type: str) -> click.Option:
    kind = _plain_type(info.annotation)
    default = info.get_default()
    shown = (
        None if default is PydanticUndefined or default is None else str(getattr(default, "value", default))
    )
    required = info.is_required()
    text = f"{info.description or name} [{agent_type}{f'; default: {shown}' if shown else ''}]"
    flags: dict[str, Any] = {"help": text, "default": None, "required": required}
    if kind is bool:
        return click.Option([f"{_flag(name)}/--no-{_flag(name)[2:]}", _PREFIX + name], **flags)
    if get_origin(kind) in (list, tuple, set, frozenset):
        return click.Option([_flag(name), _PREFIX + name], multiple=True, **{**flags, "default": ()})
    choices = _choices(kind)
    if choices:
        return click.Option([_flag(name), _PREFIX + name], type=click.Choice(choices), **flags)
    return click.Option([_flag(name), _PREFIX + name], metavar=_metavar(kind, name), **flags)


def _plain_type(annotation: Any) -> Any:
    """Return the annotation without `| None`."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    is_union = get_origin(annotation) is Union or type(annotation).__name__ == "UnionType"
    if is_union and len(parts) == 1:
        return parts[0]
    return annotation


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    return []


def _metavar(kind: Any, name: str) -> str:
    if isinstance(kind, type) and issubclass(kind, Path):
        return "PATH"
    return {int: "N", float: "NUMBER"}.get(kind, name.upper())


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given_options(ctx: click.Context) -> dict[str, Any]:
    """Take the agents' options out of the context's parameters: the command's function has no such ones."""
    given = {}
    for key in [key for key in ctx.params if key.startswith(_PREFIX)]:
        value = ctx.params.pop(key)
        if value is not None and value != ():
            given[key.removeprefix(_PREFIX)] = list(value) if isinstance(value, tuple) else value
    return given
