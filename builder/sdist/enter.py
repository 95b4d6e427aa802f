"""Shuts a process into a folder, for good, and becomes a program there.

``enter.py ROOT FOLDERS LIMITS PROGRAM ARGUMENT…``: run by :mod:`.confined` in new namespaces for users,
mounts, processes and the network. A chroot alone would not do: who is root in a user namespace leaves it by
a second one. So ROOT becomes the root of the mounts, read-only, and the machine's own files are no longer
mounted anywhere (pivot_root(2), the example at its end). FOLDERS of this machine are mounted in it, too,
read-only; memory for writing is at ``/build`` and ``/tmp``.
"""

import ctypes
import json
import os
import resource
import sys

# https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/mount.h
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_NO_NEW_PRIVS = 38
_DEVICES = ("null", "zero", "random", "urandom")

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _call("mount", *texts, ctypes.c_ulong(flags), data)


def shut_in(root: str, folders: dict[str, str], memory: int) -> None:
    """Make ``root`` all that there is, ``folders`` at their places, and ``memory`` bytes to write into."""
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount(root, root, None, _BIND | _REC)
    for name in _DEVICES:
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, _BIND)
    for place, folder in folders.items():
        _mount(folder, root + place, None, _BIND)
        _mount("none", root + place, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    for name, part in (("build", memory), ("tmp", memory // 4)):
        _mount("tmpfs", f"{root}/{name}", "tmpfs", _NOSUID | _NODEV, f"size={part},mode=0755")
    _mount("none", root, None, _REMOUNT | _BIND | _RDONLY | _NOSUID)
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/build")


def main() -> None:
    root, folders, limits, program = sys.argv[1], *map(json.loads, sys.argv[2:4]), sys.argv[4:]
    shut_in(root, folders, limits["memory"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["seconds"], limits["seconds"]))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
    resource.setrlimit(resource.RLIMIT_AS, (limits["address"], limits["address"]))
    _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execv(program[0], program)  # noqa: S606 - there is no shell in between, and none is wanted


if __name__ == "__main__":
    main()
