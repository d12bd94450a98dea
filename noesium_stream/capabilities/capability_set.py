"""What one agent offers: valid, each version once, and found by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from noesium_stream.capabilities.version import check_range, check_version
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import Capability


class CapabilitySet:
    """The capabilities of one agent, in the order given.

    Raises:
        ConfigError: a capability has no id, its version is no semantic version, or the same version of an id
            is there twice.
    """

    __slots__ = ("_by_id", "_offered")

    def __init__(self, offered: Iterable[Capability] = ()) -> None:
        self._offered = tuple(offered)
        self._by_id: dict[str, dict[str, Capability]] = {}
        for one in self._offered:
            if not one.id:
                raise ConfigError("A capability has an empty id.", hint="Name it DOMAIN.VERB.")
            try:
                check_version(one.version)
            except ConfigError as error:
                raise ConfigError(f"The capability {one.id}: {error.message}", hint=error.hint) from error
            if self._by_id.setdefault(one.id, {}).setdefault(one.version, one) is not one:
                raise ConfigError(
                    f"The capability {one.id} {one.version} is offered twice.", hint="Give one another id."
                )

    def __iter__(self) -> Iterator[Capability]:
        return iter(self._offered)

    def __len__(self) -> int:
        return len(self._offered)

    def __contains__(self, one: object) -> bool:
        """Whether a capability, or an id, is among them."""
        return one in self._by_id if isinstance(one, str) else one in self._offered

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, each once, in the order given."""
        return tuple(self._by_id)

    def get(self, capability_id: str, version_range: str | None = None) -> Capability | None:
        """The highest version of a capability within a range; None: it is not offered.

        Raises:
            ConfigError: the range is not valid.
        """
        wanted = None if version_range is None else check_range(version_range)
        fitting = [
            one
            for one in self._by_id.get(capability_id, {}).values()
            if wanted is None or wanted.takes(check_version(one.version))
        ]
        return max(fitting, key=lambda one: check_version(one.version).key, default=None)
