"""Certificates for a secured broker: an authority, and what it signs, as PEM files with mode 600.

Made for a broker of one's own, on one machine or a few. An organisation with an authority of its own uses
that: the files have the same form.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from noesium_stream.errors import ConfigError
from noesium_stream.private_files import private

DAY: Final = timedelta(days=1)
_EARLIER: Final = timedelta(hours=1)
_MAX_NAME: Final = 64


class Authority:
    """A certificate authority.

    Args:
        folder: where its files are, and go.
        name: of its own files.
        valid: how long what it signs is valid.

    Attributes:
        ca: the file of its certificate, `NAME-ca.pem`; its key is in `NAME-ca.key`.

    It is read back if it is there, else made new.

    Raises:
        ConfigError: its files cannot be read or written.
    """

    def __init__(self, folder: Path, name: str = "noesium", *, valid: timedelta = DAY) -> None:
        self._folder = folder
        self._name = _name(name)
        self._valid = valid
        self.ca, path = folder / f"{name}-ca.pem", folder / f"{name}-ca.key"
        if self.ca.exists() and path.exists():
            self._key = _read_key(path)
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(self._name, self._key.public_key(), [_ca(True), _may_sign()])
        _write(path, _pem(self._key))
        _write(self.ca, certificate)

    def server(self, hosts: Sequence[str] = ("localhost", "127.0.0.1"), name: str = "localhost") -> Path:
        """Key and certificate of a broker in one file, `server.pem`, as Kafka's PEM key stores want them.

        Raises:
            ConfigError: a name is too long, or the file cannot be written.
        """
        found = [_host(host) for host in hosts]
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(found)
        certificate = self._signed(_name(name), key.public_key(), [_ca(False), (names, False)])
        store = self._folder / "server.pem"
        _write(store, _pem(key) + certificate)
        return store

    def client(self, name: str, password: str | None = None, *, file: str | None = None) -> tuple[Path, Path]:
        """The certificate of a client and its key, `FILE.pem` and `FILE.key`, under a password if given.

        `file` is `name` by default, with `-` for what a file's name should not have.

        Raises:
            ConfigError: the name is too long, or a file cannot be written.
        """
        stem = file or "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
        key = ec.generate_private_key(ec.SECP256R1())
        cert, path = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        certificate = self._signed(_name(name), key.public_key(), [_ca(False)])
        _write(path, _pem(key, password))
        _write(cert, certificate)
        return cert, path

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now - _EARLIER, now + self._valid
        )
        own = self._key.public_key()
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), False)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is no private key of an authority.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is no private key of an authority that was made here.")
    return key


def _write(path: Path, content: bytes) -> None:
    try:
        with open(path, "wb", opener=private) as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    if not 0 < len(text) <= _MAX_NAME:
        raise ConfigError(f"A certificate's name has 1 to {_MAX_NAME} characters, not {len(text)}.")
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
