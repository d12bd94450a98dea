"""The seccomp filter of programs in bubblewrap: what namespaces and mounts leave open.

It denies what reaches other processes or the kernel's inside (ptrace, mounts, keys, BPF, io_uring), sockets
of families that no network namespace separates (vsock, and with the machine's network also unix), input
pushed into a terminal, and memory or disk that the limits would not see (memfd, System V memory, fallocate).
"""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass
from errno import EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM
from typing import Final

from noesium_stream.errors import SandboxError

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL: Final = 0x80000000
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`, on little-endian machines."""
_X32: Final = 0x40000000

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of one processor architecture (`asm/unistd.h`)."""

    arch: int
    socket: int
    ioctl: int
    denied: tuple[int, ...]
    fallocate: int
    absent: tuple[int, ...]


_COMMON: Final = (428, 429, 430, 431, 432, 433, 442, 447)
"""open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, memfd_secret."""
_IO_URING: Final = (425, 426, 427)
# In each line the same calls: ptrace mount umount2 pivot_root chroot unshare setns keyctl add_key request_key
# bpf perf_event_open userfaultfd; shmget msgget semget mq_open process_vm_readv process_vm_writev
# open_by_handle_at name_to_handle_at kcmp fanotify_init syslog acct quotactl; kexec_load kexec_file_load
# init_module finit_module delete_module swapon swapoff reboot; on x86 also iopl ioperm.
_MACHINES: Final = {
    "x86_64": _Machine(
        arch=0xC000003E,
        socket=41,
        ioctl=16,
        denied=(
            *(101, 165, 166, 155, 161, 272, 308, 250, 248, 249, 321, 298, 323),
            *(29, 68, 64, 240, 310, 311, 304, 303, 312, 300, 103, 163, 179),
            *(246, 320, 175, 313, 176, 167, 168, 169, 172, 173),
            *_COMMON,
        ),
        fallocate=285,
        absent=(319, *_IO_URING),
    ),
    "aarch64": _Machine(
        arch=0xC00000B7,
        socket=198,
        ioctl=29,
        denied=(
            *(117, 40, 39, 41, 51, 97, 268, 219, 217, 218, 280, 241, 282),
            *(194, 186, 190, 180, 270, 271, 265, 264, 272, 262, 116, 89, 60),
            *(104, 294, 105, 273, 106, 224, 225, 142),
            *_COMMON,
        ),
        fallocate=47,
        absent=(279, *_IO_URING),
    ),
}


def syscall_filter(*, network: bool, machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`.

    Args:
        network: whether the program has the machine's network; unix sockets are denied then, because the
            machine's abstract ones could be reached.
        machine: as `platform.machine()`, which is used for None.

    Raises:
        SandboxError: there is no filter for this architecture.
    """
    machine = machine or platform.machine()
    numbers = _MACHINES.get(machine)
    if numbers is None:
        raise SandboxError(
            f"There is no system call filter for {machine[:40]}.", hint=f"There are: {', '.join(_MACHINES)}."
        )
    families = (_INET, _INET6, _NETLINK, *(() if network else (_UNIX,)))
    socket = [
        _step(_LOAD, _FIRST),
        *(step for family in families for step in _where(family, _ALLOW)),
        _step(_RETURN, _ERRNO | EAFNOSUPPORT),
    ]
    ioctl = [
        _step(_LOAD, _SECOND),
        *_where(_TIOCSTI, _ERRNO | EPERM),
        *_where(_TIOCLINUX, _ERRNO | EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(
        [
            _step(_LOAD, _ARCH),
            _step(_EQUAL, numbers.arch, when=1),
            _step(_RETURN, _KILL),
            _step(_LOAD, _NUMBER),
            _step(_AT_LEAST, _X32, otherwise=1),
            _step(_RETURN, _ERRNO | ENOSYS),
            *(step for number in numbers.denied for step in _where(number, _ERRNO | EPERM)),
            *(step for number in numbers.absent for step in _where(number, _ERRNO | ENOSYS)),
            *_where(numbers.fallocate, _ERRNO | EOPNOTSUPP),
            _step(_EQUAL, numbers.socket, otherwise=len(socket)),
            *socket,
            _step(_EQUAL, numbers.ioctl, otherwise=len(ioctl)),
            *ioctl,
            _step(_RETURN, _ALLOW),
        ]
    )


def _where(value: int, answer: int) -> list[bytes]:
    return [_step(_EQUAL, value, otherwise=1), _step(_RETURN, answer)]


def _step(code: int, value: int, *, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, when, otherwise, value)
