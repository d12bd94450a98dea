"""Prints the events with which the segments of a run begin: the same lines whenever it is called.

python -m tests.support.talks_printed
"""

from __future__ import annotations

import asyncio

from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.testing import Rehearsal
from tests.support.talks import Talker


async def main() -> None:
    """Talk ten turns."""
    async with Rehearsal(Talker) as rehearsal:
        run = await rehearsal.start({})
        for number in range(9):
            await run.signal("message", f"m{number}")
        await run.signal("message", "bye")
        await run.result()
        for event in await run.history():
            if event.event_type == STARTED:
                payload = {**event.payload, "run_id": "", "carried": {**event.payload["carried"]}}
                del payload["carried"]["signals"], payload["carried"]["heard"]  # they have ids and times
                print(STARTED, canonical_json(payload).decode())


if __name__ == "__main__":
    asyncio.run(main())
