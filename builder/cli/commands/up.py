"""``rtbuild up``: from a framework's name to a running Jupyter or shell on this machine."""

import hashlib
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from builder import __version__
from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, say, show
from builder.cli.first_matrix import MatrixWish, matrix_text, write_matrix
from builder.cli.launching import start, would_start
from builder.cli.walking import finished
from builder.core import resources
from builder.core.errors import MissingToolError, RegistryError, UsageError
from builder.core.files import write_whole
from builder.core.model import Base, Cell
from builder.image.compose import lacks_for_rootfs
from builder.image.engine import Engine, nvidia_smi
from builder.pipeline import BuildOptions, EngineOptions, build_cells
from builder.plan.lock import lock_path
from builder.release.colab import LaunchPlan, Mode
from builder.sources.index import host_platform
from builder.sources.oci import Registry


def up(
    words: list[str] | None = opt.of("FRAMEWORK: torch, and what is beside it: torch torchvision lightning."),
    python: str | None = opt.PYTHON,
    gpu: str | None = opt.GPU,
    driver: str | None = opt.DRIVER,
    shell: bool = opt.of("--shell: A shell instead of Jupyter.", False),
    port: int = opt.of("--port: Jupyter's port on 127.0.0.1.", 8888, min=1024, max=65535),
    save: bool = opt.of("--save: Write the matrix and its lock to matrices/.", False),
    dry_run: bool = opt.of(
        "--dry-run: Write the matrix, and say what would be done; build and start nothing.", False
    ),
    repository: str | None = opt.of("--from REPOSITORY: Pull the image if its tag is there; else build it."),
    offline: bool = opt.OFFLINE,
    context: str | None = opt.CONTEXT,
    progress: Progress = opt.PROGRESS,
) -> int:
    """Resolve a framework for this machine's card and driver, build or pull its image, and start it."""
    if not words:
        raise UsageError("no framework is named", hint="as in `rtbuild up torch`")
    opt.refuse_machine([gpu] if gpu else [], driver)
    if not dry_run:
        _refuse_without_engine(words, context)
    gpu, driver, platform = _this_machine(gpu, driver)
    wish = MatrixWish(
        words=tuple(words),
        python=python,
        gpu=gpu,
        driver=driver,
        platform=platform,
        jupyter=not shell,
        offline=offline,
    )
    path = _matrix(wish, save=save)
    mode: Mode = "shell" if shell else "jupyter"
    loaded = opt.load_all([path])
    cell = opt.choose_one(loaded, "*")
    comments = (line for line in path.read_text("utf-8").splitlines() if line.startswith("# to be "))
    planned = would_start(cell, context=context, dry_run=dry_run, mode=mode, port=port, content=Path.cwd())
    if dry_run:
        show(path.read_text("utf-8").removesuffix("\n"))
        _say_steps(cell, planned, repository)
        return 0
    for line in comments:
        say(line.removeprefix("# "))
    image = _published(repository, cell.id) if repository else None
    if image is None:
        options = BuildOptions(
            engine=EngineOptions(context=context), results=resources.cache() / "up" / "results"
        )
        run = partial(build_cells, loaded, [cell], options)
        if code := finished(Terminal.of(progress), run, options.results, json=False):
            return code
    return start(image or cell.id, [path], context=context, mode=mode, port=port, content=Path.cwd())


def _say_steps(cell: Cell, planned: LaunchPlan, repository: str | None) -> None:
    """What would be done, in its order, with the command that starts the container and the address."""
    say("with --dry-run nothing of this is done:")
    pulled = f"{repository}:{cell.id} is pulled if that tag is there; else " if repository else ""
    say(f"1. {pulled}every wheel and package is looked up and written into a lock by its hash")
    say(
        f"2. the image {cell.image_name()} is built, and cudnn-verify runs in it: on the card if there is one"
    )
    say(f"3. {shlex.join(planned.command)}")
    for note in planned.notes:
        say(f"   ! {note}")
    if planned.port is not None:
        say(f"4. Jupyter listens on 127.0.0.1:{planned.port}, for this machine alone, and prints its address")
        say("   with a token, new at each start, which Colab's `Connect to a local runtime` takes")
    say("next: the same without --dry-run")


def _refuse_without_engine(words: Sequence[str], context: str | None) -> None:
    """Before anything is resolved: MissingToolError, which says what goes without Docker."""
    try:
        with Engine.connect(context=context):
            return
    except MissingToolError as lacking:
        without = (
            f"without Docker: rtbuild init {shlex.join(words)}; then the `rtbuild venv` line of its answer"
        )
        raise MissingToolError(lacking.message, hint=f"{lacking.hint}\n  {without}") from lacking


def _this_machine(gpu: str | None, driver: str | None) -> tuple[str | None, str | None, str | None]:
    """The card and driver asked for, else those of this machine, and its platform with its card."""
    (cards, own), platform = nvidia_smi(), None
    if gpu is None and cards:
        gpu, platform = cards[0].compute_capability or cards[0].name, host_platform()
    for name, value in (("card", gpu), ("driver", driver or own)):
        say(f"{name}: {value or 'none here: any that the facts allow'}")
    return gpu, driver or own, platform


def _matrix(wish: MatrixWish, *, save: bool) -> Path:
    """The matrix file: in ``matrices/`` with ``save``, else kept in the cache for the same wish. One in which
    a base gave way that this machine could not have counts for this once: its registry may answer again.

    Raises UsageError if it is to be saved where a file is.
    """
    path = Path("matrices") / f"{wish.title}.yaml"
    if save:
        opt.refuse_existing(path, hint="move it away, or leave out --save")
    kept = _kept(wish, ())
    if not kept.is_file():
        registry, refused = Registry.from_user(), list[str]()

        def lacks(base: Base) -> str | None:
            if (why := _lacks(registry, base)) is not None:
                refused.append(str(base))
            return why

        text = matrix_text(wish, None if wish.offline else lacks)
        kept = _kept(wish, refused)
        write_matrix(text, kept)
    if not save:
        return kept
    write_matrix(kept.read_text("utf-8").partition("\n")[2], path)
    if lock_path(kept).is_file():
        write_whole(lock_path(path), lock_path(kept).read_bytes())
    return path


def _kept(wish: MatrixWish, refused: Sequence[str]) -> Path:
    """The matrix of a wish in the cache; another one where bases were ``refused``."""
    key = hashlib.sha256(" ".join((__version__, repr(wish), *refused)).encode()).hexdigest()[:16]
    return resources.cache() / "up" / key / f"{wish.title}.yaml"


def _lacks(registry: Registry, base: Base) -> str | None:
    """Why this machine cannot have a base; None if it can, as far as a look tells."""
    if base.kind == "rootfs":
        return lacks_for_rootfs()
    try:
        return None if registry.digest_of(base.name) is not None else "its registry has no such tag"
    except RegistryError as problem:
        return problem.message.partition("\n")[0]


def _published(repository: str, cell: str) -> str | None:
    """The image by digest that the cell's tag in the repository names; None without such a tag."""
    tag = f"{repository}:{cell}"
    digest = Registry.from_user().digest_of(tag)
    if digest is None:
        say(f"there is no {tag}: building it")
        return None
    say(f"{tag} is taken as it is; its evidence: rtbuild audit {tag} --key KEY")
    return f"{repository}@{digest}"
