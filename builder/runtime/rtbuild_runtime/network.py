"""Which address to listen on, so that a container never opens a port on all interfaces of its host.

A container with a network of its own has to listen on all of *its* interfaces, or the engine cannot forward a
published port to it. One that shares the network of its host (``--network host``, Apptainer) must not: there
the same interfaces are the host's.
"""

from __future__ import annotations

import os
import socket

from .settings import ALL, LOOPBACK, StartError


def address(interfaces: str = "/sys/class/net") -> str:
    """``0.0.0.0`` where the network is the container's own without a doubt, else ``127.0.0.1``."""
    try:
        names = [name for name in os.listdir(interfaces) if name != "lo"]
        own = bool(names) and all(_is_an_end(os.path.join(interfaces, name)) for name in names)
    except (OSError, ValueError):
        return LOOPBACK
    return ALL if own else LOOPBACK


def _is_an_end(folder: str) -> bool:
    """Whether an interface is one end of a pair whose other end is elsewhere, as engines make them.

    ``iflink`` is the other end's number (veth, ipvlan, macvlan), and an interface's own for a network card or
    a bridge: https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net. Rootless engines make a
    tap instead (https://github.com/rootless-containers/slirp4netns).
    """
    if os.path.exists(os.path.join(folder, "tun_flags")):
        return True
    numbers = set()
    for name in ("iflink", "ifindex"):
        with open(os.path.join(folder, name)) as stream:
            numbers.add(int(stream.read()))
    return len(numbers) == 2


def refuse_taken(bind: str, port: int) -> None:
    """Raise StartError where something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            raise StartError(
                f"port {port} is taken: {error.strerror}",
                "stop what listens there, or name another one by RTBUILD_PORT (rtbuild run --port)",
                5,
            )
