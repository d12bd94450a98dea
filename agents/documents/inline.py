"""Lines of Markdown or reStructuredText as people read them: without links, emphasis and roles."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

_Shown = str | Callable[[re.Match[str]], str]

# every repetition is bounded: a line may have a million brackets
_CODE: Final = re.compile(r"(?<![\\`])(`{1,3})(?!`)(.{1,2000}?)(?<!`)\1(?!`)", re.S)
_TARGET: Final = r"\(\s{0,3}(?:<[^<>]{0,2000}>|(?:[^()\s]|\([^()\s]{0,300}\)){0,2000})"
_TITLE: Final = r"(?:\s{1,3}(?:\"[^\"]{0,300}\"|'[^']{0,300}'|\([^()]{0,300}\)))?\s{0,3}\)"
_LABEL: Final = r"\[[^\[\]]{0,300}\]"
_IMAGE: Final = re.compile(rf"!\[[^\[\]]{{0,500}}\](?:{_TARGET}{_TITLE}|{_LABEL})")
_LINK: Final = re.compile(rf"\[([^\[\]]{{0,500}})\](?:{_TARGET}{_TITLE}|{_LABEL})")
_FOOTNOTE: Final = re.compile(r"\[\^[^\[\]\s]{1,60}\]:?")
_AUTOLINK: Final = re.compile(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>")
_TAGS_TEXT: Final = (
    "abbr article aside blockquote body br button center cite code col colgroup dd del details div dl dt em "
    "figcaption figure font footer form h[1-6] header hr iframe img input ins kbd label li link main mark "
    "meta nav ol option picture pre samp script section select small source span strike strong style sub "
    "summary sup svg table tbody td tfoot th thead tr tt ul var video wbr a b i p q s u"
)
_TAG: Final = re.compile(
    rf"</?(?:{'|'.join(_TAGS_TEXT.split())})(?:\s[^<>]{{0,1000}})?/?>|<!--(?:(?!-->|<!--).){{0,4000}}-->",
    re.I | re.S,
)
_STRONG: Final = re.compile(r"(\*\*|__|~~)(?=\S)((?:(?!\1).){1,1000})(?<=\S)\1", re.S)
_EMPHASIS: Final = re.compile(
    r"(?<![\w*])\*(?=\S)([^*]{1,500}?)(?<=\S)\*(?![\w*])|(?<!\w)_(?=[^\s_])([^_]{1,500}?)(?<=\S)_(?!\w)"
)
_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});")
_ESCAPE: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARKER: Final = re.compile(r"^#{1,6}\s+|^([-*+]\s+|\d{1,3}[.)]\s+)?\[[ xX]\]\s+|^>\s?")
_ROLE: Final = re.compile(
    r"(?<![\w`]):[\w:.+-]{1,40}:`([^`]{1,1000})`|`([^`]{1,1000})`(?:_{1,2}(?!\w)|:[\w:.+-]{1,40}:)?"
)
_ROLE_TARGET: Final = re.compile(r"([^<>]*?)\s*<([^<>]*)>", re.S)
_LITERAL: Final = re.compile(r"``(.{1,2000}?)``(?!`)", re.S)
_SUBSTITUTION: Final = re.compile(r"(?<![\w|])\|(?=\S)([\w -]{1,60})(?<=\S)\|_{0,2}(?![\w|])")
_REFERENCE: Final = re.compile(
    r"(?<![\w`])([A-Za-z](?:[\w.-]{0,60}[A-Za-z0-9])?|\[[\w#*.-]{1,40}\])__?(?![\w])"
)
_STRONG_OF_RST: Final = re.compile(r"(\*\*)(?=\S)((?:(?!\1).){1,1000})(?<=\S)\1", re.S)
_EMPHASIS_OF_RST: Final = re.compile(r"(?<![\w*])\*(?=\S)([^*]{1,500}?)(?<=\S)\*(?![\w*])")
_FOOTNOTE_OF_RST: Final = re.compile(r"^\s*\.\. (?=\[)")
_FIELD: Final = re.compile(
    r"^\s*:(?:(?:param|parameter|arg|argument|keyword|key|type|raises?|except|exception|var|ivar|cvar)\s+)?"
    r"([^\s:`][^:`\n]{0,60}):(?=\s|$)"
)
_DIRECTIVE: Final = re.compile(r"^\s*\.\. ([\w:-]{1,40})::[ \t]*")

_PLACE: Final = 0xF0000
_PLACES: Final = 0xFFF0
_ESCAPED: Final = 0x100000
_HELD: Final = re.compile(f"[{chr(_PLACE)}-{chr(_PLACE + _PLACES)}]")
_HELD_ESCAPE: Final = re.compile(f"[{chr(_ESCAPED)}-{chr(_ESCAPED + 127)}]")


def plain(text: str, syntax: str) -> str:
    """`text` without inline markup of `syntax` ("markdown", "python", "rst" or "")."""
    return " ".join(plain_lines(text, syntax).split())


def plain_lines(text: str, syntax: str) -> str:
    """`text` without inline markup, with as many ends of lines as before."""
    if syntax == "markdown":
        return _without(text, _CODE, 2, _of_markdown)
    if syntax == "rst":
        return _without(substituted(_DIRECTIVE, _spoken, text), _LITERAL, 1, _of_rst)
    if syntax == "python":
        return _without(text, _LITERAL, 1, _of_docstring)
    return text


def substituted(pattern: re.Pattern[str], shown: _Shown, text: str) -> str:
    """`pattern.sub(shown, text)` that keeps the number of lines."""

    def one(match: re.Match[str]) -> str:
        found = shown(match) if callable(shown) else match.expand(shown)
        return found + "\n" * (match[0].count("\n") - found.count("\n"))

    return pattern.sub(one, text)


def _without(text: str, code: re.Pattern[str], group: int, clean: Callable[[str], str]) -> str:
    """`text` cleaned but for its spans of code, which are held out of it meanwhile."""
    spans: list[str] = []

    def hold(match: re.Match[str]) -> str:
        if len(spans) > _PLACES:
            return match[0]
        spans.append(f"`{match[group].strip(' ')}`")
        return chr(_PLACE + len(spans) - 1)

    held = _HELD_ESCAPE.sub("", _HELD.sub("", text))
    held = code.sub(hold, held)
    held = _ESCAPE.sub(lambda match: chr(_ESCAPED + ord(match[1])), held)
    found = clean(held)
    found = _HELD_ESCAPE.sub(lambda match: chr(ord(match[0]) - _ESCAPED), found)
    return _HELD.sub(lambda match: spans[ord(match[0]) - _PLACE], found)


def _of_markdown(text: str) -> str:
    text = _MARKER.sub(lambda match: match[1] or "", text)
    text = substituted(_IMAGE, " ", text)
    for pattern, shown in ((_LINK, r"\1"), (_FOOTNOTE, ""), (_AUTOLINK, r"\1"), (_TAG, _of_tag)):
        text = substituted(pattern, shown, text)
    text = substituted(_STRONG, r"\2", text)
    text = substituted(_EMPHASIS, lambda match: match[1] or match[2], text)
    text = re.sub(r"\\(?=\n|$)", "", text)
    return _ENTITY.sub(lambda match: " ".join(html.unescape(match[0]).split()) or " ", text)


def _of_tag(match: re.Match[str]) -> str:
    return " " if re.match(r"</?(?:br|td|th|tr|p|li|div|h\d|dd|dt|hr)\b", match[0], re.I) else ""


def _of_rst(text: str) -> str:
    text = _FIELD.sub(r"\1:", _FOOTNOTE_OF_RST.sub("", text))
    text = substituted(_ROLE, _named, text)
    text = substituted(_SUBSTITUTION, r"\1", text)
    text = substituted(_STRONG_OF_RST, r"\2", text)
    text = substituted(_EMPHASIS_OF_RST, r"\1", text)
    text = _REFERENCE.sub(r"\1", text).replace("\\ ", "")
    text = re.sub(r"\\(?=\n|$)", "", text)
    found = text.rstrip()
    return f"{found[:-2].rstrip(' ')}:{text[len(found) :]}" if found.endswith("::") else text


def _of_docstring(text: str) -> str:
    text = _FIELD.sub(r"\1:", text)
    return substituted(_ROLE, lambda match: _named(match) if match[1] else match[0], text)


def _named(match: re.Match[str]) -> str:
    """What a role or a link shows: `text <target>` is its text."""
    shown = str(match[1] or match[2]).lstrip("~!")
    with_target = _ROLE_TARGET.fullmatch(shown)
    return (with_target[1] or with_target[2]) if with_target else shown


def _spoken(match: re.Match[str]) -> str:
    """What a directive says to readers: `note::` is "Note:", `option::` nothing."""
    name = match[1]
    if name in ("note", "warning", "tip", "important", "caution", "hint", "attention", "danger", "error"):
        return f"{name.capitalize()}: "
    if name == "seealso":
        return "See also: "
    if name.startswith("version") or name == "deprecated":
        words = {
            "versionadded": "New in version ",
            "versionchanged": "Changed in version ",
            "versionremoved": "Removed in version ",
        }
        return words.get(name, "Deprecated since version ")
    return ""
