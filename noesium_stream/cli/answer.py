"""Output of a run's result, for people and for programs."""

from __future__ import annotations

from typing import Any

from noesium_stream.cli.output import dim, out, out_json, out_lines


def print_answer(result: Any) -> None:
    """Print the answer with its sources if the result has one, else the result as JSON."""
    if not isinstance(result, dict) or not isinstance(result.get("answer"), str):
        out_json(result)
        return
    out_lines(result["answer"].rstrip())
    sources = result.get("sources") or []
    if sources:
        out("")
        out("Sources")
        for source in sources:
            out(f"  {_source(source)}")


def result_json(run_id: str, result: Any, events: int, log: str) -> dict[str, Any]:
    """Make the object that `--json` prints: the result's own keys, and those that are always there.

    `answer` is the whole result if the result has no key `answer`.
    """
    fields = result if isinstance(result, dict) else {}
    return {
        **(fields if "answer" in fields else {}),
        "run_id": run_id,
        "answer": fields.get("answer", result),
        "citations": fields.get("citations", []),
        "sources": fields.get("sources", []),
        "events": events,
        "log": log,
    }


def _source(source: Any) -> str:
    if not isinstance(source, dict):
        return str(source)
    name = source.get("path") or source.get("url") or source.get("title") or ""
    title = source.get("title")
    return f"{name}  {dim(title)}" if title and title != name else str(name)
