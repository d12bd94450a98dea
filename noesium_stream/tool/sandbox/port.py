"""What a sandbox is: `Sandbox`, which every provider is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Protocol, runtime_checkable

from noesium_stream.tool.sandbox.result import SandboxResult
from noesium_stream.tool.sandbox.running import Running
from noesium_stream.tool.sandbox.walled import WalledCommand
from noesium_stream.tool.sandbox.walls import Walls


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs inside walls, and ends all that they have started (RFC-2003 §10)."""

    @property
    def name(self) -> str:
        """The provider: such as `bubblewrap`."""

    def walled(self, command: Sequence[str], walls: Walls, opened: ExitStack) -> WalledCommand:
        """The command that runs a program in walls, for those that start and end it themselves.

        Args:
            command: the program and its arguments.
            walls: around it; of the limits, only those that the kernel holds for each process.
            opened: closes the file descriptors, once the command was started.

        Raises:
            SandboxError: the walls cannot be built.
        """

    def start(self, command: Sequence[str], walls: Walls) -> AbstractAsyncContextManager[Running]:
        """Start a program; all of it is dead when the context is left, by an error or a cancellation, too.

        Raises:
            SandboxError: the walls cannot be built; nothing was executed.
        """

    async def run(self, command: Sequence[str], walls: Walls, *, stdin: bytes = b"") -> SandboxResult:
        """Run a program to its end, or to the first limit that it reaches. A cancellation kills it.

        Raises:
            SandboxError: the walls cannot be built; nothing was executed.
        """
