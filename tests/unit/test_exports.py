"""Packages that import their modules on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = ("noesium_stream.agent", "noesium_stream.kernel", "noesium_stream.worker")


@pytest.mark.parametrize("name", PACKAGES)
def test_type_checkers_and_programs_see_the_same_names(name: str) -> None:
    package = import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text())
    imported = {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{name}.")
        for alias in node.names
    }
    assert sorted(imported) == sorted(package.__all__)
    for export, module in imported.items():
        assert getattr(package, export) is getattr(import_module(module), export)
        assert export in dir(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_that_is_not_exported_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Wroker'"):
        _ = import_module(name).Wroker


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_loads_without_langgraph(name: str) -> None:
    code = f"import sys, {name}; print('langgraph' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
