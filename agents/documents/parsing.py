"""One file to passages, in a process of its own.

Files come from anywhere, and a parser that hangs on one, eats the memory or brings the interpreter down
must not take the librarian along: `main` runs in child processes (see `reading.py`) that are limited in
memory and killed when a file takes too long. Requests and answers are JSON lines on standard input and
output.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import stat
import sys
import warnings
from typing import Any

from agents.documents.blocks import BinaryError, DamagedError, Document
from agents.documents.kinds import kind_of_passage
from agents.documents.listing import MAX_FILE_BYTES, Reason
from agents.documents.passages import identifier_words, passages_of

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None  # type: ignore[assignment]

MEMORY_BYTES = 1024 * 1024 * 1024
RECURSION_LIMIT = 3_000


def read_document(full: str, path: str, format: str, known_sha256: str | None) -> dict[str, Any]:
    """Read the file at `full` and cut it into passages.

    Returns one of
        {"sha256", "size", "mtime_ns", "same": True}            its bytes are those of `known_sha256`
        {"sha256", "size", "mtime_ns", "title", "note",
         "passages": [[heading, text, words, start, end, page, kind,
                       [[unit kind, text, first line, last line, group]]]]}
        {"reason", "detail"} and, if the bytes could be read, "sha256", "size", "mtime_ns"
    """
    try:
        data, info = _read_bytes(full)
    except FileNotFoundError:
        return {"reason": Reason.VANISHED, "detail": ""}
    except PermissionError:
        return {"reason": Reason.UNREADABLE, "detail": "permission denied"}
    except OSError as error:
        return {"reason": Reason.UNREADABLE, "detail": (error.strerror or str(error)).lower()}
    if data is None:
        return {"reason": Reason.TOO_LARGE, "detail": "it grew while it was read"}
    answer: dict[str, Any] = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": info.st_size,
        "mtime_ns": info.st_mtime_ns,
    }
    if answer["sha256"] == known_sha256:
        return answer | {"same": True}
    return answer | parsed(data, path, format)


def parsed(data: bytes, path: str, format: str) -> dict[str, Any]:
    """The title, note and passages of a document, or the reason why it has none, with its `detail`."""
    parser = importlib.import_module(f"agents.documents.parsers.{format}")
    try:
        document: Document = parser.parse(data, path)
        passages = passages_of(document)
    except BinaryError:
        return {"reason": Reason.BINARY, "detail": ""}
    except DamagedError as error:
        return {"reason": Reason.DAMAGED, "detail": str(error)}
    except MemoryError:
        return {"reason": Reason.DAMAGED, "detail": "it needs too much memory to be read"}
    except RecursionError:
        return {"reason": Reason.DAMAGED, "detail": "it is nested too deeply"}
    if not passages:
        detail = "no page gives any; they may be pictures" if format == "pdf" and data else ""
        return {"reason": Reason.EMPTY, "detail": detail}
    return {
        "title": _clean(document.title),
        "note": document.note,
        "passages": [
            [
                _clean(passage.heading),
                _clean(passage.text),
                identifier_words(passage.text)[:2000],
                passage.start_line,
                passage.end_line,
                passage.page,
                kind_of_passage(path, passage.code),
                [[unit.kind, _clean(unit.text), unit.first, unit.last, unit.group] for unit in passage.units],
            ]
            for passage in passages
        ],
    }


def _read_bytes(full: str) -> tuple[bytes | None, os.stat_result]:
    """The bytes of a regular file, None if there are too many. The time of change is that before the read."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    )
    descriptor = os.open(full, flags)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is no longer a regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    return (data if len(data) <= MAX_FILE_BYTES else None), info


def _clean(text: str) -> str:
    """`text` without the halves of surrogate pairs that some files smuggle in."""
    return text.encode("utf-8", "replace").decode()


def main() -> None:
    """Serve requests until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it is over
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(RECURSION_LIMIT)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # 1. keep the real standard output for answers, 2. let everything that prints go to standard error
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        request = json.loads(line)
        answer = read_document(request["full"], request["path"], request["format"], request["sha256"])
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
