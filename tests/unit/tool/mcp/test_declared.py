"""Declarations of MCP servers."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.tool.mcp import Bearer, mcp


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("npx -y @acme/crm-server@1.2 --flag", "crm-server"),
        ("uvx mcp_server.git", "mcp-server"),
        ("/usr/bin/crm.sh", "crm"),
        ("https://mcp.example.com/v1", "mcp-example-com"),
        (["python", "-m", "server"], "server"),
    ],
)
def test_a_name_is_taken_from_the_package_the_program_or_the_host(target: Any, name: str) -> None:
    assert mcp(target).name == name


def test_a_command_is_split_without_a_shell() -> None:
    program = mcp("crm 'a b' $HOME; rm").server.program
    assert program is not None
    assert program.command == ("crm", "a b", "$HOME;", "rm")
    assert program.environment == ("PATH",)


def test_later_declarations_go_before_earlier_ones_option_by_option() -> None:
    server = mcp(
        "crm", declare={"*": {"timeout": 5, "tags": ["x"]}, "find_*": {"side_effects": "pure"}}
    ).server
    found = server.declaration("find_customer")
    assert (found.side_effects, found.timeout_ms, found.tags) == ("pure", 5_000, ("x",))
    assert server.declaration("delete").side_effects == "external"


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("crm 'open", {}),
        ("", {}),
        ("crm", {"name": "a b"}),
        ("crm", {"name": "a__b"}),
        ("crm", {"auth": Bearer("TOKEN")}),
        ("crm", {"declare": {"*": {"sideeffects": "pure"}}}),
        ("crm", {"declare": {"*": {"side_effects": "none"}}}),
        ("crm", {"declare": {"*": {"timeout": 0}}}),
        ("crm", {"connect_timeout": 0}),
        ("https://user:secret@example.com/mcp", {}),
    ],
)
def test_what_is_not_valid_is_refused_when_it_is_declared(target: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        mcp(target, **options)
    assert "secret" not in str(caught.value)
