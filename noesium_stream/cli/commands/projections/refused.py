"""`noesium dlq` for records that the owners of agents' inboxes have refused (NAME is `agent:TYPE`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, shorten
from noesium_stream.cli.session import acting_name, open_configured
from noesium_stream.client.client import CLIENT_TYPE
from noesium_stream.client.operate.dead_letters import DeadLetter, LetterDecider, dead_letters, place_of
from noesium_stream.clock import SystemClock, to_rfc3339
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError, DeadLetterError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.trust.policy import read_policy
from noesium_stream.log.port import Position
from noesium_stream.projection.versions.state_at import parse_at

PREFIX: Final = "agent:"


async def refused(loaded: Loaded, agent_type: str | None) -> list[DeadLetter]:
    """Return the letters of all agents, or of one type, including those decided about."""
    log = await open_configured(loaded)
    try:
        return await dead_letters(log, agent_type)
    finally:
        await log.close()


async def show(loaded: Loaded, agent_type: str, place: str) -> None:
    """Print one letter: its fields, the findings that led to the refusal, its bytes as text."""
    position = _position(place)
    for letter in reversed(await refused(loaded, agent_type)):  # the newest one
        if letter.position == position:
            for field, value in fields(letter).items():
                out(f"{field}: {value}")
            for line in letter.trace:
                out(f"trace: {line}")
            out(f"value: {letter.value.decode(errors='backslashreplace')}")
            return
    note(f"There is no dead letter at {place} of agents of type {agent_type}.")
    raise click.exceptions.Exit(FAILED)


async def decide(
    loaded: Loaded, agent_type: str, places: Sequence[str], drop: bool, reason: str | None = None
) -> None:
    """Redrive or drop the given letters, or all open ones; exit code 1 if a letter stays open."""
    positions = [_position(place) for place in places]
    clock = SystemClock()
    policy = None if loaded.noesium.policy is None else read_policy(loaded.noesium.policy)
    log = await open_configured(loaded)
    done, stay = 0, 0
    try:
        producer = AgentRef(await acting_name(log), CLIENT_TYPE, "local", clock.uuid7())
        decider = await LetterDecider.opened(log, clock, producer, policy)
        try:
            for letter in decider.letters(agent_type, positions):
                try:
                    await (decider.drop(letter, reason) if drop else decider.redrive(letter))
                    done += 1
                except DeadLetterError as error:
                    stay += 1
                    note(error.message)
                    if error.hint:
                        note(f"  {error.hint}")
        finally:
            await decider.close()
    finally:
        await log.close()
    note(f"{done:,} {'dropped' if drop else 'sent again'}, {stay:,} dead letters stay")
    if stay:
        raise click.exceptions.Exit(FAILED)


def fields(letter: DeadLetter) -> dict[str, object]:
    """Make the object of a letter for `--json`."""
    return {
        "agent": letter.agent_type,
        "key": letter.key,
        "position": place_of(letter.position),
        "event_type": letter.event_type,
        "event_id": letter.event_id,
        "reason": letter.reason,
        "status": letter.status,
        "logged": to_rfc3339(letter.logged_ms),
    }


def row(letter: DeadLetter) -> tuple[str, str, str, str, str]:
    """Make the row of a letter for `noesium dlq list`."""
    why = letter.reason if letter.status == "open" else f"{letter.status}: {letter.reason}"
    return (
        f"{PREFIX}{letter.agent_type}",
        letter.key or "none",
        place_of(letter.position),
        letter.event_type or "?",
        shorten(why, 120),
    )


def _position(place: str) -> Position:
    found = parse_at(place).position
    if found is None:
        raise ConfigError(f"{place!r} is no position.", hint="Write TOPIC/PARTITION@OFFSET.")
    return found
