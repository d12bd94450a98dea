"""From `module[:Class]` to an agent class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType

from noesium_stream.agent.base import BaseAgent
from noesium_stream.errors import AgentLoadError
from noesium_stream.event import Catalogue, standard_catalogue


def load_agent(reference: str) -> type[BaseAgent]:
    """Import an agent: `agents.researcher` (its `AGENT`) or `agents.researcher:Researcher`.

    The current folder is importable.

    Raises:
        AgentLoadError: there is no such module, it fails to import, or it holds no agent.
    """
    module_name, _, class_name = reference.partition(":")
    module = load_module(module_name)
    found = getattr(module, class_name or "AGENT", None)
    if not isinstance(found, type) or not issubclass(found, BaseAgent):
        what = class_name or "AGENT"
        raise AgentLoadError(
            f"{module_name} has no agent {what}.",
            hint="An agent module names its class: AGENT = MyAgent (a subclass of BaseAgent).",
        )
    return found


def load_module(module_name: str) -> ModuleType:
    """Import a module of agents or graphs; the current folder is importable.

    Raises:
        AgentLoadError: there is none of this name, or it fails to import.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AgentLoadError(
                f"There is no agent module {module_name!r}.",
                hint="Give it as MODULE or MODULE:CLASS, importable from the current folder.",
            ) from error
        raise _broken(module_name, error) from error
    except Exception as error:
        raise _broken(module_name, error) from error


def catalogue_of(agents: Iterable[type[BaseAgent]]) -> Catalogue:
    """The standard events and those of the given agents.

    Raises:
        EventValidationError: two events have one type and version and differ.
    """
    catalogue = standard_catalogue()
    for agent in agents:
        for event in agent.events:
            catalogue.register(event)
    return catalogue


def _broken(module_name: str, error: BaseException) -> AgentLoadError:
    return AgentLoadError(
        f"The agent module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
        hint="Import it with python -c to see the whole traceback.",
    )
