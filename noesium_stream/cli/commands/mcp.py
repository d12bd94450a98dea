"""`noesium mcp`: opens agents to others by MCP."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from noesium_stream.cli.commands.serving import (
    check_agents,
    policy_of,
    require_modules,
    server_settings,
    who_may_ask,
)
from noesium_stream.cli.output import note
from noesium_stream.cli.session import asynchronous, open_configured, projections_folder, shared_log_option
from noesium_stream.errors import ConfigError


@click.group("mcp")
def mcp_command() -> None:
    """Open agents to others by MCP; it needs the extra mcp."""


@mcp_command.command("serve")
@click.argument("agent_types", metavar="[AGENT_TYPE]...", nargs=-1)
@click.option("--http", metavar="HOST:PORT", help="Listen there, at /mcp, instead of at standard input.")
@click.option("--url", metavar="URL", help="How clients reach it, if there is a proxy.")
@click.option(
    "--tokens",
    "tokens_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Who may ask: hashes of bearer tokens and the names of their bearers (noesium a2a token).",
)
@click.option(
    "--as", "name", metavar="NAME", default="mcp", show_default=True, help="Who asks without tokens."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=300,
    show_default=True,
    help="How long a call waits for its run.",
)
@click.option(
    "--task-after",
    "task_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=0.5,
    show_default=True,
    help="How long the call of a client that knows tasks waits before it becomes one.",
)
@click.option(
    "--state-key",
    "key_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The secret of all servers of this log; without it: one of this machine, in NOESIUM_HOME.",
)
@click.option("--insecure", is_flag=True, help="Let everybody ask who reaches the address.")
@shared_log_option
@asynchronous
async def serve_command(
    agent_types: tuple[str, ...],
    http: str | None,
    url: str | None,
    tokens_path: Path | None,
    name: str,
    wait_s: float,
    task_s: float,
    key_path: Path | None,
    insecure: bool,
    log_url: str | None,
) -> None:
    """Serve the capabilities of agents as MCP tools until the input ends, Ctrl-C or SIGTERM.

    Workers in other processes execute the runs. Without AGENT_TYPE the live capabilities of all agents are
    open. The server has no state of its own: it may be killed, and there may be several on one log.
    """
    require_modules("noesium mcp serve", ("mcp", "starlette", "uvicorn"), "mcp")
    from noesium_stream.mcp_server.server import McpServer, Waits  # noqa: PLC0415 - an extra
    from noesium_stream.mcp_server.state_key import own_state_key, read_state_key  # noqa: PLC0415
    from noesium_stream.serving.listener import Address, quiet  # noqa: PLC0415
    from noesium_stream.serving.tokens import check_name, read_tokens  # noqa: PLC0415

    loaded = server_settings(log_url)
    check_name(name)
    address = None if http is None else Address(*parse_address(http), url)
    tokens = None if tokens_path is None else await asyncio.to_thread(read_tokens, tokens_path)
    policy = await policy_of(loaded)
    if key_path is None:
        key = await asyncio.to_thread(own_state_key, loaded.noesium.home)
    else:
        key = await asyncio.to_thread(read_state_key, key_path)
    quiet("mcp")
    log = await open_configured(loaded)
    try:
        await check_agents(log, agent_types)
        server = McpServer(
            log,
            agent_types,
            state_key=key,
            policy=policy,
            waits=Waits(wait_s, task_s),
            anybody=name,
            index=projections_folder(loaded, None),
        )
        if address is None:
            note(f"serving MCP at standard input to {name}, process {os.getpid()}; its end ends it")
            await server.stdio()
            return
        async with server.http(address, tokens=tokens, insecure=insecure) as listener:
            who = who_may_ask(None if tokens is None else tokens.values())
            note(f"serving MCP at {listener.url} to {who}, process {os.getpid()}; Ctrl-C ends it")
            await listener.wait()
    finally:
        await log.close()


def parse_address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, with an IPv6 address in brackets.

    Raises:
        ConfigError: it has another form.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise ConfigError(f"{text[:100]} is no HOST:PORT.", hint="Give --http 127.0.0.1:8000, for example.")
    return host, int(port)
