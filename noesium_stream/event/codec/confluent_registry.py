"""A schema registry for the Confluent wire format: writer schemas by number instead of fingerprint.

Needs the extra `schema-registry` (confluent-kafka's own registry client). The registry is contacted once per
schema: to register the current one when a codec is created, and for each number that a reader sees for the
first time.

Any exception of the client other than its own error type means that the registry could not be reached. Which
HTTP library it uses, and so which exceptions, differs between its releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import ConfigError, LogUnavailableError, UnknownSchemaError
from noesium_stream.redaction import redacted

try:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    _missing: ImportError | None = None
except ImportError as error:
    _missing = error

SUBJECT: Final = "noesium.event.EventEnvelope"
"""Record name strategy: one subject for the envelope, independent of the topic."""


ENVIRONMENT: Final = "NOESIUM_SCHEMA_REGISTRY_"
_FILES: Final = {
    "CA": "ssl.ca.location",
    "CERT": "ssl.certificate.location",
    "KEY": "ssl.key.location",
}


def registry_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the client from the environment: `_CA`, `_CERT`, `_KEY`, `_USERNAME`, `_PASSWORD`.

    Raises:
        ConfigError: a file is missing, or there is a user name without a password.
    """
    found: dict[str, Any] = {}
    for name, setting in _FILES.items():
        path = environ.get(f"{ENVIRONMENT}{name}")
        if path and not Path(path).is_file():
            raise ConfigError(f"There is no file {redacted(path)} ({ENVIRONMENT}{name}).")
        if path:
            found[setting] = path
    user, password = (environ.get(f"{ENVIRONMENT}{name}") for name in ("USERNAME", "PASSWORD"))
    if bool(user) != bool(password):
        raise ConfigError(
            f"The schema registry wants {ENVIRONMENT}USERNAME and {ENVIRONMENT}PASSWORD: one is missing."
        )
    if user:
        found["basic.auth.user.info"] = f"{user}:{password}"
    return found


class ConfluentRegistry:
    """The registry at `url`.

    `settings` are those of `confluent_kafka.schema_registry.SchemaRegistryClient`, for example
    `{"basic.auth.user.info": "name:password"}`; they never appear in an error.

    Raises:
        ConfigError: the extra is not installed, or a setting is wrong.
    """

    def __init__(self, url: str, settings: dict[str, Any] | None = None, *, subject: str = SUBJECT) -> None:
        if _missing is not None:
            raise ConfigError(
                "the client of the schema registry is not installed.",
                hint='It comes with an extra: pip install "noesium-stream[schema-registry]"',
            ) from _missing
        patience = {"timeout": 10, "max.retries": 2, "retries.wait.ms": 200}
        try:
            self._client = SchemaRegistryClient({**patience, **(settings or {}), "url": url})
        except (ValueError, TypeError) as error:
            # The client's message may quote a secret setting.
            raise ConfigError(
                f"the settings of the schema registry are not accepted ({type(error).__name__}).",
                hint="Look at the address and at the names of the settings.",
            ) from None
        self._subject = subject

    def schema_id(self, schema: Any) -> int:
        """As `SchemaRegistry.schema_id`.

        Raises:
            ConfigError: the registry refuses the schema.
            LogUnavailableError: it does not answer.
        """
        try:
            number: int = self._client.register_schema(self._subject, Schema(json.dumps(schema), "AVRO"))
        except SchemaRegistryError as error:
            if error.http_status_code >= 500:
                raise _unavailable(error) from error
            reason = redacted(str(error.error_message))
            raise ConfigError(
                f"the schema registry refuses the envelope under {self._subject}: {reason}.",
                hint="Its compatibility setting, or the rights of the user, stand against it.",
            ) from error
        except Exception as error:
            raise _unavailable(error) from error
        return number

    def schema(self, schema_id: int) -> Any:
        """As `SchemaRegistry.schema`.

        Raises:
            UnknownSchemaError: there is no Avro schema with this number.
            LogUnavailableError: it does not answer.
        """
        try:
            found = self._client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise _unavailable(error) from error
            raise UnknownSchemaError(
                "value", f"the writer schema {schema_id} is not known to the schema registry"
            ) from None
        except Exception as error:
            raise _unavailable(error) from error
        if found.schema_type not in (None, "AVRO") or found.schema_str is None:
            raise UnknownSchemaError("value", f"the schema {schema_id} of the registry is not of Avro")
        try:
            return json.loads(found.schema_str)
        except ValueError:
            raise UnknownSchemaError("value", f"the schema {schema_id} of the registry is no JSON") from None


def _unavailable(error: Exception) -> LogUnavailableError:
    return LogUnavailableError(
        f"the schema registry does not answer: {redacted(str(error))}",
        hint="Look whether it runs and whether its address is right.",
    )
