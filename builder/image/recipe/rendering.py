"""Turns a lock into the text of a build context. Pure: no clock, no network, no disk but rtbuild's files.

A value gets into a template by the filter of its type, which checks and quotes it. A filter returns
:class:`Quoted`, and the template environment refuses to write anything else: a value that was forgotten here
cannot reach a file.
"""

import hashlib
import json
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core import resources
from builder.core.digests import digest_of
from builder.core.errors import CellError
from builder.core.model import Pinned, RegistryBase, RootfsBase, StandalonePython, Wheel
from builder.image.recipe import slim
from builder.image.recipe.values import Recipe, RecipeFile, RecipeSetting, RecipeStep
from builder.sources.oci import CELL_LABEL, INPUTS_LABEL, MATRIX_LABEL


class Quoted(str):
    """Text that may stand in a rendered file as it is."""

    __slots__ = ()


def _matching(kind: str, pattern: str, example: str) -> Callable[[object], Quoted]:
    compiled = re.compile(pattern)

    def check(value: object) -> Quoted:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise CellError(f"{value!r} is no {kind}", hint=f"a {kind} looks like {example}")
        return Quoted(value)

    return check


_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_CHECKS = {
    # https://www.debian.org/doc/debian-policy/ch-controlfields.html#source
    "apt_package": _matching(
        "Debian package",
        r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?",
        "libgomp1 or libgomp1=10.2.1-6",
    ),
    "compression": _matching("compression", r"zstd|gzip", "zstd"),
    # https://github.com/distribution/reference/blob/main/regexp.go
    "docker_tag": _matching("Docker tag", _TAG, "tensorflow2.8.4-cu118-py3.9"),
    # https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap08.html
    "env_name": _matching("name of a variable", r"[A-Za-z_][A-Za-z0-9_]*", "TF_CPP_MIN_LOG_LEVEL"),
    # https://docs.docker.com/engine/manage-resources/labels/#key-format-recommendations
    "label_name": _matching("label", r"[a-z0-9]+(?:[.-][a-z0-9]+)*", "org.opencontainers.image.title"),
    "out_folder": _matching("folder below /out", r"[a-z]+(?:-[a-z]+)*", "environment"),
    "platform": _matching("platform", r"[a-z0-9]+/[a-z0-9]+(?:/[a-z0-9]+)?", "linux/amd64"),
    # https://packaging.python.org/en/latest/specifications/name-normalization/#name-format
    "project": _matching("package", r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", "numpy"),
    "python_folder": _matching("folder of a Python", r"(?:/[a-z]+)+/bin", "/usr/bin"),
    "python_version": _matching("Python version", r"3\.(?:0|[1-9][0-9]?)", "3.9"),
    "release": _matching("version of a package", r"[A-Za-z0-9](?:[A-Za-z0-9._+!-]*[A-Za-z0-9])?", "1.23.5"),
    "sha256": _matching("SHA-256 in hexadecimal", r"[0-9a-f]{64}", "9f86d081… (64 characters)"),
    # https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-format
    "wheel_file": _matching(
        "name of a wheel's file",
        r"[A-Za-z0-9][A-Za-z0-9._+!]*(?:-[A-Za-z0-9._+!]+){4,5}\.whl",
        "numpy-1.23.5-cp39-cp39-manylinux_2_17_x86_64.whl",
    ),
}
env_name, label_name, python_version = (_CHECKS[n] for n in ("env_name", "label_name", "python_version"))
_user = _matching("user and group", r"\d+:\d+", "1000:1000")
_option = _matching("option of an instruction", r"[a-z]+(?:-[a-z]+)*", "start-period")
_place = _matching("path of a file", r"/?[\w.-]+(?:/[\w.-]+)*", "/mnt/expect.json")
_digest = _matching("digest", r"sha256:[0-9a-f]{64}", "sha256:9f86d081… (64 characters)")
_reference = _matching(
    "image reference",
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::{_TAG})?",
    "nvidia/cuda:11.8.0-base-ubuntu22.04",
)


def image(reference: str, digest: str) -> Quoted:
    """``name:tag@sha256:…``: the tag is for people, the digest is what is taken.

    https://github.com/distribution/reference/blob/main/reference.go
    """
    return Quoted(f"{_reference(reference.partition('@')[0])}@{_digest(digest)}")


def epoch(value: object) -> Quoted:
    """Seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 35:
        raise CellError(f"{value!r} is no date in seconds since 1970", hint="lock the matrix again")
    return Quoted(str(value))


def value(text: str) -> Quoted:
    r"""A value of ``ENV`` or ``LABEL``, in double quotes, that means exactly ``text``.

    Between double quotes a Dockerfile gives a meaning to ``"``, ``$`` and ``\``, and to no other character:
    https://docs.docker.com/reference/dockerfile/#environment-replacement
    """
    return Quoted('"' + re.sub(r'(["$\\])', r"\\\1", _printable(text)) + '"')


def run(step: RecipeStep) -> Quoted:
    """A step as the instruction ``RUN``, without its last newline."""
    if "EOF" in step.script.splitlines() or not step.script.endswith("\n"):
        raise CellError(f"the script of the step {step.name} cannot stand in a Dockerfile")
    mounts = "".join(
        f" \\\n    --mount=type=bind,source={_place(source)},target={_place(target)}"
        for source, target in step.files
    )
    return Quoted(f"RUN --network=none{mounts} <<'EOF'\n{step.script}EOF")


def setting(one: RecipeSetting) -> Quoted:
    """A change of the image's config as the instruction of the same name."""
    match one.kind:
        case "ENV":
            return Quoted(f"ENV {env_name(one.name)}={value(str(one.value))}")
        case "LABEL":
            return Quoted(f"LABEL {label_name(one.name)}={value(str(one.value))}")
        case "USER":
            return Quoted(f"USER {_user(one.value)}")
        case "HEALTHCHECK":
            options = " ".join(f"--{_option(name)}={seconds:d}s" for name, seconds in one.durations)
            return Quoted(f"HEALTHCHECK {options} \\\n    CMD {_words(one)}")
        case _:  # CMD, ENTRYPOINT
            return Quoted(f"{one.kind} {_words(one)}")


def _words(one: RecipeSetting) -> str:
    return json.dumps([_printable(word) for word in one.value], ensure_ascii=False)


def comment(text: str) -> Quoted:
    """Text on a line that a ``#`` begins, and in README.txt."""
    return Quoted(_printable(text))


def index_url(text: str) -> Quoted:
    """The address of a package index, on a line of its own in ``requirements.txt``."""
    parts = urlsplit(_printable(text))
    if parts.scheme not in {"http", "https"} or not parts.hostname or not re.fullmatch("[!-~]+", text):
        raise CellError(
            f"{text!r} is no address of a package index", hint="it looks like https://host/simple"
        )
    if "@" in parts.netloc or "$" in text or "#" in text:
        # pip replaces ${NAME} in requirements.txt by the environment's value.
        raise CellError(
            f"the address of the package index at {parts.hostname} holds credentials, '$' or '#'",
            hint="credentials belong into pip's configuration, which reaches the build as a secret",
        )
    return Quoted(text)


def _printable(text: object) -> str:
    if not isinstance(text, str):
        raise CellError(f"{text!r} is no text")
    if text.isprintable():  # the same categories, and spaces other than the plain one
        return text
    for position, character in enumerate(text):
        if unicodedata.category(character).startswith(("C", "Zl", "Zp")):
            raise CellError(
                f"{text!r} holds the control character U+{ord(character):04X} at position {position + 1}",
                hint="a value in a Dockerfile is one line of visible text",
            )
    return text


FILTERS: Mapping[str, Callable[..., Quoted]] = {
    **_CHECKS,
    "comment": comment,
    "epoch": epoch,
    "image": image,
    "index_url": index_url,
    "run": run,
    "setting": setting,
    "value": value,
}
"""All that the templates may use."""
_guard = threading.Lock()


def only_quoted(value: object) -> Quoted:
    """Jinja's ``finalize``: called with every value that a template writes. A bug in it is a TypeError."""
    if not isinstance(value, Quoted):
        raise TypeError(f"a template writes {value!r}, which no filter has checked and quoted")
    return value


@cache
def environment() -> Any:
    """An undefined name, a None and a value without its filter are errors; nothing is filled in."""
    import jinja2  # a tenth of a second, which a program that renders nothing need not pay

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        auto_reload=False,  # nobody changes them while rtbuild runs: no question for their dates at each use
        undefined=jinja2.StrictUndefined,
        finalize=only_quoted,
        autoescape=False,  # noqa: S701 - not HTML; every value is quoted by the filter of its type
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.clear()
    made.filters.update(FILTERS)
    return made


def fill(name: str, values: Mapping[str, Any]) -> str:
    """The template ``name`` with ``values`` in it; it is compiled once, whichever threads ask for it."""
    with _guard:
        template = environment().get_template(name)
    return str(template.render(values))


ROOTFS = "rootfs.tar"
PYTHON = "python.tar"
_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Asks NVIDIA's container runtime for the driver, as NVIDIA's own images do:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"""

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Docker's and BuildKit's for an image without the setting: https://docs.docker.com/engine/containers/run/"""
_PYTHON = ("/opt/runtime/bin/python", "-I", "-m")
LAYERS = ("interpreter", "bytecode", "environment", "probe", "profile", "writable")
"""All that steps may make, in the order of an image's layers."""


def render(pinned: Pinned, *, probe: bytes, version: str) -> Recipe:
    """The build context of ``pinned``. ``probe`` is ``cudnn-verify``; ``version`` is rtbuild's own.

    The recipe's ``inputs`` stands in the Dockerfile as a label, so it is taken over the files as they are
    with zeros in that place.

    Raises CellError if a value cannot stand in a Dockerfile, or the lock lacks what a recipe needs.
    """
    pip = pip_of(pinned)
    blobs: dict[str, RootfsBase | StandalonePython | Wheel] = {pip.file: pip}
    blobs |= {f"built/{wheel.file}": wheel for wheel in pinned.wheels if wheel.source is not None}
    if isinstance(pinned.base, RootfsBase):
        blobs[ROOTFS] = pinned.base
    if pinned.python is not None:
        blobs[PYTHON] = pinned.python
    values = _values(pinned, pip, version=version)
    values["settings"] = tuple(_settings_of(pinned, version=version, inputs="sha256:" + "0" * 64))
    files = _files(pinned, values, probe=probe)
    described = {name: [hashlib.sha256(one.content).hexdigest(), one.mode] for name, one in files.items()}
    inputs = digest_of({"lock": pinned.inputs, "files": described})
    values["settings"] = tuple(_settings_of(pinned, version=version, inputs=inputs))
    return Recipe(
        cell=pinned.cell,
        pinned=pinned,
        files=files | {"Dockerfile": _text("Dockerfile.j2", values)},
        blobs=blobs,
        inputs=inputs,
        steps=tuple(values["steps"].values()),
        added=values["added"],
        settings=values["settings"],
    )


def pip_of(pinned: Pinned) -> Wheel:
    """The pip of a lock, which every image carries. Raises CellError for a lock without one."""
    for wheel in pinned.wheels:
        if canonicalize_name(wheel.name) == "pip":
            return wheel
    raise CellError(
        f"{pinned.cell.id}: the lock holds no pip, which installs the other wheels",
        hint="lock the matrix again with this rtbuild: `rtbuild lock`",
    )


def _values(pinned: Pinned, pip: Wheel, *, version: str) -> dict[str, Any]:
    cell, base = pinned.cell, pinned.base
    values = {
        "apt": pinned.apt,
        "base": base,
        "built": any(wheel.source is not None for wheel in pinned.wheels),
        "cell": cell,
        "colab": cell.profile == "colab",
        "cudnn8": pinned.has_cudnn8,
        "epoch": pinned.epoch,
        "installs": pinned.installs,
        # https://peps.python.org/pep-0632/
        "needs_distutils": int(python_version(cell.python).partition(".")[2]) < 12,
        "nvidia_wheels": cell.cuda.provider == "wheels" and pinned.has_nvidia_folders,
        "pip": pip.file,
        # A standalone one is laid out by `builder.image.compose.systems`.
        "python_folder": "/usr/bin" if pinned.python is None else "/opt/python/bin",
        "registry": isinstance(base, RegistryBase),
        "slim": cell.options.slim,
        "standalone": pinned.python,
        "title": _title(pinned),
        "version": version,
        "wheels": sorted(pinned.wheels, key=lambda wheel: (canonicalize_name(wheel.name), wheel.version)),
    }
    steps = _steps_of(pinned, values)
    made = {folder for step in steps for folder in step.makes}
    return {
        **values,
        "steps": {step.name: step for step in steps},
        "added": tuple(folder for folder in LAYERS if folder in made),
    }


def _files(pinned: Pinned, values: Mapping[str, Any], *, probe: bytes) -> dict[str, RecipeFile]:
    cell, root = pinned.cell, resources.runtime()
    runtime = sorted(root.rglob("*.py")) if cell.profile == "colab" else []
    return {
        ".dockerignore": _text("dockerignore.j2", values),
        "Dockerfile": _text("Dockerfile.j2", values),
        "README.txt": _text("README.txt.j2", values),
        "cudnn-verify": RecipeFile(content=probe, mode=0o755),
        "expect.json": RecipeFile(content=expectation(pinned)),
        "requirements.txt": _text("requirements.txt.j2", values),
        **({"slim.py": RecipeFile(content=Path(slim.__file__).read_bytes())} if cell.options.slim else {}),
        **{
            f"runtime/{path.relative_to(root).as_posix()}": RecipeFile(content=path.read_bytes())
            for path in runtime
        },
    }


def _text(template: str, values: Mapping[str, Any]) -> RecipeFile:
    return RecipeFile(content=fill(template, values).encode())


def _steps_of(pinned: Pinned, values: Mapping[str, Any]) -> tuple[RecipeStep, ...]:
    """The steps in the order in which they run; ``values`` are those of the templates."""
    steps = [_step("interpreter", values)] if pinned.python is not None else []
    steps += [
        _step("environment", values, reads="libraries" if values["nvidia_wheels"] else None),
        _step("bytecode", values, reads="sources"),
        _step(
            "probe",
            values,
            files=(("cudnn-verify", "/mnt/cudnn-verify"), ("expect.json", "/mnt/expect.json")),
        ),
    ]
    if values["colab"]:
        steps.append(
            _step(
                "profile",
                values,
                makes=("profile", "writable"),
                files=(("runtime", "/mnt/runtime"),),
                needs=("bytecode", "environment"),
                reads="libraries",
            )
        )
    return tuple(steps)


def _step(name: str, values: Mapping[str, Any], *, makes: tuple[str, ...] = (), **given: Any) -> RecipeStep:
    return RecipeStep(name=name, script=fill(f"{name}.sh.j2", values), makes=makes or (name,), **given)


def _settings_of(pinned: Pinned, *, version: str, inputs: str) -> Iterator[RecipeSetting]:
    """The image's config, in the order in which a Dockerfile says it."""
    for name, text in _env(pinned):
        yield RecipeSetting(kind="ENV", name=name, value=text)
    if pinned.cell.profile == "colab":
        yield RecipeSetting(kind="USER", value="1000:1000")
        yield RecipeSetting(
            kind="HEALTHCHECK",
            value=(*_PYTHON, "rtbuild_runtime.health"),
            durations=(("interval", 30), ("timeout", 10), ("start-period", 60)),
        )
        yield RecipeSetting(kind="ENTRYPOINT", value=("/usr/bin/tini", "-s", "--"))
        yield RecipeSetting(kind="CMD", value=(*_PYTHON, "rtbuild_runtime"))
    elif not isinstance(pinned.base, RegistryBase):
        yield RecipeSetting(kind="CMD", value=("bash",))
    for name, text in _labels(pinned, version=version, inputs=inputs):
        yield RecipeSetting(kind="LABEL", name=name, value=text)


def _env(pinned: Pinned) -> Iterator[tuple[str, str]]:
    cell, base = pinned.cell, pinned.base
    there: Mapping[str, str] = dict(base.env) if isinstance(base, RegistryBase) else {}
    chosen = dict(cell.env)
    yield "PATH", f"/opt/runtime/bin:{there.get('PATH') or USUAL_PATH}"
    yield "CUDNN_VERIFY_EXPECT", "/usr/local/share/rtbuild/expect.json"
    if cell.cuda.provider == "wheels":
        yield from ((name, text) for name, text in _GPU_VARIABLES.items() if name not in {**there, **chosen})
    if cell.profile == "colab" and "HOME" not in chosen:
        yield "HOME", "/home/colab"  # also for a user of `--user` who is not in /etc/passwd
    yield from cell.env


def _labels(pinned: Pinned, *, version: str, inputs: str) -> Iterator[tuple[str, str]]:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md and rtbuild's own."""
    cell, base = pinned.cell, pinned.base
    if isinstance(base, RegistryBase):
        yield "org.opencontainers.image.base.digest", base.digest
        yield "org.opencontainers.image.base.name", base.reference
    yield "org.opencontainers.image.title", _title(pinned)
    yield "org.opencontainers.image.version", cell.id
    yield CELL_LABEL, cell.id
    yield MATRIX_LABEL, cell.matrix
    if cell.profile != "plain":
        yield "io.rtbuild.profile", cell.profile
    yield "io.rtbuild.version", version
    yield INPUTS_LABEL, inputs


def _title(pinned: Pinned) -> str:
    """The title of an image, for people: frameworks, Python and base."""
    cell = pinned.cell
    parts = [text.replace("==", " ") for text in cell.frameworks]
    version = cell.python if pinned.python is None else pinned.python.version
    return ", ".join([*parts, f"Python {version}", str(cell.base)])


def expectation(pinned: Pinned) -> bytes:
    """``expect.json``: what the lock says is in the image. The probe reads it there and compares.

    ``null`` stands for what is not known before the image is built.
    """
    cell = pinned.cell
    packages: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in pinned.wheels}
    names = [canonicalize_name(Requirement(text).name) for text in cell.frameworks]
    cuda, cudnn = _versions(pinned, packages)
    document = {
        "schema": 1,
        "cell": cell.id,
        "python": cell.python if pinned.python is None else pinned.python.version,
        "frameworks": {name: packages[name] for name in names if name in packages},
        "cuda": {"provider": cell.cuda.provider, "version": cuda},
        "cudnn": cudnn,
        "strict": cell.options.strict_cudnn,
        "packages": dict(sorted(packages.items())),
        **({"compilers": True} if cell.compilers else {}),
        **({"imports": list(cell.imports)} if cell.imports else {}),
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _versions(pinned: Pinned, packages: Mapping[str, str]) -> Iterator[str | None]:
    """CUDA as ``11.8`` and cuDNN as ``8.6.0``, as their provider says; None if it does not.

    None, too, if a wheel brings another version than the base, as on Colab: each framework then has its own
    way to one of the two copies.
    """
    # From CUDA 13 on, NVIDIA's wheels other than cuDNN's carry no `-cuNN`.
    for variable, name, count in (
        ("CUDA_VERSION", r"nvidia-cuda-runtime(?:-cu\d+)?", 2),
        ("NV_CUDNN_VERSION", r"nvidia-cudnn(?:-cu\d+)?", 3),
    ):
        named = (version for package, version in sorted(packages.items()) if re.fullmatch(name, package))
        wheel = first_parts(next(named, None), count)
        match pinned.cell.cuda.provider:
            case "base":
                said = pinned.base.variable(variable) if isinstance(pinned.base, RegistryBase) else None
                base = first_parts(said, count)
                yield base if wheel in (None, base) else None
            case "wheels":
                yield wheel
            case "none":
                yield None


def first_parts(version: str | None, count: int) -> str | None:
    """The first numbers of a version: ``8.6.0`` of ``8.6.0.163-1+cuda11.8``."""
    numbers = re.match(r"\d+(?:\.\d+)*", version or "")
    return ".".join(numbers[0].split(".")[:count]) if numbers else None
