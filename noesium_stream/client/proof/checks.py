"""Checks of an exported run on a machine that sees no log.

Each record is checked alone: its signature, its place, its number, its event, and for what others sent the
sender's own signature. Together they are whole if they are numbered without a gap from 0 to the end of the
run. A run that has not ended has no last record: there the exporter's signature says that these were all.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from noesium_stream.client.proof.findings import Findings, is_asked
from noesium_stream.client.proof.grant_chain import GrantChain
from noesium_stream.client.proof.proof_file import FileRecord, Head, Line, Seal, Tail, read_lines
from noesium_stream.errors import ConfigError, EventValidationError, SignatureError, UnknownSchemaError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.record_proofs import Headers, RecordVerifier
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.signing import Verifier
from noesium_stream.event.trust.speaking import speaker_problem
from noesium_stream.event.trust.trusted_key import AGENT, TrustedKey
from noesium_stream.log.headers import SENDER, SEQUENCE, SOURCE
from noesium_stream.log.sender_proof import SenderRecord, sender_record

MAX_PROBLEMS: Final = 100
"""Problems that are told; others are counted."""

_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,17}")
_GENERATION: Final = r"(\.g[1-9][0-9]{0,8})?"


@dataclass(slots=True)
class OfflineVerdict:
    """What the checks of an exported run have found.

    Attributes:
        head: of which run it is.
        records: number of its records.
        signed: number of records by the id of the key that signed them.
        senders: number of senders' records by the id of the key that signed them.
        unsigned: number of records without a signature.
        exporter: id of the key whose signature of the whole file holds; None: there is none.
        findings: what the records say.
        grants: what it acted with, and what it handed on.
        problems: where something is wrong, and what.
        more: number of further problems.
    """

    head: Head
    records: int = 0
    signed: Counter[str] = field(default_factory=Counter)
    senders: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0
    exporter: str | None = None
    findings: Findings = field(default_factory=Findings)
    grants: GrantChain = field(default_factory=GrantChain)
    problems: list[tuple[str, str]] = field(default_factory=list)
    more: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether every record is signed by a known key, and none is missing."""
        return not self.problems

    def wrong(self, where: str, what: str) -> None:
        """Add a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append((where, what))
        else:
            self.more += 1


def verify_file(path: Path, verifier: Verifier, run_id: str | None = None) -> OfflineVerdict:
    """Check an exported run with these keys; `run_id`: the id, or its beginning, of the run that it must be.

    Raises:
        ConfigError: the file cannot be read, or is no exported run.
    """
    lines = read_lines(path)
    first = next(lines, None)
    if first is None or not isinstance(first.content, Head):
        raise ConfigError(
            f"{path} is no exported run, or its first line was changed.",
            hint="`noesium export RUN FILE` makes one.",
        )
    check = _Check(first.content, verifier)
    if not first.is_chained:
        check.verdict.wrong("line 1", "the line was changed")
    if run_id is not None and not check.verdict.head.run_id.startswith(run_id):
        check.verdict.wrong("line 1", f"the file is of the run {short(check.verdict.head.run_id)}")
    for line in lines:
        check.line(line)
    check.end()
    return check.verdict


class _Check:
    def __init__(self, head: Head, verifier: Verifier) -> None:
        self.verdict = OfflineVerdict(head)
        # Whether a signature is required is judged here, so that the answer can be: nobody signed it.
        self._verifier = Verifier(verifier.keys)
        self._records = RecordVerifier(self._verifier)
        self._codec = EnvelopeCodec(verifier=self._verifier)
        name = f"{head.namespace}.agent.{head.agent_type}"
        self._journal = re.compile(re.escape(f"{name}.journal") + _GENERATION)
        self._inbox = re.compile(re.escape(f"{name}.inbox") + _GENERATION)
        self._place: tuple[str, int] | None = None
        self._offset = -1
        self._next = 0
        self._tail: Tail | None = None
        self._sealed = False
        self._last_is_wrong = False

    def line(self, line: Line) -> None:
        """Check a line behind the first one."""
        where, content = f"line {line.number}", line.content
        if content is None:
            self.verdict.wrong(where, line.problem)
            self._next += 1  # it stands for the record that belongs here
            self._last_is_wrong = True
        elif self._sealed or (self._tail is not None and not isinstance(content, Seal)):
            self.verdict.wrong(where, "follows the end of the file")
        elif isinstance(content, FileRecord):
            self._record(where, content, line.is_chained)
        elif isinstance(content, Tail):
            self._take_tail(where, content, line.is_chained)
        elif isinstance(content, Seal):
            self._seal(where, content)
        else:
            self.verdict.wrong(where, "is a second first line")

    def end(self) -> None:
        """Check that the file and the run are whole."""
        verdict, findings = self.verdict, self.verdict.findings
        if verdict.unsigned:
            verdict.wrong("the file", f"{verdict.unsigned:,} of {verdict.records:,} records are unsigned")
        if not verdict.records:
            return verdict.wrong("the file", "holds no record of the run")
        if self._tail is None:
            verdict.wrong("the file", f"ends behind record {self._next - 1}: its own last line is missing")
        if verdict.head.exporter is not None and not self._sealed:
            verdict.wrong("the file", "the exporter's signature is missing")
        if findings.status is None and not self._last_is_wrong and not self._exporter_knows():
            verdict.wrong(
                "the run",
                f"has no end behind record {self._next - 1}: it was open, or the end was cut off, and no key "
                "of the agent or of an operator has signed the export",
            )
        return None

    def _exporter_knows(self) -> bool:
        """Whether the exporter may say that an open run had no more records."""
        key = None if self.verdict.exporter is None else self._verifier.keys.get(self.verdict.exporter)
        return key is not None and key.speaks(AGENT + self.verdict.head.agent_type)

    def _take_tail(self, where: str, tail: Tail, is_chained: bool) -> None:
        self._tail = tail
        if not is_chained:
            self.verdict.wrong(where, "was changed, or lines before it were cut out")
        elif tail.records != self.verdict.records:
            there = self.verdict.records
            self.verdict.wrong(where, f"counts {tail.records:,} records, and there are {there:,}")

    def _seal(self, where: str, seal: Seal) -> None:
        self._sealed = True
        head = self.verdict.head
        try:
            if self._tail is None or seal.key_id != head.exporter:
                raise SignatureError("signature", "is not that of the exporter whom the first line names")
            key = self._verifier.verify_bytes(seal.key_id, seal.signature, seal.signed)
            problem = key.problem_at(head.at_ms)
            if problem is not None:
                raise SignatureError("signature", problem)
            self.verdict.exporter = key.key_id
        except SignatureError as error:
            self.verdict.wrong(where, f"the exporter's {error.message}")

    def _record(self, where: str, record: FileRecord, is_chained: bool) -> None:
        verdict = self.verdict
        verdict.records += 1
        where = f"{where}, {_shown(record)}"
        self._last_is_wrong = True
        try:
            self._check_place(record)
            signed_by = self._signed_by(record)
            problem = self._order_problem(record)
            if problem is None and not is_chained:
                problem = "its line was changed, or one before it was"
            if problem is not None:
                verdict.wrong(where, problem)
            self._read(record, signed_by)
            self._last_is_wrong = False
        except EventValidationError as error:
            verdict.wrong(where, error.message)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            verdict.wrong(where, "its event cannot be read")

    def _signed_by(self, record: FileRecord) -> TrustedKey | None:
        headers = cast(Headers, record.headers)
        try:
            key = self._records.check(
                record.topic, record.partition, record.key, headers, record.value, record.at_ms
            )
        except SignatureError as error:
            self._next += 1  # it stands for the record that belongs here
            raise SignatureError("its signature", f"does not hold: {error.message}") from None
        if key is None:
            self.verdict.unsigned += 1
        else:
            self.verdict.signed[key.key_id] += 1
        return key

    def _check_place(self, record: FileRecord) -> None:
        head, place = self.verdict.head, (record.topic, record.partition)
        if record.key != head.run_id:
            raise EventValidationError("key", f"it is of another run, {short(record.key)}")
        if self._journal.fullmatch(record.topic) is None:
            raise EventValidationError("topic", f"{short(record.topic)} is no journal of the agent")
        self._place = self._place or place
        if place != self._place:
            raise EventValidationError("topic", "it is not from the partition of the records before it")

    def _order_problem(self, record: FileRecord) -> str | None:
        """What is wrong with its number or its offset; None: nothing.

        Raises:
            EventValidationError: it has no number, or one before it has the same or a later one.
        """
        number, after, first = _number(record), self._offset, self._next
        self._offset = max(self._offset, record.offset)
        if number < first:
            raise EventValidationError(SEQUENCE, f"it stands behind record {first - 1}")
        self._next = number + 1
        if number > first:
            which = (
                f"record {first} is" if number == first + 1 else f"the records {first} to {number - 1} are"
            )
            return f"{which} missing before it"
        return None if record.offset > after else f"its offset {record.offset} does not follow {after}"

    def _read(self, record: FileRecord, signed_by: TrustedKey | None) -> None:
        event, is_known = self._event(record.value)
        findings = self.verdict.findings
        if findings.status is not None:
            raise EventValidationError("event_type", "it follows the end of the run")
        if signed_by is not None:
            _refuse(speaker_problem(signed_by, record.topic, event))
        received = any(name == SOURCE for name, _ in record.headers)
        asked = received or is_asked(event, record.key) or _number(record) == 0
        key = self._sender(record, event) if asked and signed_by is not None else None
        if is_known and (event.event_type not in ENDINGS or event.payload["run_id"] == record.key):
            findings.take(event, record.at_ms, received=asked, key=None if key is None else key.key_id)
            problem = self.verdict.grants.take(event, received=asked)
            if problem is not None:
                raise EventValidationError("payload.grant", problem)
        if asked and signed_by is not None and key is None:
            raise SignatureError(
                SENDER, "the sender's own signature is missing: only the agent says who it was"
            )

    def _sender(self, record: FileRecord, event: EventEnvelope) -> TrustedKey | None:
        """The key that the sender of what this record is a copy of signed with."""
        sent = sender_record(record.headers, record.value)
        if sent is None:
            return None
        if self._inbox.fullmatch(sent.topic) is None:
            raise SignatureError(SENDER, f"{short(sent.topic)} is no inbox of the agent")
        key = self._sent_by(record.key, sent)
        if key is None:
            return None
        if sent.value != record.value and self._event(sent.value)[0] != event:
            raise SignatureError(SENDER, "the agent's copy is not what its sender has signed")
        _refuse(speaker_problem(key, sent.topic, event))
        self.verdict.senders[key.key_id] += 1
        return key

    def _sent_by(self, key: str, sent: SenderRecord) -> TrustedKey | None:
        try:
            headers = cast(Headers, sent.headers)
            return self._records.check(sent.topic, sent.partition, key, headers, sent.value, sent.at_ms)
        except SignatureError as error:
            raise SignatureError(SENDER, f"the sender's own signature: {error.message}") from None

    def _event(self, value: bytes) -> tuple[EventEnvelope, bool]:
        """The event, and whether its payload is valid by a schema that is known here."""
        try:
            return self._codec.upcast(self._codec.decode(value)), True
        except UnknownSchemaError:
            return self._codec.decode_unchecked(value), False


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise SignatureError("producer", problem)


def _number(record: FileRecord) -> int:
    found = [content for name, content in record.headers if name == SEQUENCE]
    if len(found) != 1 or found[0] is None or _NUMBER.fullmatch(found[0]) is None:
        raise EventValidationError(SEQUENCE, "it has no number in its run")
    return int(found[0])


def _shown(record: FileRecord) -> str:
    """A record in a message: its number and its type, as it says itself."""
    said: dict[str, Any] = dict(record.headers)
    number, kind = (said.get(name) or b"?" for name in (SEQUENCE, "ce_type"))
    return f"record {_text(number)} ({_text(kind)})"


def _text(data: bytes) -> str:
    return data[:80].decode("utf-8", "replace")
