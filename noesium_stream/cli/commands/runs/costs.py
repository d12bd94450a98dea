"""`noesium costs`: what models have cost, by agent, run, model or branch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import asynchronous, find_run, given_run, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.client.views.costs import BY, By, Costs, read_costs, total

_NANO: Final = 1_000_000_000


@click.command("costs")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option("--by", type=click.Choice(BY), default="agent", show_default=True, help="What a line is about.")
@log_option
@json_option
@asynchronous
async def costs_command(run_id: str | None, by: By, log_url: str | None, as_json: bool) -> None:
    """Show what calls of models took: calls, tokens and money.

    RUN is a run id or the beginning of one: that run, and those below it; default: all runs of the log. A
    branch is the chain of agents from the first run to the one that calls.

    A price that is not known is never counted as zero: `+ 2 unpriced` says how many calls the sum lacks. `~`
    marks tokens that are partly an estimate, as the provider did not say them. Answers from a cache are no
    calls.
    """
    async with opened(log_url) as log, Client(log) as client:
        run = None if run_id is None else await find_run(client, run_id)
        fold = await read_costs(log, await client.agent_types())
    rows = fold.costs(by, None if run is None else run.id)
    if as_json:
        out_json({"by": by, "costs": [asdict(row) for row in rows], "total": _total(rows)})
    elif not rows:
        note("No model was called." if run is None else f"Run {run.id} has called no model.")
    else:
        shown = [*rows, total(rows)] if len(rows) > 1 else rows
        cached = ("cached",) if any(row.cached for row in rows) else ()
        columns = (by, "calls", "failed", "denied", *cached, "input", "output", "cost")
        table(
            columns,
            (_row(one, cached=bool(cached)) for one in shown),
            right=frozenset(range(1, len(columns))),
        )


def _total(rows: list[Costs]) -> dict[str, Any]:
    return {name: value for name, value in asdict(total(rows)).items() if name != "name"}


def _row(one: Costs, *, cached: bool) -> tuple[str, ...]:
    about = "~" if one.estimated else ""
    return (
        one.name,
        f"{one.calls:,}",
        f"{one.failed:,}",
        f"{one.denied:,}",
        *((f"{one.cached:,}",) if cached else ()),
        f"{about}{one.input_tokens:,}",
        f"{about}{one.output_tokens:,}",
        _money(one),
    )


def _money(one: Costs) -> str:
    answered = one.nano_usd > 0 or not one.unpriced
    parts = [f"${one.nano_usd / _NANO:.6f}"] if answered else []
    if one.unpriced:
        parts.append(f"{one.unpriced:,} unpriced")
    if one.lost:
        parts.append(f"{one.lost:,} lost")
    return " + ".join(parts)
