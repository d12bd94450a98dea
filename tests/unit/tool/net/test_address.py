"""`tool/net/address.py`."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.tool.net.address import is_public

PRIVATE = (
    "127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 "
    "100.100.100.200 169.254.169.254 168.63.129.16 192.0.0.192 192.88.99.1 198.18.0.1 224.0.0.1 240.0.0.1 "
    "255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 ff02::1 fec0::1 ::ffff:127.0.0.1 "
    "::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1.1.1.1 "
    "2002:7f00:1::1 2002:a00:1::1 2001:0:7f00:1::1 2001:db8::1 3fff::1 100::1"
)
PUBLIC = "1.1.1.1 8.8.8.8 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::808:808"


@pytest.mark.parametrize("address", PRIVATE.split())
def test_what_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public_addresses_are_not(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "0x7f.1", "2130706433", "127.1", "1.1.1.1.", "[::1]"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@given(st.ip_addresses(v=4))
def test_a_mapped_or_translated_address_is_as_public_as_what_it_reaches(
    address: ipaddress.IPv4Address,
) -> None:
    expected = is_public(str(address))
    assert is_public(f"::ffff:{address}") == expected
    assert is_public(f"64:ff9b::{address}") == expected
    assert not expected or address.is_global
