"""The system calls that a program in the sandbox is refused, as a program for the kernel's filter.

The missing capabilities refuse most of them already; the filter holds even if the kernel has a fault there.
The list is Docker's (https://docs.docker.com/engine/security/seccomp/), with what bubblewrap leaves open: all
processes of a user share keyrings, a file with a setuid bit outlives the sandbox, and ``memfd_create`` and
``shmget`` give memory that belongs to no process, which no limit of a process counts.

Numbers: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h`` of Linux.
"""

import csv
import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NEWEST = 450
"""The last number, ``set_mempolicy_home_node`` of Linux 5.17, that is let through: what came later answers as
on an older kernel, and programs have to go without it."""
_REFUSED = Path(__file__).with_name("refused.csv")
"""Name and numbers of each refused call; no number if a machine does not have the call."""
_ABSENT = {"clone3": 435, "openat2": 437}
"""They take their flags behind a pointer, which no filter sees; glibc goes without. On every machine calls as
new as these have one number."""
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
virtual machine's host and ``AF_ALG`` into the kernel's ciphers, know no namespace. The kernel loads the
module of a family or protocol before it refuses a socket."""
_SOCKET_TYPES, _TYPE_BITS = {1, 2, 5}, 0xF
"""``SOCK_STREAM``, ``SOCK_DGRAM``, ``SOCK_SEQPACKET``. Flags stand above."""
_PROTOCOLS = {0, 1, 6, 17}
"""By default, ``PF_UNIX`` (``IPPROTO_ICMP``), ``IPPROTO_TCP``, ``IPPROTO_UDP``."""
_INPUT = {0x5412, 0x541C}
"""``TIOCSTI`` and ``TIOCLINUX`` type into a terminal: CVE-2017-5226."""

# include/uapi/linux/bpf_common.h, seccomp.h, audit.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    audit: int
    column: int
    sockets: tuple[int, int]
    """``socket`` and ``socketpair``."""
    ioctl: int


MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, (41, 53), 16),
    "aarch64": _Machine(0xC00000B7, 1, (198, 199), 29),
}


def program(machine: str) -> bytes:
    """The filter for a machine of :func:`os.uname`, as an array of ``struct sock_filter``.

    Raises KeyError for a machine whose numbers are not known here.
    """
    return b"".join(_instructions(MACHINES[machine], refused(machine)))


def refused(machine: str) -> dict[str, int]:
    """Numbers of the refused calls by name."""
    with _REFUSED.open(encoding="utf-8", newline="") as table:
        return {row["name"]: int(row[machine]) for row in csv.DictReader(table) if row[machine]}


def _instructions(machine: _Machine, calls: dict[str, int]) -> Iterator[bytes]:
    yield _one(_LOAD, _ARCHITECTURE)
    yield _one(_EQUAL, machine.audit, 1, 0)
    yield _one(_RETURN, _KILL)  # 32-bit calls have other numbers
    yield _one(_LOAD, _NUMBER)
    if machine.column == 0:
        yield _one(_AT_LEAST, _X32, 0, 1)
        yield _one(_RETURN, _KILL)
    yield _one(_AT_LEAST, _NEWEST + 1, 0, 1)
    yield _error(errno.ENOSYS)
    for code, numbers in ((errno.EPERM, calls.values()), (errno.ENOSYS, _ABSENT.values())):
        for number in numbers:
            yield _one(_EQUAL, number, 0, 1)
            yield _error(code)
    for _, *columns, argument, bits in _MASKED:
        masked = columns[machine.column]
        if masked is not None:
            yield from _when(masked, argument, [_one(_ANY_BIT, bits, 0, 1), _error(errno.EPERM)])
    kind = [_one(_LOAD, _ARGUMENTS + 8), _one(_AND, _TYPE_BITS), *_only(_SOCKET_TYPES)]
    protocol = [_one(_LOAD, _ARGUMENTS + 16), *_only(_PROTOCOLS)]
    for number in machine.sockets:
        yield from _when(number, 0, [*_only(_SOCKETS), *kind, *protocol])
    inputs = [step for code in sorted(_INPUT) for step in (_one(_EQUAL, code, 0, 1), _error(errno.EPERM))]
    yield from _when(machine.ioctl, 1, inputs)
    yield _one(_RETURN, _ALLOW)


def _only(values: set[int]) -> list[bytes]:
    """Refuse a socket unless the loaded value is one of these."""
    tests = [_one(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(sorted(values))]
    return [*tests, _error(errno.EAFNOSUPPORT)]


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
