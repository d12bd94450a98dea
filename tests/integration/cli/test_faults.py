"""What a user sees of a damaged record and of a full disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from noesium_stream.log import open_log
from noesium_stream.log.prepare import Prepared
from tests.support.command import Folder
from tests.support.events import catalogue, counted
from tests.support.stores import inject


async def test_a_tail_names_a_corrupt_record_and_goes_on_after_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"
    log = await open_log(url, catalogue=catalogue())
    [first] = await log.append([counted(1, "k")])
    foreign = Prepared(first.topic, 0, "k", "", (("ce_type", b"demo.counted"),), b"\xc3\x01 no event at all")
    [corrupt] = await inject(log, foreign)
    [last] = await log.append([counted(3, "k")])
    until = {0: last.offset + 1}
    ids = [r.envelope.event_id async for r in log.read(first.topic, {0: last.offset}, until=until)]
    await log.close()

    done = Folder(tmp_path).run("tail", "--log", url, "--json")
    assert done.returncode == 0
    assert ids[0] in done.stdout
    assert len(done.stdout.splitlines()) == 2
    [said] = done.stderr.strip().splitlines()
    assert said.startswith(f"error: {corrupt.topic}/{corrupt.partition}@{corrupt.offset}: ")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.root
def test_a_full_disk_is_one_clear_error_and_the_log_stays_readable(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        folder = Folder.with_toys(tmp_path, NOESIUM_HOME=str(disk))
        with pytest.raises(OSError, match="No space"):
            fill(disk / "ballast")
        done = folder.run("run", "agents.echo", "hello")
        assert done.returncode == 3, done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "no room left" in errors[0]
        assert "Traceback" not in done.stderr
        (disk / "ballast").unlink()
        assert folder.ok("run", "agents.echo", "hello")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
