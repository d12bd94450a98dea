"""Client credentials with a private key."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from noesium_stream.errors import ConfigError
from noesium_stream.tool.mcp import ClientCredentials
from noesium_stream.tool.mcp.oauth import oauth_of, signing_algorithm

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def pem(key: Key, encryption: KeySerializationEncryption | None = None) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()).decode()


P_256 = pem(ec.generate_private_key(ec.SECP256R1()))


def test_the_kind_of_a_key_says_how_it_signs() -> None:
    assert signing_algorithm(P_256, "KEY") == "ES256"
    assert signing_algorithm(pem(ed25519.Ed25519PrivateKey.generate()), "KEY") == "EdDSA"
    assert signing_algorithm(pem(rsa.generate_private_key(65_537, 2_048)), "KEY") == "RS256"


@pytest.mark.parametrize(
    "key",
    [
        "hunter2hunter2",
        P_256[:60],
        pem(ed25519.Ed25519PrivateKey.generate(), BestAvailableEncryption(b"x")),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa.generate_private_key(65_537, 1_024)),
    ],
)
def test_what_cannot_sign_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", key)
    declared = ClientCredentials("me", "KEY", method="private_key_jwt")
    with pytest.raises(ConfigError) as refused:
        oauth_of(declared, "https://crm.example.com/mcp", "The MCP server crm")
    said = f"{refused.value} {refused.value.hint}"
    assert "KEY" in said
    assert not any(line and line in said for line in key.splitlines()[1:-1])
    assert "hunter2" not in said


def test_a_method_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="client_secret_jwt"):
        ClientCredentials("me", "KEY", method="client_secret_jwt")  # type: ignore[arg-type]
