"""Addresses that a tool may connect to: those of the public internet.

Decision record: `ipaddress.is_global` has changed its answers between patch releases of Python, and does not
look into embedded IPv4 addresses. So the networks are listed here. Of IPv6 only global unicast (`2000::/3`)
counts, and what maps or translates to IPv4 is judged by the IPv4 address in it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_PRIVATE_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by providers (CGNAT); Alibaba's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's metadata
            "169.254.0.0/16",  # link-local; metadata of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # IETF protocols; Oracle's metadata
            "192.0.2.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_PRIVATE_6: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))  # Teredo, documents, 6to4
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address (text, without a zone) is one of the public internet; False for what is none."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        embedded = _embedded(parsed)
        if embedded is None:
            return (
                parsed.scope_id is None
                and parsed in _GLOBAL_6
                and not any(parsed in network for network in _PRIVATE_6)
            )
        parsed = embedded
    return not any(parsed in network for network in _PRIVATE_4)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this one reach."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None
