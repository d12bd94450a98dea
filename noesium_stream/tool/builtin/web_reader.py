"""Program that reads one page of HTML or PDF from standard input: a process of its own, with limits.

The first line is JSON (`kind`, `limit` in characters, `url` of HTML); the page follows. The answer is a JSON
object with `title` and `text`, one character longer than the limit if there is more; or with `problem`, or
with the package that is `missing`.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from typing import Any, Final

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None  # type: ignore[assignment]

MEMORY_BYTES: Final = 1024 * 1024 * 1024
CPU_S: Final = 20
READERS: Final = {"html": "web_html", "pdf": "web_pdf"}


def answer_to(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Read one page; whatever a broken one provokes is its own fault, and a problem."""
    try:
        module = importlib.import_module(f"noesium_stream.tool.builtin.{READERS[request['kind']]}")
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    try:
        found: dict[str, Any] = module.read(data, request)
    except Exception as error:
        return {"problem": f"its structure is broken ({type(error).__name__})"}
    return {name: text[: request["limit"] + 1] for name, text in found.items()}


def main() -> None:
    """Serve one request."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    warnings.simplefilter("ignore")
    request = json.loads(sys.stdin.buffer.readline(100_000))
    sys.stdout.write(json.dumps(answer_to(request, sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
