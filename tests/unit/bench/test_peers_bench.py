"""The bench of peers: its table is right, and what cannot be measured stops nothing else."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.peers import command, installing, systems
from tests.bench.peers.command import Measured, main, measure, report
from tests.bench.peers.handler import HANDLERS, handler_bench
from tests.bench.peers.installing import Installer, NotInstalledError
from tests.bench.peers.settings import QUICK
from tests.bench.peers.systems import SYSTEMS, Ground, System
from tests.bench.peers.table import COLUMNS, HANDLER_COLUMNS, number, table

FASTEST = "sqlite-sync,langgraph-sqlite-sync"
KNOWN = next(system for system in SYSTEMS if system.name == "langgraph-sqlite-sync")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_quick_run_fills_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["--quick", "--peers", FASTEST, "--work", str(tmp_path), "--folder", str(tmp_path)]) == 0
    title, rule, *rows = [cells(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "|"]
    assert title == ["system", *COLUMNS.values(), "durability"]
    assert rule == ["---", *["--:"] * len(COLUMNS), "---"]
    assert [row[0] for row in rows] == [one.label for one in SYSTEMS if one.name in FASTEST.split(",")]
    for row in rows:
        values = dict(zip(COLUMNS, row[1:-1], strict=True))
        assert all(float(value.replace(",", "")) > 0 for value in values.values() if value != "–")
        assert [name for name, value in values.items() if value == "–"] == (
            [] if row[0].startswith("noesium") else ["bulk"]
        )
        assert float(values["first"]) <= float(values["complete"])
        assert float(values["disk"]) >= 1, "messages take at least their own bytes"
        assert "synchronous=FULL" in row[-1]


def test_a_cell_is_the_median_of_the_rounds_and_unmeasured_columns_are_left_out():
    found = {"one": {"runs": [900.0, 1100.0, 1000.4], "disk": [2.0]}, "two": {"runs": [3.0, 5.0, 4.0]}}
    lines = table(
        "system", COLUMNS, {"one": ("One", "FULL"), "two": ("Two", "none"), "no": ("No", "-")}, found
    )
    assert [cells(line) for line in lines] == [
        ["system", COLUMNS["runs"], COLUMNS["disk"], "durability"],
        ["---", "--:", "--:", "---"],
        ["One", "1,000", "2.00", "FULL"],
        ["Two", "4.00", "–", "none"],
    ]
    assert [number(value) for value in (12_345.6, 234.5, 99.94, 1.234)] == ["12,346", "234", "99.9", "1.23"]


def absent(name: str) -> System:
    def refuse(ground: Ground, folder: Path) -> None:
        raise NotInstalledError("there is no such package")

    return System(name, name, "none", "langgraph_peer.py", refuse)  # type: ignore[arg-type]


def broken(name: str) -> System:
    return replace(KNOWN, name=name, label=name, program="peer_common.py")


async def test_a_peer_that_fails_is_a_line_with_its_reason_and_stops_nothing_else(tmp_path: Path):
    sides = [
        absent("absent"),
        broken("broken"),
        next(s for s in SYSTEMS if s.name == "langgraph-sqlite-sync"),
    ]
    async with AsyncExitStack() as stack:
        ground = Ground(tmp_path, Installer(tmp_path), stack)
        measured = await measure(QUICK, sides, ("lone",), ground)
    assert measured.failed["absent"] == "there is no such package"
    assert measured.failed["broken, speed"].startswith("RuntimeError: it ended with 0")
    assert set(measured.found) == {KNOWN.name}
    said = "\n".join(report(QUICK, measured))
    assert "- Not measured: absent: there is no such package" in said
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "what was measured is removed"


async def test_an_installer_that_fails_gives_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool = tmp_path / "go"
    tool.write_text("#!/bin/sh\necho first; echo 'requires go >= 99'; exit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalledError, match="go failed: requires go >= 99"):
        await Installer(tmp_path / "cache").go("temporal", 1)
    with pytest.raises(NotInstalledError, match="npm is not installed"):
        await Installer(tmp_path / "cache").npm("restate")


def test_sides_take_turns_in_changing_order_and_every_round_counts(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    async def once(settings: object, system: System, *rest: object) -> dict[str, float]:
        asked.append(system.name)
        return {"disk": float(len(asked))}

    monkeypatch.setattr(command, "_once", once)
    sides = SYSTEMS[:2]
    ground = Ground(Path(), Installer(Path()), AsyncExitStack())
    measured: Measured = command.asyncio.run(measure(replace(QUICK, rounds=3), sides, ("disk",), ground))
    one, two = (side.name for side in sides)
    assert asked == [one, two, two, one, one, two]
    assert measured.found == {one: {"disk": [1.0, 4.0, 5.0]}, two: {"disk": [2.0, 3.0, 6.0]}}


@pytest.mark.soak
async def test_handlers_are_measured_and_their_output_is_checked(tmp_path: Path):
    async with AsyncExitStack() as stack:
        ground = Ground(tmp_path, Installer(tmp_path), stack)
        bench = await stack.enter_async_context(handler_bench(QUICK, ground))
        found = await bench.once(HANDLERS[0])
        assert set(found) == set(HANDLER_COLUMNS)
        assert found["count"] > 0 < found["sum"]
        bench._expected = {"count": 1}
        with pytest.raises(RuntimeError, match=r"2,000 records .* add up to 2,000, instead"):
            await bench._in_mode(HANDLERS[0], "count", ground.fresh("again"))


def test_json_has_every_round(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    async def once(*_: object) -> dict[str, float]:
        return {"disk": 2.0}

    monkeypatch.setattr(command, "_once", once)
    assert main(["--only", "disk", "--peers", "restate", "--rounds", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["found"] == {"restate": {"disk": [2.0, 2.0]}}
    assert answer["settings"]["conversations"] == 20


def test_every_version_is_pinned_and_every_system_says_how_durable_it_is():
    for packages in installing.VERSIONS["python"].values():
        assert all("==" in package for package in packages)
    for registry in ("npm", "go"):
        assert all("@" in package[1:] for package in installing.VERSIONS[registry].values())
    assert all(one.durability and (systems.PROGRAMS / one.program).exists() for one in SYSTEMS)
    assert all(one.durability for one in HANDLERS)
    assert len({one.name for one in (*SYSTEMS, *HANDLERS)}) == len(SYSTEMS) + len(HANDLERS)
