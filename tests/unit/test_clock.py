"""The machine's clock: what it gives out is given once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from noesium_stream.clock import SystemClock

_FORKS = """
import os
from noesium_stream.clock import SystemClock
clock = SystemClock()
clock.token(8)
child = os.fork()
tokens = [clock.token(8) for _ in range(300)]
if child:
    os.waitpid(child, 0)
print("\\n".join(tokens), flush=True)
os._exit(0)
"""


def test_tokens_have_their_size() -> None:
    clock = SystemClock()
    assert [len(bytes.fromhex(clock.token(size))) for size in (1, 6, 6, 16)] == [1, 6, 6, 16]


def test_a_token_is_given_to_one_thread() -> None:
    clock = SystemClock()
    with ThreadPoolExecutor(4) as executor:
        parts = list(executor.map(lambda _: [clock.token(8) for _ in range(5_000)], range(4)))
    assert len({token for part in parts for token in part}) == 20_000


def test_a_token_is_given_to_one_of_two_processes_that_were_one() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == len(done.stdout.split()) == 600
