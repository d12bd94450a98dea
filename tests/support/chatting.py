"""An agent for `noesium chat` in a folder of its own: it orders, writes pieces, says odd things."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Folder

MODULE = '''
from pathlib import Path

from noesium_stream import BaseHitlAgent, Dialogue, Reply, SideEffectClass, UserMessage, current_step
from noesium_stream.tool import Mode, tool

ORDERS = Path("orders.txt")
ODD = "\\x1b[2J\\x1b]0;owned\\x07red \\x1b[31m \\u202e \\x9b1m end"


@tool(side_effects=SideEffectClass.EXTERNAL)
def order(item: str) -> str:
    """Order something."""
    with ORDERS.open("a") as file:
        file.write(item + "\\n")
    return "ordered " + item


class Clerk(BaseHitlAgent):
    agent_type = "clerk"
    segment_steps = 4
    tools = (order,)
    mode = Mode.ACT

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply | str:
        verb, _, rest = message.text.partition(" ")
        step = current_step()
        if verb == "call":
            await dialogue.user_memory.write("name", rest)
            return rest
        if verb == "order":
            return Reply(await step.tool("order", item=rest), ["tool:order"])
        if verb == "odd":
            await step.write(ODD)
            return ODD + " whole"
        if verb == "slow":
            await step.write("first ")
            await step.signal("go")
            await step.write("second ")
            return "first second third"
        return f"You are {await dialogue.user_memory.recall('name')}."


AGENT = Clerk
'''


def folder_with_clerk(path: Path) -> Folder:
    """A folder with the agent `clerk`."""
    (path / "clerk.py").write_text(MODULE, encoding="utf-8")
    return Folder(path)
