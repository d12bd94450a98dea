"""The official conformance kit of MCP, and what it has to say of this package."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.npm import NODE, installed

KIT = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
ROOT = Path(__file__).parents[2]
SLOW = ("--timeout", "120000")
"""The time limit of a scenario, in milliseconds: machines for tests are busy."""
PREVIOUS, CURRENT = "2025-11-25", "2026-07-28"

NO_PROMPTS = "runs have no prompts"
NO_RESOURCES = "results of runs are no resources"
NO_MODEL = "nothing here needs a model or folders of the client"
NO_LOG = "the log of a run is not for its callers: progress tells of its steps"
NO_ASKING = "up to 2025-11-25 questions are for people here: a request would end with its connection"
NO_COMPLETION = "there is nothing to complete"
OWN_KEYS = "the keys of inputRequests are the ids of questions, and not words of the tool"

SERVER_FAILURES: dict[str, dict[str, tuple[str, ...]]] = {
    CURRENT: {
        NO_PROMPTS: (
            "sep-2549-prompts-list-caching-hints",
            "sep-2322-non-tool-incomplete",
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ),
        NO_RESOURCES: (
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
            "resources-list",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
        ),
        NO_MODEL: (
            "sep-2322-sampling-incomplete",
            "sep-2322-list-roots-incomplete",
            "sep-2322-multiple-inputs-incomplete",
            "sep-2322-respect-client-capabilities",
            "sep-2575-server-rejects-undeclared-capability",  # it has to be the capability to sample
        ),
        OWN_KEYS: ("sep-2322-elicitation-incomplete",),
        NO_COMPLETION: ("completion-complete",),
    },
    PREVIOUS: {
        NO_PROMPTS: (
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ),
        NO_RESOURCES: (
            "resources-list",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "resources-subscribe",
            "resources-unsubscribe",
        ),
        NO_MODEL: ("tools-call-sampling",),
        NO_ASKING: ("tools-call-elicitation", "elicitation-sep1034-general", "elicitation-sep1330-general"),
        NO_LOG: ("logging-set-level", "tools-call-with-logging"),
        NO_COMPLETION: ("completion-complete",),
    },
}
"""The checks of the server that fail, by what is not offered. Every other one passes."""
SERVER_PASSES = {CURRENT: 166, PREVIOUS: 49}
"""How many checks pass: a scenario that ends early has fewer."""
PLAYS = 3
"""How often the kit plays at most: some of its checks fail where an answer takes half a second."""

CLIENT_PASSES = [
    (PREVIOUS, "initialize"),
    (PREVIOUS, "tools_call"),
    (PREVIOUS, "elicitation-sep1034-client-defaults"),
    (PREVIOUS, "sse-retry"),
    (PREVIOUS, "json-schema-2020-12-preservation"),
    (CURRENT, "tools_call"),
    (CURRENT, "request-metadata"),
    (CURRENT, "sep-2322-client-request-state"),
    (CURRENT, "http-standard-headers"),
    (CURRENT, "http-custom-headers"),
    (CURRENT, "http-invalid-tool-headers"),
    (CURRENT, "json-schema-ref-no-deref"),
    (CURRENT, "json-schema-2020-12-preservation"),
    (None, "auth/client-credentials-basic"),
    (None, "auth/client-credentials-jwt"),
]
CLIENT_NOT_OFFERED = {
    "logins by a browser: an agent has none": (
        r"auth/(metadata|basic-cimd|scope|token-endpoint|pre-registration|resource|offline|authorization-server"
        r"|iss|2025-03-26|dpop).*"
    ),
    "tokens of other identity providers": r"auth/(enterprise-managed-authorization|wif-jwt-bearer)",
    "skills of servers: those of folders are used": r"sep-2640-.*",
}
"""Scenarios of the client that are not played, by why."""


def words(*given: str | Path) -> list[str]:
    """The command of the kit with these words."""
    programs = installed(KIT, NODE)
    return [str(word) for word in (programs / "node", programs / "conformance", *given)]


async def played(*given: str | Path) -> subprocess.CompletedProcess[str]:
    """What the kit says to these words."""
    return await asyncio.to_thread(
        subprocess.run,
        words(*given),
        cwd=ROOT,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


async def server_checks(url: str, revision: str, folder: Path) -> dict[str, list[str]]:
    """Play all that a revision asks of servers; the ids of the checks, by what came of them."""
    await played("server", "--url", url, "--requirements", revision, "--output-dir", folder, *SLOW)
    found: dict[str, list[str]] = {}
    for path in folder.glob("*/checks.json"):
        for check in json.loads(path.read_text()):
            found.setdefault(check["status"], []).append(check["id"])
    return found


def expected_failures(revision: str) -> list[str]:
    """The checks of the server that fail, sorted."""
    return sorted(check for group in SERVER_FAILURES[revision].values() for check in group)


def as_expected(checks: dict[str, list[str]], revision: str) -> bool:
    """Whether the server has passed what it should, and nothing else has failed."""
    passed = len(checks.get("SUCCESS", []))
    return sorted(checks["FAILURE"]) == expected_failures(revision) and passed == SERVER_PASSES[revision]


async def client_scenarios() -> set[str]:
    """The names of the kit's scenarios for clients."""
    return set(re.findall(r"^  - (\S+)", (await played("list", "--client")).stdout, re.MULTILINE))


async def client_scenario(revision: str | None, scenario: str) -> subprocess.CompletedProcess[str]:
    """Play one scenario with the client of `tests/support/mcp_conformance.py`."""
    version = [] if revision is None else ["--spec-version", revision]
    command = f"{sys.executable} -m tests.support.mcp_conformance"
    return await played("client", "--scenario", scenario, "--command", command, *SLOW, *version)


def not_offered(names: Iterable[str]) -> set[str]:
    """Those of these scenarios of the client that are not offered."""
    patterns = [re.compile(pattern) for pattern in CLIENT_NOT_OFFERED.values()]
    return {name for name in names if any(pattern.fullmatch(name) for pattern in patterns)}
