"""A group bounds processes of the user root, where the system lets one be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.tool.sandbox import process_group
from noesium_stream.tool.sandbox.process_group import ProcessGroup

FORKS = """
import os, sys, time
sys.stdin.readline()
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made, flush=True)
os.killpg(0, 9)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a group that a process believes to be in."""
    folder = tmp_path / "pids" / "service"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("9:name=systemd:/\n8:pids:/service\n0::/\n")
    monkeypatch.setattr(process_group, "_OWN", cgroup)
    monkeypatch.setattr(process_group, "_ROOTS", {"pids": tmp_path / "pids", "": tmp_path / "unified"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def test_a_group_is_made_below_the_own_one_with_its_bound(own: Path) -> None:
    group = ProcessGroup.make(23)
    assert group is not None
    [folder] = own.glob("noesium-*")
    assert (folder / "pids.max").read_text() == "23"
    group.take([41, 42])
    assert (folder / "cgroup.procs").read_text() == "42", "each is a write of its own"


def test_who_is_not_root_is_bounded_otherwise(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ProcessGroup.make(23) is None
    assert list(own.glob("noesium-*")) == []


def test_without_the_controller_there_is_no_group(own: Path) -> None:
    (own / "cgroup.procs").unlink()
    assert ProcessGroup.make(23) is None


def test_a_group_that_takes_no_bound_is_removed_again(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> int:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "write_text", refused)
    assert ProcessGroup.make(23) is None
    assert list(own.glob("noesium-*")) == []


def test_the_kernel_refuses_what_is_one_too_many() -> None:
    group = ProcessGroup.make(10)
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        if group is not None:
            group.take([program.pid])
        program.stdin.write(b"\n")
        program.stdin.flush()
        made = int(program.stdout.readline())
    # Without a group (see `make`) it is bounded by its user's limit, or by nothing but its own loop.
    assert made == (9 if group is not None else made)
    if group is not None:
        group.remove()


def test_groups_of_workers_that_were_killed_are_removed(own: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    for name in (f"noesium-{dead.pid}-a", f"noesium-{os.getpid()}-b", "noesium-x-c", "another"):
        (own / name).mkdir()
    group = ProcessGroup.make(23)
    assert group is not None
    empty = sorted(folder.name for folder in own.iterdir() if folder.is_dir() and not any(folder.iterdir()))
    assert empty == ["another", f"noesium-{os.getpid()}-b", "noesium-x-c"]
