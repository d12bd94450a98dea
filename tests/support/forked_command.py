"""The command `noesium` for shells in tests: it begins at once, forked from a server that has it loaded.

    python -IS forked_command.py SERVER ARGUMENTS...

SERVER is the number of the inherited file by which the server is asked (`tests/support/fork_server.py`). This
process stands for the command: it passes signals on, and ends as the command does; when it is killed, so is
the command. Where only an interpreter of its own will do (a terminal, other variables), it becomes
`python -P -m noesium_stream.cli`.
It imports little, for it starts many hundreds of times.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

COMMAND = ("-P", "-m", "noesium_stream.cli")
MOST_BYTES = 1 << 16
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(server: int, arguments: list[str]) -> NoReturn:
    """Be `noesium ARGUMENTS`."""
    request = {
        "args": [COMMAND[-1], *arguments],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "safe_path": True,
        "stands_for_it": os.getpid(),
    }
    text = json.dumps(request).encode()
    own_files = any(word.startswith("/dev/fd/") for word in arguments)
    if own_files or any(map(os.isatty, range(3))) or len(text) > MOST_BYTES:
        _become(arguments)
    told, tell = os.pipe()
    with socket.socket(fileno=server) as asked:
        socket.send_fds(asked, [text], [0, 1, 2, tell])
        os.close(tell)
        lines = open(told, encoding="ascii")  # noqa: SIM115 - the process ends with it
        pid = int(lines.readline())
        if not pid:
            _become(arguments)

    def forward(number: int, _: FrameType | None) -> None:
        os.kill(pid, number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    code = int(lines.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become(arguments: list[str]) -> NoReturn:
    os.execv(sys.executable, [sys.executable, *COMMAND, *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
