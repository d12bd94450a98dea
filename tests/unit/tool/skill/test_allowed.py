"""`allowed-tools` as permissions: what is not known gives nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.tool.skill.allowed import AllowedTools, parse_allowed_tools


@pytest.mark.parametrize(
    ("text", "permissions"),
    [
        ("Bash(git:*) Bash(jq:*) Read", ("shell:execute", "fs:read")),
        ("Bash(git add:*)  Write(./reports/**)", ("shell:execute", "fs:write:reports/**")),
        ("Read(data/**) Grep(data/**)", ("fs:read:data/**",)),
        ("WebFetch(domain:example.com) WebSearch", ("net:outbound:example.com", "net:outbound")),
        ("mcp__crm__find_order mcp__crm", ("mcp:connect:crm",)),
        ("fs:write:out/** sql:read:orders own:thing", ("fs:write:out/**", "sql:read:orders", "own:thing")),
        ("", ()),
        ("   ", ()),
    ],
)
def test_known_names_stand_for_permissions(text: str, permissions: tuple[str, ...]) -> None:
    found = parse_allowed_tools(text)
    assert found.permissions == permissions
    assert found.unknown == ()


@pytest.mark.parametrize(
    "text",
    ["Task", "WebFetch(example.com)", "Read()", "mcp__crm(x)", "fs:read(x)", "Bash(a(b))", ")", "bash"],
)
def test_what_is_not_understood_gives_nothing(text: str) -> None:
    found = parse_allowed_tools(text)
    assert found.permissions == ()
    assert found.unknown


def test_the_parts_are_kept_as_they_are_written() -> None:
    assert parse_allowed_tools("Bash(git add:*) Task") == AllowedTools(
        ("Bash(git add:*)", "Task"), ("shell:execute",), ("Task",)
    )


@given(st.text(alphabet="Read(): *mcp_x\n", max_size=200))
def test_any_text_is_read(text: str) -> None:
    parse_allowed_tools(text)
