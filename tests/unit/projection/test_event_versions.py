"""Old events come in the newest version, and a projection that is written for another one says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream.errors import ProjectionError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log.open import open_log
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.engine import ProjectionEngine
from tests.support.events import PRODUCER, TRACE


class Old(DomainEvent, event_type="invoice.created", version="1.2.0"):
    amount: int


class New(DomainEvent, event_type="invoice.created", version="2.0.0"):
    cents: int


class Cents(BaseProjection[int]):
    name = "cents"
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def apply(self, state: int, event: EventEnvelope) -> int:
        assert event.event_version == "2.0.0"
        return state + int(event.payload["cents"])


def knowing(*classes: type[DomainEvent], upcasts: bool = True) -> Catalogue:
    catalogue = standard_catalogue()
    for event_class in classes:
        catalogue.register(event_class)
    if upcasts:
        catalogue.register_upcaster("invoice.created", 1, lambda payload: {"cents": payload["amount"] * 100})
    return catalogue


def event(made: DomainEvent, key: str = "a") -> EventEnvelope:
    return made.to_envelope(PRODUCER, TRACE, partition_key=key)


async def test_old_events_come_in_the_newest_version(tmp_path: Path) -> None:
    log = await open_log("memory://", catalogue=knowing(Old, New))
    await log.append([event(Old(amount=3)), event(New(cents=5)), event(Old(amount=1), "b")])
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("cents", Cents())
        assert await engine.get_state("cents") == {"a": 305, "b": 100}
    await log.close()


async def test_old_events_that_nothing_translates_hold_their_keys_until_something_does(
    tmp_path: Path,
) -> None:
    catalogue = knowing(Old, New, upcasts=False)
    log = await open_log("memory://", catalogue=catalogue)
    await log.append(
        [event(New(cents=1)), event(Old(amount=3)), event(New(cents=5)), event(New(cents=7), "b")]
    )
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("cents", Cents())
        assert await engine.get_state("cents") == {"a": 1, "b": 7}
        (fold,) = [fold for fold in engine._find("cents").folds.values() if fold.manifest.held]
        assert "no upcaster leads on from major 1" in str(next(iter(fold.letters())).reason)
        catalogue.register_upcaster("invoice.created", 1, lambda payload: {"cents": payload["amount"]})
        assert fold.redrive(log.decoder) == (2, 0)
        assert await engine.get_state("cents") == {"a": 9, "b": 7}
    await log.close()


def pinned(versions: dict[str, str]) -> BaseProjection[Any]:
    class Pinned(Cents):
        event_versions = versions

    return Pinned()


@pytest.mark.parametrize(
    ("versions", "classes", "said"),
    [
        (
            {"invoice.created": "1"},
            (Old, New),
            r"reads invoice.created 1, and the newest .* is 2\.0\.0\.(.|\n)*count",
        ),
        (
            {"invoice.created": "2"},
            (Old,),
            r"reads invoice.created 2, and the newest .* is 1\.2\.0\.(.|\n)*Register",
        ),
        ({"invoice.created": "1.2"}, (Old,), r"reads invoice.created '1.2', which is no major version"),
        ({"invoice.created": "one"}, (Old,), r"'one', which is no major version"),
    ],
)
async def test_a_projection_for_another_version_does_not_start(
    tmp_path: Path, versions: dict[str, str], classes: tuple[type[DomainEvent], ...], said: str
) -> None:
    log = await open_log("memory://", catalogue=knowing(*classes))
    await log.append([event(Old(amount=3))])
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("cents", pinned(versions))
        with pytest.raises(ProjectionError, match=said):
            await engine.get_state("cents")
    await log.close()


async def test_a_projection_for_the_newest_version_starts(tmp_path: Path) -> None:
    log = await open_log("memory://", catalogue=knowing(Old, New))
    await log.append([event(Old(amount=3))])
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("cents", pinned({"invoice.created": "2", "invoice.unknown": "1"}))
        assert await engine.get_state("cents") == {"a": 300}
    await log.close()


def test_upcasting_keeps_up_with_versions_that_are_registered_later() -> None:
    catalogue = knowing(Old)
    codec = EnvelopeCodec(catalogue)
    old = event(Old(amount=3))
    assert codec.upcast(old) is old
    catalogue.register(New)
    assert codec.upcast(old).payload == {"cents": 300}


class Priced(New):
    """As `New`, and says itself how it reads the major before it."""

    @classmethod
    def upcast(cls, payload: dict[str, Any]) -> dict[str, Any]:
        return {"cents": payload["amount"] * 100}


class Pricing(Cents):
    name = "pricing"
    events = (Old, Priced)
    event_versions: ClassVar[dict[str, str]] = {"invoice.created": "2"}


async def test_a_projection_that_names_both_classes_needs_no_catalogue_of_its_own(tmp_path: Path) -> None:
    """As `noesium project` opens it: with the standard events and those that it names."""
    old = await open_log(f"sqlite:///{tmp_path}/log.db", catalogue=knowing(Old, upcasts=False))
    await old.append([event(Old(amount=3)), event(Old(amount=1), "b")])
    await old.close()
    log = await open_log(f"sqlite:///{tmp_path}/log.db")
    with ProjectionEngine(log) as engine:
        engine.register("pricing", Pricing())
        assert await engine.get_state("pricing") == {"a": 300, "b": 100}
    await log.close()
