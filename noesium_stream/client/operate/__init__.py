"""Operator tasks: redrive dead letters, replay and fork runs, find out why a run does not go on.

Two runs are compared in `diff.py`. Open `dead_letters.py` first.

A command imports this package, and with it no module: those that replay a run import LangGraph.
"""

from typing import TYPE_CHECKING

from noesium_stream.exports import submodules

if TYPE_CHECKING:
    from noesium_stream.client.operate import fork, replay, replay_target

__all__ = ["fork", "replay", "replay_target"]

if not TYPE_CHECKING:
    __getattr__ = submodules(__name__, __all__)
