"""JSON texts that an attacker would send, of any size."""

from __future__ import annotations

_DEEP = b'{"a":' * 200 + b"1" + b"}" * 200


def hostile_texts(size: int) -> dict[str, bytes]:
    """Texts of about `size` bytes by what is in them.

    None is what our own writer would write; each has one blank too many, or is refused.
    """
    half, sixth, twelfth = size // 2, size // 6, size // 12
    numbered = b",".join(b'"%d":1' % number for number in range(twelfth))
    beyond = b"[1e20,12345678901234567890123456.5,"
    return {
        "one long string": b'["' + b"x" * size + b'" ]',
        "one long string beyond ASCII": b'["' + "é".encode() * half + b'" ]',
        "objects in objects": _many(_DEEP, size),
        "objects": _many(b'{"a":1}', size),
        "empty objects": _many(b"{}", size),
        "one key many times": b"{" + b",".join([b'"a":1'] * sixth) + b"}",
        "two keys in many objects": _many(b'{"a":1,"a":1}', size),
        "long keys": b"{" + b",".join([b'"' + b"k" * 10_000 + b'":1'] * (size // 10_000)) + b"}",
        "many keys and the last twice": b"{" + numbered + b',"1":1}',
        "many keys": b"{" + numbered + b" }",
        "backslashes": b'{"a":"' + b"\\\\" * half + b'" }',
        "backslashes and an escaped colon": b'{"a":"' + b"\\\\" * half + b'\\u003a" }',
        "backslashes and long numbers": beyond + b'"' + b"\\\\" * half + b'" ]',
        "quotes": b'{"a":"' + b'\\"' * half + b'" }',
        "escaped letters": b'{"a":"' + b"\\u0041" * sixth + b'" }',
        "escaped colons": b'{"a":"' + b"\\u003a" * sixth + b'" }',
        "strings": _many(b'"a"', size),
        "strings and long numbers": _many(b'"a"', size, beyond),
        "nulls": _many(b"null", size),
        "booleans and long numbers": _many(b"true", size, beyond),
        "short whole numbers": _many(b"1", size),
        "whole numbers of 19 digits": _many(b"1234567890123456789", size),
        "whole numbers of 20 digits": _many(b"1" * 20, size),
        "floats of 22 digits": _many(b"0.1234567890123456789012", size),
        "floats with an exponent": _many(b"1e20", size),
        "a whole number without end": b"[" + b"1" * size + b"]",
        "a fraction without end": b"[0." + b"1" * size + b" ]",
        "an exponent without end": b"[1e" + b"0" * size + b" ]",
        "exponents beyond a float": _many(b"1e400000", size),
        "blanks": b"[" + b" " * size + b"]",
        "NaN": _many(b"NaN", size),
        "halves of surrogate pairs": _many(b'"\\ud800"', size),
        "brackets that do not close": b"[" * size,
        "a string that does not end": b'"' + b"\\" * size,
    }


def _many(item: bytes, size: int, begin: bytes = b"[") -> bytes:
    return begin + b",".join([item] * (size // (len(item) + 1))) + b" ]"
