from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from noesium_stream.errors import ConfigError
from noesium_stream.event import (
    Catalogue,
    DomainEvent,
    incompatible_changes,
    stale_schemas,
    standard_catalogue,
    write_schemas,
)
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA, fingerprint_name

COMMITTED = Path(__file__).parents[4] / "schemas"


def test_the_committed_schemas_are_what_the_code_says() -> None:
    assert stale_schemas(COMMITTED) == [], "write them again: noesium schema write"


def test_the_committed_schemas_are_compatible_with_the_code() -> None:
    assert incompatible_changes(COMMITTED) == []


def test_written_schemas_are_not_stale_and_are_not_written_again(tmp_path: Path) -> None:
    written = write_schemas(tmp_path)
    assert "envelope.avsc" in written
    assert f"envelope/{fingerprint_name(ENVELOPE_SCHEMA)}.avsc" in written
    assert "events/run.requested/1.0.0.json" in written
    assert json.loads((tmp_path / "envelope.avsc").read_text("utf-8")) == ENVELOPE_SCHEMA
    assert stale_schemas(tmp_path) == []
    assert write_schemas(tmp_path) == []


def test_missing_and_changed_files_are_stale(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    (tmp_path / "envelope.avsc").unlink()
    (tmp_path / "events/run.failed/1.0.0.json").write_text("{}")
    assert stale_schemas(tmp_path) == ["envelope.avsc", "events/run.failed/1.0.0.json"]
    assert write_schemas(tmp_path) == ["envelope.avsc", "events/run.failed/1.0.0.json"]


def test_files_of_older_versions_stay(tmp_path: Path) -> None:
    old = tmp_path / "events/run.failed/0.9.0.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    write_schemas(tmp_path)
    assert old.read_text() == "{}"
    assert stale_schemas(tmp_path) == []


def of(*events: type[DomainEvent]) -> Catalogue:
    catalogue = Catalogue()
    for event in events:
        catalogue.register(event)
    return catalogue


class V1(DomainEvent, event_type="shop.sold", version="1.0.0"):
    sku: str
    count: int
    size: str | None = None


class V1Optional(DomainEvent, event_type="shop.sold", version="1.1.0"):
    sku: str
    count: int
    size: str | None = None
    colour: str | None = None


def reasons(
    tmp_path: Path, *now: type[DomainEvent], before: tuple[type[DomainEvent], ...] = (V1,)
) -> list[str]:
    write_schemas(tmp_path, of(*before))
    return [str(change) for change in incompatible_changes(tmp_path, of(*now))]


def test_a_new_optional_field_in_a_new_minor_version_is_compatible(tmp_path: Path) -> None:
    assert reasons(tmp_path, V1, V1Optional) == []
    assert reasons(tmp_path, V1Optional) == []


def test_a_type_that_is_gone_is_reported(tmp_path: Path) -> None:
    class Other(DomainEvent, event_type="shop.opened"):
        pass

    assert reasons(tmp_path, Other) == ["shop.sold: the type is gone, and its events are on the logs"]


def test_another_schema_under_the_same_version_is_reported(tmp_path: Path) -> None:
    class Same(DomainEvent, event_type="shop.sold", version="1.0.0"):
        sku: str
        count: int
        size: str | None = None
        colour: str | None = None

    class SameNarrower(DomainEvent, event_type="shop.sold", version="1.0.0"):
        sku: str
        count: str
        size: str | None = None

    (only,) = reasons(tmp_path, Same)
    assert (
        only
        == "shop.sold 1.0.0: the schema changed and the version did not (only optional fields were added)"
    )
    (narrower,) = reasons(tmp_path, SameNarrower)
    assert "type of payload.count was 'integer' and is 'string'" in narrower


def test_what_a_minor_version_may_not_do_is_reported(tmp_path: Path) -> None:
    class Minor(DomainEvent, event_type="shop.sold", version="1.1.0"):
        count: str
        size: str
        colour: str

    assert reasons(tmp_path, Minor) == [
        "shop.sold 1.0.0: payload.sku was removed",
        "shop.sold 1.0.0: type of payload.count was 'integer' and is 'string'",
        "shop.sold 1.0.0: anyOf of payload.size was [{'type': 'string'}, {'type': 'null'}] and is not given",
        "shop.sold 1.0.0: type of payload.size was not given and is 'string'",
        "shop.sold 1.0.0: payload.colour is new and required",
        "shop.sold 1.0.0: payload.size became required",
    ]


def test_a_field_that_is_no_longer_required_is_reported(tmp_path: Path) -> None:
    class Minor(DomainEvent, event_type="shop.sold", version="1.1.0"):
        sku: str
        count: int = 1
        size: str | None = None

    (only,) = reasons(tmp_path, Minor)
    assert "payload.count is no longer required" in only


def test_changes_within_nested_models_and_lists_are_found(tmp_path: Path) -> None:
    class Line(BaseModel):
        sku: str

    class Lined(DomainEvent, event_type="shop.sold", version="1.0.0"):
        lines: list[Line]
        children: dict[str, Line] = Field(default_factory=dict)

    old_line = Line

    class Line(BaseModel):  # type: ignore[no-redef]
        sku: int

    class Lined2(DomainEvent, event_type="shop.sold", version="1.1.0"):
        lines: list[Line]
        children: dict[str, Line] = Field(default_factory=dict)

    assert old_line is not Line
    found = reasons(tmp_path, Lined2, before=(Lined,))
    assert any("payload.lines.*.sku was 'string' and is 'integer'" in reason for reason in found)
    assert any("payload.children.*.sku was 'string' and is 'integer'" in reason for reason in found)


def test_a_new_major_version_needs_the_last_one_and_an_upcaster(tmp_path: Path) -> None:
    class V2(DomainEvent, event_type="shop.sold", version="2.0.0"):
        sku: int

    class V3(DomainEvent, event_type="shop.sold", version="3.0.0"):
        sku: int

    (gone,) = reasons(tmp_path, V2)
    assert "major version 1 cannot be read any more" in gone
    (no_way,) = reasons(tmp_path, V1, V2)
    assert "no upcaster leads from major version 1 to 2" in no_way
    catalogue = of(V1, V2)
    catalogue.register_upcaster("shop.sold", 1, lambda old: {"sku": 1})
    assert incompatible_changes(tmp_path, catalogue) == []
    assert reasons(tmp_path, V3) == []


def test_a_version_that_went_back_is_reported(tmp_path: Path) -> None:
    (back,) = reasons(tmp_path, V1, before=(V1Optional,))
    assert back == "shop.sold 1.1.0: the version went back, to 1.0.0"


def test_a_released_envelope_version_that_is_gone_is_reported(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    (tmp_path / "envelope/00000000000000aa.avsc").write_text("{}")
    (gone,) = incompatible_changes(tmp_path, standard_catalogue())
    assert str(gone).startswith("envelope 00000000000000aa: ")


def test_a_folder_without_schemas_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no schemas in"):
        incompatible_changes(tmp_path)
    (tmp_path / "events/a.b").mkdir(parents=True)
    (tmp_path / "events/a.b/1.0.0.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        incompatible_changes(tmp_path)
    (tmp_path / "events/a.b/1.0.0.json").rename(tmp_path / "events/a.b/first.json")
    (tmp_path / "events/a.b/first.json").write_text("{}")

    class AB(DomainEvent, event_type="a.b"):
        pass

    with pytest.raises(ConfigError, match=r"first\.json is not named after a version"):
        incompatible_changes(tmp_path, of(AB))
