"""How requests to an MCP server are authorised; secrets stay in environment variables until they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from noesium_stream.errors import ConfigError

METHODS: Final = ("client_secret_basic", "client_secret_post", "private_key_jwt")
"""How a client authenticates at a token endpoint (RFC 6749 §2.3.1, RFC 7523 §2.2)."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth 2 client credentials.

    Attributes:
        client_id: as the authorization server knows this client.
        secret_env: the environment variable with the client's secret; with `private_key_jwt` its private key
            in PEM: RSA (signs RS256), P-256 (ES256) or Ed25519 (EdDSA).
        issuer: the authorization server that gave them: a token is asked for there and nowhere else. None:
            whichever the MCP server names gets the secret.
        scope: scopes to ask for, separated by spaces.
        method: how the client authenticates at the token endpoint: by sending its secret, or by an assertion
            that its key has signed (RFC 7523), so that the key is sent nowhere.
    """

    client_id: str
    secret_env: str
    issuer: str | None = None
    scope: str | None = None
    method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] = "client_secret_basic"

    def __post_init__(self) -> None:
        """Check the method.

        Raises:
            ConfigError: there is no such method.
        """
        if self.method not in METHODS:
            raise ConfigError(
                f"Client credentials cannot be sent by {str(self.method)[:100]!r}.",
                hint=f"There are {', '.join(METHODS)}.",
            )


@dataclass(frozen=True, slots=True)
class Bearer:
    """A fixed token, from the environment variable `token_env`."""

    token_env: str


def secret_of(variable: str, outer: Mapping[str, str], who: str) -> str:
    """The secret in an environment variable.

    Raises:
        ConfigError: it is not set.
    """
    value = outer.get(variable, "")
    if not value:
        raise ConfigError(
            f"{who} needs the environment variable {variable}, which is not set.",
            hint="Set it in the worker's environment.",
        )
    return value
