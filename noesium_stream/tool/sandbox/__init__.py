"""Sandboxes: walls around programs that tools start (RFC-2003 §10)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.tool.sandbox.find import find_sandbox
    from noesium_stream.tool.sandbox.port import Sandbox
    from noesium_stream.tool.sandbox.python import python_folders
    from noesium_stream.tool.sandbox.result import Ended, SandboxResult
    from noesium_stream.tool.sandbox.running import Running
    from noesium_stream.tool.sandbox.walled import WalledCommand
    from noesium_stream.tool.sandbox.walls import Limits, Walls, walls_of

__all__ = [
    "Ended",
    "Limits",
    "Running",
    "Sandbox",
    "SandboxResult",
    "WalledCommand",
    "Walls",
    "find_sandbox",
    "python_folders",
    "walls_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Ended": "result",
            "Limits": "walls",
            "Running": "running",
            "Sandbox": "port",
            "SandboxResult": "result",
            "WalledCommand": "walled",
            "Walls": "walls",
            "find_sandbox": "find",
            "python_folders": "python",
            "walls_of": "walls",
        },
    )
