"""JSON Schema validators that never load anything: a schema refers only to what it holds itself.

A schema may come from a log, so it is data. Without the refusal the validator would fetch a `$ref` to
`http://` or `file://`, and so would a `$schema` that names a dialect of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs

_MAX_REGEX_BYTES: Final = 2 << 20
"""Compiled size of one `pattern`: what matches slowly is large."""
_MAX_BACKTRACKS: Final = 100_000
"""Steps back in one match of a `pattern` with look-around or back-references; the match fails after that."""

PATTERNS: Final = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_REGEX_BYTES, dfa_size_limit=_MAX_REGEX_BYTES
)
"""Limits of a `pattern` that comes from a log; exceeding them is a violation of the schema."""


def validator(
    schema: Mapping[str, Any], patterns: jsonschema_rs.FancyRegexOptions | None = None
) -> jsonschema_rs.Draft202012Validator:
    """A validator for this schema alone.

    Args:
        schema: JSON Schema 2020-12, whatever its `$schema` says.
        patterns: limits of regular expressions; None: those of the library.

    Raises:
        ValueError: it is no such schema, or refers to something that it does not hold.
    """
    try:
        return jsonschema_rs.Draft202012Validator(dict(schema), retriever=_refuse, pattern_options=patterns)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None


def _refuse(uri: str) -> NoReturn:
    raise ValueError("no schema loads anything")
