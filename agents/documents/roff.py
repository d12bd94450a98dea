"""Lines of roff as people read them: without escapes, and with what macros of mdoc(7) put around words."""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = {
    "aq": "'", "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "em": "—", "en": "–", "bu": "•", "co": "©",
    "mu": "×", "+-": "±", "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "<-": "←", "ti": "~", "ha": "^",
    "rs": "\\", "ga": "`", "pc": "·", "de": "°", "ss": "ß", "-": "-", "hy": "-", "mi": "-", "Aq": "'",
    "L\"": "“", "R\"": "”", "--": "—", "R": "®", "rg": "®", "tm": "™", "Tm": "™", "ul": "_", "ba": "|",
    "or": "|", "br": "|", "sl": "/", "lC": "{", "rC": "}", "Do": "$", "Eu": "€", "Po": "£", "sc": "§",
    "dg": "†", "ci": "○", "sq": "□", "**": "*", "pl": "+", "eq": "=", "lh": "☜", "rh": "☞", "if": "∞",
    "ua": "↑", "da": "↓", "==": "≡", "~~": "≈", "di": "÷", "no": "¬", "ct": "¢", "ae": "æ", "'e": "é",
    "`e": "è", "'a": "á", "'o": "ó", "'i": "í", "'u": "ú", ":a": "ä", ":o": "ö", ":u": "ü", ":A": "Ä",
    ":O": "Ö", ":U": "Ü", "~n": "ñ", ",c": "ç", "/o": "ø", "oa": "å", "a^": "^", "a~": "~", "lt": "<",
    "gt": ">", "la": "⟨", "ra": "⟩", "Fo": "«", "Fc": "»", "12": "½", "14": "¼", "34": "¾", "lB": "[",
    "rB": "]", "at": "@", "sh": "#",
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:"
    r"(?P<comment>[\"#].*)|f(?:\[[^]]*\]|\(..|.)|s(?:[+-]?\d{1,2}|\[[^]]*\])"
    r"|\*(?:\[(?P<star>[^]]*)\]|\((?P<star2>..)|.)|\[(?P<name>[^]]{1,20})\]|\((?P<two>..)"
    r"|N'(?P<number>\d{1,3})'|(?P<quoted>[hvwlLDNoXZbCx])'[^']{0,80}'"
    r"|[nmMFgkVY](?:\[[^]]*\]|\(..|[+-]?.)"
    r"|(?P<one>.)|$)"
)
_MDOC_NAMES_TEXT = """
Ac Ad An Ao Ap Aq Ar At Bc Bo Bq Brc Bro Brq Bsx Bx Cd Cm D1 Dc Dl Do Dq Dv Dx Ec Em En Eo Er Es Ev
Fa Fc Fd Fl Fn Fo Fr Ft Fx Hf Ic In Lb Li Lk Ms Mt Nd Nm No Ns Nx Oc Oo Op Ot Ox Pa Pc Pf Po Pq Ql
Qc Qo Qq Sc So Sq Sx Sy Tn Ux Va Vt Xc Xo Xr
"""
MDOC_NAMES: Final = frozenset(_MDOC_NAMES_TEXT.split())
_ENCLOSING: Final = {
    "Op": "[]", "Dq": "“”", "Sq": "‘’", "Pq": "()", "Bq": "[]", "Aq": "<>", "Brq": "{}", "Qq": '""',
    "Ql": "‘’",
}  # fmt: skip
_OPENING: Final = {"Oo": "[", "Do": "“", "So": "‘", "Po": "(", "Bo": "[", "Ao": "<", "Bro": "{", "Qo": '"'}
_CLOSING: Final = {"Oc": "]", "Dc": "”", "Sc": "’", "Pc": ")", "Bc": "]", "Ac": ">", "Brc": "}", "Qc": '"'}
_SYSTEMS: Final = {
    "Bx": "BSD",
    "Fx": "FreeBSD",
    "Nx": "NetBSD",
    "Ox": "OpenBSD",
    "Ux": "UNIX",
    "At": "AT&T UNIX",
}
_FUSE: Final = "\x01"
_SHOWN: Final = {
    "Ns": [_FUSE], "Ap": [_FUSE, "'", _FUSE], "Nd": ["-"],
    **{name: [shown] for name, shown in _SYSTEMS.items()},
}  # fmt: skip
_CALLS: Final = {
    "Xr": re.compile(r"^([\w.:+-]+) (\d\w{0,3})\b"),
    "Fn": re.compile(r"^(\S+) ?(.*?)([.,;:]*)$"),
}
_FUSED: Final = re.compile(f" *{_FUSE} *| +(?=[.,;:?!)\\]}}”’]+(?: |$))|(?<=[(\\[{{“‘]) +")


def plain(text: str) -> str:
    """Text without roff's escapes."""
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    name = match["name"] or match["two"]
    if name is not None:
        if re.fullmatch(r"u[0-9A-F]{4,5}", name):
            return _character(int(name[1:], 16))
        if re.fullmatch(r"char\d{1,3}", name):
            return _character(int(name[4:]))
        return _NAMES.get(name, "")
    star = match["star"] or match["star2"]
    if star is not None:
        return _NAMES.get(star, "")
    if match["number"] is not None:
        return _character(int(match["number"]))
    one = match["one"]
    if one is None or match["comment"] is not None or match["quoted"] is not None:
        return ""
    return {
        "-": "-",
        "e": "\\",
        "\\": "\\",
        "'": "'",
        "`": "`",
        "~": " ",
        " ": " ",
        "0": " ",
        "t": " ",
        ".": ".",
    }.get(one, "")


def _character(code: int) -> str:
    return "" if code < 32 or 0xD800 <= code < 0xE000 else chr(code)


def arguments_of(text: str) -> list[str]:
    """A macro's arguments: split at blanks, quoted by `"`."""
    found = re.findall(r'"((?:[^"]|"")*)"?|((?:\\.|\S)+)', text.split('\\"')[0])
    return [quoted.replace('""', '"') if quoted or not bare else bare for quoted, bare in found]


def mdoc_line(name: str, arguments: list[str], page: str) -> str:
    """What a line of mdoc(7) shows: option letters have their dash, enclosed words their marks."""
    parts: list[str] = []
    ends: list[str] = []
    called = [name, *arguments]
    for at, word in enumerate(called):
        if word not in MDOC_NAMES:
            parts.append(plain(word))
            continue
        following = called[at + 1] if at + 1 < len(called) else ""
        bare = not following or following in MDOC_NAMES or not any(c.isalnum() for c in following)
        parts += _of_macro(word, bare, page)
        ends += [_ENCLOSING[word][1]] if word in _ENCLOSING else []
    tail: list[str] = []
    while ends and parts and re.fullmatch(r"[.,;:?!]", parts[-1]):
        tail.insert(0, parts.pop())
    for end in reversed(ends):
        parts += [_FUSE, end]
    text = _FUSED.sub("", " ".join([*parts, *tail]))
    shape = _CALLS.get(name)
    return shape.sub(_called, text) if shape else text


def _of_macro(name: str, bare: bool, page: str) -> list[str]:
    """What a macro puts before its words; `bare` if it has none."""
    if name == "Fl":
        return ["-"] if bare else ["-", _FUSE]
    if name in ("Nm", "Ar"):
        return [page if name == "Nm" else "file ..."] if bare else []
    if name in _OPENING or name in _ENCLOSING:
        return [_OPENING.get(name) or _ENCLOSING[name][0], _FUSE]
    if name in _CLOSING:
        return [_FUSE, _CLOSING[name]]
    return _SHOWN.get(name, [])


def _called(match: re.Match[str]) -> str:
    end = match[3] if match.re.groups > 2 else ""
    return f"{match[1]}({match[2]}){end}"
