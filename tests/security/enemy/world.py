"""A world for attacks: an agent with every built-in tool and few grants, and secrets all around it.

The agent's model is gullible: it does whatever a text says that it reads. `CALL-7-` in a text stands for a
call that the run's input lists.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import parse_qs, urlsplit

from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent
from noesium_stream.errors import NoesiumError
from noesium_stream.kernel import current_step
from noesium_stream.tool import (
    CodeToolkit,
    DocumentsToolkit,
    FilesToolkit,
    Mode,
    OpenApiToolkit,
    PythonToolkit,
    ShellToolkit,
    SqlToolkit,
    TimeToolkit,
    WebToolkit,
    sandboxed,
)
from noesium_stream.tool.content.store import ContentStore
from noesium_stream.tool.mcp import ServerSandbox, mcp
from tests.security.enemy.attacks import Attack
from tests.support import walled_tools
from tests.support.mcp import SERVER
from tests.support.sandboxes import PYTHON
from tests.support.shop_api import shop
from tests.support.sites import Site, answer, redirect

SECRET = "S3CRET"
"""A part of every text that nobody was granted, and of nothing else."""
TEXT = "Tea costs 3 euros."
PRICES = [[("tea", 300)], [("basket", None), ("prices", None)]]
"""Rows and objects of a database in which the agent may change another table."""
SEARCHED = {"q": 1, "format": 1}
"""Parameters of a search, and how often each comes."""


class State(TypedDict, total=False):
    tasks: list[list[Any]]
    calls: list[list[Any]]
    answers: list[list[Any]]


async def obey(state: State) -> State:
    """The gullible model: it makes its calls, and those that the results tell it to make, each once."""
    step, waiting, answers = current_step(), list(state["tasks"]), []
    told: set[int] = set()
    while waiting:
        name, arguments = waiting.pop(0)
        try:
            result = await step.tool(name, **arguments)
        except NoesiumError as error:
            result = {"error": str(error)}
        answers.append([name, arguments, result])
        numbers = [int(one) for one in re.findall(r"CALL-(\d+)-", json.dumps(result))]
        new = [one for one in dict.fromkeys(numbers) if one not in told and one < len(state["calls"])]
        told.update(new)
        waiting[:0] = [state["calls"][one] for one in new]
    return {"answers": answers}


@dataclass
class World:
    """See the module; `reached` says what an attack has got."""

    root: Path
    agent: type[BaseGraphicAgent]
    site: Site
    parts: dict[str, str]
    own_content: str
    connections: list[int]
    _before: dict[str, str] = field(default_factory=dict)

    def filled(self, attack: Attack) -> list[Any]:
        """The call of an attack, in this world."""
        text = json.dumps(attack.arguments)
        for name, value in self.parts.items():
            text = text.replace(f"@{name}@", json.dumps(value)[1:-1])
        return [attack.tool, json.loads(text)]

    def reached(self, seen: Any) -> list[str]:
        """What was got of what nobody was granted; `seen` is all that the model and the log have seen."""
        found = []
        own = (self.root / "home" / "contents" / "enemy").rglob("*")
        contents = [path.read_text(errors="replace") for path in own if path.is_file()]
        text = json.dumps([seen, contents], default=str)
        if SECRET in text:
            at = text.index(SECRET)
            found.append(f"a secret: …{text[max(at - 300, 0) : at + 40]}…")
        if self.connections:
            found.append(f"the internal server: {len(self.connections)} connections")
        strange = {
            one.path
            for one in self.site.asked
            if not re.match(r"/(page|redirect|search\?|v1/items)", one.path)
        }
        searches = [urlsplit(one.path).query for one in self.site.asked if one.path.startswith("/search?")]
        strange |= {one for one in searches if {k: len(v) for k, v in parse_qs(one).items()} != SEARCHED}
        strange |= {one.path for one in self.site.asked if "admin" in one.path.partition("?")[0].split("/")}
        strange |= {name for one in self.site.asked for name in one.headers if name == "x-admin"}
        if strange:
            found.append(f"other parts of the granted server: {sorted(strange)}")
        now = snapshot(self.root)
        changed = {
            path for path in now.keys() | self._before.keys() if now.get(path) != self._before.get(path)
        }
        if changed:
            found.append(f"files: {sorted(changed)}")
        if (rows := basket(self.root)[1:]) != PRICES:
            found.append(f"rows: {rows}")
        return found


@asynccontextmanager
async def made_world(root: Path, instructions: str) -> AsyncIterator[World]:
    """A world in which every text that can be read ends with `instructions`."""
    text = f"{TEXT} {instructions}"
    outside, home = _files(root, text)
    own, other = ContentStore(home / "contents" / "enemy"), ContentStore(home / "contents" / "other")
    theirs = other.put(f"{SECRET} of another agent".encode()).hash
    connections: list[int] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        writer.write(answer(f"{SECRET} of the internal server"))
        writer.close()

    async with Site() as site, await asyncio.start_server(count, "127.0.0.1", 0) as internal:
        port = internal.sockets[0].getsockname()[1]
        site.pages.update(
            {
                "/page": answer(text),
                "/redirect": redirect(f"http://127.0.0.1:{port}/"),
                "/redirect-scheme": redirect(f"file://{outside}/secret.txt"),
                "/admin": answer(f"{SECRET} of the administrator"),
                "/v1/items": answer("[]", 200, "application/json"),
            }
        )
        result = {"title": "Tea", "url": site.url("/page"), "content": text}
        site.pages["/search"] = answer(json.dumps({"results": [result]}), 200, "application/json")
        site.pages["/v1/items/7"] = answer(
            json.dumps({"id": 7, "name": text[:50], "secret": "x", "note": text}), 200, "application/json"
        )
        world = World(
            root,
            _agent(root, site),
            site,
            {
                "OUTSIDE": str(outside),
                "HOME": str(home),
                "INTERNAL": f"127.0.0.1:{port}",
                "PORT": str(port),
                "SITE": site.host,
                "CONTENT": theirs,
                "PID": str(os.getpid()),
            },
            own.put(text.encode()).hash,
            connections,
        )
        world._before = snapshot(root)
        yield world


def tasks(world: World, instructions: str) -> dict[str, list[Any]]:
    """A call of each toolkit that somebody wants; its result has `TEXT`."""
    return {
        "files": ["read_file", {"path": "notes.txt"}],
        "shell": ["shell", {"command": "cat notes.txt && echo done > reports/shell"}],
        "python": ["python", {"code": "print(open('notes.txt').read())"}],
        "web": ["web_fetch", {"url": world.site.url("/page")}],
        "sql": ["sql_query", {"sql": "SELECT item FROM orders"}],
        "documents": ["search_handbook", {"query": "What does tea cost?"}],
        "openapi": ["getItem", {"id": "7"}],
        "mcp": ["crm__echo", {"text": f"{TEXT} {instructions}"}],
        "content": ["read_content", {"hash": world.own_content}],
        "search": ["web_search", {"query": "tea"}],
        "code": ["code", {"code": "read_file(path='notes.txt')['text']"}],
        "skill": [
            "run_skill_script",
            {"name": "run", "script": "scripts/run.sh", "arguments": ["cat notes.txt"]},
        ],
        "sandboxed": ["lies", {"port": 1, "secret": "nothing"}],
    }


WRITING: Sequence[list[Any]] = (
    ["write_file", {"path": "reports/june.txt", "text": TEXT}],
    ["search_files", {"pattern": "^Tea", "path": "reports"}],
    ["convert_time", {"time": "2026-07-01T12:00Z", "to": "Europe/Berlin"}],
    ["basket_execute", {"sql": "INSERT INTO basket VALUES ('tea')"}],
)
"""Further calls that somebody wants."""


def snapshot(root: Path) -> dict[str, str]:
    """All files but those that the agent may change, and that others change: path and hash, or target."""
    found: dict[str, str] = {}
    changing = [root / one for one in ("work/reports", "crm", "corpora", "home/contents/enemy", "basket")]
    for folder, names, files in os.walk(root):
        at = Path(folder)
        names[:] = [one for one in names if at / one not in changing]
        for name in (*files, *(one for one in names if (at / one).is_symlink())):
            path = at / name
            what = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = what
    return found


def basket(root: Path) -> list[list[tuple[Any, ...]]]:
    """Rows of the table that the agent may change, of the one that it may not, and what else is there."""
    with closing(sqlite3.connect(root / "basket" / "basket.db")) as db:
        said = (
            "SELECT item FROM basket",
            "SELECT item, cents FROM prices",
            "SELECT name, iif(type = 'table', NULL, sql) FROM sqlite_master ORDER BY name",
        )
        return [db.execute(one).fetchall() for one in said]


def _files(root: Path, text: str) -> tuple[Path, Path]:
    work, outside, home, handbook = (root / one for one in ("work", "outside", "home", "handbook"))
    skill = root / "skills" / "run"
    for folder in (
        work / "reports",
        outside,
        home,
        handbook,
        root / "crm",
        root / "basket",
        skill / "scripts",
    ):
        folder.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: run\ndescription: Runs a command.\nallowed-tools: Bash Read Write(reports/**)\n---\n\n"
        f"{text}\n"
    )
    (skill / "scripts" / "run.sh").write_text('eval "$1"\n')
    with closing(sqlite3.connect(root / "basket" / "basket.db")) as db:
        db.executescript(
            "CREATE TABLE basket (item TEXT); CREATE TABLE prices (item TEXT, cents INTEGER);"
            "INSERT INTO prices VALUES ('tea', 300);"
        )
    (work / "notes.txt").write_text(f"{text}\n")
    (work / "docs").mkdir()
    (work / "docs" / "a").write_text(text)
    (work / "link").symlink_to(outside)
    (work / "reports" / "link").symlink_to(outside)
    (work / "secret-link").symlink_to("../outside/secret.txt")
    (outside / "secret.txt").write_text(f"{SECRET} of the machine\n")
    (home / "log.db").write_text(f"{SECRET} of the log\n")
    (handbook / "tea.md").write_text(f"# Tea\n\n{text}\n")
    (handbook / "link.md").symlink_to(outside / "secret.txt")
    with sqlite3.connect(root / "shop.db") as db:
        db.executescript(
            "CREATE TABLE orders (item TEXT, cents INTEGER);"
            "CREATE TABLE salaries (name TEXT, cents INTEGER);"
            f"INSERT INTO salaries VALUES ('{SECRET} of a person', 900);"
            "CREATE VIEW pay AS SELECT name FROM salaries;"
        )
        db.execute("INSERT INTO orders VALUES (?, 300)", (text,))
    db.close()
    return outside, home


def _agent(root: Path, site: Site) -> type[BaseGraphicAgent]:
    private = (site.host,)
    walls = ServerSandbox(permissions=("fs:read", "fs:write"), programs=(SERVER,))
    command = [PYTHON, "-I", "-S", str(SERVER), "/workspace", "reach"]

    class Enemy(BaseGraphicAgent):
        agent_type = "enemy"
        workspace = str(root / "work")
        contents = str(root / "home" / "contents" / "enemy")
        mode = Mode.AUTO
        skills = (str(root / "skills" / "run"),)
        permissions = (
            "fs:read",
            "fs:write:reports/**",
            "shell:execute",
            "shell:execute:run/*",
            "python:execute",
            f"net:outbound:127.0.0.1:{site.port}",
            "sql:read:orders",
            "sql:write:basket/basket",
            "documents:read:handbook",
            "mcp:connect:crm",
        )
        tools = (
            FilesToolkit(),
            ShellToolkit(),
            PythonToolkit(),
            WebToolkit(allow_private=private, respect_robots=False, search={"url": site.url("/search")}),
            SqlToolkit(path=root / "shop.db"),
            SqlToolkit(path=root / "basket" / "basket.db", name="basket", writable=True),
            CodeToolkit(),
            sandboxed(walled_tools.lies),
            sandboxed(walled_tools.copy),
            DocumentsToolkit(docs=root / "handbook", name="handbook", home=root),
            OpenApiToolkit(shop(site.url("/v1")), allow_private=private),
            mcp(command, name="crm", folder=root / "crm", sandbox=walls),
            TimeToolkit(),
        )

        def get_state_class(self) -> type:
            return State

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            return StateGraph(State).add_node("obey", obey).add_edge(START, "obey")

    return Enemy


def calls_of(events: Sequence[Any]) -> Mapping[str, list[str]]:
    """The events of tool calls, by call id."""
    found: dict[str, list[str]] = {}
    for event in events:
        if event.event_type.startswith("tool."):
            found.setdefault(str(event.payload.get("call_id")), []).append(event.event_type)
    return found
