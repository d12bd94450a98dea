"""`noesium budget`: what users and tenants may spend on models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Final

import click

from noesium_stream.cli.commands.runs.given_budget import BudgetOption
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import (
    asking,
    asynchronous,
    json_option,
    shared_log_option,
)
from noesium_stream.cli.table import table
from noesium_stream.client.accounts import SLICE_PERCENT, AccountClient, AccountInfo
from noesium_stream.event.rules.slices import TREASURER
from noesium_stream.event.trust.budget import NANO, Budget

_KINDS: Final = ("nano_usd", "tokens", "calls")


@click.group("budget")
def budget_command() -> None:
    """Say what users and tenants may spend on models, and show what they have spent.

    A worker of the treasurer has to run somewhere: noesium worker agents.treasurer
    """


@asynccontextmanager
async def _accounts(log_url: str | None, *, make: bool = False) -> AsyncIterator[AccountClient]:
    async with asking(log_url, TREASURER, "calls that an account pays", make=make) as (client, folder):
        yield AccountClient(client, folder=folder)


@budget_command.command("set")
@click.argument("account")
@click.argument("limits", type=BudgetOption(), metavar="LIMITS")
@click.option(
    "--slice",
    "percent",
    type=click.IntRange(0, 100),
    default=SLICE_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="How much of what is left a run is granted at a time; 0: what its next call may take.",
)
@shared_log_option
@asynchronous
async def set_command(account: str, limits: Budget, percent: int, log_url: str | None) -> None:
    """Let ACCOUNT (user:NAME or tenant:NAME) spend LIMITS in all: usd=5,tokens=1000000,calls=500.

    What is spent already stays spent; a limit that is left out is none.
    """
    async with _accounts(log_url, make=True) as accounts:
        await accounts.set(account, limits, slice_percent=percent)
        out(f"set {account}")


@budget_command.command("list")
@shared_log_option
@json_option
@asynchronous
async def list_command(log_url: str | None, as_json: bool) -> None:
    """List the budgets of users and tenants: what is spent, and what open runs hold."""
    async with _accounts(log_url) as accounts:
        found = await accounts.list()
        if as_json:
            out_json([asdict(one) for one in found])
        elif not found:
            note("There are no budgets of users or tenants on this log.")
        else:
            header = ("account", "limit", "spent", "held", "runs", "refused")
            table(header, map(_row, found), right=frozenset({4, 5}))


def _row(one: AccountInfo) -> tuple[str, ...]:
    limited = [kind for kind in _KINDS if one.limits is None or kind in one.limits]
    limits = "none said" if one.limits is None else _shown(one.limits, limited) or "none"
    spent, held = _shown(one.spent, limited or _KINDS), _shown(one.held, limited)
    return one.account, limits, spent, held, str(one.runs), str(one.refused)


def _shown(amounts: dict[str, int], kinds: list[str] | tuple[str, ...]) -> str:
    return ", ".join(_amount(kind, amounts.get(kind, 0)) for kind in kinds)


def _amount(kind: str, amount: int) -> str:
    return f"${amount / NANO:.6f}" if kind == "nano_usd" else f"{amount:,} {kind}"
