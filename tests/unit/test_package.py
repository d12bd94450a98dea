"""What can be imported from the package itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import noesium_stream

ALSO = {"Projection": "BaseProjection"}
"""Second names."""


@pytest.mark.parametrize("name", noesium_stream.__all__)
def test_every_exported_name_is_there_and_is_the_layer_s_own(name: str) -> None:
    found = getattr(noesium_stream, name)
    assert found.__name__ == ALSO.get(name, name)
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
