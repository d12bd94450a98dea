"""Export of a run with all of its records, as they are on the log."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from noesium_stream.client.proof.proof_file import Head, LineWriter, Tail
from noesium_stream.client.run import Run
from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError, RunNotFoundError
from noesium_stream.event.record_proofs import PROOF
from noesium_stream.event.signing import Signer
from noesium_stream.log.headers import header_value
from noesium_stream.private_files import private
from noesium_stream.projection.state.atomic_file import written_whole


async def export_run(run: Run, path: Path, clock: Clock, signer: Signer | None = None) -> int:
    """Write a run's journal to a file, atomically; return the number of its records.

    Args:
        run: the run, of which the log has the beginning.
        path: the file; one that exists is replaced.
        clock: says when.
        signer: signs the file.

    Raises:
        RunNotFoundError: no worker has started it yet, or there is no such run.
        ConfigError: the file cannot be written.
        CorruptRecordError: the signature of a record does not hold, or is missing although required.
    """
    try:
        with written_whole(path) as beside:
            return await _written(run, beside, clock, signer)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}.") from None


async def _written(run: Run, path: Path, clock: Clock, signer: Signer | None) -> int:
    exporter = None if signer is None else signer.public_key_id
    head = Head(run.log.topology.namespace, run.agent_type, run.id, clock.now_ms(), exporter)
    lines, count, keys = LineWriter(), 0, set[str]()
    with _opened(path) as file:
        file.write(lines.head(head))
        async with aclosing(run.records(follow=False)) as records:
            async for record in records:
                file.write(lines.record(record))
                count += 1
                proof = (header_value(record.raw_headers, PROOF) or b"").split(b" ")
                keys.update(part.decode("ascii", "replace") for part in proof[1:2])
        if count == 0:
            await run.info()
            raise RunNotFoundError(
                f"Run {run.id} has not begun yet.", hint="It can be exported when a worker has started it."
            )
        file.write(lines.tail(Tail(count, tuple(sorted(keys)))))
        if signer is not None:
            file.write(lines.seal(signer.public_key_id, signer.sign_bytes(lines.to_sign)))
    return count


def _opened(path: Path) -> BinaryIO:
    return open(path, "wb", opener=private)
