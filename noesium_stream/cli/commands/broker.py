"""`noesium broker`: a real Kafka on this machine, from Python packages or in Docker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.signals import synchronous
from noesium_stream.config import load_config
from noesium_stream.log.broker.docker import DockerBroker
from noesium_stream.log.broker.local import BrokerStatus, LocalBroker

_Command = TypeVar("_Command", bound=Callable[..., Any])

NOT_RUNNING = 1


@click.group("broker")
def broker_command() -> None:
    """Start and stop a real Apache Kafka on this machine; its data are kept between starts."""


def _common(command: _Command) -> _Command:
    docker = click.option("--docker", is_flag=True, help="In Docker (deploy/compose.yaml), not as a process.")
    port = click.option(
        "--port", type=click.IntRange(1, 65535), help="Port. [default: the last one, else 9092]"
    )
    return docker(port(command))


def _broker(docker: bool, port: int | None) -> LocalBroker | DockerBroker:
    if docker:
        return DockerBroker(port, progress=note)
    return LocalBroker(load_config().home, port, progress=note)


@broker_command.command("up")
@_common
@synchronous
def up(docker: bool, port: int | None) -> None:
    """Start the broker and wait until it answers; print its URL."""
    status = _broker(docker, port).up()
    note(f"Apache Kafka {status.version} answers; use it with --log {status.url} or NOESIUM_LOG={status.url}")
    out(status.url)


@broker_command.command("down")
@_common
@synchronous
def down(docker: bool, port: int | None) -> None:
    """Stop the broker; its data stay."""
    note("stopped" if _broker(docker, port).down() else "no broker was running")


@broker_command.command("status")
@_common
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@click.pass_context
@synchronous
def status(ctx: click.Context, docker: bool, port: int | None, as_json: bool) -> None:
    """Say whether the broker runs and answers; exit code 1 if it does not."""
    found = _broker(docker, port).status()
    if as_json:
        out_json(_as_dict(found))
    else:
        out(_in_words(found))
    if not found.answering:
        ctx.exit(NOT_RUNNING)


@broker_command.command("logs")
@_common
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many, from the end."
)
@synchronous
def logs(docker: bool, port: int | None, lines: int) -> None:
    """Print what the broker said last."""
    for line in _broker(docker, port).logs(lines):
        out(line)


def _as_dict(status: BrokerStatus) -> dict[str, Any]:
    return {
        "running": status.running,
        "answering": status.answering,
        "pid": status.pid,
        "url": status.url,
        "version": status.version,
        "data": str(status.data_dir),
        "log_file": str(status.log_file),
    }


def _in_words(status: BrokerStatus) -> str:
    if not status.running:
        return f"no broker runs (data: {status.data_dir})"
    process = f"process {status.pid}" if status.pid is not None else "Docker"
    word = "answers" if status.answering else "runs but does not answer"
    return f"Apache Kafka {status.version} {word} at {status.url} ({process}; data: {status.data_dir})"
