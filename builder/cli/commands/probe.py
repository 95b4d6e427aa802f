"""``rtbuild probe``, ``diagnose`` and ``schema``: cudnn-verify as a file, or asked about a text, and the JSON
schemas of rtbuild's input and output.
"""

import re
import sys
from pathlib import Path

from builder.cli import options as opt
from builder.cli.boundary import HOW_TO_PROBE, ask_probe, is_text
from builder.cli.console import show
from builder.core import resources
from builder.core.errors import UsageError
from builder.core.files import write_whole


def probe(output: Path | None = opt.of("--output, -o: Write it there; without, to stdout.")) -> int:
    """Print the probe, or write it executable."""
    from builder.image.recipe import bundle

    if output is None:
        sys.stdout.buffer.write(bundle())
    else:
        with opt.writing(output):
            write_whole(output, bundle(), mode=0o755)
    return 0


def diagnose(
    files: list[str] | None = opt.of(
        "FILE|TEXT: The message itself, in quotes; or files, or a folder of them: a log, a notebook, "
        "`nvidia-smi`, a report of the probe, a definition, a job's script, `pip freeze` (two machines are "
        "compared); - for stdin."
    ),
    knowledge: Path | None = opt.of(
        "--knowledge FILE: Know the causes and messages of FILE, of another release of rtbuild."
    ),
    print_knowledge: bool = opt.of(
        "--print-knowledge: Print the causes and messages of this release, for --knowledge.", False
    ),
    json_: bool = opt.JSON,
) -> int:
    """Say which line of a text names which cause, and what mends it; nothing leaves this machine."""
    if print_knowledge:
        return ask_probe("--print-knowledge")
    if (not files and sys.stdin.isatty()) or (files and not any(name.strip() for name in files)):
        raise UsageError(
            "there is nothing to read",
            hint="name a log, a notebook or a list of packages, or pipe it: python train.py 2>&1 | "
            f"rtbuild diagnose -; {HOW_TO_PROBE}",
        )
    named = files or ["-"]
    address = next((name for name in named if re.fullmatch(r"https?://\S+", name.strip())), None)
    if address is not None:
        raise UsageError(
            f"{address} is an address, and nothing is fetched",
            hint="what it shows is read as a file, or piped: curl -sL ADDRESS | rtbuild diagnose -",
        )
    texts = [name for name in named if _is_message(name)]
    if texts and "-" in named:
        raise UsageError("a message in quotes and - exclude each other", hint="pipe all of it, or none")
    read = [name for name in named if name not in texts] + ["-"] * bool(texts)
    said = "\n".join(texts) if texts else None
    other = ["--knowledge", str(knowledge)] if knowledge else []
    return ask_probe("--read", *read, *other, *(["--json"] if json_ else []), said=said)


def _is_message(name: str) -> bool:
    """Whether an argument of ``diagnose`` is the message itself and no file's name."""
    if not is_text(name) or name == "-":
        return False
    try:
        return "\n" in name or not (Path(name).exists() or _FILE_NAME.search(name))
    except OSError:  # longer than a file's name may be
        return True


_FILE_NAME = re.compile(r"\.(?:log|txt|out|err|ipynb|json|ya?ml|md|html?|csv)$", re.IGNORECASE)
"""The end of a name that is a file's, and of no message."""


_ENDING = ".schema.json"


def schema(name: str | None = opt.of("NAME: matrix, lock, report, run, publication …")) -> int:
    """Print a document's JSON schema; without a name, the names."""
    folder = resources.schemas()
    names = sorted(path.name.removesuffix(_ENDING) for path in folder.glob(f"*{_ENDING}"))
    if name is None:
        show(*names)
        return 0
    if name not in names:
        raise UsageError(f"there is no schema '{name}'", hint=f"there are: {', '.join(names)}")
    show((folder / f"{name}{_ENDING}").read_text("utf-8").removesuffix("\n"))
    return 0
