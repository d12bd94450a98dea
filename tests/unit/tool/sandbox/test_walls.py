"""Walls come from what a call was granted, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.tool import Mode, ToolContext
from noesium_stream.tool.sandbox import Limits, Walls, walls_of


def walls(*granted: str, mode: Mode = Mode.ACT, **environment: str) -> Walls:
    context = ToolContext("clerk", Path("/w"), granted, timeout_ms=60_000, mode=mode)
    return walls_of(context, environment=environment)


def test_without_grants_there_is_nothing() -> None:
    found = walls(HOME="/root", TOKEN="secret")
    assert (found.readable, found.writable, found.network, found.environment) == ((), (), False, {})


def test_reading_does_not_let_write() -> None:
    found = walls("fs:read")
    assert (found.readable, found.writable) == (("**",), ())


def test_a_subtree_alone_is_writable() -> None:
    found = walls("fs:read", "fs:write:reports/**")
    assert (found.readable, found.writable) == (("**",), ("reports/**",))


def test_writing_goes_no_further_than_reading() -> None:
    assert walls("fs:write").writable == ()
    assert walls("fs:write", "fs:read:docs/**").writable == ("docs/**",)
    assert walls("fs:write:docs/a.txt", "fs:read:docs/**").writable == ("docs/a.txt",)
    assert walls("fs:write:docs2/**", "fs:read:docs/**").writable == ()


@pytest.mark.parametrize("mode", [Mode.ASK, Mode.PLAN])
def test_modes_that_only_read_write_nothing(mode: Mode) -> None:
    assert walls("fs:read", "fs:write", mode=mode).writable == ()


@pytest.mark.parametrize(
    "pattern",
    ["/etc/**", "../**", "a/../../**", "~/**", "*.md", "a/*.md", "a/**/b", "?", "a\x00b", "", "a\nb"],
)
def test_what_a_mount_cannot_express_opens_nothing(pattern: str) -> None:
    found = walls(f"fs:read:{pattern}", f"fs:write:{pattern}")
    assert (found.readable, found.writable) == ((), ())


def test_a_pattern_within_another_is_left_out() -> None:
    assert walls("fs:read:a/b/**", "fs:read:./a//**", "fs:read:c").readable == ("a/**", "c")


@pytest.mark.parametrize(
    ("grant", "opened"),
    [
        ("net:outbound", True),
        ("net:outbound:*", True),
        ("net:outbound:api.example.com", False),
        ("net", False),
    ],
)
def test_only_an_unrestricted_grant_opens_the_network(grant: str, opened: bool) -> None:
    assert walls(grant).network is opened


def test_variables_pass_by_name_and_never_those_that_change_the_sandbox() -> None:
    variables = {"TOKEN": "t", "AWS_KEY": "k", "LD_PRELOAD": "/x.so", "PATH": "/x", "A=B": "c"}
    assert walls("env:read:TOKEN", **variables).environment == {"TOKEN": "t"}
    assert walls("env:read:AWS_*", **variables).environment == {"AWS_KEY": "k"}
    assert walls("env:read", **variables).environment == {"TOKEN": "t", "AWS_KEY": "k"}


def test_the_shorter_time_limit_holds() -> None:
    context = ToolContext("clerk", Path("/w"), timeout_ms=2_000)
    assert walls_of(context).limits.wall_s == 2.0
    assert walls_of(replace(context, timeout_ms=90_000), limits=Limits(wall_s=1.5)).limits.wall_s == 1.5


def test_a_limit_is_over_zero() -> None:
    with pytest.raises(ConfigError, match="memory_bytes"):
        Limits(memory_bytes=0)


def test_walls_do_not_print_the_environment() -> None:
    assert "secret" not in repr(walls("env:read", TOKEN="secret"))
