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


@dataclass(frozen=True)
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
        "framework",
        "'tensorflow==2.8.4', or a list for several in one image; each pinned by '=='.",
        FRAMEWORK,
        "texts",
        required=True,
    ),
    Key(
        "python",
        "Python's version, '3.12': the base distribution's own if it has that one, else a standalone "
        "CPython. Or {version: '3.12', from: base or standalone}.",
        values.PYTHON,
        "python",
        required=True,
    ),
    Key(
        "base", "What the image stands on: an image reference, or rootfs:debian/<suite>.", BASE, required=True
    ),
    Key(
        "cuda",
        "Where CUDA and cuDNN come from: base, wheels, none, or {from: wheels, packages: […]}.",
        values.PROVIDER,
        "provider",
        required=True,
    ),
    Key("pip", "Further Python requirements, as in requirements.txt.", REQUIREMENT, "texts", adds=True),
    Key("apt", "Further Debian packages, by name or name=version.", values.APT, "texts", adds=True),
    Key("env", "Environment variables of the image.", values.ENV_VALUE, "variables", adds=True),
    Key(
        "gpus",
        "GPUs that the image is claimed to work on: checked against the wheels, proven by reports.",
        values.GPU,
        "texts",
        adds=True,
    ),
    Key(
        "index",
        "Further package indexes by URL, for wheels such as PyTorch's cuNNN variants.",
        values.URL,
        "texts",
        adds=True,
    ),
    Key(
        "dependencies",
        "resolved (the default), or listed: install what is named and no more, as a freeze does.",
        values.DEPENDENCIES,
    ),
    Key(
        "from-source",
        "Packages to build where no wheel fits, by name: their setup code is run, shut in. One that is "
        "compiled has the Debian packages of its build: {psycopg2: [libpq-dev]}.",
        PROJECT,
        "builds",
        adds=True,
    ),
    Key(
        "profile",
        "plain (the default), or colab: Jupyter that Colab's page connects to as a local runtime.",
        values.PROFILE,
    ),
    Key("platform", "linux/amd64 unless said otherwise.", values.PLATFORM),
    Key(
        "variant",
        "Appended to the id, to tell cells apart that differ in nothing else that the id shows.",
        values.VARIANT,
    ),
)

PROVIDER = _by_name(
    Key("from", "base, wheels or none.", values.PROVIDER, required=True),
    Key(
        "packages",
        "Requirements on NVIDIA's wheels, where the framework does not pin them itself.",
        REQUIREMENT,
        "texts",
    ),
)

PYTHON = _by_name(
    Key(
        "version",
        "'3.12', or with the patch release of a standalone one, '3.12.4'.",
        values.PYTHON,
        required=True,
    ),
    Key(
        "from",
        "base: the distribution's own. standalone: an archive of python-build-standalone.",
        values.PYTHON_FROM,
    ),
)

OPTIONS = _by_name(
    Key("compression", "Of the image's layers; zstd by default.", values.COMPRESSION),
    Key(
        "strict-cudnn",
        "true: the loaded cuDNN must be the compiled one. By default: same major, minor not older.",
        values.FLAG,
    ),
    Key("max-size", "Budget of an image, unpacked: 6GB, 5.5GiB. A bigger image fails its cell.", values.SIZE),
    Key(
        "slim",
        "false: keep tests, static libraries and TensorFlow's headers of wheels. true by default.",
        values.FLAG,
    ),
)

PUBLISH = _by_name(
    Key(
        "staging",
        "Repository that images are verified in: where `publish` and `verify` look by default.",
        values.REPOSITORY,
    ),
    Key("repository", "Repository that images are published to by default.", values.REPOSITORY),
    Key("max-age", "How old a report may be that a publication stands on: 30d, 12h.", values.DURATION),
    Key(
        "aliases",
        "Further tags, each with a glob that matches the id of one cell: {latest: '*-py3.12-*'}.",
        values.GLOB,
        "variables",
    ),
    Key(
        "exempt",
        "GPUs of 'gpus' that cells are not published for: the claim is taken back, with a reason.",
        values.GPU,
        "texts",
    ),
)

EXEMPT = _by_name(
    Key("gpu", "A GPU out of 'gpus'.", values.GPU, required=True),
    Key("id", "Glob on the cells' ids; all without it.", values.GLOB),
    Key("reason", "Why these cells are not claimed for it.", values.PROSE, required=True),
)

HEAD = _by_name(
    Key("version", "Version of this format: 1.", values.FORMAT_VERSION, required=True),
    Key("name", "The matrix's name; by default the file's, without .yaml.", values.NAME),
    Key("description", "One line for people.", values.PROSE),
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
