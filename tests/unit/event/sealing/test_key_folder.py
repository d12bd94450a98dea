"""Keys of data subjects: made once, the same for all processes, destroyed for good."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.errors import SubjectKeyError
from noesium_stream.event.sealing.key_folder import KeyFolder
from noesium_stream.event.sealing.keys import DestroyedKey, KeyRing, SubjectKeys, key_id_of


@pytest.fixture(params=["folder", "ring"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> SubjectKeys:
    return KeyRing() if request.param == "ring" else KeyFolder(tmp_path / "keys", SystemClock())


def test_a_subject_has_one_key_until_it_is_destroyed_and_another_one_then(keys: SubjectKeys) -> None:
    first = keys.current("user:ada")
    assert keys.current("user:ada") == first == keys.find(first.key_id)
    assert keys.current("user:bo").secret != first.secret
    assert keys.destroy("user:ada", 7) == [DestroyedKey(first.key_id, "user:ada", 7)]
    assert keys.find(first.key_id) is None
    assert (keys.living("user:ada"), keys.destroy("user:ada", 8)) == ([], [])
    assert keys.destroyed("user:ada") == [DestroyedKey(first.key_id, "user:ada", 7)]
    second = keys.current("user:ada")
    assert second.key_id != first.key_id
    assert second.secret != first.secret
    assert keys.living("user:bo") == [key_id_of("user:bo", 1)]


def test_a_key_that_was_never_there_is_not_a_destroyed_one(keys: SubjectKeys) -> None:
    for name in (key_id_of("user:ada", 1), "../../etc/passwd"):
        with pytest.raises(SubjectKeyError, match="was not destroyed there"):
            keys.find(name)


def test_a_process_that_has_read_a_key_does_not_outlive_its_destruction(tmp_path: Path) -> None:
    one, other = (KeyFolder(tmp_path / "keys", SystemClock()) for _ in range(2))
    key = one.current("user:ada")
    assert other.find(key.key_id) == key
    other.destroy("user:ada", 7)
    assert one.find(key.key_id) is None
    assert one.current("user:ada").key_id == key_id_of("user:ada", 2)


def test_the_files_are_private_and_a_half_destroyed_key_is_destroyed(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path / "keys", SystemClock())
    key = folder.current("user:ada")
    path = tmp_path / "keys" / f"{key.key_id}.key"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    path.with_suffix(".erased").write_text('{"subject": "user:ada", "at_ms": 3}')  # and then it was killed
    fresh = KeyFolder(tmp_path / "keys", SystemClock())
    assert fresh.find(key.key_id) is None
    assert [one.key_id for one in fresh.destroy("user:ada", 9)] == [key.key_id]
    assert not path.exists()
    assert fresh.destroyed("user:ada") == [DestroyedKey(key.key_id, "user:ada", 3)]


def test_a_damaged_key_is_named_and_never_replaced(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path / "keys", SystemClock())
    key = folder.current("user:ada")
    for damaged in ("", "[]", '{"subject": "user:ada", "secret": "AAAA"}', '{"subject": "user:bo"}'):
        (tmp_path / "keys" / f"{key.key_id}.key").write_text(damaged)
        with pytest.raises(SubjectKeyError, match="is no key of a data subject"):
            KeyFolder(tmp_path / "keys", SystemClock()).current("user:ada")
