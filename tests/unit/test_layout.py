"""The unit tests lie as the code does: each file is named after the module that it tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
TESTED = {"agents": ROOT / "agents", "bench": ROOT / "tests" / "bench"}
"""What lies elsewhere than in the package; these folders mirror it as a whole."""
MOST = 25
FOLDERS = sorted({file.parent for file in UNIT.rglob("test_*.py")} - {UNIT})


def shown(folder: Path) -> str:
    """A folder's name in the test's."""
    return str(folder.relative_to(UNIT))


def modules(folder: Path) -> set[str]:
    """The modules and packages in a folder of the package."""
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder.name not in TESTED], ids=shown)
def test_a_file_is_named_after_a_module_of_its_folder(folder: Path) -> None:
    first, *rest = folder.relative_to(UNIT).parts
    tested = TESTED.get(first, ROOT / "noesium_stream" / first).joinpath(*rest)
    assert tested.is_dir(), f"{folder} tests a package that is not there"
    names = modules(tested) | {tested.name}
    tests = [file.stem.removeprefix("test_") for file in folder.glob("test_*.py")]
    strange = [test for test in tests if not any(f"{test}_".startswith(f"{name}_") for name in names)]
    assert strange == []


@pytest.mark.parametrize(
    "package", [UNIT, ROOT / "noesium_stream", ROOT / "agents"], ids=lambda path: path.name
)
def test_no_folder_is_crowded(package: Path) -> None:
    count = Counter(file.parent for file in package.rglob("*.py"))
    assert [str(folder.relative_to(ROOT)) for folder, files in count.items() if files > MOST] == []
