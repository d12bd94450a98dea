"""robots.txt (RFC 9309): which pages a site lets this program read."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protego import Protego

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import ToolPermissionError, ToolServerError
from noesium_stream.tool.net.client import Answer, Call, GuardedClient
from noesium_stream.tool.net.target import Target, shown

MAX_BYTES: Final = 512_000
KEEP_S: Final = 3_600.0
"""How long a file is used before it is read again; RFC 9309 allows a day."""
KEPT: Final = 256

_AGENT: Final = re.compile(r"\s*(?:user-agent|useragent|user\s+agent)\s*(?::|\s)\s*([^#]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Kept:
    rules: Protego | None
    until: float


class Robots:
    """The robots.txt files of the sites that were called lately."""

    def __init__(self, client: GuardedClient, user_agent: str, clock: Clock | None = None) -> None:
        self._client = client
        self._user_agent = user_agent
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[tuple[str, str, int], _Kept] = OrderedDict()

    async def check(self, target: Target, granted: Sequence[str]) -> None:
        """Ask the site of a target whether it may be read.

        Raises:
            ToolPermissionError: it may not.
            ToolServerError: the site does not say.
            ToolError: its robots.txt cannot be read, as `GuardedClient.request` says.
        """
        kept = self._kept.get(target.origin)
        if kept is None or kept.until < self._clock.monotonic():
            kept = _Kept(await self._rules_of(target, granted), self._clock.monotonic() + KEEP_S)
            self._kept[target.origin] = kept
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if kept.rules is None:
            return
        if not await asyncio.to_thread(kept.rules.can_fetch, str(target.url), self._user_agent):
            raise ToolPermissionError(
                f"The robots.txt of {target.authority} does not allow {shown(str(target.url))}.",
                reason="rule",
                hint="The operator can set respect_robots=False for sites of their own.",
            )

    async def _rules_of(self, target: Target, granted: Sequence[str]) -> Protego | None:
        """The rules of a site; None: it has none."""
        url = f"{target.scheme}://{target.authority}/robots.txt"
        answer = await self._client.request(Call(url, granted, max_bytes=MAX_BYTES))
        if answer.status == 429 or answer.status >= 500:
            raise ToolServerError(f"{target.authority} does not give its robots.txt ({answer.status}).")
        return await asyncio.to_thread(self._parsed, answer) if 200 <= answer.status < 300 else None

    def _parsed(self, answer: Answer) -> Protego:
        lines = answer.body.decode("utf-8-sig", "replace").splitlines()
        return Protego.parse("\n".join(map(self._of_one_group, lines)))

    def _of_one_group(self, line: str) -> str:
        """A line with all agents but this one under one name: Protego copies each rule to each agent."""
        found = _AGENT.match(line)
        if found is None:
            return line
        agent = found[1].strip().lower()
        concerned = agent == "*" or agent.replace("*", "") in self._user_agent.lower()
        return line if agent and concerned else "User-agent: \x7fother"
