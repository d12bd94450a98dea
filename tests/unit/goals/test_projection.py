"""The goals of runs as a projection: what is stored is the same as what is folded."""

from __future__ import annotations

from pathlib import Path

from agents.examples.release import Releaser
from noesium_stream import GoalProjection, ProjectionEngine
from noesium_stream.testing import Rehearsal


async def test_a_projection_that_is_opened_again_has_the_tree_of_the_run(tmp_path: Path) -> None:
    async with Rehearsal(Releaser) as rehearsal:
        run = await rehearsal.start({"version": "1.0", "broken": True})
        await run.wait_for("goal.blocked")
        for _ in range(2):
            with ProjectionEngine(rehearsal.log, tmp_path) as engine:
                engine.register("goals", GoalProjection())
                state = await engine.get_state("goals")
                assert state[run.id].tree == await run.goals()
        await run.signal("key", "1")
        await run.result()
        with ProjectionEngine(rehearsal.log, tmp_path) as engine:
            engine.register("goals", GoalProjection())
            assert (await engine.get_state("goals"))[run.id].tree == await run.goals()
            await engine.rebuild("goals")
            assert (await engine.get_state("goals"))[run.id].tree == await run.goals()
