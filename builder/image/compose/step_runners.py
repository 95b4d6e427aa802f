"""The two places where a recipe's steps run: this machine's namespaces, and an engine if they are refused."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from builder.core.documents import shown
from builder.core.errors import CellError, MissingToolError
from builder.image.recipe import env_name, value
from builder.image.sandbox import require, run_script

if TYPE_CHECKING:
    from builder.image.engine import Engine

_STEPS = """\
FROM scratch AS system
COPY root/ /
{variables}
COPY step.sh /
RUN --network=none ["/bin/sh", "/step.sh"]
FROM scratch
COPY --from=system /out/ /out/
"""


class StepRunner:
    """Runs steps of recipes in namespaces of this machine: :mod:`builder.image.sandbox`."""

    def check(self) -> None:
        """Raise :class:`~builder.core.errors.MissingToolError` if no step can be run."""
        require()

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        """Run ``script`` as root, with ``root`` as the root folder and without network.

        Raises CommandError if the script fails, and CancelledError soon after ``cancel`` is set.
        """
        run_script(script, root, what=what, env=env, cancel=cancel)


class EngineRunner(StepRunner):
    """Runs them in an engine, by BuildKit: the root folder is sent there, ``/out`` comes back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        """An engine that answers runs steps, by buildx."""
        _ = self._engine.buildx

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        from builder.image.engine import hint_for  # with Docker's client

        facts = self._engine.facts()
        with tempfile.TemporaryDirectory(prefix="rtbuild-step-", dir=root.parent) as folder:
            context = Path(folder)
            variables = "\n".join(f"ENV {env_name(name)}={value(text)}" for name, text in sorted(env.items()))
            (context / "Dockerfile").write_text(_STEPS.format(variables=variables))
            (context / "step.sh").write_text(script)
            root.rename(context / "root")
            try:
                built = self._engine.built_stage(
                    log=root.parent / f"{root.name}.log",
                    cancel=cancel,
                    context=context,
                    platform=facts.platform,
                    epoch=0,
                    no_cache=True,
                )
                with built as saved:
                    shutil.rmtree(context / "root" / "out", ignore_errors=True)
                    with saved.layer(len(saved.layers) - 1) as tar:
                        _extract(tar, context / "root")
            except CellError as error:
                error.message = f"{what} failed in the engine: {error.message}"
                free = self._engine.disk_free()
                if free is not None and free < 4 << 20:  # a program's children may fail without a word
                    error.message += " (no space left on device)"
                    error.hint = hint_for("no space left on device")
                raise
            finally:
                (context / "root").rename(root)


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Lay out the entries of a layer below ``folder``, owned by the caller, with all bits of their modes.

    Nothing is written outside, nor through a link. :mod:`tarfile` has filters for that from 3.11.4 on, which
    refuse or change links and modes that an image may have, so that none of them takes part. Raises
    :class:`~builder.core.errors.CellError` for an entry that leads elsewhere, stands twice or is a device.
    """
    tar.extraction_filter = lambda member, _path: member
    tar.extractall(folder, members=_checked(tar, folder.resolve()))  # noqa: S202 - each one is checked
    for link in filter(tarfile.TarInfo.issym, tar.getmembers()):  # tarfile sets no times of them
        os.utime(folder / link.name, (link.mtime, link.mtime), follow_symlinks=False)


def _checked(tar: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Each entry when those before it are laid out."""
    for member in tar:
        if not _belongs(member, folder):
            raise CellError(f"its layer has {shown(member.name)}, which cannot be laid out")
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        yield member


def _belongs(member: tarfile.TarInfo, folder: Path) -> bool:
    """A new file, folder or link below ``folder``, with no link on the way to it."""
    place = folder / member.name
    if member.isdir() and place.is_dir() and not place.is_symlink():
        known = True
    elif member.isreg() or member.isdir() or member.issym():
        known = not os.path.lexists(place)
    else:
        linked = (folder / member.linkname).resolve()
        known = member.islnk() and linked.is_relative_to(folder) and not os.path.lexists(place)
    return known and (
        place == folder or (place.is_relative_to(folder) and place.parent.resolve() == place.parent)
    )


def step_runner(engine: Engine | None) -> StepRunner:
    """This machine's namespaces; the engine if the machine refuses them."""
    here = StepRunner()
    if engine is None:
        return here
    try:
        here.check()
    except MissingToolError:
        return EngineRunner(engine)
    return here
