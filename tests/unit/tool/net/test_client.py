"""`tool/net/client.py`, against real servers on this machine."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from noesium_stream.errors import ToolExecutionError, ToolPermissionError, ToolServerError
from noesium_stream.tool.net.client import Answer, Call, GuardedClient
from noesium_stream.tool.net.settings import MAX_REDIRECTS, NetSettings
from tests.support.sites import Site, answer, redirect

GRANTED = ("net:outbound",)


async def here(host: str, port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


async def get(url: str, *allowed: str, granted: Sequence[str] = GRANTED, **secrets: str) -> Answer:
    client = GuardedClient(NetSettings(allow_private=allowed), here)
    return await client.request(Call(url, granted, secrets=secrets))


async def test_an_answer_has_status_headers_and_body() -> None:
    async with Site({"/a": answer("hello", 201, "text/html; charset=utf-8")}) as site:
        got = await get(site.url("/a?b=%20c"), site.host)
    assert (got.status, got.body, got.media_type) == (201, b"hello", "text/html")
    assert got.url == site.url("/a?b=%20c")
    assert site.asked[0].path == "/a?b=%20c"
    assert site.asked[0].headers["host"] == site.host
    assert {"cookie", "authorization"}.isdisjoint(site.asked[0].headers)


async def test_a_name_is_connected_to_at_its_judged_address_and_nothing_else_resolves_it() -> None:
    async with Site({"/": answer("it")}) as site:
        # the system's resolver knows no such name: had httpx asked it, the request would fail
        got = await get(site.url("/", "pinned.invalid"), "pinned.invalid")
    assert got.body == b"it"
    assert site.asked[0].headers["host"] == f"pinned.invalid:{site.port}"


async def test_redirects_are_followed_to_granted_hosts() -> None:
    async with Site() as site:
        site.pages |= {"/a": redirect("/b", 301), "/b": redirect(site.url("/c", "two.invalid"), 307)}
        site.pages["/c"] = answer("end")
        granted = tuple(f"net:outbound:{host}:{site.port}" for host in ("one.invalid", "two.invalid"))
        got = await get(site.url("/a", "one.invalid"), "one.invalid", "two.invalid", granted=granted)
    assert (got.body, got.url) == (b"end", site.url("/c", "two.invalid"))


async def test_a_redirect_to_a_host_that_is_not_granted_is_not_followed() -> None:
    async with Site() as site:
        site.pages["/a"] = redirect(site.url("/secret", "two.invalid"))
        with pytest.raises(ToolPermissionError, match=r"not granted net:outbound:two\.invalid"):
            await get(
                site.url("/a", "one.invalid"),
                *("one.invalid", "two.invalid"),
                granted=(f"net:outbound:one.invalid:{site.port}",),
            )
    assert [asked.path for asked in site.asked] == ["/a"]


async def test_a_call_without_a_grant_connects_to_nothing() -> None:
    async with Site({"/": answer("no")}) as site:
        for granted in ((), ("fs:read",), ("net:outbound:127.0.0.2",), ("net:outbound:*.0.0.1",)):
            with pytest.raises(ToolPermissionError):
                await get(site.url(), site.host, granted=granted)
    assert site.asked == []


async def test_secrets_stay_with_their_origin() -> None:
    async with Site() as other, Site() as site:
        site.pages |= {"/a": redirect("/b"), "/b": redirect(other.url("/c"))}
        other.pages["/c"] = redirect(site.url("/d"))
        site.pages["/d"] = answer("end")
        await get(site.url("/a"), site.host, other.host, Authorization="Bearer hidden")
    assert [asked.headers.get("authorization") for asked in site.asked] == ["Bearer hidden"] * 3
    assert "authorization" not in other.asked[0].headers


async def test_more_than_five_redirects_are_an_error() -> None:
    async with Site({"/": redirect("/")}) as site:
        with pytest.raises(ToolExecutionError, match="more than 5 times"):
            await get(site.url(), site.host)
    assert len(site.asked) == MAX_REDIRECTS + 1


async def test_the_next_address_is_tried_where_one_does_not_accept() -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with Site({"/": answer("second")}) as site:
        client = GuardedClient(NetSettings(allow_private=("two.invalid",)), two)
        got = await client.request(Call(site.url("/", "two.invalid"), GRANTED))
    assert got.body == b"second"


async def test_a_host_without_an_address_or_a_server_is_an_error_that_may_pass() -> None:
    async with Site() as site:
        pass
    with pytest.raises(ToolServerError, match="cannot be connected to"):
        await get(site.url(), site.host)
    client = GuardedClient(NetSettings())
    with pytest.raises(ToolServerError, match="has no address"):
        await client.request(Call("http://nowhere.invalid/", GRANTED))


async def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hidden")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with Site({"/": answer("direct", Set_Cookie="a=b")}) as site, Site() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        assert (await get(site.url(), site.host)).body == b"direct"
        await get(site.url(), site.host)
    assert proxy.asked == []
    assert all({"cookie", "authorization"}.isdisjoint(asked.headers) for asked in site.asked)


async def test_tls_is_checked_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    tls, ca = _certificate("tls.invalid", tmp_path)
    async with Site({"/": answer("safe")}, tls=tls) as site:
        settings = NetSettings(allow_private=("tls.invalid", "other.invalid"), ca_file=str(ca))
        client = GuardedClient(settings, here)
        assert (await client.request(Call(site.url("/", "tls.invalid"), GRANTED))).body == b"safe"
        with pytest.raises(ToolServerError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.request(Call(site.url("/", "other.invalid"), GRANTED))
    assert len(site.asked) == 1


async def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    tls, ca = _certificate("tls.invalid", tmp_path)
    async with Site({"/": answer("plain")}) as plain, Site(tls=tls) as site:
        site.pages["/"] = redirect(plain.url("/"))
        settings = NetSettings(allow_private=("tls.invalid", plain.host), ca_file=str(ca))
        with pytest.raises(ToolPermissionError, match="from https to http"):
            await GuardedClient(settings, here).request(Call(site.url("/", "tls.invalid"), GRANTED))
    assert plain.asked == []


def _certificate(name: str, folder: Path) -> tuple[ssl.SSLContext, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, both = folder / "ca.pem", folder / "both.pem"
    pem = made.public_bytes(serialization.Encoding.PEM)
    ca.write_bytes(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, ca
