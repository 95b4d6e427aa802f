"""How an image is started on this machine: the ``docker run`` line, and what a person should know of it.

And ``devcontainer.json``, the image as the environment of an editor.
"""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from builder.core.errors import CellError, UsageError
from builder.core.files import write_whole
from builder.image.engine import EngineFacts, gpu_checks
from builder.verify.runner import CONFINED

Mode = Literal["jupyter", "shell", "verify"]

PORT = 8888
"""Jupyter's own, and that of an image that is not told another."""
IMAGE_USER = (1000, 1000)
"""The user of images of the profile ``colab``."""
DEVCONTAINER = Path(".devcontainer") / "devcontainer.json"
"""https://containers.dev/implementors/json_reference/"""

_CONTENT = "/content"
_AUTHORITIES = "/run/rtbuild/ca-bundle.crt"
_AUTHORITY_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
    *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
"""The variables by which OpenSSL and Python, requests, curl, pip, git and Node find certificates."""
_CACHE = "/home/colab/.cache"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts of a machine that decide how a container is started."""

    docker: tuple[str, ...]
    """The docker client's command line as far as it names the engine."""
    engine: EngineFacts
    user: tuple[int, int]
    """The numbers of the user and group who ask."""
    home: Path
    cache: Path
    authorities: Path | None = None
    """The certificate bundle of the user's network, if one is named."""
    proxies: tuple[str, ...] = ()
    """Names of the caller's variables that say where the network's proxy is."""

    @property
    def local(self) -> bool:
        return not self.engine.gpu.remote

    @property
    def rootless(self) -> bool:
        """The container's root is the user who runs the engine, and its other users are nobody outside."""
        return "rootless" in self.engine.security


@dataclass(frozen=True, kw_only=True)
class Wish:
    image: str
    colab: bool
    """Whether the image is of the profile ``colab``."""
    mode: Mode | None = None
    """None: what the image is for."""
    port: int = PORT
    content: Path | None = None
    """The folder to work in, for ``jupyter`` and ``shell``; None for none."""
    content_given: bool = False
    volumes: tuple[str, ...] = ()
    """As ``docker run --volume`` has them, for jupyter and shell."""
    env: tuple[str, ...] = ()
    """``NAME=value``, or ``NAME`` for the value of the caller's own environment."""
    publish: tuple[str, ...] = ()
    """Further ports, as ``docker run --publish`` has them; on loopback if no address is named."""
    user: str | None = None
    """``UID:GID`` instead of the caller's."""
    terminal: bool = False
    gpus: bool | None = None
    """None: if this machine has some."""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    mode: Mode
    docker: tuple[str, ...]
    """The client as it names the engine, with which :attr:`command` begins."""
    command: tuple[str, ...]
    name: str | None = None
    """The name of a container that is stopped by name."""
    port: int | None = None
    notes: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    """To be made before, and owned by :attr:`user`."""
    user: tuple[int, int] | None = None


def plan(wish: Wish, machine: Machine) -> LaunchPlan:
    """The command that starts ``wish`` on ``machine``.

    Raises:
        CellError: Jupyter is asked of an image that has none.
        UsageError: the work folder cannot be given to a container.
    """
    mode = wish.mode or ("jupyter" if wish.colab else "shell")
    if mode == "jupyter" and not wish.colab:
        hint = "add `profile: colab` to its cell and build it; or start it with --shell"
        raise CellError(f"{wish.image} has no Jupyter: it was not built with `profile: colab`", hint=hint)
    notes: list[str] = []
    name = f"rtbuild-{wish.port}" if mode == "jupyter" else None
    command = [*machine.docker, "run", "--rm"]
    command += ["--name", name] if name is not None else []
    command += [] if wish.colab else ["--init"]  # images of the profile colab have one
    command += _gpu(wish, machine, notes)
    if mode != "jupyter" and wish.port != PORT:
        notes.append(
            f"--port {wish.port} is Jupyter's, and {mode} is started: --jupyter starts it in images of the "
            f"profile colab; --publish {wish.port}:{wish.port} opens a port of another program"
        )
    if mode == "verify":
        given = {
            "--content": wish.content_given,
            "--volume": wish.volumes,
            "--env": wish.env,
            "--publish": wish.publish,
            "--user": wish.user,
        }
        if unused := ", ".join(option for option, value in given.items() if value):
            notes.append(f"cudnn-verify is given none of {unused}: it runs as `rtbuild verify` runs it")
        command += [*CONFINED, wish.image, "cudnn-verify"]  # as `rtbuild verify` runs it
        return LaunchPlan(mode=mode, docker=machine.docker, command=tuple(command), notes=tuple(notes))
    user = _user(wish, machine, notes)
    mounts, folders = _mounts(wish, machine, notes)
    command += [*_settings(wish, machine), *_route(machine)]
    command += ["--user", f"{user[0]}:{user[1]}", *mounts]
    if mode == "jupyter":
        command += ["--publish", f"127.0.0.1:{wish.port}:{wish.port}"]
        command += ["--env", f"RTBUILD_PORT={wish.port}"] if wish.port != PORT else []
    else:
        command += ["--workdir", _CONTENT] if wish.colab or wish.content is not None else []
        command += ["--interactive", "--tty"] if wish.terminal else ["--interactive"]
        command += [] if wish.colab else ["--env", "HOME=/tmp"]  # the user has none in a plain image
    return LaunchPlan(
        mode=mode,
        docker=machine.docker,
        command=(*command, wish.image, *(["bash"] if mode == "shell" else [])),
        name=name,
        port=wish.port if mode == "jupyter" else None,
        notes=tuple(notes),
        folders=folders,
        user=user,
    )


def _gpu(wish: Wish, machine: Machine, notes: list[str]) -> list[str]:
    """The flags that hand the GPUs in, or none and a note why not."""
    facts = machine.engine.gpu
    # If the engine knows neither, they are asked for all the same: its refusal says why.
    flags = ["--device", "nvidia.com/gpu=all"] if facts.request == "cdi" else ["--gpus", "all"]
    # For NCCL and pinned memory: https://docs.nvidia.com/deeplearning/frameworks/user-guide/
    flags += ["--ulimit", "memlock=-1"]
    if wish.gpus or (wish.gpus is None and facts.usable):
        return flags
    if wish.gpus is None and not facts.traces:
        notes.append("no GPU on this machine: started without one")
    elif wish.gpus is None:
        lacking = next((check for check in gpu_checks(facts) if check.outcome == "failed"), None)
        remedy = f"; {lacking.found}: {lacking.remedy}" if lacking and lacking.remedy else ""
        notes.append(f"this machine has a GPU, which its engine cannot hand to a container{remedy}")
    return []


def _settings(wish: Wish, machine: Machine) -> list[str]:
    flags = ["--security-opt", "no-new-privileges"]
    if "selinux" in machine.engine.security:
        # or the container may not read the folders that are mounted; relabelling them would change the host
        flags += ["--security-opt", "label=disable"]
    if machine.engine.memory:
        # PyTorch's data loaders hand batches on in /dev/shm, which has 64 MB by default; half of the memory,
        # as Linux itself sizes it: https://www.kernel.org/doc/html/latest/filesystems/tmpfs.html
        flags += ["--shm-size", f"{machine.engine.memory // 2 // 2**20}m"]
    for variable in wish.env:
        flags += ["--env", variable]
    for port in wish.publish:
        # of a port of the container alone Docker takes a free one of the machine
        here = {0: "127.0.0.1::", 1: "127.0.0.1:"}.get(port.count(":"), "")
        flags += ["--publish", f"{here}{port}"]
    return flags


def _route(machine: Machine) -> list[str]:
    """The network inside: proxies by name, so that no command line has a password; authorities as a file.

    Both are the container's alone: no layer has them.
    """
    flags = [flag for name in machine.proxies for flag in ("--env", name)]
    if machine.authorities is not None and machine.local:
        flags += ["--mount", mount(machine.authorities, _AUTHORITIES) + ",readonly"]
        flags += [flag for name in _AUTHORITY_VARIABLES for flag in ("--env", f"{name}={_AUTHORITIES}")]
    return flags


def _user(wish: Wish, machine: Machine, notes: list[str]) -> tuple[int, int]:
    """Whose files the container writes, and a note if that may surprise."""
    if wish.user is not None:
        return parse_user(wish.user)
    if machine.rootless:
        return 0, 0  # who is the caller outside
    if machine.user[0] != 0:
        return machine.user
    if (folder := wish.content) is not None and folder.exists():
        owner = folder.stat()
        if owner.st_uid == 0:
            notes.append(f"you are root, {folder} is root's, and so is what the container writes to it")
        return owner.st_uid, owner.st_gid
    return IMAGE_USER


def parse_user(text: str) -> tuple[int, int]:
    """``1000:1000``, or ``1000`` for the same number twice. UsageError."""
    user, _, group = text.partition(":")
    if not user.isdecimal() or not (group or user).isdecimal():
        raise UsageError(f"--user '{text}' is not a pair of numbers", hint="as in --user 1000:1000")
    return int(user), int(group or user)


def _mounts(wish: Wish, machine: Machine, notes: list[str]) -> tuple[list[str], tuple[Path, ...]]:
    """The flags, and the folders to make for them."""
    volumes = [flag for volume in wish.volumes for flag in ("--volume", volume)]
    if not machine.local:
        notes.append("the engine is on another machine: no folder of this one is mounted")
        return volumes, ()
    flags: list[str] = []
    if (content := wish.content) is not None:
        if not content.is_dir():
            raise UsageError(f"{content} is no folder", hint="--content names the folder to work in")
        if not wish.content_given and content in (machine.home, *machine.home.parents):
            said = f"the current folder, {content}, would be open to every notebook"
            hint = "go to the folder to work in, or name it: --content DIR"
            raise UsageError(f"{said}, and your home folder is in it", hint=hint)
        flags += ["--mount", mount(content, _CONTENT)]
    if not wish.colab:
        return [*flags, *volumes], ()
    # What frameworks download and compile stays for the next start.
    kept = machine.cache / "home"
    flags += ["--mount", mount(kept, _CACHE)]
    flags += ["--env", f"KERAS_HOME={_CACHE}/keras", "--env", f"CUDA_CACHE_PATH={_CACHE}/nv"]
    return [*flags, *volumes], (kept,)


def mount(source: Path, target: str) -> str:
    """A value of ``--mount``, which is a line of CSV: https://docs.docker.com/engine/storage/bind-mounts/"""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}"])
    return line.getvalue()


def verdict_exit(status: int) -> int | None:
    """rtbuild's exit code for one of ``cudnn-verify``'s; None for what is none of its verdicts."""
    return {0: 0, 10: 5, 20: 1, 21: 1, 22: 5, 23: 5}.get(status)


def devcontainer(image: str, *, name: str, user: str | None, memory: int | None) -> dict[str, Any]:
    """The content of :data:`DEVCONTAINER`.

    ``user`` is the image's by name, None if it has none but root; ``memory`` of the machine in bytes.
    """
    # The health check is Jupyter's, which editors do not start: they bring kernels of their own.
    run = ["--security-opt=no-new-privileges", "--no-healthcheck"]
    run += [f"--shm-size={memory // 2 // 2**20}m"] if memory else []
    owner = {"remoteUser": user, "updateRemoteUserUID": True} if user else {}
    return {
        "name": name,
        "image": image,
        "init": True,
        "runArgs": run,
        "hostRequirements": {"gpu": "optional"},
        "workspaceMount": "source=${localWorkspaceFolder},target=/content,type=bind",
        "workspaceFolder": "/content",
        **owner,
        "customizations": {
            "vscode": {
                "extensions": ["ms-python.python", "ms-toolsai.jupyter"],
                "settings": {"python.defaultInterpreterPath": "/opt/runtime/bin/python"},
            }
        },
    }


def user_named(passwd: str, number: int) -> str | None:
    """The name of user ``number`` in a ``/etc/passwd``."""
    fields = (line.split(":") for line in passwd.splitlines())
    return next((row[0] for row in fields if len(row) > 2 and row[2] == str(number)), None)


def write_devcontainer(content: dict[str, Any], folder: Path, *, force: bool) -> Path:
    """Write the file below ``folder``, beside and renamed; its path.

    Raises:
        UsageError: it is there, says something else, and ``force`` was not given.
    """
    path = folder / DEVCONTAINER
    text = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
    if path.is_file() and path.read_bytes() == text:
        return path
    if path.exists() and not force:
        raise UsageError(f"{path} is there already, and says something else", hint="--force replaces it")
    write_whole(path, text)
    return path
