"""Certificates for tests: an authority, and what it signs, as PEM files that are good for a day."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority; `ca` is its certificate's file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name}-ca.pem"
        certificate = self._signed(self._name, self._key.public_key(), [_ca(True), _may_sign()])
        self.ca.write_bytes(certificate)

    def server(self) -> Path:
        """Key and certificate of localhost in one file, as Kafka's PEM key stores want them."""
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_name("localhost"), key.public_key(), [_ca(False), (names, False)])
        store = self._folder / "server.pem"
        store.write_bytes(_pem(key) + certificate)
        return store

    def client(self, password: str) -> tuple[Path, Path]:
        """The certificate of a client, and its key under this password."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert, private = self._folder / "client.pem", self._folder / "client.key"
        cert.write_bytes(self._signed(_name("tester"), key.public_key(), [_ca(False)]))
        private.write_bytes(_pem(key, password))
        return cert, private

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self._name,
            subject,
            key,
            x509.random_serial_number(),
            now - timedelta(hours=1),
            now + timedelta(days=1),
        )
        own = self._key.public_key()
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), False)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _ca(yes: bool) -> tuple[x509.ExtensionType, bool]:
    return x509.BasicConstraints(ca=yes, path_length=None), True


def _may_sign() -> tuple[x509.ExtensionType, bool]:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return usage, True


def _pem(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        hidden = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
