"""``rtbuild run`` and ``rtbuild devcontainer``: an image, or a cell's, put to use on this machine."""

from __future__ import annotations

import difflib
import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from builder import resources
from builder.cli import options as opt
from builder.colab import devcontainer
from builder.colab.launch import IMAGE_USER, LaunchPlan, Machine, Wish, address_in, plan, verdict_exit
from builder.console import print_json
from builder.engine import Engine
from builder.engine.network import ca_bundle, proxies
from builder.errors import CommandError, MissingToolError, UsageError
from builder.pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.colab.launch import Mode
    from builder.engine import StoredImage

_NOT_STARTED = 125
"""Exit status of ``docker run`` where the engine refused: https://docs.docker.com/engine/containers/run/"""

_SECONDS_TO_STOP = 10


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of ``rtbuild run``."""

    image: str
    mode: str | None
    port: int
    content: Path | None
    no_content: bool
    volumes: tuple[str, ...]
    env: tuple[str, ...]
    publish: tuple[str, ...]
    user: str | None
    gpus: Literal["auto"] | bool


def run_image(
    asked: Asked, matrices: list[Path] | None, *, context: str | None, dry_run: bool, json: bool
) -> int:
    """Start it and stay until it ends; 0 where it was stopped on request."""
    if asked.no_content and asked.content is not None:
        raise UsageError("--content and --no-content exclude each other")
    with Engine.connect(context=context) as engine:
        stored = _find(asked.image, matrices, engine)
        machine = _machine(engine)
        planned = plan(_wish(asked, stored), machine)
    document = _document(stored.reference, planned)
    if dry_run:
        for note in planned.notes:
            _say(f"! {note}")
        if json:
            print_json(document)
        else:
            sys.stdout.write(shlex.join(planned.command) + "\n")
        return 0
    if planned.port is not None and machine.local:
        _refuse_taken(planned.port)
    for folder in planned.folders:
        _make(folder, planned)
    for note in planned.notes:
        _say(f"! {note}")
    return _outcome(planned, _start(planned, document if json else None))


def write_devcontainer(
    name: str, matrices: list[Path] | None, *, output: Path, force: bool, context: str | None, json: bool
) -> int:
    """``rtbuild devcontainer``."""
    with Engine.connect(context=context) as engine:
        stored = _find(name, matrices, engine)
        passwd = engine.read_file(stored.reference, "/etc/passwd") or b""
        user = devcontainer.user_named(passwd.decode("utf-8", "replace"), IMAGE_USER[0])
        memory = engine.facts().memory
    content = devcontainer.document(
        stored.reference,
        name=stored.label("io.rtbuild.cell") or stored.reference,
        user=user if _is_colab(stored) else None,
        memory=memory,
    )
    path = devcontainer.write(content, output, force=force)
    if json:
        print_json({"schema": 1, "path": str(path), "document": content})
    if "remoteUser" in content and output.stat().st_uid == 0:
        _say(f"! {output.resolve()} belongs to root: user {user} of the container cannot write to it (chown)")
    _say(f"{path}: reopen this folder in its container (VS Code: Dev Containers: Reopen in Container)")
    return 0


# -- which image


def _find(name: str, matrices: list[Path] | None, engine: Engine) -> StoredImage:
    """The image of the cell whose id it is or matches; else the one of that name; else the one that holds it.

    A name with a registry, a repository or a tag in it is pulled if it is not here. A bare word is not: a
    mistyped cell would start whatever a public registry has by that name.
    """
    cell = None if set("/:@") & set(name) else _cell_image(name, matrices)
    if cell is not None:
        stored = engine.inspect(cell)
        if stored is None:
            raise UsageError(f"there is no image {cell}", hint=f"build it first: rtbuild build -s '{name}'")
        return stored
    if set("*?[]{}") & set(name):
        raise UsageError(f"no cell matches '{name}'", hint="`rtbuild list` shows the cells")
    stored = engine.inspect(name)
    if stored is None and not set("/:@") & set(name):
        stored = engine.inspect(_holding(name, engine))
    elif stored is None:
        _pull(name, engine)
        stored = engine.inspect(name)
    if stored is None:
        raise UsageError(f"the engine listed or pulled {name}, and has no such image now")
    return stored


def _holding(name: str, engine: Engine) -> str:
    """The image here that holds it: a part of its cell's id begins with ``torch``, or ``torch==2.6``."""
    wanted = name.replace("==", "").casefold()
    here = engine.cells()
    found = sorted(
        image
        for image, cell in here.items()
        if cell.casefold().startswith(wanted) or f"-{wanted}" in cell.casefold()
    )
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {image}" for image in found[:10])
        raise UsageError(f"{len(found)} images here hold {name}:\n{several}", hint="name one of them")
    near = difflib.get_close_matches(name, {*here, *here.values()}, n=3, cutoff=0.5)
    raise UsageError(
        f"there is no image {name} here, no cell of that name, and no image that holds it",
        hint=f"did you mean {', '.join(near)}?"
        if near
        else "`rtbuild list` shows the cells, `docker images` the images here; a name with its repository or"
        f" tag is pulled: {name}:latest",
    )


def _cell_image(name: str, matrices: list[Path] | None) -> str | None:
    """The name of the image of the cell that matches, where there is one; UsageError for several."""
    from builder.matrix.globs import matches

    if not matrices and not any(Path("matrices").glob("*.y*ml")):
        return None
    cells = [cell for matrix in opt.load_all(matrices) for cell in matrix.cells if cell.excluded is None]
    exact = [cell for cell in cells if cell.id == name]
    found = exact or [cell for cell in cells if matches(cell.id, name)]
    if len(found) > 1:
        ids = "\n".join(f"  {cell.id}" for cell in found[:10])
        raise UsageError(
            f"'{name}' matches {len(found)} cells, and one is started:\n{ids}", hint="name one of them"
        )
    return Settings().image_name(found[0].matrix, found[0].id) if found else None


def _pull(name: str, engine: Engine) -> None:
    command = [*engine.client_command, "pull", name]
    _say(f"+ {shlex.join(command)}")
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise CommandError(
            f"there is no image {name} here, no cell of that name, and it could not be pulled",
            command=command,
            returncode=done.returncode,
            hint="`rtbuild list` shows the cells; `docker images` what is here",
        )


def _is_colab(stored: StoredImage) -> bool:
    return stored.label("io.rtbuild.profile") == "colab"


# -- this machine


def _machine(engine: Engine) -> Machine:
    user, group = os.getuid(), os.getgid()
    if user == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        user, group = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return Machine(
        docker=engine.client_command,
        engine=engine.facts(),
        user=(user, group),
        home=Path.home().resolve(),
        cache=resources.cache().resolve(),
        authorities=ca_bundle(os.environ),
        proxies=tuple(sorted(proxies(os.environ).keys() & os.environ.keys())),
    )


def _wish(asked: Asked, stored: StoredImage) -> Wish:
    content = None if asked.no_content else (asked.content or Path()).resolve()
    return Wish(
        image=stored.reference,
        colab=_is_colab(stored),
        mode=cast("Mode | None", asked.mode),
        port=asked.port,
        content=content,
        content_given=asked.content is not None,
        volumes=asked.volumes,
        env=asked.env,
        publish=asked.publish,
        user=asked.user,
        terminal=sys.stdin.isatty(),
        gpus=None if asked.gpus == "auto" else asked.gpus,
    )


def _refuse_taken(port: int) -> None:
    if _free(port):
        return
    other = next((number for number in range(port + 1, port + 100) if number < 65536 and _free(number)), None)
    raise MissingToolError(
        f"port {port} on 127.0.0.1 is taken",
        hint=(f"--port {other} is free" if other else "name another one by --port")
        + f"; where it is another runtime: docker stop rtbuild-{port}",
    )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _make(folder: Path, planned: LaunchPlan) -> None:
    """A folder that the container's user may write to; only root can give it to another."""
    folder.mkdir(parents=True, exist_ok=True)
    if planned.user is not None and os.getuid() == 0 and folder.stat().st_uid != planned.user[0]:
        os.chown(folder, *planned.user)


# -- running


def _start(planned: LaunchPlan, document: dict[str, Any] | None) -> int:
    """Run the command; its exit status, or 0 where it was stopped by a signal to rtbuild."""
    if planned.name is None:
        return _in_front(planned)
    process = subprocess.Popen(
        planned.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if document is not None else None,
        text=True,
        start_new_session=True,  # Ctrl-C comes here alone, and the container is stopped by its name
    )
    try:
        if document is not None and process.stdout is not None:
            _relay(process.stdout, document)
        return process.wait()
    except KeyboardInterrupt:
        _stop(planned.name, planned, process)
        return 0


def _relay(printed: Iterable[str], document: dict[str, Any]) -> None:
    """What the container prints is talk; the document is printed once the address is known."""
    for line in printed:
        address = address_in([line])
        if address is not None and document["address"] is None:
            document["address"] = address
            print_json(document)
        sys.stderr.write(line)


def _stop(name: str, planned: LaunchPlan, process: subprocess.Popen[str]) -> None:
    """Ask the container to end until it has, then not: a signal is lost on one that is just being started."""
    docker = planned.command[: planned.command.index("run")]
    for _ in range(_SECONDS_TO_STOP):
        _quietly([*docker, "kill", "--signal", "TERM", name])
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            continue
        return
    _quietly([*docker, "rm", "--force", name])
    process.kill()
    process.wait()


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _in_front(planned: LaunchPlan) -> int:
    """With the terminal: Ctrl-C is for the program inside."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(planned.command, check=False, restore_signals=True).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _outcome(planned: LaunchPlan, status: int) -> int:
    """rtbuild's exit code for the container's."""
    if status == _NOT_STARTED:
        _refuse_namesake(planned)
        raise CommandError(
            "the engine did not start the container; its own words are above",
            command=planned.command,
            returncode=status,
            hint="rtbuild doctor",
        )
    if planned.mode == "verify":
        code = verdict_exit(status)
        if code is None:
            raise CommandError(
                "cudnn-verify failed, which says nothing about the image",
                command=planned.command,
                returncode=status,
                hint="run the command to see it happen",
            )
        return code
    if planned.mode == "shell":
        return 1 if status else 0
    return status if status in {0, 2, 5} else 1  # the start program's own: 2 asked wrongly, 5 missing here


def _refuse_namesake(planned: LaunchPlan) -> None:
    """Raise MissingToolError where a container has the name already: port and name go together."""
    if planned.name is None:
        return
    docker = planned.command[: planned.command.index("run")]
    ask = [*docker, "container", "inspect", "--format", "{{.State.Status}}", planned.name]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        remove = shlex.join([*docker, "rm", "--force", planned.name])
        raise MissingToolError(
            f"there is a container {planned.name} already ({done.stdout.strip()})",
            hint=f"{remove}, where it is not needed; or start this one on another --port",
        )


def _document(image: str, planned: LaunchPlan) -> dict[str, Any]:
    return {
        "schema": 1,
        "image": image,
        "mode": planned.mode,
        "command": list(planned.command),
        "container": planned.name,
        "port": planned.port,
        "address": None,
        "notes": list(planned.notes),
    }


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
