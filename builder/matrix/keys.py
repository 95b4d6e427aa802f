"""Every key of a matrix file, once: the reader and the JSON Schema both go by these tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.matrix import values
from builder.matrix.bases import BASE
from builder.matrix.requirements import FRAMEWORK, PROJECT, REQUIREMENT

if TYPE_CHECKING:
    from builder.matrix.values import Syntax

Shape = Literal["text", "texts", "variables", "provider", "python", "builds"]
"""``texts``: a list, or one scalar for a list of one. ``variables``: name → value. ``provider``: a CUDA
provider, alone or with its packages. ``python``: a version, alone or with its origin. ``builds``: as
``texts``, and an entry may be a mapping of one name to the Debian packages that compiling it needs."""


@dataclass(frozen=True, kw_only=True)
class Key:
    name: str
    summary: str
    syntax: Syntax
    shape: Shape = "text"
    required: bool = False
    adds: bool = False
    """Values of an axis or of ``include`` come after those of ``defaults`` and do not replace them."""


def _by_name(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


CELL = _by_name(
    Key(
        name="framework",
        summary="'tensorflow==2.8.4', or a list for several in one image; each pinned by '=='.",
        syntax=FRAMEWORK,
        shape="texts",
        required=True,
    ),
    Key(
        name="python",
        summary="Python's version, '3.12': the base distribution's own if it has that one, else a standalone "
        "CPython. Or {version: '3.12', from: base or standalone}.",
        syntax=values.PYTHON,
        shape="python",
        required=True,
    ),
    Key(
        name="base",
        summary="What the image stands on: an image reference, or rootfs:debian/<suite>.",
        syntax=BASE,
        required=True,
    ),
    Key(
        name="cuda",
        summary="Where CUDA and cuDNN come from: base, wheels, none, or {from: wheels, packages: […]}.",
        syntax=values.PROVIDER,
        shape="provider",
        required=True,
    ),
    Key(
        name="pip",
        summary="Further Python requirements, as in requirements.txt.",
        syntax=REQUIREMENT,
        shape="texts",
        adds=True,
    ),
    Key(
        name="apt",
        summary="Further Debian packages, by name or name=version.",
        syntax=values.APT,
        shape="texts",
        adds=True,
    ),
    Key(
        name="env",
        summary="Environment variables of the image.",
        syntax=values.ENV_VALUE,
        shape="variables",
        adds=True,
    ),
    Key(
        name="gpus",
        summary="GPUs that the image is claimed to work on: checked against the wheels, proven by reports.",
        syntax=values.GPU,
        shape="texts",
        adds=True,
    ),
    Key(
        name="index",
        summary="Further package indexes by URL, for wheels such as PyTorch's cuNNN variants.",
        syntax=values.URL,
        shape="texts",
        adds=True,
    ),
    Key(
        name="dependencies",
        summary="resolved (the default), or listed: install what is named and no more, as a freeze does.",
        syntax=values.DEPENDENCIES,
    ),
    Key(
        name="from-source",
        summary="Packages to build where no wheel fits, by name: their setup code is run, shut in. "
        "One that is compiled has the Debian packages of its build: {psycopg2: [libpq-dev]}.",
        syntax=PROJECT,
        shape="builds",
        adds=True,
    ),
    Key(
        name="profile",
        summary="plain (the default), or colab: Jupyter that Colab's page connects to as a local runtime.",
        syntax=values.PROFILE,
    ),
    Key(name="platform", summary="linux/amd64 unless said otherwise.", syntax=values.PLATFORM),
    Key(
        name="variant",
        summary="Appended to the id, to tell cells apart that differ in nothing else that the id shows.",
        syntax=values.VARIANT,
    ),
)

PROVIDER = _by_name(
    Key(name="from", summary="base, wheels or none.", syntax=values.PROVIDER, required=True),
    Key(
        name="packages",
        summary="Requirements on NVIDIA's wheels, where the framework does not pin them itself.",
        syntax=REQUIREMENT,
        shape="texts",
    ),
)

PYTHON = _by_name(
    Key(
        name="version",
        summary="'3.12', or with the patch release of a standalone one, '3.12.4'.",
        syntax=values.PYTHON,
        required=True,
    ),
    Key(
        name="from",
        summary="base: the distribution's own. standalone: an archive of python-build-standalone.",
        syntax=values.PYTHON_FROM,
    ),
)

OPTIONS = _by_name(
    Key(name="compression", summary="Of the image's layers; zstd by default.", syntax=values.COMPRESSION),
    Key(
        name="strict-cudnn",
        summary="true: the loaded cuDNN must be the compiled one. By default: same major, minor not older.",
        syntax=values.FLAG,
    ),
    Key(
        name="max-size",
        summary="Budget of an image, unpacked: 6GB, 5.5GiB. A bigger image fails its cell.",
        syntax=values.SIZE,
    ),
    Key(
        name="slim",
        summary="false: keep tests, static libraries and TensorFlow's headers of wheels. true by default.",
        syntax=values.FLAG,
    ),
)

PUBLISH = _by_name(
    Key(
        name="staging",
        summary="Repository that images are verified in: where `publish` and `verify` look by default.",
        syntax=values.REPOSITORY,
    ),
    Key(
        name="repository",
        summary="Repository that images are published to by default.",
        syntax=values.REPOSITORY,
    ),
    Key(
        name="max-age",
        summary="How old a report may be that a publication stands on: 30d, 12h.",
        syntax=values.DURATION,
    ),
    Key(
        name="aliases",
        summary="Further tags, each with a glob that matches the id of one cell: {latest: '*-py3.12-*'}.",
        syntax=values.GLOB,
        shape="variables",
    ),
    Key(
        name="exempt",
        summary="GPUs of 'gpus' that cells are not published for: the claim is taken back, with a reason.",
        syntax=values.GPU,
        shape="texts",
    ),
)

EXEMPT = _by_name(
    Key(name="gpu", summary="A GPU out of 'gpus'.", syntax=values.GPU, required=True),
    Key(name="id", summary="Glob on the cells' ids; all without it.", syntax=values.GLOB),
    Key(name="reason", summary="Why these cells are not claimed for it.", syntax=values.PROSE, required=True),
)

HEAD = _by_name(
    Key(name="version", summary="Version of this format: 1.", syntax=values.FORMAT_VERSION, required=True),
    Key(name="name", summary="The matrix's name; by default the file's, without .yaml.", syntax=values.NAME),
    Key(name="description", summary="One line for people.", syntax=values.PROSE),
)

SECTIONS = {
    "defaults": "Keys of a cell that hold for every cell.",
    "axes": "Lists of values; the cells are their product, the first axis outermost.",
    "zip": "Lists of axes that move together: first values with first values, and so on.",
    "include": "Further cells: defaults plus these keys.",
    "exclude": "Globs on the keys of a cell; what matches is left out, for the reason given.",
    "options": "What holds for building every cell.",
    "publish": "Where images are published, under which further tags, and which claims are taken back.",
}

RULE = tuple(CELL)
"""Keys that a rule of ``exclude`` may match on, beside ``id``."""
