"""Programs in a sandbox try to reach what was not granted: files, processes, sockets, the worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox import Ended, Sandbox
from tests.support.sandboxes import python, sandbox_named, shell

WHOLE = ("**",)


@pytest.fixture(params=["bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return sandbox_named(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("inside")
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("document")
    (tmp_path / "secret.txt").write_text("s3cret")
    return folder


async def test_it_reads_its_workspace(sandbox: Sandbox, workspace: Path) -> None:
    result = await shell(sandbox, workspace, "cat notes.txt; cat", stdin=b" and more")
    assert (result.stdout, result.exit_code, result.ended) == (b"inside and more", 0, Ended.EXIT)


@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/var/log", "/home"])
async def test_it_reads_no_file_of_the_machine(sandbox: Sandbox, workspace: Path, path: str) -> None:
    if not os.path.exists(path):
        pytest.skip(f"this machine has no {path}")
    if sandbox.name == "bubblewrap" and path == "/proc/1/environ":
        path = f"/proc/{os.getpid()}/environ"
    result = await shell(sandbox, workspace, f"cat {path} || ls {path}")
    assert (result.stdout, result.exit_code != 0) == (b"", True)


async def test_no_link_and_no_dots_lead_out(sandbox: Sandbox, workspace: Path) -> None:
    secret = workspace.parent / "secret.txt"
    (workspace / "link").symlink_to(secret)
    (workspace / "folder").symlink_to(workspace.parent)
    script = f"cat link folder/secret.txt ../secret.txt {secret}; ln {secret} hard; cat hard"
    result = await shell(sandbox, workspace, script, writable=WHOLE)
    assert b"s3cret" not in result.stdout + result.stderr


async def test_a_readable_workspace_is_not_writable(sandbox: Sandbox, workspace: Path) -> None:
    script = (
        "echo x > notes.txt; echo x > new; rm -f notes.txt; mv notes.txt b; chmod 777 notes.txt; ln -s a b"
    )
    await shell(sandbox, workspace, f"{script}; mkdir d; truncate -s 0 notes.txt; true")
    assert (workspace / "notes.txt").read_text() == "inside"
    assert sorted(os.listdir(workspace)) == ["docs", "notes.txt"]


async def test_only_the_granted_subtree_is_writable(sandbox: Sandbox, workspace: Path) -> None:
    script = "echo x > reports/a; echo x > docs/b; echo x > b; cp notes.txt reports/c; rm notes.txt"
    await shell(sandbox, workspace, script, writable=("reports/**",))
    found = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*"))
    assert found == ["docs", "docs/a.txt", "notes.txt", "reports", "reports/a", "reports/c"]


async def test_only_the_granted_subtree_is_visible(sandbox: Sandbox, workspace: Path) -> None:
    result = await shell(sandbox, workspace, "cat docs/a.txt; cat notes.txt", readable=("docs/**",))
    assert result.stdout == b"document"
    assert (await shell(sandbox, workspace, "cat docs/a.txt notes.txt", readable=())).stdout == b""


async def test_a_granted_folder_that_is_a_link_is_refused(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "reports").symlink_to(workspace.parent)
    with pytest.raises(SandboxError, match="is a link"):
        await shell(sandbox, workspace, "true", writable=("reports/**",))


async def test_a_write_through_a_link_stays_inside(sandbox: Sandbox, workspace: Path) -> None:
    secret = workspace.parent / "secret.txt"
    script = f"ln -s {secret} out; echo overwritten > out; ln -s /etc/passwd p; echo x >> p; true"
    await shell(sandbox, workspace, script, writable=WHOLE)
    assert secret.read_text() == "s3cret"


async def test_it_has_no_variable_of_the_worker(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    assert b"s3cret" not in (await shell(sandbox, workspace, "env; cat /proc/*/environ")).stdout
    result = await shell(sandbox, workspace, "env", environment={"GRANTED": "yes"})
    assert b"GRANTED=yes" in result.stdout


async def test_it_sees_no_other_process(sandbox: Sandbox, workspace: Path) -> None:
    own = os.getpid()
    script = f"cat /proc/{own}/cmdline; kill -9 {own}; kill -0 {own} && echo alive; ls /proc/{own}/fd"
    result = await shell(sandbox, workspace, script)
    assert b"pytest" not in result.stdout
    assert b"alive" not in result.stdout


@pytest.mark.parametrize("kind", ["tcp", "udp", "unix", "abstract"])
async def test_it_reaches_no_socket(sandbox: Sandbox, workspace: Path, tmp_path: Path, kind: str) -> None:
    family = socket.AF_INET if kind in ("tcp", "udp") else socket.AF_UNIX
    type_ = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    address = {"unix": str(tmp_path / "s"), "abstract": f"\0noesium-{os.getpid()}"}.get(
        kind, ("127.0.0.1", 0)
    )
    with socket.socket(family, type_) as server:
        server.bind(address)
        server.setblocking(False)
        if kind != "udp":
            server.listen()
        code = (
            "import socket\n"
            f"s = socket.socket({int(family)}, {int(type_)})\n"
            f"s.connect({server.getsockname()!r}); s.send(b'x'); print('sent')"
        )
        result = await python(sandbox, workspace, code)
        with pytest.raises(BlockingIOError):
            server.recv(1) if kind == "udp" else server.accept()
    assert kind == "udp" or b"sent" not in result.stdout


DENIED = {
    "mount": "mount(b'/', b'/tmp', None, 4096, None)",
    "ptrace": "ptrace(16, 1, 0, 0)",
    "user namespace": "unshare(0x10000000)",
    "network namespace": "unshare(0x40000000)",
    "io_uring": "syscall(425, 8, room)",
    "bpf": "syscall(321, 0, room, 120)",
    "keys": "syscall(250, 0, -3, 1)",
}


@pytest.mark.parametrize("what", DENIED)
async def test_the_kernel_denies(sandbox: Sandbox, workspace: Path, what: str) -> None:
    code = f"import ctypes\nroom = ctypes.create_string_buffer(200)\nprint(ctypes.CDLL(None).{DENIED[what]})"
    result = await python(sandbox, workspace, code)
    assert result.stdout.strip() == b"-1" or result.ended == Ended.SIGNAL


async def test_a_program_with_setuid_gains_nothing(sandbox: Sandbox, workspace: Path) -> None:
    script = "grep -E 'NoNewPrivs|CapEff' /proc/self/status; cp /bin/sh x; chmod 4755 x; ./x -c 'id -u'"
    result = await shell(sandbox, workspace, script, writable=WHOLE)
    assert b"NoNewPrivs:\t1" in result.stdout


async def test_it_pushes_nothing_into_a_terminal(sandbox: Sandbox, workspace: Path) -> None:
    code = "import fcntl\nf = open('/dev/tty', 'w')\nfcntl.ioctl(f, 0x5412, b'x')\nprint('pushed')"
    result = await python(sandbox, workspace, code)
    assert b"pushed" not in result.stdout


async def test_it_changes_no_setting_of_the_kernel(sandbox: Sandbox, workspace: Path) -> None:
    before = Path("/proc/sys/kernel/domainname").read_text()
    script = "echo changed > /proc/sys/kernel/domainname; echo h > /proc/sysrq-trigger; head -c 1 /proc/kcore"
    result = await shell(sandbox, workspace, script)
    assert result.stdout == b""
    assert Path("/proc/sys/kernel/domainname").read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of a user without rights")
def test_a_user_without_rights_has_the_same_walls(tmp_path: Path) -> None:
    sandbox_named("bubblewrap")
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY], capture_output=True, text=True, timeout=300, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["inside", "EROFS", "written", "True"]


_AS_NOBODY = """
import asyncio, os, tempfile
from pathlib import Path
from noesium_stream.tool.sandbox import Limits, Walls, find_sandbox
from noesium_stream.tool.sandbox import bubblewrap, result, running, walls
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)

async def main():
    box = find_sandbox("bubblewrap")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "notes").write_text("inside")
        walls = Walls(Path(folder), ("**",), ("out/**",), limits=Limits(wall_s=120))
        script = "cat notes; (echo x > new) 2>/dev/null || echo ' EROFS'; echo written > out/a; cat out/a"
        print((await box.run(["/bin/sh", "-c", script], walls)).stdout.decode())
        few = Walls(Path(folder), ("**",), limits=Limits(wall_s=120, processes=8))
        bomb = await box.run(["/bin/sh", "-c", "f() { f | f & }; f; sleep 5"], few)
        print(bomb.ended in ("processes", "exit", "signal"))

asyncio.run(main())
"""
