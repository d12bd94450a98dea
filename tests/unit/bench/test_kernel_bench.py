"""The kernel's bench measures what it says: small runs of every figure, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import kernel
from tests.bench.command import main
from tests.bench.harness import Figure
from tests.bench.kernel import KernelSettings


@pytest.fixture
def small(tmp_path: Path) -> KernelSettings:
    return KernelSettings(
        tmp_path,
        nodes=8,
        repetitions=2,
        turns=(5, 10),
        message_bytes=(2_000,),
        resumed=30,
        replayed=20,
        waiting=20,
    )


def positive(figures: list[Figure]) -> bool:
    return all(
        value > 0 for figure in figures for side in (figure.ours, figure.theirs) for value in side.values
    )


@pytest.mark.soak
async def test_a_chain_is_run_by_a_worker_and_by_langgraph_on_both_logs(small: KernelSettings):
    in_memory, on_sqlite = await kernel.measure_chain(small)
    assert positive([in_memory, on_sqlite])
    assert (in_memory.theirs.label, in_memory.target) == ("LangGraph, InMemorySaver", 1.3)
    assert (on_sqlite.theirs.label, on_sqlite.target) == ("LangGraph, AsyncSqliteSaver", 1.0)
    assert len(in_memory.ours.values) == 2


async def test_the_bytes_of_a_conversation_are_those_of_its_records_and_of_what_its_nodes_returned(
    small: KernelSettings,
):
    growth, beside, again, _ = await kernel.measure_history(small)
    assert 1.7 < growth.judged < 2.3
    # A duration has one digit or two.
    assert growth.ours.values[0] == beside.ours.values[0] == pytest.approx(again.theirs.values[0], rel=1e-3)
    # Two messages of 2 kB in each of ten steps, and their JSON.
    assert 40_000 < beside.theirs.values[0] < 42_000 < beside.ours.values[0]


async def test_a_checkpointer_of_whole_states_grows_with_the_square_of_the_steps(small: KernelSettings):
    once, twice = await kernel.measure_beside(small)
    assert positive([once, twice])
    assert twice.ours.values[0] / once.ours.values[0] < 2.3
    assert twice.theirs.values[0] / once.theirs.values[0] > 2.7


async def test_a_run_is_resumed_by_a_new_worker_on_the_same_file(small: KernelSettings):
    [figure] = await kernel.measure_resume(small)
    assert positive([figure])
    assert figure.absolute
    assert not figure.at_least


async def test_a_finished_run_is_walked_again(small: KernelSettings):
    [figure] = await kernel.measure_replay(small)
    assert positive([figure])


async def test_the_memory_of_runs_that_wait_is_measured_in_a_process_of_their_worker(small: KernelSettings):
    loaded, evicted = await kernel.measure_waiting(small)
    assert {loaded.group, evicted.group} == {"waiting"}
    assert loaded.target == 20.0
    assert "20 runs" in loaded.name


def test_the_command_measures_what_it_is_asked_for_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    history = tmp_path / "history.jsonl"
    arguments = (
        f"kernel --only chain,replay --nodes 5 --repetitions 1 --turns 5 --resumed 10 --replayed 10 --json "
        f"--folder {tmp_path} --history {history}"
    ).split()
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    [kept] = [json.loads(line) for line in history.read_text().splitlines()]
    assert printed["figures"] == kept["figures"]
    assert {figure["group"] for figure in kept["figures"]} == {"chain", "replay"}
    assert (kept["settings"]["bench"], kept["settings"]["nodes"]) == ("kernel", 5)
    assert kept["machine"]["langgraph"]


@pytest.mark.parametrize("arguments", ["kernel --only sqlite", "kernel --nodes 0", "kernel --turns 5,x"])
def test_a_wrong_argument_of_the_kernels_bench_is_refused(arguments: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
