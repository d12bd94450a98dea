"""`tool/builtin/files_edit.py`: an edit is made once, at the one place where it fits."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noesium_stream.errors import ToolInputError
from noesium_stream.tool.builtin.files_edit import edited
from noesium_stream.tool.builtin.files_open import version_of

TEXTS = st.text("ab\n", max_size=12).map(str.encode)


@given(TEXTS, st.text("ab\n", min_size=1, max_size=4).map(str.encode), TEXTS)
def test_an_edit_is_exact_and_is_recognised_when_it_is_repeated(data: bytes, old: bytes, new: bytes) -> None:
    assume(old != new)
    version = version_of(data)
    places = [at for at in range(len(data)) if data.startswith(old, at)]
    if len(places) != 1:
        with pytest.raises(ToolInputError):
            edited(data, old, new, version)
        return
    at = places[0]
    done = edited(data, old, new, version)
    assert done.data == data[:at] + new + data[at + len(old) :]
    assert done.line == data[:at].count(b"\n") + 1
    if new:
        assert edited(done.data, old, new, version).data == done.data
    else:
        with pytest.raises(ToolInputError, match="has not the version"):
            edited(done.data, old, new, version)


@given(TEXTS, TEXTS, st.text("ab\n", min_size=1, max_size=4).map(str.encode), TEXTS)
def test_a_text_of_another_version_is_never_changed(
    before: bytes, data: bytes, old: bytes, new: bytes
) -> None:
    assume(before != data)
    try:
        done = edited(data, old, new, version_of(before))
    except ToolInputError:
        return
    assert done.data == data


@pytest.mark.parametrize(
    ("data", "old", "said"),
    [
        (b"a\nb\na\n", b"a", "lines 1, 3"),
        (b"x\n" * 9, b"x", "lines 1, 2, 3, 4, 5, …"),
        (b"aaa", b"aa", "lines 1, 1"),
        (b"abc", b"d", "not in the file"),
        (b"a\r\nb", b"a\nb", r"end with \\r\\n"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(data: bytes, old: bytes, said: str) -> None:
    with pytest.raises(ToolInputError) as refused:
        edited(data, old, b"new", version_of(data))
    assert said.replace("\\\\", "\\") in str(refused.value)


def test_the_look_for_an_earlier_edit_is_bounded() -> None:
    data = b"\n" * 5_000_000
    with pytest.raises(ToolInputError, match="has not the version"):
        edited(data, b"old", b"\n", version_of(b"something else"))
