"""From a URL and the environment to the settings of both clients, without a secret in anything printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import LogUrlError
from noesium_stream.log.broker.certificates import Authority
from noesium_stream.log.kafka.settings import KafkaSettings, kafka_settings
from noesium_stream.log.url import parse_url

SECRET = "hunter2"


def settings(url: str, **environ: str) -> KafkaSettings:
    return kafka_settings(parse_url(url), environ)


def test_hosts_get_the_usual_port_where_none_is_given() -> None:
    assert settings("kafka://a,b:9093,[::1],[::2]:1").bootstrap == "a:9092,b:9093,[::1]:9092,[::2]:1"


def test_without_parameters_the_line_is_plain() -> None:
    assert settings("kafka://a").confluent()["security.protocol"] == "PLAINTEXT"
    assert settings("kafka://a").aiokafka()["security_protocol"] == "PLAINTEXT"


@pytest.mark.parametrize(
    "url",
    [
        f"kafka://me:{SECRET}@a?mechanism=scram-sha-512",
        f"kafka://a?username=me&password={SECRET}&security=sasl_ssl&mechanism=SCRAM-SHA-512",
    ],
)
def test_a_user_reaches_both_clients_over_tls_by_default(url: str) -> None:
    found = settings(url)
    confluent, aio = found.confluent(), found.aiokafka()
    assert (confluent["security.protocol"], confluent["sasl.mechanisms"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (confluent["sasl.username"], confluent["sasl.password"]) == ("me", SECRET)
    assert (aio["security_protocol"], aio["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (aio["sasl_plain_username"], aio["sasl_plain_password"]) == ("me", SECRET)
    assert aio["ssl_context"].check_hostname


def test_no_secret_is_in_what_is_printed() -> None:
    url = parse_url(f"kafka://me:{SECRET}@a?key_password={SECRET}")
    for text in (str(url), repr(url), repr(kafka_settings(url, {})), str(kafka_settings(url, {}))):
        assert SECRET not in text
    with pytest.raises(LogUrlError) as caught:
        kafka_settings(parse_url(f"kafka://me:{SECRET}@a?mechanism=md5"), {})
    assert SECRET not in str(caught.value)


def test_the_environment_gives_what_the_url_does_not() -> None:
    found = settings("kafka://you@a", NOESIUM_KAFKA_USERNAME="me", NOESIUM_KAFKA_PASSWORD=SECRET)
    assert (found.username, found.password, found.security) == ("you", SECRET, "SASL_SSL")


def test_a_user_without_a_password_is_refused_with_the_variables_to_set() -> None:
    with pytest.raises(LogUrlError, match="the password is missing") as caught:
        settings("kafka://me@a")
    assert "NOESIUM_KAFKA_PASSWORD" in str(caught.value.hint)


@pytest.mark.parametrize(
    "query", ["security=tsl", "mechanism=GSSAPI", "ca=/no/such/file", "secruity=tls", "replication=0"]
)
def test_what_cannot_be_used_is_refused(query: str) -> None:
    with pytest.raises(LogUrlError):
        settings(f"kafka://me:{SECRET}@a?{query}")


def test_a_certificate_authority_means_tls(tmp_path: Path) -> None:
    file = Authority(tmp_path, "our").ca
    found = settings(f"kafka://a?ca={file}")
    assert found.confluent()["ssl.ca.location"] == str(file)
    assert found.security == "SSL"


def test_a_client_proves_itself_by_a_certificate_and_a_key_of_the_same_or_another_file(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "our")
    cert, key = authority.client("tester", "opener", file="client")
    url = f"kafka://a?ca={authority.ca}&cert={cert}&key={key}"
    found = settings(url, NOESIUM_KAFKA_KEY_PASSWORD="opener").confluent()
    assert (found["ssl.key.location"], found["ssl.key.password"]) == (str(key), "opener")
    both = authority.server()
    assert settings(f"kafka://a?cert={both}").confluent()["ssl.key.location"] == str(both)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("ca={junk}", "junk.pem (ca) is no file of certificates"),
        ("cert={cert}", "cannot be used together"),
        ("cert={cert}&key={key}", "NOESIUM_KAFKA_KEY_PASSWORD"),
        ("cert={cert}&key={key}&key_password=hunter2", "cannot be used together"),
        ("cert={cert}&key={server}", "cannot be used together"),
        ("ca={ca}&key={key}", "no certificate that it belongs to"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_anything_connects(
    tmp_path: Path, query: str, words: str
) -> None:
    authority = Authority(tmp_path, "our")
    cert, key = authority.client("tester", "opener", file="client")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    files = {"ca": authority.ca, "cert": cert, "key": key, "server": authority.server(), "junk": junk}
    with pytest.raises(LogUrlError) as caught:
        settings(f"kafka://a?{query.format(**files)}")
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
