"""The loader's cache and its built-in folders, read as the loader reads them, without running ldconfig."""

import glob
import os
import struct

_NEW = b"glibc-ld.so.cache1.1"
_OLD = b"ld.so-1.7.0"
# Low byte 3 is "ELF, libc 6", the next one the processor: https://sourceware.org/git/glibc.git elf/cache.c
_FLAGS = {"x86_64": (0x0303,), "aarch64": (0x0A03,), "ppc64le": (0x0503,)}


def read_cache(path="/etc/ld.so.cache"):
    """(file name, path) pairs in the cache's own order, of this machine's word size; [] if there is none."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        return _entries(data)
    except (OSError, struct.error, ValueError):
        return []


def _entries(data):
    start = 0
    if data.startswith(_OLD):
        count = struct.unpack_from("<I", data, 12)[0]
        start = (16 + 12 * count + 7) // 8 * 8
    if data[start : start + len(_NEW)] != _NEW:
        return []
    count = struct.unpack_from("<I", data, start + 20)[0]
    wanted = _FLAGS.get(os.uname()[4])
    found = []
    for index in range(count):
        flags, key, value = struct.unpack_from("<iII", data, start + 48 + 24 * index)
        if wanted is None or flags in wanted:
            found.append((_text(data, start + key), _text(data, start + value)))
    return found


def _text(data, place):
    return data[place : data.index(b"\0", place)].decode("utf-8", "surrogateescape")


def default_folders():
    """The folders that the loader searches last, without any configuration."""
    machine = os.uname()[4]
    triplets = ["/lib/%s-linux-gnu" % machine, "/usr/lib/%s-linux-gnu" % machine]
    return [f for f in triplets + ["/lib64", "/usr/lib64", "/lib", "/usr/lib"] if os.path.isdir(f)]


def toolkit_folders():
    """Where CUDA toolkits, drivers and Colab put libraries; the loader does not search there by itself."""
    patterns = (
        "/usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda*/targets/*/lib "
        "/usr/local/cuda*/compat /usr/local/nvidia/lib* /usr/lib64-nvidia /usr/lib/wsl/lib "
        "/opt/conda/lib /opt/cuda/lib64"
    ).split()
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern)) if os.path.isdir(folder)]
