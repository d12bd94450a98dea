"""Connection settings of a Kafka: from the URL's parameters and the environment to both clients' settings.

The URL overrides the environment (`NOESIUM_KAFKA_USERNAME`, `NOESIUM_KAFKA_PASSWORD`, ...); secrets are
better kept in the environment. No setting is ever printed: `repr` shows the address alone.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import LogUrlError
from noesium_stream.log.kafka.token import TokenSource
from noesium_stream.log.url import LogUrl
from noesium_stream.redaction import redacted

PARAMETERS: Final = frozenset(
    {
        "security",
        "mechanism",
        "username",
        "password",
        "token_url",
        "scope",
        "ca",
        "cert",
        "key",
        "key_password",
        "replication",
    }
)
_SECURITY: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
}
_OAUTH: Final = "OAUTHBEARER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTH)
_DEFAULT_PORT: Final = 9092


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Addresses of the brokers and credentials; `security` uses librdkafka's names."""

    bootstrap: str
    security: str = field(default="PLAINTEXT", repr=False)
    mechanism: str = field(default="PLAIN", repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    replication: int | None = field(default=None, repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)

    def confluent(self) -> dict[str, Any]:
        """Settings for confluent-kafka (librdkafka)."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "noesium",
            "security.protocol": self.security,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
        }
        if self.security.startswith("SASL"):
            settings["sasl.mechanisms"] = self.mechanism
            if self.tokens is not None:
                settings["oauth_cb"] = self.tokens.for_librdkafka
            else:
                settings["sasl.username"] = self.username
                settings["sasl.password"] = self.password
        if self.security.endswith("SSL"):
            names = {
                "ssl.ca.location": self.ca,
                "ssl.certificate.location": self.cert,
                "ssl.key.location": self.key or self.cert,
                "ssl.key.password": self.key_password,
            }
            settings.update({name: value for name, value in names.items() if value is not None})
        return settings

    def aiokafka(self) -> dict[str, Any]:
        """Settings for aiokafka."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "client_id": "noesium",
            "security_protocol": self.security,
            "retry_backoff_ms": 50,
        }
        if self.security.startswith("SASL"):
            settings["sasl_mechanism"] = self.mechanism
            if self.tokens is not None:
                settings["sasl_oauth_token_provider"] = self.tokens
            else:
                settings["sasl_plain_username"] = self.username
                settings["sasl_plain_password"] = self.password
        if self.security.endswith("SSL"):
            settings["ssl_context"] = self._ssl_context()
        return settings

    def _ssl_context(self) -> ssl.SSLContext:
        """The TLS context: trusted certificates and the client's own.

        Raises:
            LogUrlError: a file is not a certificate or a key, or the key's password is wrong.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise LogUrlError(f"{self.ca} (ca) is no file of certificates in PEM form.") from error
        if self.cert is not None:
            try:
                # Always pass a password: without one OpenSSL would prompt for it at the terminal.
                context.load_cert_chain(self.cert, self.key, self.key_password or "")
            except OSError as error:
                raise LogUrlError(
                    f"{self.cert} (cert) and {self.key or self.cert} (key) cannot be used together.",
                    hint="They are PEM files that belong together; the password of an encrypted key is "
                    "that of NOESIUM_KAFKA_KEY_PASSWORD.",
                ) from error
        return context


def kafka_settings(url: LogUrl, environ: Mapping[str, str] | None = None) -> KafkaSettings:
    """The settings from a URL and the environment.

    A user name without `security` means `sasl_ssl`: a password travels unencrypted only on request.

    Raises:
        LogUrlError: an unknown parameter or value, a missing password, a missing file.
    """
    url.check_parameters(PARAMETERS)
    found = _Values(url, os.environ if environ is None else environ)
    username = url.user or found.get("username")
    password = url.password or found.get("password")
    security = _security(url, found, username)
    mechanism = (found.get("mechanism") or "PLAIN").upper()
    if mechanism not in _MECHANISMS:
        raise LogUrlError(f"{url}: mechanism={mechanism!r} is not one of {', '.join(_MECHANISMS)}.")
    if security.startswith("SASL") and not (username and password):
        missing = "password" if username else "user name"
        raise LogUrlError(
            f"{url}: this broker wants a user name and a password, the {missing} is missing.",
            hint="Set NOESIUM_KAFKA_USERNAME and NOESIUM_KAFKA_PASSWORD.",
        )
    ca = found.file("ca")
    settings = KafkaSettings(
        ",".join(_with_port(host) for host in url.hosts),
        security,
        mechanism,
        username,
        password,
        ca,
        found.file("cert"),
        found.file("key"),
        found.get("key_password"),
        url.whole_number("replication", 1, 32_767),
        _tokens(url, found, username, password, ca) if mechanism == _OAUTH else None,
    )
    if settings.key is not None and settings.cert is None:
        raise LogUrlError(
            f"{url}: there is a key and no certificate that it belongs to.", hint="Add cert=FILE."
        )
    settings.aiokafka()  # reads the files, so that their errors are reported now, and only here
    return settings


def _tokens(
    url: LogUrl, found: _Values, username: str | None, password: str | None, ca: str | None
) -> TokenSource:
    """Where the tokens come from: the user name and password are the client's id and secret there."""
    token_url = found.get("token_url")
    if token_url is None or username is None or password is None:
        raise LogUrlError(
            f"{url}: OAUTHBEARER takes a token endpoint, a client id and its secret.",
            hint="Set NOESIUM_KAFKA_TOKEN_URL, NOESIUM_KAFKA_USERNAME and NOESIUM_KAFKA_PASSWORD.",
        )
    try:
        return TokenSource(token_url, username, password, found.get("scope"), ca)
    except OSError as error:
        raise LogUrlError(f"{ca} (ca) is no file of certificates in PEM form.") from error


class _Values:
    """Looks up a value by name: in the URL, else in the environment."""

    def __init__(self, url: LogUrl, environ: Mapping[str, str]) -> None:
        self._url = url
        self._environ = environ

    def get(self, name: str) -> str | None:
        return self._url.parameters.get(name) or self._environ.get(f"NOESIUM_KAFKA_{name.upper()}") or None

    def file(self, name: str) -> str | None:
        """The path of a file that has to exist."""
        path = self.get(name)
        if path is not None and not Path(path).is_file():
            raise LogUrlError(f"{self._url}: there is no file {redacted(path)} ({name}).")
        return path


def _security(url: LogUrl, found: _Values, username: str | None) -> str:
    asked = found.get("security")
    if asked is None:
        if username:
            return "SASL_SSL"
        return "SSL" if found.get("ca") or found.get("cert") else "PLAINTEXT"
    name = asked.upper()
    if name not in _SECURITY:
        choices = ", ".join(sorted(key.lower() for key in _SECURITY))
        raise LogUrlError(f"{url}: security={asked!r} is not one of {choices}.")
    return _SECURITY[name]


def _with_port(host: str) -> str:
    """`host:port`; an IPv6 address stands in brackets."""
    after = host.rpartition("]")[2] if host.startswith("[") else host
    return host if ":" in after else f"{host}:{_DEFAULT_PORT}"
