"""The commands that use an image: declared here, done in :mod:`builder.cli.running`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from builder.cli import options as opt
from builder.cli.app import app
from builder.errors import UsageError

Image = Annotated[str, typer.Argument(metavar="IMAGE|CELL", help="An image, or a cell's id or glob.")]


@app.command()
def run(
    image: Image,
    matrices: opt.Matrices = None,
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Start Jupyter: what images of the profile colab do anyway.")
    ] = False,
    shell: Annotated[bool, typer.Option("--shell", help="Start bash: what other images do anyway.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Run cudnn-verify, and end.")] = False,
    port: Annotated[
        int, typer.Option("--port", min=1024, max=65535, help="Jupyter's port on 127.0.0.1.")
    ] = 8888,
    content: Annotated[
        Path | None,
        typer.Option(
            "--content", metavar="DIR", help="The folder to work in, /content there; by default this one."
        ),
    ] = None,
    no_content: Annotated[bool, typer.Option("--no-content", help="Mount no folder to work in.")] = False,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            "--volume", "-v", metavar="HOST:CONTAINER", help="One more folder; as docker run has it."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="A variable; without a value, your own."),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", "-p", metavar="HOST:CONTAINER", help="One more port, on 127.0.0.1."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="UID:GID", help="Whose files it writes; by default yours.")
    ] = None,
    gpus: Annotated[
        Literal["auto", "all", "none"], typer.Option("--gpus", help="Whether it gets the GPUs.")
    ] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the docker command, and start nothing.")
    ] = False,
    context: opt.Context = None,
    json_: opt.Json = False,
) -> int:
    """Start an image as this machine needs it: GPU, memory, folders, a port on loopback only."""
    from builder.cli.running import Asked, run_image

    return run_image(
        Asked(
            image=image,
            mode=_mode(jupyter=jupyter, shell=shell, verify=verify),
            port=port,
            content=content,
            no_content=no_content,
            volumes=tuple(volume or ()),
            env=tuple(env or ()),
            publish=tuple(publish or ()),
            user=user,
            gpus=opt.GPUS[gpus],
        ),
        matrices,
        context=context,
        dry_run=dry_run,
        json=json_,
    )


@app.command()
def devcontainer(
    image: Image,
    matrices: opt.Matrices = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The project, which gets .devcontainer/devcontainer.json.")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
    context: opt.Context = None,
    json_: opt.Json = False,
) -> int:
    """Write a devcontainer.json, so that VS Code and others work inside an image."""
    from builder.cli.running import write_devcontainer

    return write_devcontainer(image, matrices, output=output, force=force, context=context, json=json_)


def _mode(**chosen: bool) -> str | None:
    names = [name for name, wanted in chosen.items() if wanted]
    if len(names) > 1:
        raise UsageError(f"--{names[0]} and --{names[1]} exclude each other")
    return names[0] if names else None
