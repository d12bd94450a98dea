"""`noesium security`: certificates, and what is refused before a broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from noesium_stream.cli.commands.security import security_command
from noesium_stream.errors import ConfigError, NoesiumError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NOESIUM_POLICY", "NOESIUM_LOG", "NOESIUM_KAFKA_NEW_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "policy.toml").write_text('[[allow]]\nwho = ["alice"]\nmay = ["start"]\nagents = ["clerk"]\n')
    return tmp_path


def error_of(*args: str) -> NoesiumError:
    result = CliRunner().invoke(security_command, args)
    assert isinstance(result.exception, ConfigError), result.output
    return result.exception


def test_acls_need_a_policy_and_a_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no policy" in error_of("acls").message
    monkeypatch.setenv("NOESIUM_POLICY", "policy.toml")
    assert "is not on Kafka" in error_of("acls", "--apply", "--log", "sqlite:///a.db").message
    said = CliRunner().invoke(security_command, ["acls", "--user", "alice"])
    assert said.exit_code == 2
    assert "'alice' is no NAME=USER" in said.output


def test_a_user_needs_a_password() -> None:
    assert "no password for bob" in error_of("user", "bob", "--log", "kafka://localhost:1").message


def test_certificates_are_made_once_and_further_ones_by_the_same_authority(folder: Path) -> None:
    made = CliRunner().invoke(security_command, ["certificates", "c", "--for", "agent:clerk"])
    assert made.exception is None, made.exception
    first = (folder / "c" / "noesium-ca.pem").read_bytes(), (folder / "c" / "server.pem").read_bytes()
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "c").iterdir())
    CliRunner().invoke(security_command, ["certificates", "c", "--for", "alice"])
    assert first == (
        (folder / "c" / "noesium-ca.pem").read_bytes(),
        (folder / "c" / "server.pem").read_bytes(),
    )
    ca = x509.load_pem_x509_certificate(first[0])
    for name, file in (("alice", "alice"), ("agent:clerk", "agent-clerk"), ("operator", "operator")):
        certificate = x509.load_pem_x509_certificate((folder / "c" / f"{file}.pem").read_bytes())
        certificate.verify_directly_issued_by(ca)
        assert certificate.subject.rfc4514_string() == f"CN={name}"


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_name_that_no_certificate_can_have_is_refused(name: str) -> None:
    assert (
        "A certificate's name has 1 to 64 characters" in error_of("certificates", "c", "--for", name).message
    )
