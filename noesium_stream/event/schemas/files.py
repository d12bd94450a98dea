"""The schemas as files, for people and for programs without this package.

    envelope.avsc                       the current Avro schema of the envelope
    envelope/<fingerprint>.avsc         every version of it ever released
    events/<type>/<version>.json        JSON Schema 2020-12 of the payload of each event type and version

All files are generated; none is ever removed, because events of old versions stay on the logs.
"""

from __future__ import annotations

import json
from pathlib import Path

from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA, released_schemas, schema_text
from noesium_stream.event.payload.schema import JsonSchema
from noesium_stream.event.standard.catalogue import standard_catalogue


def schema_files(catalogue: Catalogue | None = None) -> dict[str, str]:
    """The content of each file, by its path relative to the folder of schemas."""
    files = {"envelope.avsc": schema_text(ENVELOPE_SCHEMA)}
    for number, schema in released_schemas().items():
        files[f"envelope/{number:016x}.avsc"] = schema_text(schema)
    for event_type, version, json_schema in (catalogue or standard_catalogue()).schemas():
        files[f"events/{event_type}/{version}.json"] = (
            json.dumps(json_schema, indent=2, ensure_ascii=False) + "\n"
        )
    return files


def write_schemas(directory: Path | str, catalogue: Catalogue | None = None) -> list[str]:
    """Write missing and outdated files; return the relative paths of the written files."""
    stale = stale_schemas(directory, catalogue)
    files = schema_files(catalogue)
    for name in stale:
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], "utf-8", newline="\n")
    return stale


def stale_schemas(directory: Path | str, catalogue: Catalogue | None = None) -> list[str]:
    """The relative paths of missing and outdated files, sorted."""
    files = schema_files(catalogue)
    return sorted(name for name, text in files.items() if _read(Path(directory, name)) != text)


def read_schemas(directory: Path | str) -> dict[str, dict[str, JsonSchema]]:
    """The JSON Schemas of a folder by type and version.

    Raises:
        OSError, ValueError: a file cannot be read or is not JSON.
    """
    found: dict[str, dict[str, JsonSchema]] = {}
    for path in sorted(Path(directory, "events").glob("*/*.json")):
        found.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text("utf-8"))
    return found


def _read(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None
