"""A Colab runtime by its published lists, pip freeze, apt list and OS info; and a fresh one, on which the
probe runs by Google's own command line, ``google-colab-cli``.

A line that its tool does not print is a :class:`Problem` with its place, and reading goes on.

``colab run --gpu T4 --timeout SECONDS SCRIPT`` runs a script in the kernel of a machine that is released
afterwards, and ends with the script's own exit code. The kernel has no file of the script, so the script
brings the probe along and starts it. As read in version 0.7.5, ``colab_cli/commands/run.py``:
https://github.com/googlecolab/google-colab-cli
"""

import base64
import datetime
import json
import os
import re
import subprocess
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import MalformedError, parse_object, read_file, redact, shown
from builder.core.errors import CellError, MissingToolError, UsageError
from builder.core.files import write_whole
from builder.core.versions import key
from builder.sources.index import wheel_name
from builder.verify.runner import EXIT_CODES, ProbeDocument, parse

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PINNED = re.compile(rf"(?P<name>{_NAME})==(?P<version>[^\s;#]+)")
_DIRECT = re.compile(rf"(?P<name>{_NAME}) @ (?P<url>\S+)")
_EDITABLE = re.compile(r"-e (?P<url>\S+?)(?:#egg=(?P<name>[A-Za-z0-9._-]+))?")
# `name/suite[,suite…] version architecture [state]`, as apt 2 prints it.
_APT = re.compile(r"(?P<name>[a-z0-9][a-z0-9+.-]+)/\S+ (?P<version>\S+) \S+ \[(?P<state>[^\]]+)\]")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line that could not be read."""

    file: str
    line: int
    text: str
    message: str

    def __str__(self) -> str:
        text = shown(redact(self.text), most=200)
        return f"{self.file}:{self.line}: error: {self.message}\n  {self.line} | {text}"


@dataclass(frozen=True, kw_only=True, order=True)
class PipPackage:
    name: str
    """As written; compare :attr:`key`."""
    version: str | None
    """None for a repository or a folder."""
    line: int
    url: str | None = None
    kind: Literal["pinned", "wheel", "file", "vcs", "url"] = "pinned"
    """``wheel``: a wheel by its web address. ``url``: anything else on the web."""

    @property
    def key(self) -> str:
        return canonicalize_name(self.name)


@dataclass(frozen=True, kw_only=True)
class AptPackage:
    version: str
    manual: bool
    """False if it was installed as a dependency of another package."""


def parse_freeze(text: str, file: str) -> tuple[tuple[PipPackage, ...], tuple[Problem, ...]]:
    """The packages of a ``pip freeze``, in its order, and the unreadable lines."""
    found: dict[str, PipPackage] = {}
    problems: list[Problem] = []
    for number, line in _lines(text):
        read = _package(line, number)
        if not isinstance(read, str) and read.key in found:
            read = f"'{read.name}' is listed twice, for the first time in line {found[read.key].line}"
        if isinstance(read, str):
            problems.append(Problem(file=file, line=number, text=line, message=read))
        else:
            found[read.key] = read
    return tuple(found.values()), tuple(problems)


def _lines(text: str) -> list[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _package(line: str, number: int) -> PipPackage | str:
    if found := _PINNED.fullmatch(line):
        try:
            version = str(Version(found["version"]))
        except ValueError:  # Python reads no number of more than 4,300 digits
            return f"'{shown(found['version'], most=80)}' is no version of a Python package"
        return PipPackage(name=found["name"], version=version, line=number)
    if found := _DIRECT.fullmatch(line):
        return _direct(found["name"], found["url"], number)
    if found := _EDITABLE.fullmatch(line):
        if found["name"] is None:
            return "an editable installation that does not say its name"
        return PipPackage(name=found["name"], version=None, line=number, url=found["url"], kind="vcs")
    return "neither 'name==version' nor 'name @ address': pip cannot read this line either"


def _direct(name: str, url: str, number: int) -> PipPackage | str:
    try:
        bare = urldefrag(url).url
        scheme = urlsplit(bare).scheme
    except ValueError as error:
        return f"'{shown(url, most=80)}' is no address: {error}"
    version = _version_of(unquote(bare.rpartition("/")[2]))
    kind: Literal["wheel", "url", "file"] = "wheel" if bare.endswith(".whl") and version else "url"
    if "+" in scheme:
        return PipPackage(name=name, version=None, line=number, url=url, kind="vcs")
    if scheme not in {"http", "https", "file"}:
        return f"'{shown(url, most=80)}' is no address that pip understands"
    kind = "file" if scheme == "file" else kind
    return PipPackage(name=name, version=version, line=number, url=url, kind=kind)


def _version_of(file: str) -> str | None:
    """``2.6.0+cu124`` of ``torch-2.6.0+cu124-cp311-cp311-linux_x86_64.whl``, ``1.0.0`` of an sdist."""
    wheel = wheel_name(file)
    if wheel is not None:
        return str(wheel.version)
    sdist = re.fullmatch(r".+-(\d[^-]*)\.(?:tar\.gz|zip)", file)
    try:
        return str(Version(sdist[1])) if sdist else None
    except ValueError:
        return None


def parse_apt(text: str, file: str) -> tuple[Mapping[str, AptPackage], tuple[Problem, ...]]:
    """The packages of an ``apt list --installed``, and the unreadable lines."""
    found: dict[str, AptPackage] = {}
    problems: list[Problem] = []
    for number, line in _lines(text):
        if read := _APT.fullmatch(line):
            states = read["state"].split(",")
            manual = states[0] == "installed" and "automatic" not in states
            found[read["name"]] = AptPackage(version=read["version"], manual=manual)
        elif line != "Listing..." and not line.startswith("WARNING: apt "):
            message = "not a line of 'apt list --installed'"
            problems.append(Problem(file=file, line=number, text=line, message=message))
    return found, tuple(problems)


def parse_system(text: str, file: str) -> tuple[str | None, str | None, tuple[Problem, ...]]:
    """The distribution (``Ubuntu 22.04.4``) and the Python of an OS info; R and Julia are skipped."""
    distribution = python = None
    problems: list[Problem] = []
    for number, line in _lines(text):
        if found := re.fullmatch(r"(Ubuntu|Debian GNU/Linux) (\d+(?:\.\d+)*)\b.*", line):
            distribution = f"{found[1]} {found[2]}"
        elif found := re.fullmatch(r"Python (\d+\.\d+\.\d+)\S*", line):
            python = found[1]
        elif not re.match(r"(R version|julia version) ", line):
            message = "neither a distribution nor the version of Python, R or Julia"
            problems.append(Problem(file=file, line=number, text=line, message=message))
    return distribution, python, tuple(problems)


REPOSITORY = "googlecolab/backend-info"
"""The repository of Google's lists, under Apache-2.0: https://github.com/googlecolab/backend-info"""

# The list, by its names over the years: https://github.com/googlecolab/backend-info/commits
FREEZE = ("pip-freeze.gpu.txt", "pip-freeze.txt")
APT = ("apt-list-gpu.txt", "apt-list.txt")
SYSTEM = ("os-info-gpu.txt", "os-info.txt")

# Runtimes that a notebook can be pinned to, and the commit of each:
# https://github.com/googlecolab/backend-info/blob/main/README.md
NAMED: Mapping[str, str] = {
    "2025.07": "ef1cba030a9f7a39bf42912a42f6462d6d4908e8",
    "2025.10": "7a0599e3401b4c158fc34a8023e042fa3691be32",
    "2026.01": "bd8aaa4580401a7fbf96a52fab5a7acf96f50b73",
    "2026.04": "77d5dbef56d73b96db5efef2280679cb548c9bd9",
    "2026.07": "ec53f93fe44a9cab118dc5451527b18e36e1a643",
}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    name: str
    commit: str | None
    """The commit of :data:`REPOSITORY`; None for files from elsewhere."""
    system: str | None
    """``Ubuntu 22.04.4``."""
    python: str
    """``3.11.13``."""
    cuda: str | None
    """The toolkit that apt installed, ``12.5.1``."""
    cudnn: str | None
    """The cuDNN that apt installed, ``9.2.1.18``; the wheels may bring another."""
    packages: tuple[PipPackage, ...]
    apt: Mapping[str, AptPackage]
    problems: tuple[Problem, ...] = ()
    """Lines that could not be read."""

    @property
    def python_minor(self) -> str:
        return ".".join(self.python.split(".")[:2])


def read_runtime(
    source: Path | None,
    *,
    at: str | None = None,
    freeze: Path | None = None,
    apt: Path | None = None,
    system: Path | None = None,
    name: str | None = None,
    python: str | None = None,
) -> Runtime:
    """The runtime that a folder, a git checkout at a commit, or single files describe.

    ``at`` is a commit, a date (``2024-07-15``: the lists as they were at its end, in UTC), or the name of a
    past runtime (``2025.07``); it needs a checkout of the repository.
    ``python`` stands in for an OS info that is not there, as before August 2023. Single files win.

    Raises:
        UsageError: a list is not there or cannot be read, or nothing says which Python the runtime has.
    """
    dated = at if at and _DATE.fullmatch(at) else None
    if source is not None and not source.is_dir():
        hint = "name one that holds the lists: git clone https://github.com/googlecolab/backend-info"
        raise UsageError(f"{source} is no folder", hint=hint)
    commit = _commit_of(source, at) if at else None
    lists = ((freeze, FREEZE), (apt, APT), (system, SYSTEM))
    texts = [_read(given, names, source, commit) for given, names in lists]
    if texts[0] is None:
        raise UsageError(
            f"there is no pip freeze in {source or 'the files given'}: looked for {' and '.join(FREEZE)}",
            hint=f"name a folder or a checkout of github.com/{REPOSITORY}, or the file by --freeze",
        )
    packages, problems = parse_freeze(*texts[0])
    listed, more = parse_apt(*texts[1]) if texts[1] else ({}, ())
    distribution, known, rest = parse_system(*texts[2]) if texts[2] else (None, None, ())
    if not packages:
        said = "\n".join([f"{texts[0][1]} names no package", *map(str, problems[:5])])
        raise UsageError(said, hint="is it the output of `pip freeze`?")
    version = python or known
    if version is None or not re.fullmatch(r"3\.\d{1,3}(\.\d{1,3})?", version):
        said = "nothing says which Python the runtime has" if version is None else f"'{version}' is no Python"
        raise UsageError(said, hint=f"give its OS info ({' or '.join(SYSTEM)}), or --python 3.11")
    place = source.resolve().name if source is not None else Path(texts[0][1]).stem
    month = next((month for month, named in NAMED.items() if named == commit), None)
    return Runtime(
        name=name or month or dated or (commit[:12] if commit else place),
        commit=commit,
        system=distribution,
        python=version,
        # The newest toolkit: Colab has had several side by side.
        cuda=_newest(listed, r"cuda-(?:libraries|command-line-tools)-\d+-\d+", r"\d{1,9}\.\d{1,9}\.\d{1,9}"),
        cudnn=_newest(listed, r"libcudnn\d+(?:-cuda-\d+)?", r"\d{1,9}(?:\.\d{1,9}){2,3}"),
        packages=packages,
        apt=listed,
        problems=(*problems, *more, *rest),
    )


def _read(
    given: Path | None, names: tuple[str, ...], source: Path | None, commit: str | None
) -> tuple[str, str] | None:
    """A list's text, and its name for messages; None if it is not there. Raises UsageError."""
    if given is None and source is not None and commit is not None:
        # bare or not: a work tree is left alone
        shown = ((_git(source, "show", f"{commit}:{name}"), name) for name in names)
        return next(((done.stdout, name) for done, name in shown if done.returncode == 0), None)
    places = [(source / name, name) for name in names] if source is not None else []
    for path, name in places if given is None else [(given, str(given))]:
        try:
            return path.read_text(encoding="utf-8"), name
        except (OSError, UnicodeDecodeError) as error:
            if given is not None or not isinstance(error, FileNotFoundError):
                raise UsageError(f"{path} cannot be read: {error}") from error
    return None


def _commit_of(folder: Path | None, at: str) -> str:
    """A commit of a clone: its own name, a past runtime's, or the last one up to the end of a day in UTC."""
    if _DATE.fullmatch(at):
        try:
            datetime.date.fromisoformat(at)
        except ValueError as error:
            said = f"'{at}' is no date: {error}"
            raise UsageError(said, hint="year, month and day, as in 2024-07-15") from error
        done = _git(folder, "rev-list", "-1", f"--before={at}T23:59:59Z", "HEAD")
        if done.returncode != 0:
            said = f"{folder or 'this folder'} is no clone in which a date could be looked up"
            raise UsageError(said, hint=f"clone github.com/{REPOSITORY}")
        if not done.stdout.strip():
            raise UsageError(f"{folder} has no commit up to {at}", hint="its lists begin later")
        return done.stdout.strip()
    commit = NAMED.get(at, at)
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        said = f"'{commit}' is neither a commit, nor a date, nor a past runtime"
        raise UsageError(said, hint=f"2024-07-15, or one of: {', '.join(NAMED)}")
    words = ("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if folder is not None and _git(folder, *words).returncode != 0:
        hint = f"a full clone of github.com/{REPOSITORY} has it"
        raise UsageError(f"{folder} has no commit {commit}", hint=hint)
    return commit


def _git(folder: Path | None, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask a clone, which may be anybody's: of what it lacks, its own settings name a program that gets it."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env={**os.environ, "GIT_ALLOW_PROTOCOL": "none"},
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", hint="or name a folder that holds the lists") from error


def _newest(listed: Mapping[str, AptPackage], name: str, version: str) -> str | None:
    found = [
        number[0]
        for package, row in listed.items()
        if re.fullmatch(name, package) and (number := re.match(version, row.version))
    ]
    return max(found, key=key, default=None)


ColabGpu = Literal["T4", "L4", "G4", "A100", "H100"]
"""Cards that ``colab run --gpu`` takes."""
Login = Literal["oauth2", "adc"]
"""Ways of logging in that ``colab --auth`` takes."""
ABOUT = "a runtime of Google Colab"
_REPORT = re.compile(r"^rtbuild-report-begin$\n((?:[A-Za-z0-9+/=]+\n)+)^rtbuild-report-end$", re.MULTILINE)
_SCRIPT = """\
import base64, os, subprocess, sys, tempfile, textwrap, zlib

def lay(name, text):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(zlib.decompress(base64.b64decode(text)))
    return path

folder = tempfile.mkdtemp()
command = [sys.executable, lay("cudnn_verify.py", "{probe}"), "--json"]
if "{older}":
    command += ["--compare", lay("older.json", "{older}")]
done = subprocess.run(command, stdout=subprocess.PIPE)
print("rtbuild-report-begin")
print("\\n".join(textwrap.wrap(base64.b64encode(zlib.compress(done.stdout)).decode(), 20000)))
print("rtbuild-report-end")
sys.exit(done.returncode)
"""


def probe_runtime(
    gpu: ColabGpu, *, probe: bytes, older: dict[str, Any] | None, login: Login | None, seconds: int
) -> tuple[ProbeDocument, dict[str, Any]]:
    """The report on a fresh runtime with this card, which is released, and the same as the probe printed it.

    With ``older``, a report to compare with, it has ``changes``: ``what``, ``before`` and ``now`` of each.

    Raises:
        MissingToolError: the command line is not installed, nobody is logged in, Colab has no such card, or
            the probe did not end in ``seconds``.
    """
    with tempfile.TemporaryDirectory(prefix="rtbuild-colab-") as folder:
        script = Path(folder, "rtbuild_probe.py")
        script.write_text(_script(probe, older))
        auth = ["--auth", login] if login else []
        command = ["colab", *auth, "run", "--gpu", gpu, "--timeout", str(seconds), str(script)]
        try:
            done = subprocess.run(
                # no input: without a login it would wait for somebody to paste one
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                errors="replace",
                check=False,
                timeout=seconds + 600,
            )
        except FileNotFoundError as error:
            hint = "uv tool install google-colab-cli (Python 3.12 or later), and log in: colab usage"
            raise MissingToolError("Google's `colab` command line is not installed", hint=hint) from error
        except subprocess.TimeoutExpired as error:
            hint = "the runtime may still be there: colab sessions, colab stop"
            raise MissingToolError(f"`colab run` did not end in {seconds + 600} s", hint=hint) from error
    found = _REPORT.search(done.stdout)
    if found is None:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise MissingToolError(
            f"`colab run --gpu {gpu}` ended with {done.returncode} and no report: "
            + shown(said[-1] if said else "it said nothing"),
            hint="does `colab run --gpu T4` work here, and is somebody logged in? colab usage",
        )
    return _report(found[1], done.returncode)


def _script(probe: bytes, older: dict[str, Any] | None) -> str:
    def packed(content: bytes) -> str:
        return base64.b64encode(zlib.compress(content, 9)).decode()

    wanted = older and {name: older.get(name) for name in ("verdict", "cause", "fingerprint")}
    return _SCRIPT.format(probe=packed(probe), older=packed(json.dumps(wanted).encode()) if wanted else "")


def _report(text: str, code: int) -> tuple[ProbeDocument, dict[str, Any]]:
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text), 16 << 20)
        report, document = parse(content), parse_object(content)
    except (CellError, ValueError, zlib.error) as error:
        raise MissingToolError(f"what came back from Colab is no report: {shown(str(error))}") from error
    if EXIT_CODES.get(report.verdict) != code:
        raise MissingToolError(f"the report says {report.verdict}, and `colab run` ended with {code}")
    return report, document


def save(report: dict[str, Any], path: Path, *, gpu: ColabGpu, at: datetime.datetime) -> None:
    """Write what :func:`load` reads: no report on an image, and nothing that publishes takes it for one."""
    moment = at.isoformat(timespec="seconds")
    document = {"schema": 1, "about": ABOUT, "gpu": gpu, "at": moment, "report": report}
    write_whole(path, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def load(path: Path) -> dict[str, Any]:
    """The probe's report in a file that :func:`save` wrote. Raises UsageError."""
    try:
        document = parse_object(read_file(path))
        report = document["report"]
        if document["about"] != ABOUT or not isinstance(report["fingerprint"], dict):
            raise UsageError(f"{path} is about something else than {ABOUT}")
    except FileNotFoundError as error:
        raise UsageError(f"there is no {path}", hint="leave --compare out the first time") from error
    except (OSError, MalformedError, LookupError, TypeError) as error:
        raise UsageError(f"{path} is no report on {ABOUT}: {shown(repr(error))}") from error
    return dict(report)
