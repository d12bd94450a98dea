"""The skills that are open to others: live capabilities of the registry, one skill for each id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.state import Entry, Ranking
from noesium_stream.capabilities.version import in_range
from noesium_stream.errors import CapabilityNotFoundError, EventValidationError
from noesium_stream.event.rules.contract import contract_of
from noesium_stream.event.standard import Capability

MOST_LISTED: Final = 20
"""Skills that an error names."""


class Offer(NamedTuple):
    """A skill and who serves it.

    Attributes:
        skill: id of the skill: that of the capability, or the agent type where it registers none.
        agent_type: whose run answers.
        capability: as it is registered; None: the agent registers none.
    """

    skill: str
    agent_type: str
    capability: Capability | None = None

    @property
    def text_field(self) -> str | None:
        """The field of the input that takes a text; None: a message of text alone cannot be the input."""
        return None if self.capability is None else text_field(self.capability.input_schema)

    def check(self, given: Any) -> dict[str, Any]:
        """Return the input, judged by the capability's schema.

        Raises:
            EventValidationError: it is no JSON object.
            CapabilityInputError: it does not fit; the error names the field.
        """
        if not isinstance(given, dict):
            raise EventValidationError("input", "is no JSON object: send one part of data")
        if self.capability is not None:
            contract_of(self.capability).check_input(self.skill, given)
        return given


class Offers:
    """What a server offers.

    Args:
        registry: of the log.
        only: the agent types whose capabilities are offered; empty: those of all. One of them that registers
            none is offered as a whole.
    """

    def __init__(self, registry: CapabilityRegistry, only: Sequence[str] = ()) -> None:
        self.only: Final = tuple(dict.fromkeys(only))
        self._registry = registry

    async def all(self) -> list[Offer]:
        """List the skills by id, each with its best provider.

        Raises:
            LogUnavailableError
        """
        entries = await self._entries()
        found = [self._best(entries, skill, None) for skill in sorted({one.capability.id for one in entries})]
        types = {entry.agent_type for entry in entries}
        bare = [Offer(kind, kind) for kind in self.only if kind not in types]
        return [*(one for one in found if one is not None), *bare]

    async def choose(self, skill: str | None, version: str | None) -> Offer:
        """Find the skill that a message asks for; None: there is one alone.

        Raises:
            CapabilityNotFoundError: there is none, or no such version of it.
            EventValidationError: there are several.
            ConfigError: the version is not a valid range.
        """
        if skill is None:
            offers = await self.all()
            if len(offers) == 1:
                return offers[0]
            if not offers:
                raise CapabilityNotFoundError("No skill is on offer now.")
            raise EventValidationError(
                "message.metadata.skill", f"is missing: say which skill, of {_listed(offers)}"
            )
        entries = await self._entries()
        if skill in self.only and not any(entry.agent_type == skill for entry in entries):
            return Offer(skill, skill)
        found = self._best(entries, skill, version)
        if found is None:
            wanted = f"{skill[:200]} {version[:50]}" if version is not None else skill[:200]
            raise CapabilityNotFoundError(f"No skill {wanted} is on offer, but {_listed(await self.all())}.")
        return found

    async def types(self, skill: str | None) -> list[str]:
        """List the agent types that serve a skill, or have served it; None: any skill."""
        state = await self._registry.refresh()
        found = {one.agent_type for one in state.entries() if skill is None or one.capability_id == skill}
        found.update(kind for kind in self.only if skill in (None, kind))
        return sorted(kind for kind in found if not self.only or kind in self.only)

    async def _entries(self) -> list[Entry]:
        state = await self._registry.refresh()
        return [
            entry
            for entry in state.entries()
            if not entry.deprecated
            and state.unavailable(entry.agent_id) is None
            and state.broken(entry.agent_id, entry.capability_id) is None
            and (not self.only or entry.agent_type in self.only)
        ]

    @staticmethod
    def _best(entries: Iterable[Entry], skill: str, version: str | None) -> Offer | None:
        fitting = (one for one in entries if one.capability_id == skill and in_range(one.version, version))
        best = Ranking.of(fitting).entries
        return Offer(skill, best[0].agent_type, best[0].capability) if best else None


def text_field(schema: Mapping[str, Any]) -> str | None:
    """Return the one field of type string of an input schema, if no other field is required."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    texts = [
        name for name, one in properties.items() if isinstance(one, Mapping) and one.get("type") == "string"
    ]
    required = schema.get("required")
    others = set(required if isinstance(required, list) else ()) - set(texts)
    return texts[0] if len(texts) == 1 and not others else None


def _listed(offers: Sequence[Offer]) -> str:
    names = [offer.skill for offer in offers[:MOST_LISTED]]
    more = [f"{len(offers) - len(names)} others"] if len(offers) > len(names) else []
    return ", ".join(names + more) or "nothing"
