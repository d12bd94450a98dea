"""Skill folders: found, validated by the rules of the open format, and loaded with one hash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noesium_stream.errors import SkillNotFoundError
from noesium_stream.tool.skill.folder import (
    MAX_BODY,
    check_skill_folder,
    find_skills,
    load_skill_folder,
)
from tests.support.skill_folders import EXAMPLE, skill_folder


def problems(folder: Path) -> list[str]:
    return [f"{'advice ' if one.advice else ''}{one}" for one in check_skill_folder(folder)]


def test_the_example_is_valid_and_whole() -> None:
    assert check_skill_folder(EXAMPLE) == []
    skill = load_skill_folder(EXAMPLE)
    assert skill.name == "monthly-report"
    assert skill.description.startswith("Makes a monthly sales report")
    assert (skill.license, skill.metadata) == ("Apache-2.0", {"version": "1.0"})
    assert skill.allowed_tools is not None
    assert skill.allowed_tools.permissions == (
        "shell:execute",
        "fs:read:data/**",
        "fs:read:reports/**",
        "fs:write:reports/**",
    )
    assert skill.body.startswith("# Monthly report")
    assert skill.scripts == ("scripts/report.py",)
    assert [file.path for file in skill.files] == [
        "SKILL.md",
        "assets/report.md",
        "references/FORMAT.md",
        "scripts/report.py",
    ]


def test_the_smallest_skill_is_valid(tmp_path: Path) -> None:
    skill = load_skill_folder(skill_folder(tmp_path, "pdf-2"))
    assert (skill.name, skill.allowed_tools, skill.metadata, skill.license) == ("pdf-2", None, {}, None)


@pytest.mark.parametrize("name", ["a", "a1-b2", "x" * 64, "über-技能", "2"])
def test_names_that_the_format_allows(name: str, tmp_path: Path) -> None:
    assert problems(skill_folder(tmp_path, name)) == []


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a-", "a--b", "a b", "x" * 65, "a.b"])
def test_names_that_it_does_not_allow(name: str, tmp_path: Path) -> None:
    (problem,) = problems(skill_folder(tmp_path, name))
    assert problem.startswith("SKILL.md:2: name ")


@pytest.mark.parametrize(
    ("matter", "expected"),
    [
        (
            "name: other\ndescription: d\n",
            ["SKILL.md:2: name is 'other', but the folder is named 'some-skill'."],
        ),
        ("name: {name}\n", ["SKILL.md:1: The front matter has no description."]),
        ("description: d\n", ["SKILL.md:1: The front matter has no name."]),
        ("name: {name}\ndescription: ''\n", ["SKILL.md:3: description is empty."]),
        ("name:\ndescription: d\n", ["SKILL.md:2: name is empty."]),
        (
            "name: {name}\ndescription: " + "d" * 1_025 + "\n",
            ["SKILL.md:3: description has 1,025 characters; it may have 1,024."],
        ),
        (
            "name: {name}\ndescription: d\ncompatibility: " + "c" * 501 + "\n",
            ["SKILL.md:4: compatibility has 501 characters; it may have 500."],
        ),
        (
            "name: {name}\ndescription: d\nversion: 1\n",
            ["SKILL.md:4: There is no field 'version'; own values belong below metadata."],
        ),
        (
            "name: {name}\ndescription: d\nmetadata: 1\n",
            ["SKILL.md:4: metadata is no mapping of names to texts."],
        ),
        ("name: {name}\ndescription: [d]\n", ["SKILL.md:3: description is no text."]),
        ("name: {name}\ndescription: d\nallowed-tools: [Bash]\n", ["SKILL.md:4: allowed-tools is no text."]),
        (
            "name: {name}\ndescription: d\nallowed-tools: Task Bash\n",
            ["advice SKILL.md:4: allowed-tools: 'Task' names nothing that is known here."],
        ),
    ],
)
def test_every_problem_has_its_line(matter: str, expected: list[str], tmp_path: Path) -> None:
    assert problems(skill_folder(tmp_path, matter=matter)) == expected


def test_all_problems_are_listed_and_the_first_one_is_raised(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, matter="name: X\nwhat: 1\n")
    (folder / "link").symlink_to("/etc/passwd")
    assert len(problems(folder)) == 5
    with pytest.raises(SkillNotFoundError, match=r"SKILL.md:1: .*has no description.* \(and 4 more\)"):
        load_skill_folder(folder)


def test_links_in_the_body_to_files_that_are_not_there_get_advice(tmp_path: Path) -> None:
    body = "[a](references/A.md)\n[b](b.md)"
    body += " [c](https://x.y/z) [d](#part) [e](./references/A.md#x) [f](references/)"
    folder = skill_folder(tmp_path, body=body, files={"references/A.md": ""})
    assert problems(folder) == ["advice SKILL.md:6: The skill has no file b.md."]
    assert load_skill_folder(folder).body == body


def test_a_long_body_gets_advice_and_a_very_long_one_is_refused(tmp_path: Path) -> None:
    assert (
        "advice SKILL.md:5: The body has 501 lines"
        in problems(skill_folder(tmp_path, "a", body="x\n" * 500))[0]
    )
    assert "more than 200,000" in problems(skill_folder(tmp_path, "b", body="x" * (MAX_BODY + 1)))[0]


def test_a_folder_without_a_skill_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert problems(tmp_path / "empty") == ["SKILL.md: There is no SKILL.md."]
    for path in ("empty", "absent"):
        with pytest.raises(SkillNotFoundError) as refused:
            load_skill_folder(tmp_path / path)
        assert refused.value.hint == f"noesium skills check {tmp_path / path}"


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"SKILL.md": b"---\nname: \xff\n---\n"})
    assert problems(folder) == ["SKILL.md:2: It is no UTF-8 text."]


@pytest.mark.parametrize("changed", ["SKILL.md", "scripts/report.py", "mode", "new", "renamed"])
def test_the_hash_changes_with_everything_in_the_folder(changed: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(EXAMPLE, tmp_path / EXAMPLE.name))
    before = load_skill_folder(copy).hash
    assert before == load_skill_folder(EXAMPLE).hash
    if changed == "mode":
        (copy / "scripts" / "report.py").chmod(0o644)
    elif changed == "renamed":
        (copy / "references").rename(copy / "refs")
    elif changed == "new":
        (copy / "new.md").write_text("")
    else:
        with (copy / changed).open("a") as file:
            file.write("\n")
    assert load_skill_folder(copy).hash != before


def test_skills_are_found_below_a_folder_and_not_inside_each_other(tmp_path: Path) -> None:
    first = skill_folder(tmp_path / "b" / "c", "one", files={"examples/two/SKILL.md": ""})
    second = skill_folder(tmp_path, "a-skill")
    (tmp_path / "link").symlink_to(EXAMPLE)
    assert find_skills(tmp_path) == [second, first]
    assert find_skills(first) == [first]
    with pytest.raises(SkillNotFoundError, match="There is no folder"):
        find_skills(tmp_path / "absent")
