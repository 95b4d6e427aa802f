"""An image, or that of a cell, found and started as this machine needs it."""

import difflib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core import resources
from builder.core.errors import CommandError, MissingToolError, UsageError
from builder.core.model import Cell
from builder.image.engine import Engine, EngineFacts, StoredImage, without_engine
from builder.plan.matrix import matches
from builder.release.colab import LaunchPlan, Machine, Wish, plan, verdict_exit
from builder.sources.net import ca_bundle, proxies
from builder.sources.oci import CELL_LABEL
from builder.verify.runner import PROBE_PATH

_LISTS = "`rtbuild list` shows the cells, `docker images` the images here"
_SECONDS_TO_STOP = 10


def start(
    image: str,
    matrices: list[Path] | None,
    *,
    context: str | None,
    dry_run: bool = False,
    as_json: bool = False,
    **wish: Any,
) -> int:
    """Start what ``wish`` says, in the words of :class:`Wish`, or only print the command; the exit code."""
    try:
        with Engine.connect(context=context) as engine:
            stored = find_image(image, matrices, engine, pull=not dry_run)
            if wish.get("mode") == "verify":
                _refuse_without_probe(stored, engine)
            machine = _machine(engine.client_command, engine.facts())
            image, colab = stored.reference, is_colab(stored)
    except MissingToolError as lacking:
        if not dry_run:
            raise
        image, colab = _unseen(image, matrices, jupyter=wish.get("mode") == "jupyter")
        machine = _machine(("docker", *(("--context", context) if context else ())), without_engine())
        say(f"! {lacking.message}: the command is that for Docker's own defaults, and nobody saw the image")
    planned = plan(Wish(image=image, colab=colab, terminal=sys.stdin.isatty(), **wish), machine)
    document: dict[str, Any] = {
        "schema": 1,
        "image": image,
        "mode": planned.mode,
        "command": list(planned.command),
        "container": planned.name,
        "port": planned.port,
        "address": None,
        "notes": list(planned.notes),
    }
    if not dry_run and planned.port is not None and machine.local:
        _refuse_taken(planned.port)
    for note in planned.notes:
        say(f"! {note}")
    if dry_run:
        if as_json:
            print_json(document)
        else:
            show(shlex.join(planned.command))
        return 0
    for folder in planned.folders:
        folder.mkdir(parents=True, exist_ok=True)
        # only root can give it to another
        if planned.user is not None and os.getuid() == 0 and folder.stat().st_uid != planned.user[0]:
            os.chown(folder, *planned.user)
    return _outcome(planned, _start(planned, document if as_json else None))


def would_start(cell: Cell, *, context: str | None, dry_run: bool, **wish: Any) -> LaunchPlan:
    """How the image of a cell is to be started that nobody built yet. UsageError and MissingToolError as at
    the start, so that nobody waits for a build first; ``dry_run`` says what is missing, and goes by Docker's
    own defaults without an engine.
    """
    try:
        with Engine.connect(context=context) as engine:
            machine = _machine(engine.client_command, engine.facts())
    except MissingToolError as lacking:
        if not dry_run:
            raise
        machine = _machine(("docker", *(("--context", context) if context else ())), without_engine())
        say(f"! {lacking.message}: without it nothing is built or started; {lacking.hint}")
    asked = Wish(image=cell.image_name(), colab=cell.profile == "colab", terminal=True, **wish)
    planned = plan(asked, machine)
    try:
        if planned.port is not None and machine.local:
            _refuse_taken(planned.port)
    except MissingToolError as taken:
        if not dry_run:
            raise
        say(f"! {taken.message}: {taken.hint}")
    return planned


def find_image(name: str, matrices: list[Path] | None, engine: Engine, *, pull: bool = True) -> StoredImage:
    """The image of the cell with that id or glob, or of a matrix file; else the one of that name; else the
    one that holds it.

    A name with a registry, a repository or a tag in it is pulled if it is not here. A bare word is not: a
    mistyped cell would start whatever a public registry has by that name.
    """
    file = opt.is_matrix(name)
    bare = file or not set("/:@") & set(name)
    cell = _cell(name, matrices) if bare else None
    if cell is not None:
        stored = engine.inspect(cell.image_name())
        if stored is None:
            raise UsageError(
                f"there is no image {cell.image_name()}", hint=f"build it first: {_building(name, matrices)}"
            )
        return stored
    if file or set("*?[]{}") & set(name):
        raise UsageError(f"no cell matches '{name}'", hint="`rtbuild list` shows the cells")
    capitals = bare and name != name.lower()  # as in CELL: no image's name has any
    stored = None if capitals else engine.inspect(name)
    if stored is None:
        if not bare and not pull:
            text = f"there is no image {name} here, and --dry-run pulls nothing"
            raise UsageError(text, hint=f"docker pull {shlex.quote(name)}; {_LISTS}")
        stored = engine.inspect(_holding(name, matrices, engine) if bare else _pulled(name, engine))
    if stored is None:
        raise UsageError(f"the engine listed or pulled {name}, and has no such image now")
    return stored


def _refuse_without_probe(stored: StoredImage, engine: Engine) -> None:
    """UsageError for an image that rtbuild did not make, and how the probe runs in it all the same."""
    if stored.label(CELL_LABEL) or engine.read_file(stored.reference, PROBE_PATH) is not None:
        return
    name = shlex.quote(stored.reference)
    raise UsageError(
        f"{stored.reference} has no cudnn-verify: rtbuild did not make it",
        hint="`rtbuild probe -o cudnn-verify` writes it, and Python 3.6 or newer of the image runs it: "
        f"docker run --rm --gpus all -v $PWD/cudnn-verify:/cudnn-verify:ro --entrypoint python3 {name} "
        "/cudnn-verify",
    )


def _unseen(name: str, matrices: list[Path] | None, *, jupyter: bool) -> tuple[str, bool]:
    """The image of a cell, else of that name, and whether it is of the profile ``colab``: as its cell says,
    or, of an image that no cell has, as Jupyter is asked of it.
    """
    cell = _cell(name, matrices) if opt.is_matrix(name) or not set("/:@") & set(name) else None
    return (name, jupyter) if cell is None else (cell.image_name(), cell.profile == "colab")


def _building(word: str, matrices: list[Path] | None) -> str:
    """The command that builds what was asked for: a matrix file, or a cell's id or glob."""
    if opt.is_matrix(word):
        return f"rtbuild build {shlex.quote(word)}"
    return shlex.join(["rtbuild", "build", *map(str, matrices or ()), "-s", word])


def _holding(name: str, matrices: list[Path] | None, engine: Engine) -> str:
    """The image here in whose cell's id a part begins with ``name``: ``torch``, or ``torch==2.6``."""
    wanted = f"-{name.replace('==', '').casefold()}"
    here = engine.cells()
    found = sorted(image for image, cell in here.items() if wanted in f"-{cell.casefold()}")
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {image}" for image in found[:10])
        raise UsageError(f"{len(found)} images here hold {name}:\n{several}", hint="name one of them")
    cells = [cell.id for cell in _cells(matrices)]
    begun = [cell for cell in cells if cell.startswith(name.replace("==", ""))]
    near = begun[:3] or difflib.get_close_matches(name, {*here, *here.values(), *cells}, n=3, cutoff=0.5)
    hint = f"{_LISTS}; a name with its repository or tag is pulled: {name}:latest"
    raise UsageError(
        f"there is no image {name} here, no cell of that name, and no image that holds it",
        hint=f"did you mean {', '.join(near)}?" if near else hint,
    )


def _cell(word: str, matrices: list[Path] | None) -> Cell | None:
    """The cell that matches, if there is one; UsageError for several."""
    name, matrices = opt.of_file(word, matrices)
    cells = _cells(matrices)
    exact = [cell for cell in cells if cell.id == name]
    found = exact or [cell for cell in cells if matches(cell.id, name)]
    if len(found) > 1:
        ids = "\n".join(f"  {cell.id}" for cell in found[:10])
        text = f"'{word}' matches {len(found)} cells, and one is started:\n{ids}"
        raise UsageError(text, hint="name one of them")
    return found[0] if found else None


def _cells(matrices: list[Path] | None) -> list[Cell]:
    """The cells that can be built of these matrices, else of the matrices in this folder, if it has any."""
    if not matrices and not opt.matrix_files():
        return []
    return [cell for matrix in opt.load_all(matrices) for cell in matrix.cells if cell.excluded is None]


def _pulled(name: str, engine: Engine) -> str:
    command = [*engine.client_command, "pull", name]
    say(f"+ {shlex.join(command)}")
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status != 0:
        text = f"there is no image {name} here, no cell of that name, and it could not be pulled"
        raise CommandError(text, command=command, returncode=status, hint=_LISTS)
    return name


def is_colab(stored: StoredImage) -> bool:
    return stored.label("io.rtbuild.profile") == "colab"


def _machine(docker: tuple[str, ...], engine: EngineFacts) -> Machine:
    user, group = os.getuid(), os.getgid()
    caller, its_group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if user == 0 and caller.isdecimal():
        user, group = int(caller), int(its_group if its_group.isdecimal() else caller)
    return Machine(
        docker=docker,
        engine=engine,
        user=(user, group),
        home=Path.home().resolve(),
        cache=resources.cache().resolve(),
        authorities=ca_bundle(os.environ),
        proxies=tuple(sorted(proxies(os.environ).keys() & os.environ.keys())),
    )


def _refuse_taken(port: int) -> None:
    free = next((number for number in range(port, min(port + 100, 65536)) if _free(number)), None)
    if free != port:
        raise MissingToolError(
            f"port {port} on 127.0.0.1 is taken",
            hint=(f"--port {free} is free" if free else "name another one by --port")
            + f"; if it is another runtime: docker stop rtbuild-{port}",
        )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_REFUSED = 125
"""The status of an engine that refused: https://docs.docker.com/engine/containers/run/"""


def _start(planned: LaunchPlan, document: dict[str, Any] | None) -> int:
    """Run the command; its exit status, or 0 if it was stopped by a signal to rtbuild."""
    if planned.name is None:  # in front, with the terminal: Ctrl-C is for the program inside
        if document is not None:
            print_json(document)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            out = None if document is None else sys.stderr
            return subprocess.run(planned.command, stdout=out, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, before)
    with subprocess.Popen(
        planned.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if document is not None else None,
        errors="replace",
        start_new_session=True,  # Ctrl-C comes here alone, and the container is stopped by its name
    ) as process:
        try:
            _relay(process.stdout or (), document or {})
            status = process.wait()
        except KeyboardInterrupt:
            _stop(planned, process)
            _relay(process.stdout or (), document or {})  # its last words
            status = 0
    if document is not None and document["address"] is None and status != _REFUSED:
        print_json(document | {"exit_status": status})  # it ended before it had an address
    return status


def _relay(printed: Iterable[str], document: dict[str, Any]) -> None:
    """Pass on the lines of the container; the document is printed once its address is known."""
    for line in printed:
        if "/?token=" in line and document["address"] is None:
            document["address"] = line.strip()
            print_json(document)
        say(line.removesuffix("\n"))


def _stop(planned: LaunchPlan, process: subprocess.Popen[str]) -> None:
    """Ask the container to end until it has, then not: a signal is lost on one that is just being started."""
    docker, name = planned.docker, str(planned.name)
    for _ in range(_SECONDS_TO_STOP):
        _quietly(*docker, "kill", "--signal", "TERM", name)
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            continue
        return
    _quietly(*docker, "rm", "--force", name)
    process.kill()
    process.wait()


def _quietly(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _outcome(planned: LaunchPlan, status: int) -> int:
    """rtbuild's exit code for the container's."""
    failed = partial(CommandError, command=planned.command, returncode=status)
    if status == _REFUSED:
        _refuse_namesake(planned)
        raise failed("the engine did not start the container; its own words are above", hint="rtbuild doctor")
    if planned.mode == "verify":
        if (code := verdict_exit(status)) is not None:
            return code
        hint = "run the command to see it happen"
        raise failed("cudnn-verify failed, which says nothing about the image", hint=hint)
    # the start program's own: 2 asked wrongly, 5 missing here
    return status if status == 0 or (planned.mode == "jupyter" and status in {2, 5}) else 1


def _refuse_namesake(planned: LaunchPlan) -> None:
    """Raise MissingToolError if a container has the name already: port and name go together."""
    if planned.name is None:
        return
    ask = [*planned.docker, "container", "inspect", "--format", "{{.State.Status}}", planned.name]
    done = subprocess.run(ask, capture_output=True, errors="replace", check=False)
    if done.returncode == 0:
        remove = shlex.join([*planned.docker, "rm", "--force", planned.name])
        raise MissingToolError(
            f"there is a container {planned.name} already ({done.stdout.strip()})",
            hint=f"{remove}, if it is not needed; or start this one on another --port",
        )
