"""OAuth 2 client credentials for requests to an MCP server, by the SDK; tokens live in this process alone."""

from __future__ import annotations

import os
from typing import Any, Final, cast

import httpx2
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import TokenStorage
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from noesium_stream.errors import ConfigError
from noesium_stream.tool.mcp.auth import Bearer, ClientCredentials, secret_of

LEAST_RSA: Final = 2_048
"""Bits of an RSA key (RFC 7518 §3.3)."""


class _Tokens:
    """Tokens of this process: not written anywhere."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def oauth_of(auth: ClientCredentials | Bearer | None, url: str, who: str) -> httpx2.Auth | None:
    """What gets and sends tokens for requests to `url`; None: no client credentials are declared.

    Args:
        auth: what is declared.
        url: of the server.
        who: the server, for messages.

    Raises:
        ConfigError: the secret is not set, or is no key where it has to be one.
    """
    if not isinstance(auth, ClientCredentials):
        return None
    secret = secret_of(auth.secret_env, os.environ, who)
    shared: dict[str, Any] = {
        "server_url": url,
        "storage": cast("TokenStorage", _Tokens()),
        "client_id": auth.client_id,
        "scope": auth.scope,
        "issuer": auth.issuer,
    }
    if auth.method != "private_key_jwt":
        return ClientCredentialsOAuthProvider(
            **shared, client_secret=secret, token_endpoint_auth_method=auth.method
        )
    signed = SignedJWTParameters(
        issuer=auth.client_id,
        subject=auth.client_id,
        signing_key=secret,
        signing_algorithm=signing_algorithm(secret, auth.secret_env),
    )
    return PrivateKeyJWTOAuthProvider(**shared, assertion_provider=signed.create_assertion_provider())


def signing_algorithm(pem: str, variable: str) -> str:
    """Return the name of the signature that a private key makes (RFC 7518 §3.1, RFC 8037).

    Args:
        pem: the key; nothing of it is in an error.
        variable: where it comes from, for messages.

    Raises:
        ConfigError: it is no key, has a passphrase, or is of another kind or too small.
    """
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"The environment variable {variable} has no private key in PEM.",
            hint="It begins with -----BEGIN PRIVATE KEY-----, keeps its lines, and has no passphrase.",
        ) from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= LEAST_RSA:
        return "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return "ES256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    raise ConfigError(
        f"The private key in the environment variable {variable} is of a kind that is not used here.",
        hint=f"Use an RSA key of {LEAST_RSA} bits or more, a P-256 key or an Ed25519 key.",
    )
