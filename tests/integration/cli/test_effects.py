"""`noesium effects` and `noesium effect resolve`: a person decides from another terminal."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder, Running

BUYER = "agents.buyer"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.with_toys(tmp_path)


def waiting(folder: Folder, process: Running) -> dict[str, Any]:
    """The one effect that waits, as soon as it does."""
    found: list[dict[str, Any]] = []

    def there(_: Running) -> bool:
        found[:] = folder.json("effects", "--json")
        return bool(found)

    process.wait_for(there)
    (effect,) = found
    return effect


def killed_in_the_middle(folder: Folder) -> str:
    """A run whose process died while it ordered; its id."""
    with folder.running("run", BUYER, "die") as first:
        run_id: str = first.wait_for_error_line("run ").split()[1]
        assert first.wait() == -9
    return run_id


@pytest.mark.parametrize(
    ("decision", "says", "asked"),
    [
        (["--result", "41"], "bought number 41", 1),
        (["--retry"], "bought number 2", 2),
    ],
    ids=["result", "retry"],
)
def test_a_run_whose_process_died_in_a_call_goes_on_with_what_a_person_says(
    folder: Folder, decision: list[str], says: str, asked: int
) -> None:
    run_id = killed_in_the_middle(folder)
    with folder.running("worker", BUYER) as worker:
        effect = waiting(folder, worker)
        assert effect["run_id"] == run_id
        assert effect["name"] == "order"
        assert effect["reason"] == "its owner gave the partition up while the call was under way, or died"
        assert effect["arguments"] == {"args": ["die"], "kwargs": {}}
        shown = folder.ok("effects", run_id[:13]).splitlines()
        assert shown[0].split() == ["run", "effect", "agent", "what", "class", "key", "age"]
        assert shown[1].split()[:2] == [run_id, effect["effect_id"][:8]]
        assert shown[2] == "  its owner gave the partition up while the call was under way, or died"
        folder.ok("effect", "resolve", run_id, effect["effect_id"][:8], *decision, "--as", "Ada")
        worker.wait_for(lambda _: folder.json("runs", "--json")[0]["status"] == "completed")
        assert folder.json("runs", "--json")[0]["result"]["answer"] == says
        assert folder.json("effects", "--json") == []
    lines = (folder.path / "shop.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [f"order die {effect['idempotency_key']}"] * asked
    assert "says Ada" in folder.ok("show", run_id) or asked == 2


def test_a_failed_compensation_waits_while_the_run_is_compensating(folder: Folder) -> None:
    with folder.running("run", BUYER, "fail") as running:
        run_id = running.wait_for_error_line("run ").split()[1]
        effect = waiting(folder, running)
        assert (effect["name"], effect["compensates"] is not None) == ("undo order", True)
        assert effect["reason"] == "it failed: ConnectionError: the shop is closed"
        (run,) = folder.json("runs", "--status", "compensating", "--json")
        assert (run["run_id"], run["error"]) == (run_id, "it does not fit")
        done = folder.run("effect", "resolve", run_id, effect["effect_id"], "--retry")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"retry: sent for the effect {effect['effect_id']} of {run_id}\n"
        assert running.wait() == 1
        assert any("it does not fit" in line for line in running.err)
        said = [line.strip() for line in running.err]
        assert "failed: what it did is being undone" in said
        assert "waits for a person: what undoes it failed: the shop is closed" in said
        assert f"noesium effect resolve {run_id} {effect['effect_id'][:13]} --help" in said
        assert f"{getpass.getuser()} decided: retry" in said
    lines = (folder.path / "shop.txt").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["send back fail", "send back fail"]


def test_a_process_that_dies_while_it_undoes_leaves_the_rest_to_the_next_and_to_a_person(
    folder: Folder,
) -> None:
    with folder.running("run", BUYER, "die later") as first:
        run_id = first.wait_for_error_line("run ").split()[1]
        assert first.wait() == -9
    with folder.running("worker", BUYER) as worker:
        effect = waiting(folder, worker)
        assert (effect["name"], effect["effect_class"]) == ("undo order", "external")
        folder.ok("effect", "resolve", run_id, effect["effect_id"], "--result", "null")
        worker.wait_for(lambda _: folder.json("runs", "--json")[0]["status"] == "failed")
    lines = (folder.path / "shop.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == ["order", "send"], "each once"
    events = [json.loads(line) for line in folder.ok("events", run_id, "--json").splitlines()]
    assert [one["outcome"] for one in events[-1]["payload"]["compensated"]] == ["completed"]


def test_each_misuse_is_one_clear_error(folder: Folder) -> None:
    run_id = killed_in_the_middle(folder)

    def refused(*args: str) -> str:
        done = folder.run("effect", "resolve", *args)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr.splitlines()[0]

    assert refused("nothing", "x", "--fail").startswith("error: There is no run nothing on ")
    assert refused(run_id, "x", "--fail") == f"error: Run {run_id}: the run has no effect x."
    one_of = "error: Say what became of it: one of --result JSON, --retry and --fail."
    assert refused(run_id, "x") == one_of
    assert refused(run_id, "x", "--fail", "--retry") == one_of
    assert refused(run_id, "x", "--result", "done").startswith("error: --result is no JSON: ")
    with folder.running("worker", BUYER) as worker:
        effect_id = waiting(folder, worker)["effect_id"]
        folder.ok("effect", "resolve", run_id, effect_id, "--fail", "--reason", "no order there")
        worker.wait_for(lambda _: folder.json("runs", "--json")[0]["status"] == "failed")
    ended = f"error: Run {run_id} has ended already: failed."
    assert refused(run_id, effect_id, "--fail") == ended
    (run,) = folder.json("runs", "--json")
    assert run["error"].endswith("decided that the effect order has failed: no order there")
    assert folder.run("effects").stderr.startswith("No effect on sqlite:///")
