"""`noesium a2a`: opens agents to others by A2A."""

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
from noesium_stream.cli.output import note, out
from noesium_stream.cli.session import asynchronous, open_configured, projections_folder, shared_log_option
from noesium_stream.cli.signals import synchronous
from noesium_stream.event.trust.key_files import read_private_key


@click.group("a2a")
def a2a_command() -> None:
    """Open agents to others by A2A 1.0; it needs the extra a2a.

    Nodes call others' agents by step.invoke("a2a:URL#SKILL", ...).
    """


@a2a_command.command("serve")
@click.argument("agent_types", metavar="[AGENT_TYPE]...", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9999,
    show_default=True,
    help="The port to listen at; 0 takes a free one.",
)
@click.option("--url", metavar="URL", help="How clients reach it, if there is a proxy: for the agent card.")
@click.option(
    "--tokens",
    "tokens_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Who may ask: hashes of bearer tokens and the names of their bearers (noesium a2a token).",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=300,
    show_default=True,
    help="How long a request waits for the end of its task; then it returns the task as it is.",
)
@click.option("--insecure", is_flag=True, help="Let everybody ask who reaches the address.")
@shared_log_option
@asynchronous
async def serve_command(
    agent_types: tuple[str, ...],
    host: str,
    port: int,
    url: str | None,
    tokens_path: Path | None,
    wait_s: float,
    insecure: bool,
    log_url: str | None,
) -> None:
    """Serve the capabilities of agents to A2A clients until Ctrl-C or SIGTERM.

    Workers in other processes execute the runs. Without AGENT_TYPE the live capabilities of all agents are
    open; the agent card is at /.well-known/agent-card.json. The server has no state of its own: it may be
    killed, and there may be several on one log.
    """
    require_modules("noesium a2a serve", ("a2a", "starlette", "sse_starlette", "uvicorn"), "a2a")
    from noesium_stream.a2a.card import card_signer  # noqa: PLC0415
    from noesium_stream.a2a.server import Server  # noqa: PLC0415 - an extra
    from noesium_stream.serving.listener import Address, quiet  # noqa: PLC0415
    from noesium_stream.serving.tokens import read_tokens  # noqa: PLC0415

    loaded = server_settings(log_url)
    tokens = None if tokens_path is None else await asyncio.to_thread(read_tokens, tokens_path)
    policy = await policy_of(loaded)
    key_path = loaded.noesium.signing_key
    sign = None if key_path is None else card_signer(*await asyncio.to_thread(read_private_key, key_path))
    quiet("a2a", "sse_starlette")
    log = await open_configured(loaded)
    try:
        await check_agents(log, agent_types)
        server = Server(
            log,
            agent_types,
            Address(host, port, url),
            tokens=tokens,
            insecure=insecure,
            policy=policy,
            sign=sign,
            wait_s=wait_s,
            index=projections_folder(loaded, None),
        )
        async with server:
            who = who_may_ask(None if tokens is None else tokens.values())
            note(f"serving A2A at {server.url} to {who}, process {os.getpid()}; Ctrl-C ends it")
            await server.wait()
    finally:
        await log.close()


@a2a_command.command("token")
@click.argument("name", metavar="NAME")
@synchronous
def token_command(name: str) -> None:
    """Make a bearer token for NAME: print the token, and the line that --tokens FILE has for it.

    The token goes to its bearer and is shown once; the file has its hash alone.
    """
    from noesium_stream.serving.tokens import check_name, new_token, token_hash  # noqa: PLC0415 - an extra

    check_name(name)
    token = new_token()
    out(token)
    note("for the file of --tokens, in the table [tokens]:")
    out(f'"{token_hash(token)}" = "{name}"')
