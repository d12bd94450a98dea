"""Settings of the whole process that suit one whose main work is to run agents.

The command line makes them (`noesium worker`, `noesium run`). A program that embeds `Worker` keeps its own
settings and may call `tune_process`. It should do so if many sync nodes wait at once (`Step.wait`, a
subgraph's `invoke`): each keeps a thread of the event loop's default executor until its answer is there.
"""

from __future__ import annotations

from noesium_stream.worker.gc_tuning import NEW_OBJECTS, OF_HANDLERS, collect_less_often
from noesium_stream.worker.thread_pool import make_room_for_threads, take_turns_sooner


def tune_process(*, handlers: bool = False) -> None:
    """Set default executor, switch interval and collector of this process; call it in a running event loop.

    What the program has set already, and suits a worker at least as well, stays.

    Args:
        handlers: whether handlers are at work, which have more objects at once.
    """
    make_room_for_threads()
    take_turns_sooner()
    collect_less_often(OF_HANDLERS if handlers else NEW_OBJECTS)
