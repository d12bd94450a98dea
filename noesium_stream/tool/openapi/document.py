"""OpenAPI documents: loaded with limits, and looked into without loading anything else.

Decision record: the libraries that read OpenAPI either refuse a whole document for one wrong operation
(openapi-spec-validator, openapi-pydantic), load what it refers to (prance), or replace references by what
they name (jsonref), which never ends for a recursive schema. What is needed here is a JSON pointer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import orjson
import yaml
from jsonpointer import JsonPointer, JsonPointerException

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.small_files import read_small

MAX_BYTES: Final = 20_000_000
MAX_NODES: Final = 1_000_000
MAX_DEPTH: Final = 100
MAX_REFERENCES: Final = 20
"""References that lead to one another before there is anything."""


class ProblemError(ValueError):
    """A part of a document that cannot be used; the message is the end of a sentence."""


class Document:
    """An OpenAPI document of version 3.0 or 3.1, as JSON.

    Raises:
        ConfigError: it is none, or exceeds a limit.
    """

    def __init__(self, source: str | Path | Mapping[str, Any]) -> None:
        self.name = (
            "The OpenAPI document" if isinstance(source, Mapping) else f"The OpenAPI document {source}"
        )
        loaded = source if isinstance(source, Mapping) else self._loaded(Path(source))
        self.root: dict[str, Any] = self._checked(loaded)
        version = self.root.get("openapi")
        if not isinstance(version, str) or not version.startswith(("3.0.", "3.1.")):
            raise ConfigError(f"{self.name} is not of OpenAPI 3.0 or 3.1.")
        self.is_3_0 = version.startswith("3.0.")

    def resolve(self, part: Any) -> dict[str, Any]:
        """A part, or what it refers to.

        Raises:
            ProblemError: it is no object, or its reference leads nowhere, to another document, or in a cycle.
        """
        for _ in range(MAX_REFERENCES):
            if not isinstance(part, dict):
                raise ProblemError("a part of it is no object")
            if "$ref" not in part:
                return part
            part = self.at(part["$ref"])
        raise ProblemError("a reference leads in a cycle")

    def at(self, reference: Any) -> Any:
        """What a reference names.

        Raises:
            ProblemError: it names nothing in this document.
        """
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise ProblemError(f"it refers to {reference!r:.100}, which is not in the document")
        try:
            return JsonPointer(unquote(reference[1:])).resolve(self.root)
        except (JsonPointerException, TypeError, ValueError):
            raise ProblemError(f"it refers to {reference!r:.100}, which is not in the document") from None

    def _loaded(self, path: Path) -> Any:
        data = read_small(path, MAX_BYTES, "OpenAPI document")
        try:
            return orjson.loads(data) if data.lstrip()[:1] == b"{" else yaml.load(data, _LOADER)  # nosec B506 - a safe loader
        except (ValueError, yaml.YAMLError, RecursionError):
            raise ConfigError(f"{self.name} is neither JSON nor YAML.") from None

    def _checked(self, loaded: Any) -> dict[str, Any]:
        try:
            root = _Copy().of(loaded, 0)
        except ProblemError as problem:
            raise ConfigError(f"{self.name} {problem}.") from None
        if not isinstance(root, dict):
            raise ConfigError(f"{self.name} is no object.")
        return root


class _Copy:
    """A copy as JSON: keys are texts, dates are texts, and what YAML's aliases multiply is counted."""

    def __init__(self) -> None:
        self._nodes = 0

    def of(self, part: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ProblemError(f"has over {MAX_NODES:,} parts, or more than {MAX_DEPTH} levels")
        if isinstance(part, Mapping):
            return {str(key): self.of(value, depth + 1) for key, value in part.items()}
        if isinstance(part, list | tuple):
            return [self.of(item, depth + 1) for item in part]
        return part if part is None or isinstance(part, str | int | float | bool) else str(part)


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
