"""`noesium tools call`: one call of an agent's tool, journaled, judged and asked about like its own calls."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic import BaseModel

from noesium_stream import agent as agent_layer
from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.cli.agents import AgentChoice, AgentCommand, with_runs
from noesium_stream.cli.answer import print_answer, result_json
from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.cli.commands.runs.run_here import Question
from noesium_stream.cli.exits import EXIT_CODES
from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    json_option,
    log_option,
    must_exist,
    open_configured,
    settings,
)
from noesium_stream.client import Client
from noesium_stream.client.operate.tools import registered_tools
from noesium_stream.clock import SystemClock
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError, TopicNotFoundError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.trust.permission import MODES, check_limits
from noesium_stream.log import EventLog, open_log
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.convert import atomic_tools, injected_arguments
from noesium_stream.tool.definitions.state import RegisteredTool
from noesium_stream.tool.redact import redacted
from noesium_stream.tool.toolkit import AsyncBaseToolkit

if TYPE_CHECKING:
    from noesium_stream.agent import BaseGraphicAgent
    from noesium_stream.tool.toolbox import AgentToolbox

_AGENT: Final = ("-a", "--agent")


class _CallCommand(AgentCommand):
    """A command whose agent is an option: its arguments are the tool and the tool's own."""

    def _references(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], list[str]]:
        for at, arg in enumerate(args):
            if arg == "--":
                break
            name, separator, value = arg.partition("=")
            if name == _AGENT[1] and separator:
                return [value], []
            if arg in _AGENT and at + 1 < len(args):
                return [args[at + 1]], []
        return [], []


@click.command("call", cls=_CallCommand, epilog=EXIT_CODES, no_args_is_help=True)
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(*_AGENT, "agent", metavar="AGENT", required=True, help="Whose tool: module:Class.")
@click.option(
    "--input",
    "given",
    type=GivenInput(),
    metavar="JSON",
    help="The arguments as a JSON object, @FILE, or - for standard input.",
)
@click.option(
    "--mode", type=click.Choice(MODES), help="The most that the call may do; see noesium guide permission."
)
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    metavar="PERMISSION",
    help="Limit the call to this permission, as fs:read; may be given several times.",
)
@click.option(
    "--resume", "resumed", metavar="RUN", callback=given_run, help="Go on with a call instead of a new one."
)
@log_option
@json_option
@click.pass_obj
@asynchronous
async def call_command(
    choice: AgentChoice,
    name: str | None,
    pairs: tuple[str, ...],
    agent: str,
    given: dict[str, Any] | None,
    mode: str | None,
    permissions: tuple[str, ...],
    resumed: str | None,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Call a tool of an agent in this process, and print its result.

    The call is a run of the agent TYPE-call, with the permissions, mode, policy and workspace of TYPE. It is
    on the log before and after; where TYPE would have to ask a person, it asks.

    A VALUE is JSON, or a text where the tool takes one: cents=1250 note=hello tags='["a"]'.
    """
    if (name is None) == (resumed is None):
        raise click.UsageError("Give either the NAME of a tool, or --resume RUN.")
    if pairs and given is not None:
        raise click.UsageError("Give the arguments either as KEY=VALUE or by --input.")
    if resumed is not None and (pairs or given is not None or mode is not None or permissions):
        raise click.UsageError("A call keeps its arguments and limits: they are for a new one.")
    check_limits(permissions, mode)
    loaded = settings(log_url)
    kind = with_runs(agent, choice.agents[agent])
    input_: dict[str, Any] = {}
    if name is not None:
        options = choice.options_for(kind, {"model": loaded.agent.model})
        tool = await _tool_of(kind, name, options, loaded)
        arguments = given if given is not None else _arguments(pairs, tool)
        _check(tool, arguments)
        input_ = {"tool": name, "arguments": arguments}
    else:
        must_exist(loaded)
    log = await open_configured(loaded)
    try:
        async with AsyncExitStack() as stack:
            registered = await _registered(log, kind.agent_type)

            def accepted(tool: AtomicTool) -> bool:
                found = registered.get(tool.tool_id)
                return found is None or found.accepts(tool.definition_hash)

            caller = agent_layer.agent_that_calls(kind, accepted)
            again = shlex.join(["noesium", "tools", "call", "--agent", agent, *choice.arguments_for(kind)])
            asked = Question(choice, agent, loaded, caller=caller, command=again)
            client = await stack.enter_async_context(Client(log, agent_id=await acting_name(log)))
            found = None if resumed is None else await asked.find(client, resumed)
            worker = await stack.enter_async_context(asked.workers(log))
            run = found or await asked.begin(client, input_, None, mode=mode, permissions=permissions or None)
            result, events = await asked.follow(run, worker, None)
            if as_json:
                out_json(result_json(run.id, result, events, log.url))
            else:
                print_answer(result)
    finally:
        await log.close()


async def _registered(log: EventLog, agent_type: str) -> dict[str, RegisteredTool]:
    """The registered tools of an agent by id; none on a log that has no registry yet."""
    try:
        every = await registered_tools(log, SystemClock(), configured_policy(log))
    except TopicNotFoundError:
        return {}
    return {one.tool_id: one for one in every if one.agent_type == agent_type}


async def _tool_of(
    kind: type[BaseGraphicAgent], name: str, options: BaseModel, loaded: Loaded
) -> AtomicTool | None:
    """The tool of this name; None: it may be one of a server, which is asked when it is connected.

    Raises:
        ToolNotFoundError: the agent has no such tool.
        ConfigError: it needs what only a run of the agent's graph has.
    """
    found = {tool.name: tool for one in kind.tools for tool in atomic_tools(one)}.get(name)
    if found is None:
        toolbox = await _toolbox(kind, options, loaded)
        found = {tool.name: tool for tool in toolbox}.get(name)
        if found is None and not any(isinstance(one, AsyncBaseToolkit) for one in kind.tools):
            return toolbox.get(name)
    injected = [] if found is None else injected_arguments(found)
    if injected:
        raise ConfigError(
            f"The graph of {kind.agent_type} gives {name} its {', '.join(injected)}; a call by itself has no "
            "graph.",
            hint="Run the agent instead: noesium run. Or let the tool take what it needs as arguments.",
        )
    return found


async def _toolbox(kind: type[BaseGraphicAgent], options: BaseModel, loaded: Loaded) -> AgentToolbox:
    """The agent's tools and those of its graph, without those of servers; nothing is started or written."""
    log, clock = await open_log("memory://"), SystemClock()
    try:
        made = agent_layer.AgentContext(
            home=loaded.noesium.home,
            log=log,
            clock=clock,
            agent_ref=AgentRef(kind.agent_type, kind.agent_type),
            progress=note,
            llm_config=loaded.agent.llm_config,
        )
        toolbox = agent_layer.agent_that_calls(kind, lambda tool: True)(options, made).toolbox
        assert toolbox is not None
        return toolbox
    finally:
        await log.close()


def _arguments(pairs: Sequence[str], tool: AtomicTool | None) -> dict[str, Any]:
    properties = {} if tool is None else tool.input_schema.get("properties", {})
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{pair[:80]!r} is no argument of a tool: write KEY=VALUE.")
        if key in arguments:
            raise click.UsageError(f"{key[:80]!r} is given twice: write a list as JSON.")
        arguments[key] = _value(text, properties.get(key))
    return arguments


def _value(text: str, schema: Any) -> Any:
    if "string" in _types(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _types(schema: Any) -> set[str]:
    """The JSON types that a schema names for a value, itself or in its alternatives."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type", [])
    found = {named} if isinstance(named, str) else set(map(str, named))
    if "enum" in schema and "type" not in schema:
        found |= {"string"} if all(isinstance(one, str) for one in schema["enum"]) else set()
    for one in schema.get("anyOf", ()):
        found |= _types(one)
    return found


def _check(tool: AtomicTool | None, arguments: dict[str, Any]) -> None:
    """Refuse secrets: the input of a run is on the log as it is.

    Raises:
        ConfigError: an argument is secret.
    """
    if tool is None or redacted(arguments, tool.input_schema) == arguments:
        return
    raise ConfigError(
        f"An argument of {tool.name} is secret, and the arguments of this command would be on the log.",
        hint="Let a node of the agent call it.",
    )
