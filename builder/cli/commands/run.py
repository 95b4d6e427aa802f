"""``rtbuild run`` and ``devcontainer``: an image, or a cell's, as this machine or an editor needs it."""

from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import print_json, say
from builder.cli.launching import find_image, is_colab, start
from builder.core.errors import UsageError
from builder.image.engine import Engine
from builder.release.colab import IMAGE_USER, Mode, user_named, write_devcontainer
from builder.release.colab import (
    devcontainer as described,
)
from builder.sources.oci import CELL_LABEL

IMAGE_OR_CELL = opt.of("IMAGE|CELL: An image, or a cell's id or glob, or a matrix file with one.", ...)


def run(
    image: str = IMAGE_OR_CELL,
    matrices: list[Path] | None = opt.MATRICES,
    jupyter: bool = opt.of("--jupyter: Start Jupyter: what images of the profile colab do anyway.", False),
    shell: bool = opt.of("--shell: Start bash: what other images do anyway.", False),
    verify: bool = opt.of("--verify: Run cudnn-verify, and end.", False),
    port: int = opt.of("--port: Jupyter's port on 127.0.0.1.", 8888, min=1024, max=65535),
    content: Path | None = opt.of(
        "--content DIR: The folder to work in, /content there; by default this one."
    ),
    no_content: bool = opt.of("--no-content: Mount no folder to work in.", False),
    volume: list[str] | None = opt.of("--volume, -v HOST:CONTAINER: One more folder; as docker run has it."),
    env: list[str] | None = opt.of("--env, -e NAME[=VALUE]: A variable; without a value, your own."),
    publish: list[str] | None = opt.of("--publish, -p HOST:CONTAINER: One more port, on 127.0.0.1."),
    user: str | None = opt.of("--user UID:GID: Whose files it writes; by default yours."),
    gpus: opt.Gpus = opt.of("--gpus: Whether it gets the GPUs.", "auto"),
    dry_run: bool = opt.of("--dry-run: Print the docker command, and start nothing.", False),
    context: str | None = opt.CONTEXT,
    json_: bool = opt.JSON,
) -> int:
    """Stay until it ends; 0 if it was stopped on request."""
    modes: dict[Mode, bool] = {"jupyter": jupyter, "shell": shell, "verify": verify}
    chosen = [mode for mode, wanted in modes.items() if wanted]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    if no_content and content is not None:
        raise UsageError("--content and --no-content exclude each other")
    return start(
        image,
        matrices,
        context=context,
        dry_run=dry_run,
        as_json=json_,
        mode=chosen[0] if chosen else None,
        port=port,
        content=None if no_content else (content or Path()).resolve(),
        content_given=content is not None,
        volumes=tuple(volume or ()),
        env=tuple(env or ()),
        publish=tuple(publish or ()),
        user=user,
        gpus={"auto": None, "all": True, "none": False}[gpus],
    )


def devcontainer(
    image: str = IMAGE_OR_CELL,
    matrices: list[Path] | None = opt.MATRICES,
    output: Path = opt.of("--output, -o: The project, which gets .devcontainer/devcontainer.json.", Path()),
    force: bool = opt.of("--force: Replace the file that is there.", False),
    context: str | None = opt.CONTEXT,
    json_: bool = opt.JSON,
) -> int:
    """Write the file; say its path, and why its user may not be able to write to the folder."""
    with Engine.connect(context=context) as engine:
        stored = find_image(image, matrices, engine)
        passwd = engine.read_file(stored.reference, "/etc/passwd") or b""
        memory = engine.facts().memory
    user = user_named(passwd.decode("utf-8", "replace"), IMAGE_USER[0])
    content = described(
        stored.reference,
        name=stored.label(CELL_LABEL) or stored.reference,
        user=user if is_colab(stored) else None,
        memory=memory,
    )
    with opt.writing(output):
        path = write_devcontainer(content, output, force=force)
    if json_:
        print_json({"schema": 1, "path": str(path), "document": content})
    if "remoteUser" in content and output.stat().st_uid == 0:
        say(f"! {output.resolve()} belongs to root: user {user} of the container cannot write to it (chown)")
    say(f"{path}: reopen this folder in its container (VS Code: Dev Containers: Reopen in Container)")
    return 0
