"""``devcontainer.json``: an image as the environment of an editor. https://containers.dev/implementors/json_reference/"""

import json
from pathlib import Path
from typing import Any

from builder.errors import UsageError
from builder.files import write_whole

FILE = Path(".devcontainer") / "devcontainer.json"


def document(image: str, *, name: str, user: str | None, memory: int | None) -> dict[str, Any]:
    """The file's content. ``user`` is the image's by name, None if it has none but root; ``memory`` of the
    machine in bytes."""
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


def write(content: dict[str, Any], folder: Path, *, force: bool) -> Path:
    """Write the file below ``folder``, beside and renamed; its path.

    Raises:
        UsageError: it is there, says something else, and ``force`` was not given.
    """
    path = folder / FILE
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return path
    if path.exists() and not force:
        raise UsageError(f"{path} is there already, and says something else", hint="--force replaces it")
    write_whole(path, text.encode())
    return path
