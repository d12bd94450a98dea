"""A program that reads files for `file_reader`; it needs nothing but Python.

Input: paths, each with a zero byte behind it. Output: for each path pieces of the file, each with its length
in front (eight bytes, signed, big-endian); then 0, or the negative error number.
"""

import os
import signal
import sys

PIECE = 8 * 2**20


def answer(length: int, data: bytes = b"") -> None:
    """Write a length and what it is the length of."""
    sys.stdout.buffer.write(length.to_bytes(8, "big", signed=True))
    sys.stdout.buffer.write(data)


def read(path: str) -> None:
    """Write a file's bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            while data := file.read(PIECE):
                answer(len(data), data)
    except OSError as error:
        answer(-(error.errno or 1))
    else:
        answer(0)
    sys.stdout.buffer.flush()


def main() -> None:
    """Read what standard input names, until it ends; who asks decides when that is, also at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    name = b""
    while byte := sys.stdin.buffer.read(1):
        if byte == b"\0":
            read(os.fsdecode(name))
            name = b""
        else:
            name += byte


if __name__ == "__main__":
    main()
