"""`erase`: destroys the keys of a data subject, and makes sure that nothing of it stays readable.

The order is the guarantee:

1. Look: what the log holds about the subject, whether any of it is readable outside sealed records, whether
   its runs have ended, and whether nobody uses the local states. What cannot be covered is refused here, and
   nothing has happened.
2. Destroy the keys. From here on it can only be repeated, which completes it.
3. Clean the local states.
4. Write `subject.erased`.
5. Search everything again, if asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noesium_stream.client.erasure.local_state import (
    FOLDERS,
    MEMORY,
    beside,
    claimed_states,
    clean,
    state_files,
)
from noesium_stream.client.erasure.scan import Needles, Scanned, files_in, scan_blocks, scan_files, scan_log
from noesium_stream.client.erasure.survey import SHORTEST, Survey, survey
from noesium_stream.clock import Clock
from noesium_stream.errors import ErasureError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.sealing.keys import SubjectKeys, checked_subject
from noesium_stream.event.standard import SubjectErased
from noesium_stream.log.port import EventLog
from noesium_stream.log.sqlite.contents import empty_write_ahead_log
from noesium_stream.log.sqlite.store import file_of
from noesium_stream.log.topics import partition_of
from noesium_stream.log.url import parse_url

_SHOWN: Final = 10


@dataclass
class Erasure:
    """What was done about a data subject.

    Attributes:
        subject: the data subject.
        keys: the keys that were destroyed now.
        before: those that had been destroyed before.
        records: sealed records, which nobody can read any more, by topic.
        cleaned: state files that were removed or emptied.
        left: what stays readable, a sentence each; only if that was accepted.
        scanned: what was searched afterwards; None: it was not asked for.
    """

    subject: str
    keys: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)
    cleaned: int = 0
    left: list[str] = field(default_factory=list)
    scanned: Scanned | None = None


async def erase(
    log: EventLog,
    home: Path,
    subject: str,
    producer: AgentRef,
    clock: Clock,
    *,
    reason: str | None = None,
    words: Collection[str] = (),
    states: Sequence[Path] = (),
    partly: bool = False,
    dry_run: bool = False,
    prove: bool = False,
) -> Erasure:
    """Erase a data subject: destroy its keys, and clean what this machine has folded from the log.

    It may be repeated; on each machine that has states of its own it has to be called once.

    Args:
        log: an open log.
        home: where this machine keeps states.
        subject: the data subject: `user:42`.
        producer: who erases.
        clock: time and ids.
        reason: why, for the event.
        words: texts of the subject to look for, beside those that are sealed.
        states: further folders with state files of projections.
        partly: destroy the keys although something stays readable; `Erasure.left` names it.
        dry_run: only look.
        prove: search log, home and states once more afterwards.

    Raises:
        ErasureError: something about the subject would stay readable, a run of it is open, its states are in
            use, or nothing is known of it.
        EventValidationError: it is no data subject.
        SubjectKeyError, LogUnavailableError, ProjectionError
    """
    checked_subject(subject)
    keys = _keys_of(log)
    living, before = keys.living(subject), [one.key_id for one in keys.destroyed(subject)]
    words = _checked(words)
    # 1. Look.
    found = await survey(log, subject, [*living, *before])
    _require_known(subject, living, before, found, keys)
    if prove and not (found.texts or words):
        raise ErasureError(
            f"No text of {subject} is known: its key is destroyed, or nothing longer than {SHORTEST - 1} "
            "characters was sealed.",
            hint="Name what is to be looked for: --word TEXT",
        )
    needles = Needles([*words, *found.texts])
    files = state_files([*(home / name for name in FOLDERS), *states])
    done = Erasure(subject, before=before, records=dict(sorted(found.records.items())))
    done.left = await _left(log, home, found, needles, files)
    if done.left and not (partly or dry_run):
        raise ErasureError(
            f"{subject} was not erased, because something of it would stay readable:\n  "
            + "\n  ".join(done.left),
            hint="Remove it first; or destroy the key all the same, and keep this list: --partly",
        )
    if dry_run:
        done.keys = living
        return done
    with claimed_states(files):
        # 2. Destroy the keys.
        done.keys = [one.key_id for one in keys.destroy(subject, clock.now_ms())]
        # 3. Clean the local states.
        done.cleaned = clean(files, home)
    # 4. Say so.
    await _say(log, producer, clock, reason, done)
    # 5. Search again.
    if prove:
        done.scanned = Scanned(texts=len(needles.texts))
        await scan_log(log, needles, done.scanned)
        if (path := _file_of(log)) is not None:
            empty_write_ahead_log(path)
        scan_files(files_in([home, *states, *_files_of(log)]), needles, done.scanned)
        _scan_blocks(log, needles, done.scanned)
    return done


def _keys_of(log: EventLog) -> SubjectKeys:
    keys = log.decoder.sealer.keys
    if keys is None:
        raise ErasureError(
            f"{log.url} has no store of keys for data subjects: what is said about people is on it as it is, "
            "and cannot be erased.",
            hint="NOESIUM_SUBJECT_KEYS names a folder of keys; what is written from then on can be erased.",
        )
    return keys


def _checked(words: Collection[str]) -> list[str]:
    for word in words:
        if len(word) < 3:
            raise ErasureError(f"{word!r} is too short to be looked for.", hint="Give three characters.")
    return list(words)


def _require_known(
    subject: str, living: Sequence[str], before: Sequence[str], found: Survey, keys: SubjectKeys
) -> None:
    if not living and not before and not found.readable:
        raise ErasureError(
            f"Nothing is known of {subject}: there is no key of it in {keys.place}, and no record about it.",
            hint="Is it spelled as in the memory's scope, or where the run was started?",
        )


async def _left(
    log: EventLog, home: Path, found: Survey, needles: Needles, states: Collection[Path]
) -> list[str]:
    """What would stay readable, a sentence each."""
    left = [f"{place} was written before there was a key" for place in found.readable[:_SHOWN]]
    if len(found.readable) > _SHOWN:
        left.append(f"… and {len(found.readable) - _SHOWN} more records like these")
    left += [f"run {run_id} of it has not ended: noesium cancel {run_id}" for run_id in found.open_runs]
    scanned = Scanned()
    await scan_log(log, needles, scanned)
    cleaned = {one for path in states for one in beside(path)}
    own = [path for path in files_in([home, *_files_of(log)]) if path not in cleaned]
    scan_files([path for path in own if home / MEMORY not in path.parents], needles, scanned)
    _scan_blocks(log, needles, scanned)
    return left + [f"{one.place} has {one.text!r}" for one in scanned.found]


def _files_of(log: EventLog) -> list[Path]:
    """The files of a log on this machine."""
    path = _file_of(log)
    return [] if path is None else beside(path)


def _file_of(log: EventLog) -> Path | None:
    url = parse_url(log.url)
    return file_of(url) if url.scheme == "sqlite" else None


def _scan_blocks(log: EventLog, needles: Needles, scanned: Scanned) -> None:
    if (path := _file_of(log)) is not None:
        scan_blocks(path, needles, scanned)


async def _say(log: EventLog, producer: AgentRef, clock: Clock, reason: str | None, done: Erasure) -> None:
    """Append `subject.erased`, unless it is there for these keys."""
    keys = [*done.before, *done.keys]
    if not keys or keys == await _said(log, done.subject):
        return
    event = SubjectErased(
        subject=done.subject,
        keys=keys,
        records=sum(done.records.values()),
        erased_by=producer.agent_id,
        reason=reason,
    )
    await log.append([root_event(event, producer, clock, partition_key=done.subject)])


async def _said(log: EventLog, subject: str) -> list[str]:
    """The keys that the latest `subject.erased` of a subject names."""
    topic = log.topology.events(SubjectErased.TYPE.partition(".")[0])
    layout = await log.layout()
    if topic not in layout:
        return []
    partition = partition_of(subject, layout[topic].partitions)
    begin, until = await log.beginning(topic), await log.end(topic)
    keys: list[str] = []
    source = log.read_batches(
        topic, begin, until={partition: until[partition]}, types=(SubjectErased.TYPE,), partitions=[partition]
    )
    async for batch in source:
        for record in batch:
            if record.envelope.payload["subject"] == subject:
                keys = list(record.envelope.payload["keys"])
    return keys
