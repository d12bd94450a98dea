"""What can be imported from the package itself."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import noesium_stream
import noesium_stream.memory
import noesium_stream.memory.extraction
import noesium_stream.tool
import noesium_stream.tool.sandbox.deepagents
from noesium_stream import errors

PACKAGE = Path(noesium_stream.__file__).parent
PAGES = [PACKAGE.parent / "README.md", *sorted((PACKAGE / "guides").glob("*.md"))]
INTERNAL = {"TenureEndedError"}
"""Errors that no caller meets."""


@pytest.mark.parametrize("name", noesium_stream.__all__)
def test_every_exported_name_is_there_and_is_the_layer_s_own(name: str) -> None:
    found = getattr(noesium_stream, name)
    assert found.__name__ == name
    assert found.__module__.startswith("noesium_stream.")
    assert name in dir(noesium_stream)


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = noesium_stream.Clinet


def test_importing_the_package_loads_none_of_its_layers() -> None:
    code = "import sys, noesium_stream; print([m for m in sys.modules if m.startswith('noesium_stream.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_program_that_only_asks_loads_neither_langgraph_nor_a_kafka_client() -> None:
    code = (
        "import sys, noesium_stream; noesium_stream.Client;"
        "print(sorted({'langgraph', 'langchain_core', 'confluent_kafka', 'aiokafka'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_import_all_that_is_no_test_helper_from_the_package_itself(page: Path) -> None:
    imported = re.findall(r"^\s*from (noesium_stream[\w.]*) import (.+)$", page.read_text(), re.MULTILINE)
    for module, names in imported:
        if module == "noesium_stream.testing":
            continue
        public = {
            "noesium_stream": noesium_stream.__all__,
            "noesium_stream.memory": noesium_stream.memory.__all__,
            "noesium_stream.memory.extraction": noesium_stream.memory.extraction.__all__,
            "noesium_stream.tool": noesium_stream.tool.__all__,
            "noesium_stream.tool.sandbox.deepagents": noesium_stream.tool.sandbox.deepagents.__all__,
        }
        assert module in public, f"{page.name}: from {module} import {names}"
        for name in re.split(r",\s*", names.strip("() ")):
            assert name in public[module], f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_error_that_a_page_names_is_exported(page: Path) -> None:
    named = set(re.findall(r"`([A-Z]\w+Error)\b", page.read_text())) - {"ValueError", "TypeError"}
    assert named <= set(noesium_stream.__all__)


def test_every_error_that_a_caller_meets_is_exported() -> None:
    own = {name for name, value in vars(errors).items() if inspect.isclass(value) and name.endswith("Error")}
    assert own - INTERNAL <= set(noesium_stream.__all__)


def test_the_extra_of_the_shipped_agents_has_what_their_toolkits_need() -> None:
    """The README's first command installs it, and `noesium chat` gives the assistant the toolkit `files`."""
    extras = tomllib.loads((Path(noesium_stream.__file__).parents[1] / "pyproject.toml").read_text())[
        "project"
    ]["optional-dependencies"]
    assert set(extras["files"]) <= set(extras["agents"])
