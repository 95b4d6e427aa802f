"""The commands by name: each is a function in a module of its own, which is imported when it is asked for;
and words and switches of other tools (pip's, conda's, docker's), with what rtbuild has in their place.
"""

import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.exceptions import TyperException

from builder import __version__
from builder.cli.boundary import failed, guarded
from builder.cli.console import say

_HELP = """
Say why deep learning fails on an NVIDIA GPU, which versions fit it, and build images that are tried on one.

\b
To begin:
  rtbuild diagnose train.log                    an error
  rtbuild resolve torch --gpu T4 --driver 535   a card
  rtbuild up torch                              something to run

A cell is one combination of framework, CUDA, Python and base; a matrix is a YAML file of cells.
"""
_EPILOG = """
Exit codes: 0 done as asked · 1 impossible, or a cell failed · 2 usage, or a matrix that is wrong ·
3 nothing selected · 4 the lock is missing or stale (--locked) · 5 this machine lacks something, or no
answer · 6 publication refused · 7 not known · 70 a bug in rtbuild · 130 interrupted
"""

COMMANDS = {
    "diagnose": "Say why it fails, by a log, a notebook or an error. Names the cause, what to run, and the "
    "line that proves it. Sends nothing.",
    "doctor": "Show what this machine is ready for, and what it lacks. Engine, disk, tools, GPU.",
    "probe": "Write cudnn-verify, one file that tries a GPU. It runs in an image, on Colab or on bare metal.",
    "resolve": "Say which versions fit a card and its driver. With pip's command and a matrix, the best "
    "first; or why nothing fits, and what would.",
    "init": "Write a first matrix, the file of what to build. For a framework and a card.",
    "up": "Find, build, verify and start an image in one go. For this machine's card and driver.",
    "venv": "Install a cell into a virtual environment, without Docker. Runs cudnn-verify in it.",
    "list": "Show the cells of matrices. Says which are chosen, and why others are not.",
    "check": "Say which cells are possible, and why others are not. In half a second; builds nothing.",
    "explain": "Explain the verdict on a cell, a cause or an error text.",
    "export": "Write a locked cell in the form of other tools. pylock.toml, requirements, uv, Apptainer.",
    "outdated": "Say what is newer than the lock. Updates, withdrawn wheels, known-bad releases.",
    "lock": "Write the lock: every base, wheel and package by hash.",
    "render": "Write a folder for plain `docker build`, one for each cell.",
    "build": "Build every selected cell, and run cudnn-verify in each.",
    "verify": "Run cudnn-verify in built images. Exit 0 only if all are known to work.",
    "publish": "Tag the digests that are known to work. Exit 6 if one is refused.",
    "audit": "Say whether a published image is known to work. Exit 0 yes, 1 no, 5 no answer of the registry, "
    "7 the rules say that it should with this --driver.",
    "run": "Start an image with GPU, folders and a local port.",
    "devcontainer": "Write a devcontainer.json for VS Code and others.",
    "dispatch": "Verify on a cluster, by Slurm or Kubernetes. Each cell on each GPU that it claims.",
    "verify-digest": "Verify one image by digest and attach the report. A node of a cluster runs this.",
    "catalogue": "Write a static site of images, releases and cards. Says which work together.",
    "size": "Show the size of a cell by layer and file, or compare two. Exit 1 if CUDA is in it twice.",
    "cache": "Show what is kept between runs, and make it smaller.",
    "schema": "Print a document's JSON schema; without a name, the names.",
    "facts": "The compatibility tables that ship with rtbuild.",
    "colab": "Import, compare and probe Google Colab's runtimes.",
}
"""Their help, in its order. The module and the function of a command have its name, as Python writes it."""
EXAMPLES: dict[str, tuple[str, ...]] = {
    "diagnose": (
        "rtbuild diagnose train.log",
        "python train.py 2>&1 | rtbuild diagnose -",
        "rtbuild diagnose laptop-freeze.txt server-freeze.txt",
    ),
    "resolve": (
        "rtbuild resolve torch --gpu 'RTX 3090' --driver 535",
        "rtbuild resolve -r requirements.txt --gpu T4 --driver 535.216 --limit 1",
        "rtbuild resolve torch --gpu 'RTX 3090@535.183.01' --gpu 'A100@550.90.07'",
        "rtbuild resolve -r old.ipynb --nearest -o matrices/old.yaml",
    ),
    "init": ("rtbuild init torch --gpu T4",),
    "up": ("rtbuild up torch", "rtbuild up 'tensorflow==2.15.*'"),
    "check": ("rtbuild check matrices/torch.yaml --gpu T4 --driver 535",),
    "probe": ("rtbuild probe -o cudnn_verify.py && python3 cudnn_verify.py",),
    "export": ("rtbuild export '*' matrices/torch.yaml --format requirements -o requirements.txt",),
    "audit": ("rtbuild audit registry.example/torch:TAG --gpu T4 --driver 535",),
}
"""Lines that are typed, below the help of a command."""
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
_BESIDE = {
    "devcontainer": "run",
    "doctor": "dispatch",
    "export": "venv",
    "outdated": "audit",
    "diagnose": "probe",
    "init": "resolve",
    "schema": "probe",
    "explain": "check",
    "verify-digest": "dispatch",
    "render": "lock",
    "verify": "lock",
}
"""Commands that lie in the module of another one."""


class _Commands(TyperGroup):
    """Lists commands by their help, and imports the one that is to run."""

    def __init__(self, **settings: Any) -> None:
        known = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}
        super().__init__(**settings | {"commands": known})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name and found else None, rest


def loaded(name: str) -> Any:
    """The command, or the group of commands, of that name."""
    word = "list_" if name == "list" else name.replace("-", "_")
    made = getattr(import_module(f"builder.cli.commands.{_BESIDE.get(name, word)}"), word)
    if not isinstance(made, typer.Typer):
        function, made = made, typer.Typer(rich_markup_mode=None, add_completion=False)
        made.command(name, help=COMMANDS[name], epilog=_examples(name))(function)
    return _in_words(typer.main.get_command(made))


def _examples(name: str) -> str | None:
    lines = EXAMPLES.get(name, ())
    return "\n".join(("\b", "As in:", *(f"  {line}" for line in lines))) if lines else None


def _in_words(command: Any) -> Any:
    """The command; its help says what to type, in place of Python's names of types."""
    for one in (command, *getattr(command, "commands", {}).values()):
        for param in one.params:
            kind = param.type_descriptor
            if isinstance(param, TyperArgument):
                vars(param)["display_type_rich"] = lambda ctx: None  # noqa: ARG005
            elif param.metavar is None and not (param.is_flag or param.count or kind.is_choice):
                name = max(param.opts, key=len).lstrip("-").upper()
                param.metavar = "N" if kind.is_ranged else "PATH" if kind.is_path else name
    return command


app = typer.Typer(
    cls=_Commands,
    name="rtbuild",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script."""
    words = sys.argv[1:]
    named = len(words) == 2 and words[0] in ("--show-completion", "--install-completion")
    sys.exit(guarded(partial(_complete, *words) if named else _program))


def _program() -> int:
    words = sys.argv[1:]
    if words[:1] == ["help"]:  # as git and Docker have it
        words = [*words[1:], "--help"]
    elif words == ["version"]:
        words = ["--version"]
    if words[:1] == ["diagnose"] and all(word in {"-", "--json"} or word[:1] != "-" for word in words[1:]):
        # the parser's own imports take longer than reading a text does
        from builder.cli.commands.probe import diagnose

        texts = [word for word in words[1:] if word != "--json"]
        return diagnose(texts, knowledge=None, print_knowledge=False, json_="--json" in words)
    try:
        result = app(words, prog_name="rtbuild", standalone_mode=False)
    except TyperException as error:
        message = error.format_message().replace(": Value error, ", ": ")
        if message.startswith("Usage:"):  # rtbuild without arguments: the message is the help
            say(message)
            return 2
        option = getattr(error, "option_name", None)
        other = _hint(words, option) if message.startswith("No such ") else None
        if other is not None:  # without options that are only spelt alike
            return failed(f"No such option: {option}" if option else message, other, 2)
        context = getattr(error, "ctx", None)
        if isinstance(error, typer.BadParameter) and context is not None and error.param is not None:
            value = OTHER_VALUES.get((context.info_name, error.param.name))
            if value is not None:
                return failed(message, value, 2)
        where = getattr(context, "command_path", "rtbuild")
        options = f", `{where} --help` what this one takes" * (where != "rtbuild")
        usual = f"`rtbuild --help` lists commands{options}"
        return failed(message, _divided_size(message) or usual, 2)
    return result if isinstance(result, int) else 0


def _complete(option: str, shell: str) -> int:
    """Completion for a shell by its name, whichever this one is; Typer itself takes no name."""
    if shell not in _SHELLS:
        return failed(f"{option} {shell}: there is completion for none but {', '.join(_SHELLS)}", None, 2)
    from typer._completion_shared import get_completion_script, install  # private: nothing else rests on it

    about = {"prog_name": "rtbuild", "complete_var": "_RTBUILD_COMPLETE", "shell": shell}
    if option == "--show-completion":
        typer.echo(get_completion_script(**about))
    else:
        _, path = install(**about)
        say(f"{shell}'s completion is installed in {path}; it takes effect in a new terminal")
    return 0


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rtbuild {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")] = False,
) -> None:
    """Options that come before the command; both are read elsewhere, before and after parsing."""
    del version, debug


_INDEX = (
    "the package index is that of your uv or pip: UV_DEFAULT_INDEX=URL or pip.conf; one more is a line "
    "`--extra-index-url URL` of a requirements file, or `index:` of a matrix"
)
_CARD = "a card is named by --gpu, as in --gpu T4; this machine's own is taken without it"
_STARTED = "`rtbuild run IMAGE` is interactive and removes its container at the end, without a switch for it"

OTHER_OPTIONS = {
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
_OTHER_WORDS = {
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
OTHER_COMMANDS = {word: hint for words, hint in _OTHER_WORDS.items() for word in words}
"""Commands that people type: what there is in their place."""

OTHER_VALUES = {
    ("export", "form"): (
        "these are forms of packages; of the image, `rtbuild run CELL --dry-run` prints the docker command, "
        "whose options a compose file takes, and `rtbuild devcontainer` writes a devcontainer.json"
    )
}
"""Hints on a value that a parameter does not take: `export --format compose`."""


def _divided_size(message: str) -> str | None:
    """A hint for ``--prune 20 GB``, by the parser's words for the second of them; None for other messages."""
    found = re.search(r"unexpected extra argument\(?s?\)? \(([KMGT]i?B?|bytes)\)", message, re.IGNORECASE)
    return f"a size is one word, as in --prune 20{found[1]}" if found is not None else None


def _hint(words: Sequence[str], option: str | None) -> str | None:
    """A hint for an option, else a command, that rtbuild does not have; None if no row names it."""
    if option is not None:
        return OTHER_OPTIONS.get(option)
    named = next((word for word in words if not word.startswith("-")), "")
    return OTHER_COMMANDS.get(named.lower())
