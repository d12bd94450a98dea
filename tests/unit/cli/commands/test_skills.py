"""`noesium skills`: what it lists, what it finds wrong, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noesium_stream.cli import app
from noesium_stream.cli.commands.skills import skills_command
from noesium_stream.tool.skill.folder import load_skill_folder
from tests.support.skill_folders import EXAMPLE, skill_folder


def said(*args: str) -> Result:
    result = CliRunner().invoke(skills_command, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_skills_are_listed_with_their_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill_folder(tmp_path / "skills", "second")
    skill_folder(tmp_path / "skills", "first", matter="name: {name}\ndescription: d\nallowed-tools: Read\n")
    monkeypatch.chdir(tmp_path)
    result = said("list")
    assert result.exit_code == 0
    hashes = [load_skill_folder(tmp_path / "skills" / name).hash[:12] for name in ("first", "second")]
    assert result.stdout.splitlines() == [
        "NAME    FILES  HASH          ALLOWED",
        f"first       1  {hashes[0]}  Read",
        "  d",
        f"second      1  {hashes[1]}  -",
        "  Does things.",
    ]


def test_json_has_all_of_a_skill() -> None:
    (found,) = json.loads(said("list", str(EXAMPLE), "--json").stdout)
    assert found["hash"] == load_skill_folder(EXAMPLE).hash
    assert found["permissions"] == [
        "shell:execute",
        "fs:read:data/**",
        "fs:read:reports/**",
        "fs:write:reports/**",
    ]
    assert found["files"][0]["path"] == "SKILL.md"


def test_a_skill_that_is_not_valid_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    skill_folder(tmp_path, "good")
    skill_folder(tmp_path, "Bad")
    result = said("list", str(tmp_path))
    assert result.exit_code == 1
    assert "good" in result.stdout
    assert "Bad is not valid: SKILL.md:2: name may only have" in result.stderr


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_folder_that_is_not_there_is_bad_input(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["skills", command, "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: There is no folder nosuch.")


def test_check_names_all_problems_with_file_and_line(tmp_path: Path) -> None:
    bad = skill_folder(tmp_path, "bad", matter="name: other\nwhat: 1\n", body="[x](gone.md)")
    good = skill_folder(tmp_path, "good", body="[x](gone.md)")
    result = said("check", str(bad), str(good))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{bad}/SKILL.md:1: The front matter has no description.",
        f"{bad}/SKILL.md:2: name is 'other', but the folder is named 'bad'.",
        f"{bad}/SKILL.md:3: There is no field 'what'; own values belong below metadata.",
        f"{bad}/SKILL.md:5: advice: The skill has no file gone.md.",
        f"{good}/SKILL.md:5: advice: The skill has no file gone.md.",
    ]
    assert "1 of 2 skills are valid" in result.stderr


def test_advice_alone_is_no_failure_and_json_says_both(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, body="[x](gone.md)")
    result = said("check", str(folder), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "path": str(folder),
            "valid": True,
            "problems": [
                {"file": "SKILL.md", "line": 5, "message": "The skill has no file gone.md.", "advice": True}
            ],
        }
    ]


def test_hostile_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, matter='name: {name}\ndescription: "\\e[2Jx"\n"\\e]0;y\\a": 1\n')
    result = said("check", str(folder))
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    listed = skill_folder(tmp_path, "other", matter='name: {name}\ndescription: "\\e[2Jx"\n')
    assert "\x1b" not in said("list", str(listed)).stdout


def test_a_folder_without_skills_is_said(tmp_path: Path) -> None:
    result = said("list", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "There are no skills in" in result.stderr
    assert said("check", str(tmp_path)).exit_code == 1
