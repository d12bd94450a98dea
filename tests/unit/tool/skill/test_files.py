"""The files of a skill: listed, hashed, and read only if they are still the same; no link is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noesium_stream.errors import ToolExecutionError
from noesium_stream.tool.skill import files
from noesium_stream.tool.skill.files import list_files, read_file
from tests.support.skill_folders import skill_folder


def listed(folder: Path) -> tuple[list[str], list[str]]:
    found, problems = list_files(folder)
    return [file.path for file in found], [str(problem) for problem in problems]


def test_all_files_are_listed_but_those_that_are_no_part_of_a_skill(tmp_path: Path) -> None:
    folder = skill_folder(
        tmp_path,
        files={"scripts/a.py": "1", "references/deep/b.md": "2", ".git/x": "3", "s/__pycache__/c": "4"},
    )
    assert listed(folder) == (["SKILL.md", "references/deep/b.md", "scripts/a.py"], [])


def test_links_of_every_kind_are_problems_and_are_not_read(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"a.md": "a"})
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in").symlink_to("a.md")
    (folder / "above").symlink_to(tmp_path)
    found, problems = listed(folder)
    assert found == ["SKILL.md", "a.md"]
    assert [one.split(":")[0] for one in problems] == ["above", "in", "out"]
    for path in ("out", "in", "above/secret"):
        with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
            read_file(folder, path)


def test_a_link_that_takes_the_place_of_a_folder_leads_nowhere(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"references/a.md": "a"})
    elsewhere = tmp_path / "elsewhere"
    (folder / "references").rename(elsewhere)
    (folder / "references").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
        read_file(folder, "references/a.md")


def test_special_files_are_neither_opened_nor_waited_for(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path)
    os.mkfifo(folder / "pipe")
    assert listed(folder) == (["SKILL.md"], ["pipe: It is neither a file nor a folder."])
    with pytest.raises(OSError, match="no file"):
        read_file(folder, "pipe")


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    skill_folder(tmp_path / "real")
    (tmp_path / "some-skill").symlink_to(tmp_path / "real" / "some-skill")
    assert listed(tmp_path / "some-skill") == (["SKILL.md"], [])


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("MAX_FILES", "more than 3 files"),
        ("MAX_FILE_BYTES", "more than 3 bytes"),
        ("MAX_FOLDER_BYTES", "more than 3"),
    ],
)
def test_everything_has_a_bound(
    limit: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = skill_folder(tmp_path, files={f"{number}.md": "1234" for number in range(9)})
    monkeypatch.setattr(files, limit, 3)
    found, problems = listed(folder)
    assert len(found) < 10
    assert any(said in problem for problem in problems)


def test_a_folder_that_is_too_deep_is_a_problem(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"/".join("abcdefghij") + "/x": "x"})
    assert listed(folder) == (["SKILL.md"], ["a/b/c/d/e/f/g/h: It lies more than 8 folders deep."])


def test_names_that_nobody_can_see_are_problems(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"a\nb": "x", "c\u202ed": "x"})
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff"))).write_text("x")
    found, problems = listed(folder)
    assert found == ["SKILL.md"]
    assert len(problems) == 3


def test_a_changed_file_is_not_read(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"a.md": "one"})
    (file,) = [one for one in list_files(folder)[0] if one.path == "a.md"]
    assert read_file(folder, "a.md", file) == b"one"
    (folder / "a.md").write_text("two")
    with pytest.raises(ToolExecutionError, match="has changed since the skill was loaded"):
        read_file(folder, "a.md", file)


def test_the_mode_of_a_script_is_seen(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"a": "x", "b": "x"})
    (folder / "a").chmod(0o755)
    (folder / "b").chmod(0o644)
    assert {file.path: file.executable for file in list_files(folder)[0] if file.path != "SKILL.md"} == {
        "a": True,
        "b": False,
    }
