"""Damage in tests that is one for certain: a byte that is replaced by a constant may have been the same."""

from __future__ import annotations


def with_changed_byte(data: bytes, at: int) -> bytes:
    """`data` with all bits of the byte at this index (negative: from the end) turned over."""
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)
