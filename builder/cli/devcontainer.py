"""``rtbuild devcontainer``: work inside an image with VS Code and others."""

from pathlib import Path
from typing import Annotated

from builder.cli import options as opt
from builder.cli.images import ImageOrCell, find_image, is_colab
from builder.colab import devcontainer as writing
from builder.colab.launch import IMAGE_USER
from builder.console import print_json, say
from builder.engine.engine import Engine


def devcontainer(
    image: ImageOrCell,
    matrices: opt.Matrices = None,
    output: Annotated[
        Path, opt.of("--output, -o: The project, which gets .devcontainer/devcontainer.json.")
    ] = Path(),
    force: Annotated[bool, opt.of("--force: Replace the file that is there.")] = False,
    context: opt.Context = None,
    json_: opt.Json = False,
) -> int:
    """Write the file; say its path, and why its user may not be able to write to the folder."""
    with Engine.connect(context=context) as engine:
        stored = find_image(image, matrices, engine)
        passwd = engine.read_file(stored.reference, "/etc/passwd") or b""
        user = writing.user_named(passwd.decode("utf-8", "replace"), IMAGE_USER[0])
        memory = engine.facts().memory
    content = writing.document(
        stored.reference,
        name=stored.label("io.rtbuild.cell") or stored.reference,
        user=user if is_colab(stored) else None,
        memory=memory,
    )
    path = writing.write(content, output, force=force)
    if json_:
        print_json({"schema": 1, "path": str(path), "document": content})
    if "remoteUser" in content and output.stat().st_uid == 0:
        say(f"! {output.resolve()} belongs to root: user {user} of the container cannot write to it (chown)")
    say(f"{path}: reopen this folder in its container (VS Code: Dev Containers: Reopen in Container)")
    return 0
