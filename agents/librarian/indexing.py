"""Bringing an index up to date with its folder: only what changed is read again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.documents.listing import TRANSIENT, Found, Listing, Reason, Skipped, list_documents
from agents.documents.reading import read_all
from agents.librarian.index import CorpusIndex, FileEntry, FileRow
from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError

BATCH_FILES = 50
BATCH_PASSAGES = 2_000
PROGRESS_S = 2.0
RACY_NS = 2_000_000_000
"""A file changed so shortly before it was read may change again within the same tick of its clock."""

Progress = Callable[[str], None]


@dataclass(slots=True)
class Summary:
    """What `bring_up_to_date` found and did."""

    documents: int = 0
    passages: int = 0
    read: int = 0
    tried: int = 0
    """Files that were opened, those that turned out to be damaged included."""
    removed: int = 0
    unchanged: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def bring_up_to_date(
    root: Path,
    index: CorpusIndex,
    *,
    clock: Clock,
    progress: Progress,
    stop: threading.Event,
    leave_out: Sequence[Path] = (),
) -> Summary:
    """Make `index` say what the documents below `root` say.

    `stop` ends it early and leaves a consistent index. Progress goes to `progress`, a line at a time.

    Raises:
        ConfigError: there is not one document below `root`.
    """
    listing = list_documents(root, leave_out=leave_out)
    _require_documents(root, listing)
    index.prepare(root)
    known = index.files()
    present = {found.path for found in listing.found}
    gone = sorted(known.keys() - present)
    if gone:
        index.remove(gone)
    changed = [found for found in listing.found if not _is_same(found, known.get(found.path))]
    run = _Run(index, clock, progress, len(changed))
    if changed:
        hashes = {path: row.sha256 for path, row in known.items() if row.sha256}
        results = read_all(root, changed, hashes, stop)
        try:
            for found, answer in results:
                run.take(found, answer)
        finally:
            results.close()  # type: ignore[attr-defined]
        run.flush()
    summary = Summary(read=run.read, tried=run.tried, removed=len(gone))
    summary.documents, summary.passages = index.counts()
    summary.unchanged = max(summary.documents - run.read, 0)
    summary.skipped = sorted([*listing.skipped, *index.skipped(), *run.passing], key=lambda item: item.path)
    summary.folders = listing.folders
    summary.notes = run.notes
    if not summary.documents and not stop.is_set():
        raise _no_documents(root, summary.skipped)
    return summary


def skipped_lines(summary: Summary, named: int = 4) -> list[str]:
    """For people: how many files were skipped for which reason, and the names of the first ones."""
    lines = []
    others = Counter(_suffix(item.path) for item in summary.skipped if item.reason is Reason.OTHER)
    for reason in Reason:
        items = [item for item in summary.skipped if item.reason is reason]
        if not items:
            continue
        if reason is Reason.OTHER:
            names = [
                f"{count} {suffix}" for suffix, count in sorted(others.items(), key=lambda x: (-x[1], x[0]))
            ]
        else:
            names = [item.path + (f" ({item.detail})" if item.detail else "") for item in items]
        more = f", and {len(names) - named} more" if len(names) > named else ""
        lines.append(f"skipped {count_of_files(len(items))}, {reason}: {', '.join(names[:named])}{more}")
    if summary.notes:
        more = f", and {len(summary.notes) - named} more" if len(summary.notes) > named else ""
        lines.append(f"read with difficulty: {', '.join(summary.notes[:named])}{more}")
    return lines


class _Run:
    """Collects what was read into batches."""

    def __init__(self, index: CorpusIndex, clock: Clock, progress: Progress, total: int) -> None:
        self.read = 0
        self.tried = 0
        self.passing: list[Skipped] = []
        self.notes: list[str] = []
        self._index = index
        self._clock = clock
        self._progress = progress
        self._total = total
        self._seen = 0
        self._told = clock.monotonic()
        self._entries: list[FileEntry] = []
        self._same: list[tuple[str, int, int]] = []
        self._gone: list[str] = []
        self._passages = 0

    def take(self, found: Found, answer: dict[str, Any]) -> None:
        self._seen += 1
        mtime_ns = self._trusted(answer.get("mtime_ns", -1))
        if answer.get("same"):
            self._same.append((found.path, answer["size"], mtime_ns))
        elif answer.get("reason") in TRANSIENT:
            self.passing.append(Skipped(found.path, Reason(answer["reason"]), answer["detail"]))
            self._gone.append(found.path)
        else:
            self._add(found, answer, mtime_ns)
        if len(self._entries) >= BATCH_FILES or self._passages >= BATCH_PASSAGES:
            self.flush()
        if self._clock.monotonic() - self._told >= PROGRESS_S:
            self._told = self._clock.monotonic()
            self._progress(f"indexed {self._seen:,} of {self._total:,} files")

    def flush(self) -> None:
        """Write what has been collected."""
        if self._entries:
            self._index.write(self._entries)
        if self._same:
            self._index.touch(self._same)
        if self._gone:
            self._index.remove(self._gone)
        self._entries, self._same, self._gone, self._passages = [], [], [], 0

    def _add(self, found: Found, answer: dict[str, Any], mtime_ns: int) -> None:
        reason = answer.get("reason")
        passages = answer.get("passages", [])
        entry = FileEntry(
            path=found.path,
            size=answer.get("size", found.size),
            mtime_ns=mtime_ns,
            sha256=answer.get("sha256", ""),
            title=answer.get("title", ""),
            note=answer.get("detail" if reason else "note", ""),
            reason=reason,
            passages=passages,
        )
        self._entries.append(entry)
        self._passages += len(passages)
        self.tried += 1
        self.read += not reason
        if entry.note and not reason:
            self.notes.append(f"{entry.path} ({entry.note})")

    def _trusted(self, mtime_ns: int) -> int:
        """The time of change, or -1 (look again next time) if it is too fresh to tell the next change."""
        return mtime_ns if self._clock.now_ms() * 1_000_000 - mtime_ns > RACY_NS else -1


def _is_same(found: Found, row: FileRow | None) -> bool:
    return row is not None and (row.size, row.mtime_ns) == (found.size, found.mtime_ns)


def _require_documents(root: Path, listing: Listing) -> None:
    if not listing.found:
        raise _no_documents(root, listing.skipped)


def _no_documents(root: Path, skipped: list[Skipped]) -> ConfigError:
    counts = Counter(str(item.reason) for item in skipped)
    found = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    what = f" ({count_of_files(len(skipped))} skipped: {found})" if skipped else " (the folder is empty)"
    return ConfigError(
        f"There are no documents in {root}{what}.",
        hint="Documents are Markdown, text, reStructuredText, HTML, Python source and PDF files. "
        "Give the folder that holds them with --docs DIR.",
    )


def count_of_files(count: int) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} file" + ("" if count == 1 else "s")


def _suffix(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return "." + name.rsplit(".", 1)[-1] if "." in name else name
