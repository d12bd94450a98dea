"""The verdict on an exported run, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noesium_stream.cli.output import out, shorten
from noesium_stream.cli.table import table
from noesium_stream.client.proof.checks import OfflineVerdict
from noesium_stream.clock import to_rfc3339
from noesium_stream.event.trust.grants import grant_hash

_WIDTH = 80


def show(verdict: OfflineVerdict) -> None:
    """Print a verdict: a table of what the records say, who signed them, and what is wrong."""
    head = verdict.head
    out(f"run {shorten(head.run_id, 256)} of {shorten(head.agent_type, 64)}, namespace {head.namespace[:64]}")
    table(("", "who", "key", "when", "what"), list(_rows(verdict)))
    for line in (*_grant(verdict), *_signatures(verdict)):
        out(line)
    for where, what in verdict.problems:
        out(f"{where}: {what}")
    if verdict.more:
        out(f"and {verdict.more:,} further problems")
    out("proven" if verdict.is_proven else "not proven")


def _rows(verdict: OfflineVerdict) -> Iterator[tuple[str, str, str, str, str]]:
    findings = verdict.findings
    if findings.forked_from is not None:
        yield "fork", "", "", "", f"of {findings.forked_from[:256]}, whose history is not in this file"
    for said in findings.said:
        by, key = shorten(said.by, _WIDTH), "the agent says so" if said.key is None else said.key
        yield said.what, by, key, to_rfc3339(said.at_ms), shorten(said.about, _WIDTH)
    for done in findings.done.values():
        about = f"{done.name} ({done.kind}): {done.outcome}" + (f", {done.detail}" if done.detail else "")
        yield "effect", "", "", to_rfc3339(done.at_ms), shorten(about, 2 * _WIDTH)
    if findings.ended_ms is None:
        yield "open", "", "", "", "no end in this file"
    else:
        end = f"{findings.status}" + (f": {findings.message}" if findings.message else "")
        yield "ended", "", "", to_rfc3339(findings.ended_ms), shorten(end, 2 * _WIDTH)


def _grant(verdict: OfflineVerdict) -> Iterator[str]:
    grant = verdict.grants.own
    if grant is not None:
        held = f"roles: {_names(grant.roles)}; scopes: {_names(grant.scopes)}"
        if grant.permissions is not None:
            held += f"; tools: {_names(grant.permissions)}"
        if grant.mode is not None:
            held += f"; mode: {shorten(grant.mode, 16)}"
        chain = f"grant {grant_hash(grant)[:16]}"
        if grant.parent is not None:
            chain += f", narrowed from {shorten(grant.parent, 16)}"
        yield f"acts for {shorten(grant.principal, _WIDTH)}, {held} ({chain})"


def _names(names: Sequence[str] | None) -> str:
    if names is None:
        return "any"
    return shorten(", ".join(names), _WIDTH) if names else "none"


def _signatures(verdict: OfflineVerdict) -> Iterator[str]:
    yield f"{verdict.records:,} records, signed by: {_counts(verdict.signed)}; unsigned: {verdict.unsigned:,}"
    yield f"their senders' own signatures: {_counts(verdict.senders)}"
    at = to_rfc3339(verdict.head.at_ms)
    yield f"exported {at}, signed by: {verdict.exporter or 'nobody'}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} ({count:,})" for key, count in sorted(counts.items())) or "nobody"


def as_fields(verdict: OfflineVerdict) -> dict[str, Any]:
    """A verdict as JSON."""
    findings = verdict.findings
    return {
        **verdict.head._asdict(),
        "records": verdict.records,
        "signed": dict(verdict.signed),
        "senders": dict(verdict.senders),
        "unsigned": verdict.unsigned,
        "signed_by": verdict.exporter,
        "said": [_fields(said) for said in findings.said],
        "done": [_fields(done) for done in findings.done.values()],
        "forked_from": findings.forked_from,
        "grant": None if verdict.grants.own is None else verdict.grants.own.model_dump(mode="json"),
        "status": findings.status,
        "ended_ms": findings.ended_ms,
        "message": findings.message,
        "problems": [{"where": where, "what": what} for where, what in verdict.problems],
        "more_problems": verdict.more,
        "proven": verdict.is_proven,
    }


def _fields(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__slots__}
