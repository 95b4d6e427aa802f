"""The end of a build: its wheel checked, its libraries found, its bytes made the same on every machine; and
advice about a build that failed, by the usual messages of such builds.

Entries are sorted, dated 1980-01-02 and stored uncompressed, because deflate's output depends on the
machine's zlib. https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import base64
import csv
import email.parser
import hashlib
import io
import posixpath
import re
import stat
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.core.documents import shown
from builder.core.elf import ELF_MACHINES, elf_machine, reader_of
from builder.core.errors import CellError
from builder.core.model import Sdist
from builder.image.compose import FOLDER
from builder.image.layers import Archive
from builder.plan.facts.reading import needs_of
from builder.plan.facts.tables import load
from builder.sources.index import takes

Content = Mapping[str, tuple[bytes, bool]]

_ANY = {"py3-none-any", "py2-none-any"}
_NAMED = 8
"""Greatest number of different files in an error."""
_HINT = (
    "pin another version of it, name an index that has a wheel (`index:`), or leave it out of 'from-source'"
)
_NO_LIBRARY = "pin another version of it, or name an index that has a wheel (`index:`)"


def members(path: Path, most: int) -> Content:
    """Content of every file by name, and whether it is executable; ``most`` bytes in all.

    CellError for a zip that is larger, hostile or damaged.
    """
    with Archive(path) as archive:
        if sum(member.size for member in archive.members.values()) > most:
            raise archive.error(f"unpacks to more than {most >> 20} MiB")
        rows = archive.members.items()
        return {name: (archive.read(name, most=most), member.executable) for name, member in rows}


def refuse_other(
    path: Path, content: Content, sdist: Sdist, python: str, *, fitting: Collection[Tag] | None = None
) -> None:
    """Raise CellError unless this is a wheel of that name and version, for that Python.

    A pure one if ``fitting`` is None; else one that has these tags.
    """
    what = f"{sdist.file} was built to {path.name}, which"
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except ValueError as problem:
        raise CellError(f"{what} is no name of a wheel: {problem}", hint=_HINT) from problem
    _refuse_name(what, name, str(version), sdist)
    offered = {str(tag) for tag in tags}
    pure = "py3-none-any" in offered and offered <= _ANY
    if not pure and fitting is None:
        said = "holds compiled code or asks for one Python: without a compiler only py3-none-any is taken"
        raise CellError(f"{what} {said}", hint=compile_advice(sdist))
    if not pure and fitting is not None and not tags <= set(fitting):
        raise CellError(f"{what} is for another Python or machine than the cell's {python}", hint=_HINT)
    folder = next((n.partition("/")[0] for n in content if n.endswith(".dist-info/METADATA")), None)
    for needed in ("METADATA", "WHEEL", "RECORD"):
        if folder is None or f"{folder}/{needed}" not in content:
            raise CellError(f"{what} has no {needed}", hint=_HINT)
    text = content[f"{folder}/METADATA"][0].decode("utf-8", "replace")  # bytes give headers that are no str
    metadata = email.parser.HeaderParser().parsestr(text)
    _refuse_name(f"{what} in its METADATA", metadata.get("Name", ""), metadata.get("Version", ""), sdist)
    wanted = metadata.get("Requires-Python")
    if not takes(wanted, python):
        raise CellError(f"{what} needs Python {wanted}, but the cell has {python}", hint=_HINT)


def _refuse_name(what: str, name: str, version: str, sdist: Sdist) -> None:
    try:
        same = Version(version) == Version(sdist.version)
    except ValueError:
        same = False
    if canonicalize_name(name) == canonicalize_name(sdist.name) and same:
        return
    git = version.startswith(("0.0", "0.1.dev")) and not same
    hint = "its version comes from git, which a source distribution has not; " + _HINT if git else _HINT
    said = f"{name or 'no name'} {version or 'no version'}, not {sdist.name} {sdist.version}"
    raise CellError(f"{what} says {said}", hint=hint)


def normalised(content: Content) -> bytes:
    """The wheel of these files: the same bytes for the same files, with a RECORD that is right."""
    record_name = next(name for name in content if name.endswith(".dist-info/RECORD"))
    info = record_name.removesuffix("/RECORD")
    signatures = {f"{info}/RECORD.jws", f"{info}/RECORD.p7s"}
    names = sorted(set(content) - {record_name} - signatures, key=lambda name: (name.startswith(info), name))
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name in names:
        data = content[name][0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(data)))
    rows.writerow((record_name, "", ""))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.writestr(_entry(name, executable=content[name][1]), content[name][0])
        archive.writestr(_entry(record_name, executable=False), record.getvalue().encode())
    return out.getvalue()


def _entry(name: str, *, executable: bool) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, (1980, 1, 2, 0, 0, 0))
    entry.create_system = 3  # Unix, whatever this runs on
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return entry


def differing(one: tuple[str, Content], other: tuple[str, Content]) -> str:
    """Files that two builds, each a wheel's name and content, do not share, RECORDs aside; or their names."""
    (name, content), (other_name, others) = one, other
    files = sorted(
        path
        for path in content.keys() | others.keys()
        if content.get(path) != others.get(path) and not path.endswith(".dist-info/RECORD")
    )
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    renamed = f"{name} and {other_name}" if name != other_name else ""
    return ", ".join(files[:_NAMED]) + more or renamed


def loaded(content: Content, root: Path, *, machine: str, what: str) -> tuple[str, ...]:
    """The Debian packages whose libraries the files of a wheel load, by name.

    ``root`` is the system that they were linked in. Raises CellError for code of another machine, and for a
    library that neither the wheel, nor the standalone Python, nor a package has.
    """
    own = {posixpath.basename(name) for name in content}
    owners = _owners(root)
    found: set[str] = set()
    absent: list[str] = []
    for name, (data, _) in sorted(content.items()):
        if data[:4] != b"\x7fELF":
            continue
        if elf_machine(reader_of(data)) != ELF_MACHINES[machine]:
            raise CellError(f"{what}: {name} is code of another machine than {machine}", hint=_NO_LIBRARY)
        needs = needs_of(data)
        if needs is None:
            continue
        for library in needs.libraries:
            if library in own:
                continue
            place = _find(library, needs.paths, root, machine) or ""
            if place.startswith(f"/{FOLDER}/"):
                continue  # of the standalone Python, which the image has, too
            package = owners.get(place)
            if package is None:
                absent.append(f"{shown(library, most=80)}, which {shown(name, most=80)} loads")
            else:
                found.add(package)
    if absent:
        said = f"neither the wheel nor a Debian package has {'; '.join(absent[:8])}"
        raise CellError(f"{what}: {said}", hint=_NO_LIBRARY)
    return tuple(sorted(found))


def _find(library: str, paths: Iterable[str], root: Path, machine: str) -> str | None:
    """The library that the loader finds: its path from the root, with no link in it."""
    usual = (f"/usr/lib/{machine}-linux-gnu", "/usr/lib", "/usr/local/lib")
    folders = (*(path for path in paths if path.startswith("/")), *usual)
    return next((place for folder in folders if (place := _real(f"{folder}/{library}", root))), None)


def _real(path: str, root: Path) -> str | None:
    """Follow the links of the system, from its own root; None if nothing is there."""
    for _ in range(16):
        path = _merged(posixpath.normpath(path))
        here = root / path.lstrip("/")
        try:
            if not here.is_symlink():
                return path if here.is_file() else None
            path = posixpath.join(posixpath.dirname(path), str(here.readlink()))
        except OSError:  # a name that is longer than a system takes
            return None
    return None


def _merged(path: str) -> str:
    """``/lib`` is a link to ``/usr/lib``, and packages still name files by either."""
    return f"/usr{path}" if path.startswith(("/lib/", "/lib64/")) else path


def _owners(root: Path) -> dict[str, str]:
    """The package of each file, by dpkg's own lists: https://manpages.debian.org/dpkg-query"""
    found: dict[str, str] = {}
    for path in sorted((root / "var/lib/dpkg/info").glob("*.list")):
        for file in path.read_text("utf-8").splitlines():
            found.setdefault(_merged(file), path.stem.partition(":")[0])
    return found


NETWORK = "its build asks the network"
COMPILED = "it is compiled"
LACKS = "its build lacks"

_NETWORK = (
    "Temporary failure in name resolution", "Name or service not known", "Network is unreachable",
    "nodename nor servname", "Errno -2", "Errno -3", "Errno 101", "Failed to establish a new connection",
)  # fmt: skip
_COMPILER = (
    "gcc", "g++", "CMake", "cmake", "pkg-config", "command 'cc'", "clang", "meson", "Cython", "pg_config",
    "R_HOME", "gdal-config", "C compiler", "Python.h",
)  # fmt: skip
_LACKS = (
    # gcc
    (re.compile(r"fatal error: (?P<what>\S+): No such file or directory"), "the header {what}"),
    (re.compile(r"cannot find -l(?P<what>[\w.+-]+)"), "the library lib{what}.so"),
    # pkg-config of both makers
    (re.compile(r"No package '(?P<what>[^']+)' found"), "{what}.pc"),
    (re.compile(r"Package '?(?P<what>[\w.+-]+)'?(?:, required by '[^']*',| was) not found"), "{what}.pc"),
    (re.compile(r"Dependency [\"']?(?P<what>[\w.+-]+)[\"']? (?:is required but )?not found"), "{what}.pc"),
    (re.compile(r"(?<![\w./])(?P<program>pkg-config|cmake|ninja|meson|swig|pg_config|gdal-config)(?![\w./])"
                r"[^\n]{0,40}(?:not found|not installed|must be installed|No such file)", re.IGNORECASE),
     "the program {program}"),
    (re.compile(r"No such file or directory: '(?P<program>[a-z][\w+-]*)'"), "the program {program}"),
)  # fmt: skip


def compile_advice(sdist: Sdist) -> str:
    """Advice about compiled sources that the matrix names as pure Python."""
    needs = load().build_needs(sdist.name, sdist.version)
    return (
        f"{COMPILED}: say so in 'from-source', with the Debian packages that its build needs, as in "
        f"'{sdist.name}: [{', '.join(needs or ())}]'; or name an index that has a wheel of it (`index:`)"
    )


def advice(text: str, sdist: Sdist, *, compiled: bool) -> str:
    """Advice; ``text`` is the output of the build, in which a compiler's message is far from the end."""
    end = "\n".join([line for line in text.splitlines() if line.strip()][-40:])
    if any(word in end for word in _NETWORK):
        return f"{NETWORK}, which it does not get: name the index that has a wheel (`index:`)"
    lacking = lacks(text) if compiled else None
    if lacking is not None:
        needs = load().build_needs(sdist.name, sdist.version)
        known = f" ({', '.join(needs)}, by its own pages)" if needs else ""
        return (
            f"{LACKS} {lacking}: add the Debian package that has it{known} to the list of "
            f"{sdist.name} in 'from-source'"
        )
    if not compiled and any(word in end for word in _COMPILER):
        return compile_advice(sdist)
    return "pin another version of it, or leave it out of 'from-source'"


def lacks(text: str) -> str | None:
    """The first thing that a compiler or a tool asked for and did not find, in words."""
    found = []
    for pattern, words in _LACKS:
        if match := pattern.search(text):
            named = match.groupdict()
            if "program" in named:
                named["program"] = named["program"].lower()
            found.append((match.start(), words.format(**named)))
    return min(found)[1] if found else None
