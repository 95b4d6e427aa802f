"""Words and switches of other tools, and what rtbuild has in their place: pip's, conda's, docker's."""

import re
from collections.abc import Sequence

_INDEX = (
    "the package index is that of your uv or pip: UV_DEFAULT_INDEX=URL or pip.conf; one more is a line "
    "`--extra-index-url URL` of a requirements file, or `index:` of a matrix"
)
_CARD = "a card is named by --gpu, as in --gpu T4; this machine's own is taken without it"
_STARTED = "`rtbuild run IMAGE` is interactive and removes its container at the end, without a switch for it"

OPTIONS = {
    "--cuda": "a framework's build brings its CUDA: name the build, as in 'torch==2.1.0+cu121', or give the "
    "driver, as in --driver 535, and builds for a newer CUDA are left out",
    "--cudnn": "a framework's release brings its cuDNN, and `cuda:` of a matrix can name another: "
    "['nvidia-cudnn-cu12==9.1.0.70']",
    "--index-url": _INDEX,
    "--extra-index-url": _INDEX,
    "--index": _INDEX,
    "--find-links": _INDEX,
    "-c": "conda's channels are not asked: `rtbuild resolve --conda environment.yml` tells an environment in "
    "wheels",
    "--channel": "conda's channels are not asked: `rtbuild resolve --conda environment.yml` tells an "
    "environment in wheels",
    "-f": "a file of requirements is -r FILE, a conda environment --conda FILE, a matrix an argument",
    "--gpus": _CARD,
    "--device": _CARD,
    "--card": _CARD,
    "--requirements": "a file of requirements is -r FILE, or --requirement FILE",
    "--rm": _STARTED,
    "-i": _STARTED,
    "-it": _STARTED,
    "-t": _STARTED,
    "--python-version": "a Python is named by --python, as in --python 3.11",
    "--dry": "`rtbuild check` and `rtbuild list` build nothing, `rtbuild run --dry-run` starts nothing",
}
"""Options that people look for: what there is in their place."""
_COMMANDS = {
    ("install", "pip", "conda", "uv"): "`rtbuild venv` installs a cell's locked wheels here, "
    "`rtbuild up torch` finds, builds and starts an image",
    ("pull", "start", "exec", "shell", "docker"): "`rtbuild run IMAGE` pulls an image and starts it, "
    "`rtbuild up torch` builds one",
    ("search", "find", "suggest", "recommend", "compat"): "`rtbuild resolve torch --gpu T4` finds what fits, "
    "`rtbuild list` shows the cells of matrices",
    (
        "ps",
        "ls",
        "images",
        "show",
        "status",
    ): "`rtbuild list` shows the cells, `docker images` what is here",
    ("create", "new", "start-project"): "`rtbuild init torch` writes a first matrix",
    (
        "test",
        "validate",
        "lint",
    ): "`rtbuild check` judges matrices, `rtbuild verify` tries images",
    ("push", "release", "tag"): "`rtbuild publish --help` tags images that are known to work",
    (
        "freeze",
        "compile",
        "requirements",
    ): "`rtbuild lock` writes every wheel by hash, `rtbuild export --help` as requirements",
    ("update", "upgrade"): "`rtbuild outdated` says what is newer, `rtbuild lock --upgrade` takes it",
    ("compare", "diff"): "`rtbuild size NEW --against OLD` compares two cells",
    ("info", "env", "system", "gpus", "gpu", "nvidia-smi"): "`rtbuild doctor` shows this machine, "
    "`rtbuild probe` writes the probe that tries its GPU",
    (
        "clean",
        "prune",
        "rm",
        "rmi",
    ): "`rtbuild cache` shows what is kept, and `rtbuild cache --help` how it shrinks",
    ("inspect", "history"): "`rtbuild audit IMAGE` judges an image, `rtbuild size CELL` measures it",
    ("completion", "completions"): "the option --install-completion installs it for your shell, "
    "--show-completion prints it",
    ("why", "error", "fix", "debug"): '`rtbuild diagnose "TEXT"` names the cause of an error',
}
COMMANDS = {word: hint for words, hint in _COMMANDS.items() for word in words}
"""Commands that people type: what there is in their place."""

VALUES = {
    ("export", "form"): (
        "these are forms of packages; of the image, `rtbuild run CELL --dry-run` prints the docker command, "
        "whose options a compose file takes, and `rtbuild devcontainer` writes a devcontainer.json"
    )
}
"""Hints on a value that a parameter does not take: `export --format compose`."""


def divided_size(message: str) -> str | None:
    """A hint for ``--prune 20 GB``, by the parser's words for the second of them; None for other messages."""
    found = re.search(r"unexpected extra argument\(?s?\)? \(([KMGT]i?B?|bytes)\)", message, re.IGNORECASE)
    return f"a size is one word, as in --prune 20{found[1]}" if found is not None else None


def hint(words: Sequence[str], option: str | None) -> str | None:
    """A hint for an option, else a command, that rtbuild does not have; None if no row names it."""
    if option is not None:
        return OPTIONS.get(option)
    named = next((word for word in words if not word.startswith("-")), "")
    return COMMANDS.get(named.lower())
