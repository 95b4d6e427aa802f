"""``rtbuild run``: an image, or a cell's, started as this machine needs it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from builder import resources
from builder.cli import options as opt
from builder.cli.images import ImageOrCell, find_image, is_colab
from builder.colab.launch import LaunchPlan, Machine, Mode, Wish, address_in, plan, verdict_exit
from builder.console import print_json, say, show
from builder.engine.build import ca_bundle, proxies
from builder.engine.engine import Engine
from builder.errors import CommandError, MissingToolError, UsageError

_NOT_STARTED = 125
"""Exit status of ``docker run`` if the engine refused: https://docs.docker.com/engine/containers/run/"""

_SECONDS_TO_STOP = 10


def run(
    image: ImageOrCell,
    matrices: opt.Matrices = None,
    jupyter: Annotated[
        bool, opt.of("--jupyter: Start Jupyter: what images of the profile colab do anyway.")
    ] = False,
    shell: Annotated[bool, opt.of("--shell: Start bash: what other images do anyway.")] = False,
    verify: Annotated[bool, opt.of("--verify: Run cudnn-verify, and end.")] = False,
    port: Annotated[int, opt.of("--port: Jupyter's port on 127.0.0.1.", min=1024, max=65535)] = 8888,
    content: Annotated[
        Path | None, opt.of("--content DIR: The folder to work in, /content there; by default this one.")
    ] = None,
    no_content: Annotated[bool, opt.of("--no-content: Mount no folder to work in.")] = False,
    volume: Annotated[
        list[str] | None, opt.of("--volume, -v HOST:CONTAINER: One more folder; as docker run has it.")
    ] = None,
    env: Annotated[
        list[str] | None, opt.of("--env, -e NAME[=VALUE]: A variable; without a value, your own.")
    ] = None,
    publish: Annotated[
        list[str] | None, opt.of("--publish, -p HOST:CONTAINER: One more port, on 127.0.0.1.")
    ] = None,
    user: Annotated[str | None, opt.of("--user UID:GID: Whose files it writes; by default yours.")] = None,
    gpus: Annotated[opt.GpusWord, opt.of("--gpus: Whether it gets the GPUs.")] = "auto",
    dry_run: Annotated[bool, opt.of("--dry-run: Print the docker command, and start nothing.")] = False,
    context: opt.Context = None,
    json_: opt.Json = False,
) -> int:
    """Stay until it ends; 0 if it was stopped on request."""
    mode = _mode(jupyter=jupyter, shell=shell, verify=verify)
    if no_content and content is not None:
        raise UsageError("--content and --no-content exclude each other")
    with Engine.connect(context=context) as engine:
        stored = find_image(image, matrices, engine)
        machine = _machine(engine)
        wish = Wish(
            image=stored.reference,
            colab=is_colab(stored),
            mode=mode,
            port=port,
            content=None if no_content else (content or Path()).resolve(),
            content_given=content is not None,
            volumes=tuple(volume or ()),
            env=tuple(env or ()),
            publish=tuple(publish or ()),
            user=user,
            terminal=sys.stdin.isatty(),
            gpus={"auto": None, "all": True, "none": False}[gpus],
        )
        planned = plan(wish, machine)
    document = _document(stored.reference, planned)
    if not dry_run and planned.port is not None and machine.local:
        _refuse_taken(planned.port)
    for note in planned.notes:
        say(f"! {note}")
    if dry_run:
        if json_:
            print_json(document)
        else:
            show(shlex.join(planned.command))
        return 0
    for folder in planned.folders:
        _make(folder, planned)
    return _outcome(planned, _start(planned, document if json_ else None))


def _mode(*, jupyter: bool, shell: bool, verify: bool) -> Mode | None:
    modes: tuple[tuple[Mode, bool], ...] = (("jupyter", jupyter), ("shell", shell), ("verify", verify))
    chosen = [mode for mode, wanted in modes if wanted]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    return chosen[0] if chosen else None


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


def _refuse_taken(port: int) -> None:
    if _free(port):
        return
    other = next((number for number in range(port + 1, port + 100) if number < 65536 and _free(number)), None)
    raise MissingToolError(
        f"port {port} on 127.0.0.1 is taken",
        hint=(f"--port {other} is free" if other else "name another one by --port")
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


def _make(folder: Path, planned: LaunchPlan) -> None:
    """A folder that the container's user may write to; only root can give it to another."""
    folder.mkdir(parents=True, exist_ok=True)
    if planned.user is not None and os.getuid() == 0 and folder.stat().st_uid != planned.user[0]:
        os.chown(folder, *planned.user)


def _start(planned: LaunchPlan, document: dict[str, Any] | None) -> int:
    """Run the command; its exit status, or 0 if it was stopped by a signal to rtbuild."""
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
        if document is not None and process.stdout is not None:
            _relay(process.stdout, document)  # its last words
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
    """Raise MissingToolError if a container has the name already: port and name go together."""
    if planned.name is None:
        return
    docker = planned.command[: planned.command.index("run")]
    ask = [*docker, "container", "inspect", "--format", "{{.State.Status}}", planned.name]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        remove = shlex.join([*docker, "rm", "--force", planned.name])
        raise MissingToolError(
            f"there is a container {planned.name} already ({done.stdout.strip()})",
            hint=f"{remove}, if it is not needed; or start this one on another --port",
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
