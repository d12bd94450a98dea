"""Calls that read the clock, randomness, the network or files, which a STRICT node may not do (RFC-0003 §7).

Two sources report that such a call is about to be made, and no third one is needed:
- `called`: calls of C functions as reported by the interpreter's profiler. They are filtered by name first,
because only that is fast enough for every call of a node.
- `audited`: the interpreter's audit events (PEP 578), which are also raised when C code calls C code.

Not detected: C code that reads the clock or randomness without a Python call
(`functools.partial(time.time)()`, a pydantic `default_factory=time.time`, NumPy's global generator), and
handles of C libraries that were opened before. Running a deterministic node twice and comparing finds most of
these.
"""

from __future__ import annotations

import _random
import dis
import importlib
import random
import socket
import time
import zoneinfo
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from enum import Enum
from queue import SimpleQueue
from types import FrameType, ModuleType
from typing import Any, Final, NamedTuple


class Kind(Enum):
    """The kind of read, as a verb, with the recommended alternative."""

    CLOCK = (
        "reads the clock",
        "Use current_step().now(): the same time on every execution; current_step().sleep() waits.",
    )
    CHANCE = (
        "draws on chance",
        "Use current_step().random() or current_step().uuid(): the same values on every execution. A "
        "random.Random(seed) with a seed from the state is allowed.",
    )
    NETWORK = (
        "uses the network",
        "Ask another agent: await current_step().invoke(capability, arguments), or emit an event for it.",
    )
    FILES = (
        "uses files",
        "Take what it holds from the state, or ask another agent: await current_step().invoke(capability, "
        "arguments).",
    )
    PROCESS = (
        "starts another program",
        "Ask another agent: await current_step().invoke(capability, arguments).",
    )
    THREAD = (
        "starts a thread",
        "Compute in the node itself, in asyncio children of it or in a parallel branch of the graph: the "
        "order in which threads run is not the same twice.",
    )
    ENVIRONMENT = (
        "reads the environment",
        "Take the setting from the state.",
    )

    def __init__(self, verb: str, instead: str) -> None:
        self.verb = verb
        self.instead = instead


class Entropy(NamedTuple):
    """One call: its kind, and its name for messages (`time.time`)."""

    kind: Kind
    what: str


def called(function: Any, frame: FrameType) -> Entropy | None:
    """The read that a call of a C function from `frame` makes, if any; for names in `NAMES`."""
    return _JUDGES[function.__name__](function, frame)


def audited(event: str, arguments: tuple[Any, ...]) -> Entropy | None:
    """The read that an audit event announces, if any."""
    kind = _EVENTS.get(event)
    if kind is None or _harmless(event, arguments):
        return None
    shown = _SHOWN.get(event)
    if shown is None or len(arguments) <= shown:
        return Entropy(kind, event)
    text = repr(arguments[shown])
    return Entropy(kind, f"{event}({text if len(text) <= 100 else text[:99] + '…'})")


def _harmless(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the event is for an in-memory database or for time zone data, which C code opens by itself."""
    subject = arguments[0] if arguments else None
    if event == "sqlite3.connect":
        return subject == ":memory:"
    return event == "open" and isinstance(subject, str) and subject.startswith(zoneinfo.TZPATH)


_PUBLIC: Final = {"posix": "os", "nt": "os", "_uuid": "uuid", "_ssl": "ssl", "_thread": "threading"}


def _from_module(kind: Kind, *modules: str) -> Callable[[Any, FrameType], Entropy | None]:
    def judge(function: Any, frame: FrameType) -> Entropy | None:
        module = str(function.__module__)
        package = module.partition(".")[0]
        if not isinstance(function.__self__, ModuleType | None) or package not in modules:
            return None
        return Entropy(kind, f"{_PUBLIC.get(package, package)}.{function.__name__}")

    return judge


def _formatted(arguments: int) -> Callable[[Any, FrameType], Entropy | None]:
    """A judge that reports a clock read only for calls with fewer than `arguments` arguments."""

    def judge(function: Any, frame: FrameType) -> Entropy | None:
        if function.__self__ is not time or _arguments(frame) >= arguments:
            return None
        return Entropy(Kind.CLOCK, f"time.{function.__name__}")

    return judge


def _arguments(frame: FrameType) -> int:
    """Number of arguments of the call that `frame` is making; 0 if its bytecode does not tell."""
    code = frame.f_code.co_code
    operation = dis.opname[code[frame.f_lasti]]
    return code[frame.f_lasti + 1] if operation in ("CALL", "PRECALL", "CALL_KW") else 0


def _date(function: Any, frame: FrameType) -> Entropy | None:
    owner = function.__self__
    if not isinstance(owner, type) or not issubclass(owner, date):
        return None
    return Entropy(Kind.CLOCK, f"{owner.__name__}.{function.__name__}")


_GLOBAL: Final = getattr(random, "_inst")  # noqa: B009
_SEED: Final = random.Random.seed.__code__
_SUBMIT: Final = ThreadPoolExecutor.submit.__code__


def _chance(function: Any, frame: FrameType) -> Entropy | None:
    if function.__self__ is _GLOBAL:
        return Entropy(Kind.CHANCE, f"random.{function.__name__}")
    return None


def _seed(function: Any, frame: FrameType) -> Entropy | None:
    unseeded = frame.f_code is _SEED and frame.f_locals.get("a") is None
    if unseeded and isinstance(function.__self__, _random.Random):
        return Entropy(Kind.CHANCE, "random.Random() without a seed")
    return _chance(function, frame)


def _socket(function: Any, frame: FrameType) -> Entropy | None:
    # asyncio wakes its own loop through a pair of sockets.
    if isinstance(function.__self__, socket.socket) and frame.f_code.co_name != "_write_to_self":
        return Entropy(Kind.NETWORK, f"socket.{function.__name__}")
    return None


def _tls_type() -> type[Any] | None:
    try:
        return getattr(importlib.import_module("_ssl"), "_SSLSocket", None)
    except ImportError:
        return None


_TLS: Final = _tls_type()


def _tls(function: Any, frame: FrameType) -> Entropy | None:
    if _TLS is not None and isinstance(function.__self__, _TLS):
        return Entropy(Kind.NETWORK, f"ssl.{function.__name__}")
    return None


def _put(function: Any, frame: FrameType) -> Entropy | None:
    if not isinstance(function.__self__, SimpleQueue) or frame.f_code is not _SUBMIT:
        return None
    # asyncio resolves host names in a thread: check the caller of `run_in_executor`.
    caller = frame.f_back.f_back if frame.f_back is not None else None
    if caller is not None and caller.f_code.co_name in ("getaddrinfo", "getnameinfo"):
        return Entropy(Kind.NETWORK, f"socket.{caller.f_code.co_name}")
    return Entropy(Kind.THREAD, "ThreadPoolExecutor.submit")


def _by_name() -> dict[str, Callable[[Any, FrameType], Entropy | None]]:
    clock = _from_module(Kind.CLOCK, "time")
    chance = _from_module(Kind.CHANCE, "posix", "nt", "uuid_utils", "_uuid", "_ssl")
    thread = _from_module(Kind.THREAD, "_thread")
    judges: dict[str, Callable[[Any, FrameType], Entropy | None]] = {
        "clock_gettime": clock,
        "clock_gettime_ns": clock,
        "gmtime": _formatted(1),
        "localtime": _formatted(1),
        "ctime": _formatted(1),
        "asctime": _formatted(1),
        "strftime": _formatted(2),
        "random": _chance,
        "getrandbits": _chance,
        "seed": _seed,
        "put": _put,
        "start_new_thread": thread,
        "start_joinable_thread": thread,
    }
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        judges |= {name: clock, f"{name}_ns": clock}
    judges |= dict.fromkeys(("now", "utcnow", "today"), _date)
    judges |= dict.fromkeys(("urandom", "getrandom", "RAND_bytes", "generate_time_safe"), chance)
    judges |= dict.fromkeys(("uuid1", "uuid4", "uuid6", "uuid7", "_uuid4_int", "_uuid7_int"), chance)
    sockets = ("send", "sendall", "sendto", "sendmsg", "recv", "recv_into", "recvfrom", "recvmsg")
    judges |= dict.fromkeys(sockets, _socket)
    judges |= dict.fromkeys(("read", "write", "do_handshake"), _tls)
    files = _from_module(Kind.FILES, "posix", "nt")
    judges |= dict.fromkeys(("stat", "lstat", "access", "readlink"), files)
    return judges


_JUDGES: Final = _by_name()

NAMES: Final = frozenset(_JUDGES)
"""Names of the C functions that `called` has to check."""

_NETWORK: Final = (
    "socket.connect socket.bind socket.getaddrinfo socket.gethostbyname socket.gethostbyaddr "
    "socket.getnameinfo socket.gethostname socket.sendto socket.sendmsg"
)
_FILES: Final = (
    "open os.listdir os.scandir os.remove os.rename os.mkdir os.rmdir os.link os.symlink os.truncate "
    "os.chmod os.chown os.utime os.chdir sqlite3.connect"
)
_PROCESS: Final = (
    "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile pty.spawn"
)
_EVENTS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(_NETWORK.split(), Kind.NETWORK),
    **dict.fromkeys(_FILES.split(), Kind.FILES),
    **dict.fromkeys(_PROCESS.split(), Kind.PROCESS),
}
_SHOWN: Final[Mapping[str, int]] = {
    "open": 0,
    "sqlite3.connect": 0,
    "os.listdir": 0,
    "os.scandir": 0,
    "socket.connect": 1,
    "socket.bind": 1,
    "socket.getaddrinfo": 0,
    "subprocess.Popen": 0,
}
