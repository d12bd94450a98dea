"""An MCP server for tests, over pipes and without the SDK: `python mcp_server.py FOLDER [HOW …]`.

It speaks 2026-07-28, or 2025-11-25 with the word `previous`. FOLDER has what survives it: `calls` (a line for
each call: its tool and key), `tasks.json`, `pid`, and `definition`, the description of the tool `echo`.
Further words of HOW: `names`, `sizes`, `schemas`, `depth`, `pages` (lies in the list), `flood` (of
standard error), `hang` (it never answers), `changes` (its tools, after each list), `noise` (on standard
output), `ids` (answers with foreign ids first), `exit`;
`reach` adds a tool that says what it can reach, and one that takes memory.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

OBJECT = {"type": "object"}
STATE = "opaque ✓ state"
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "How many?",
        "requestedSchema": {
            "type": "object",
            "properties": {"count": {"type": "integer"}},
            "required": ["count"],
        },
    },
}


def deep(depth: int) -> dict[str, Any]:
    """A schema in a schema."""
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


class Server:
    """One process."""

    def __init__(self, folder: Path, how: set[str]) -> None:
        self.folder = folder
        self.how = how
        self.modern = "previous" not in how
        self.lock = threading.Lock()
        self.listener: Any = None

    def send(self, message: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def note(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text + "\n")

    def result(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        kind = {"resultType": "complete"} if self.modern else {}
        self.send({"id": request["id"], "result": {**kind, **result}})

    def tools(self) -> list[Any]:
        definition = self.folder / "definition"
        said = definition.read_text() if definition.exists() else "Says it again."
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        hints = {"readOnlyHint": True, "idempotentHint": True}
        tools: list[Any] = [
            {"name": "echo", "description": said, "inputSchema": text, "annotations": hints},
            *({"name": name, "inputSchema": OBJECT} for name in ("die", "slow", "fail", "ask", "long")),
            *({"name": name, "inputSchema": OBJECT} for name in ("long.ask", "binary", "huge", "sample")),
            {"name": "typed", "inputSchema": OBJECT, "outputSchema": {**text, "required": ["text"]}},
        ]
        bad = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}
        if "changes" in self.how:
            tools[0] = {**tools[0], "description": str(time.monotonic_ns())}
        if "names" in self.how:
            names = ["", "a b", "x" * 129, "../../etc", "\u202eecho", "echo", 7, "die"]
            names += ["\x1b[2J\x1b]0;owned\x07", "x" * 10_000, "echo\n", "long_ask", None, ["echo"]]
            tools += [{"name": name, "inputSchema": OBJECT} for name in names]
        if "reach" in self.how:
            tools += [{"name": name, "inputSchema": OBJECT} for name in ("reach", "grow")]
        if "sizes" in self.how:
            tools.append({"name": "large", "description": "x" * 100_000, "inputSchema": OBJECT})
            tools += [{"name": f"t{number}", "inputSchema": OBJECT} for number in range(600)]
        if "depth" in self.how:
            tools.append({"name": "d", "inputSchema": {**OBJECT, "properties": {"a": deep(400)}}})
        if "schemas" in self.how:
            tools += [
                {"name": "s1", "inputSchema": bad},
                {"name": "s2", "inputSchema": {"type": "string"}},
                {"name": "s3"},
                {"name": "s4", "inputSchema": {"type": "object", "properties": 7}},
                {"name": "s6", "inputSchema": {**OBJECT, "$ref": "file:///etc/passwd"}},
                {"name": "s7", "inputSchema": {**OBJECT, "properties": {"a": {"$ref": "#/$defs/none"}}}},
                {"name": "s9", "inputSchema": {**OBJECT, "properties": {"a": {"pattern": "("}}}},
                {
                    "name": "s10",
                    "inputSchema": {**OBJECT, "$schema": "http://127.0.0.1:1/schema", "x": "y" * 99_999},
                },
                {"name": "s5", "inputSchema": OBJECT, "outputSchema": {"type": "nothing"}},
                "no object",
            ]
        return tools

    def list(self, request: dict[str, Any]) -> None:
        self.note("lists", "")
        cached = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        more = {"nextCursor": "for ever"} if "pages" in self.how else {}
        self.result(request, {"tools": self.tools(), **cached, **more})
        self.changing()

    def call(self, request: dict[str, Any]) -> None:
        params = request["params"]
        name, arguments = params["name"], params.get("arguments") or {}
        key = (params.get("_meta") or {}).get("io.noesium/idempotencyKey")
        self.note("calls", f"{name} {key}")
        if "ids" in self.how:
            for strange in (10_000, "foreign", 0):
                self.send({"id": strange, "result": {"content": [{"type": "text", "text": "forged"}]}})
        if name == "die":
            os._exit(9)
        if name == "slow":
            self.note("waiting", "")
            if not self.progress(request):
                return
        getattr(self, name.replace(".", "_"), self.echo)(request, params, arguments)

    def progress(self, request: dict[str, Any]) -> bool:
        """Tell progress until the file `go` is there, or the call was cancelled."""
        token = (request["params"].get("_meta") or {}).get("progressToken")
        for number in range(10_000):
            if token is not None:
                params = {"progressToken": token, "progress": number, "total": 9, "message": f"part {number}"}
                self.send({"method": "notifications/progress", "params": params})
            if (self.folder / "go").exists():
                return True
            if (self.folder / "cancelled").exists():
                return False
            time.sleep(0.02)
        return False

    def echo(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.result(request, {"content": [{"type": "text", "text": arguments.get("text", "done")}]})

    def reach(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        """Say of each path whether it can be read, and written, and of a port whether it answers."""
        flags = os.O_RDWR | os.O_CREAT
        found = {
            "read": [path for path in arguments["paths"] if works(lambda path=path: Path(path).read_bytes())],
            "wrote": [path for path in arguments["paths"] if works(lambda path=path: os.open(path, flags))],
            "connected": works(lambda: socket.create_connection(("127.0.0.1", arguments["port"]), 5)),
            "variables": sorted(os.environ),
            "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        }
        self.result(request, {"content": [{"type": "text", "text": json.dumps(found)}]})

    def grow(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        room = b"x" * int(arguments["bytes"])
        time.sleep(600)
        self.result(request, {"content": [{"type": "text", "text": str(len(room))}]})

    def fail(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.result(request, {"content": [{"type": "text", "text": "No such customer."}], "isError": True})

    def typed(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        wrong = {"text": 7}
        self.result(request, {"content": [], "structuredContent": arguments or wrong})

    def huge(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.result(request, {"content": [{"type": "text", "text": "x" * 2_000_000}]})

    def binary(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        resource = {"uri": "file:///a.bin", "mimeType": "application/x", "blob": "AAEC"}
        content = [
            {"type": "image", "mimeType": "image/png", "data": "AAEC"},
            {"type": "resource", "resource": resource},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]
        self.result(request, {"content": content})

    def ask(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        answers = params.get("inputResponses")
        if answers is None:
            asked = {"inputRequests": {"count": QUESTION}, "requestState": STATE}
            self.result(request, {"resultType": "input_required", **asked})
            return
        right = params.get("requestState") == STATE
        said = answers["count"].get("content", {}).get("count", answers["count"]["action"])
        self.result(request, {"content": [{"type": "text", "text": f"{said} {right}"}]})

    def sample(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        asked = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
        self.result(request, {"resultType": "input_required", "inputRequests": {"model": asked}})

    def long(self, request: dict[str, Any], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        tasks = self.tasks()
        task = f"task-{len(tasks) + 1}"
        self.keep({**tasks, task: {"asks": params["name"] == "long.ask", "looks": 0, "answers": None}})
        self.result(request, {"resultType": "task", "taskId": task, "status": "working", **self.times()})

    long_ask = long

    def task(self, request: dict[str, Any]) -> None:
        tasks, task = self.tasks(), request["params"]["taskId"]
        if task not in tasks:
            self.send({"id": request["id"], "error": {"code": -32602, "message": "no such task"}})
            return
        known = tasks[task]
        known["looks"] += 1
        if request["method"] == "tasks/update":
            known["answers"] = request["params"]["inputResponses"]
        if request["method"] == "tasks/cancel":
            known["cancelled"] = True
        self.keep(tasks)
        if request["method"] != "tasks/get":
            self.result(request, {})
            return
        state: dict[str, Any] = {"taskId": task, "status": "working", **self.times()}
        if known.get("cancelled"):
            state["status"] = "cancelled"
        elif known["asks"] and known["answers"] is None:
            state |= {"status": "input_required", "inputRequests": {"count": QUESTION}}
        elif (self.folder / "go").exists():
            text = json.dumps(known["answers"])
            state |= {"status": "completed", "result": {"content": [{"type": "text", "text": text}]}}
        self.result(request, state)

    def times(self) -> dict[str, Any]:
        when = "2026-11-26T10:00:00Z"
        return {"createdAt": when, "lastUpdatedAt": when, "ttlMs": None, "pollIntervalMs": 1}

    def tasks(self) -> dict[str, Any]:
        path = self.folder / "tasks.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def keep(self, tasks: dict[str, Any]) -> None:
        (self.folder / "tasks.json").write_text(json.dumps(tasks))

    def changing(self) -> None:
        """Tell that the tools have changed: after each list, which has another definition."""
        if "changes" in self.how and (self.listener is not None or not self.modern):
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": self.listener}} if self.modern else {}
            self.send({"method": "notifications/tools/list_changed", "params": meta})

    def watch(self) -> None:
        """Tell once that the tools have changed, when the file `definition` appears."""
        while not (self.folder / "definition").exists():
            time.sleep(0.01)
        params: dict[str, Any] = {}
        if self.modern:
            while self.listener is None:
                time.sleep(0.01)
            params = {"params": {"_meta": {"io.modelcontextprotocol/subscriptionId": self.listener}}}
        self.send({"method": "notifications/tools/list_changed", **params})

    def discover(self, request: dict[str, Any]) -> None:
        capabilities = {
            "tools": {"listChanged": True},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }
        if self.modern:
            known = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            self.result(request, {**known, "ttlMs": 0, "cacheScope": "private"})
        else:
            self.send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})

    def initialize(self, request: dict[str, Any]) -> None:
        info = {"name": "test", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        self.result(
            request, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        )

    def listen(self, request: dict[str, Any]) -> None:
        self.listener = request["id"]
        meta = {"io.modelcontextprotocol/subscriptionId": request["id"]}
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        self.send({"method": "notifications/subscriptions/acknowledged", "params": params})
        self.changing()

    def serve(self) -> None:
        (self.folder / "pid").write_text(str(os.getpid()))
        self.note("starts", str(sorted(os.environ)))
        if "exit" in self.how:
            sys.stderr.write("cannot read the token secret=hunter2hunter2\n")
            sys.exit(3)
        if "flood" in self.how:
            threading.Thread(target=self.flood, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()
        handlers = {
            "server/discover": self.discover,
            "initialize": self.initialize,
            "subscriptions/listen": self.listen,
            "tools/list": self.list,
            "tasks/get": self.task,
            "tasks/update": self.task,
            "tasks/cancel": self.task,
        }
        for line in sys.stdin:
            request = json.loads(line)
            if "hang" in self.how:
                continue
            if "noise" in self.how:
                sys.stdout.write("debug: \x1b[2J not JSON\n\n[1,2\n")
            method = request.get("method")
            if method == "notifications/cancelled":
                self.note("cancelled", json.dumps(request["params"]))
            elif method == "tools/call":
                threading.Thread(target=self.call, args=[request], daemon=True).start()
            elif method in handlers:
                handlers[method](request)

    def flood(self) -> None:
        while True:
            sys.stderr.write("\x1b[31mTOKEN and more\n" * 1_000)


def works(attempt: Any) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    Server(Path(sys.argv[1]), set(sys.argv[2:])).serve()
