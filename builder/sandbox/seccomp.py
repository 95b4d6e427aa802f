"""The system calls that a program in the sandbox is refused, as a program for the kernel's filter.

The missing capabilities refuse most of them already; the filter holds even if the kernel has a fault there.
The list is Docker's (https://docs.docker.com/engine/security/seccomp/), with what bubblewrap leaves open: all
processes of a user share keyrings, and a file with a setuid bit outlives the sandbox.

Numbers: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h`` of Linux.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEWEST = 450
"""The last number, ``set_mempolicy_home_node`` of Linux 5.17, that is let through: what came later answers as
on an older kernel, and programs have to go without it."""
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_ABSENT = {
    # clone3 and openat2 take their flags behind a pointer, where no filter sees them; glibc goes without.
    "clone3": (435, 435),
    "openat2": (437, 437),
}
_NAMESPACES = 0x7E020080
"""Every ``CLONE_NEW…`` of ``include/uapi/linux/sched.h``."""
_SET_ID = 0o6000
_DEVICE = 0o020000
"""The bit that character and block devices have, and no other kind that mknod makes."""
_MASKED: tuple[tuple[str, int | None, int | None, int, int], ...] = (
    # name, x86_64, aarch64, argument, bits of which none may be set. Without O_CREAT a third argument of open
    # is none; the C libraries pass 0.
    ("clone", 56, 220, 0, _NAMESPACES),
    ("chmod", 90, None, 1, _SET_ID),
    ("fchmod", 91, 52, 1, _SET_ID),
    ("fchmodat", 268, 53, 2, _SET_ID),
    ("creat", 85, None, 1, _SET_ID),
    ("open", 2, None, 2, _SET_ID),
    ("openat", 257, 56, 3, _SET_ID),
    ("mkdir", 83, None, 1, _SET_ID),
    ("mkdirat", 258, 34, 2, _SET_ID),
    ("mknod", 133, None, 1, _SET_ID | _DEVICE),
    ("mknodat", 259, 33, 2, _SET_ID | _DEVICE),
)
_SOCKETS = {1, 2, 10}
"""``AF_UNIX``, ``AF_INET``, ``AF_INET6``: the network namespace is empty. Others, such as ``AF_VSOCK`` to a
virtual machine's host and ``AF_ALG`` into the kernel's ciphers, know no namespace."""
_INPUT = {0x5412, 0x541C}
"""``TIOCSTI`` and ``TIOCLINUX`` type into a terminal: CVE-2017-5226."""

# include/uapi/linux/bpf_common.h, seccomp.h, audit.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    audit: int
    column: int
    socket: int
    ioctl: int


MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, 41, 16),
    "aarch64": _Machine(0xC00000B7, 1, 198, 29),
}


def program(machine: str) -> bytes:
    """The filter for a machine of :func:`os.uname`, as an array of ``struct sock_filter``.

    Raises KeyError for a machine whose numbers are not known here.
    """
    return b"".join(_instructions(MACHINES[machine]))


def _instructions(machine: _Machine) -> Iterator[bytes]:
    yield _one(_LOAD, _ARCHITECTURE)
    yield _one(_EQUAL, machine.audit, 1, 0)
    yield _one(_RETURN, _KILL)  # 32-bit calls have other numbers
    yield _one(_LOAD, _NUMBER)
    if machine.column == 0:
        yield _one(_AT_LEAST, _X32, 0, 1)
        yield _one(_RETURN, _KILL)
    yield _one(_AT_LEAST, _NEWEST + 1, 0, 1)
    yield _error(errno.ENOSYS)
    for code, table in ((errno.EPERM, _REFUSED), (errno.ENOSYS, _ABSENT)):
        for numbers in table.values():
            number = numbers[machine.column]
            if number is not None:
                yield _one(_EQUAL, number, 0, 1)
                yield _error(code)
    for _, *columns, argument, bits in _MASKED:
        number = columns[machine.column]
        if number is not None:
            yield from _when(number, argument, [_one(_ANY_BIT, bits, 0, 1), _error(errno.EPERM)])
    families = [_one(_EQUAL, family, len(_SOCKETS) - at, 0) for at, family in enumerate(sorted(_SOCKETS))]
    yield from _when(machine.socket, 0, [*families, _error(errno.EAFNOSUPPORT)])
    inputs = [step for code in sorted(_INPUT) for step in (_one(_EQUAL, code, 0, 1), _error(errno.EPERM))]
    yield from _when(machine.ioctl, 1, inputs)
    yield _one(_RETURN, _ALLOW)


def _when(number: int, argument: int, steps: list[bytes]) -> Iterator[bytes]:
    """``steps`` on the low half of an argument of one call, which is then let through."""
    yield _one(_EQUAL, number, 0, len(steps) + 2)
    yield _one(_LOAD, _ARGUMENTS + 8 * argument)
    yield from steps
    yield _one(_RETURN, _ALLOW)


def _error(code: int) -> bytes:
    return _one(_RETURN, _ERRNO | code)


def _one(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
