"""The dynamic loader's choice of a file for each library, worked out without loading one.

The rules are those of glibc's ``dl-load.c``, ``dl-deps.c``, ``dl-version.c`` and ``dl-lookup.c``
(https://sourceware.org/git/?p=glibc.git;a=tree;f=elf). A name that is loaded already is that library: by its
soname, by a name under which it was asked for, by its file. Else it is searched for: DT_RPATH of who asks
and of those that asked for it (of none that has a DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH of who asks, the
cache, the default folders. Then each version that is asked of a file has to be there, and each symbol that is
not weak.

One implementation for rtbuild and its probe: nothing but the standard library of Python 3.6. It asks a *view*
for files: :class:`DiskView`, or :class:`ListedView` for those that are known by their facts alone. What
nobody has read is None, and makes an answer None: never a yes.
"""

import glob
import os
import re
import struct
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from .elf import NO_LIBRARY, ElfFile, elf_file

# library_path, defaults: folders; cache: {name: path}; hwcaps: folders below glibc-hwcaps, best first; lib:
# what $LIB stands for (None if nobody knows, both); given: {name: expression for its symbols} of those that
# the driver brings when a container starts; complete: no library is left out of the view and the cache
Search = namedtuple("Search", "library_path cache defaults hwcaps lib given complete")
# path: the file, None if there is none; by: the step that found it; passed: [(path, why)] of files that the
# loader passed over; doubt: why nobody can say, or None
Found = namedtuple("Found", "path by passed doubt")
# loads: None if nobody can say; kind: one of KINDS, None if it loads; text: the fault; library: the name or
# file at fault; by: the file that asks for it; rows: the libraries that this call has loaded, in their order
Opened = namedtuple("Opened", "loads kind text library by rows")
# name: as it was asked for; path: of its file, None for one that the driver brings; step: of the search
LinkRow = namedtuple("LinkRow", "name path by step")
KINDS = ("absent", "unusable", "version", "symbol", "doubt")
MOST_LOADED, MOST_FOLDERS = 4096, 1 << 17
"""Libraries of one process, and folders in their search paths: of TensorFlow 400, and 4,000 in one path."""
_LEVELS = (
    ("x86-64-v2", "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"),
    ("x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
)
"""Of glibc 2.33 and later, by the processor's flags: https://gitlab.com/x86-psABIs/x86-64-ABI."""
_SYSTEM = re.compile(rb"\0((?:/(?:usr/)?lib(?:64)?(?:/[\w-]+)?/\0){2,})")
_NEW_CACHE, _OLD_CACHE = b"glibc-ld.so.cache1.1", b"ld.so-1.7.0"
# Low byte 3 is "ELF, libc 6", the next one the processor: https://sourceware.org/git/glibc.git elf/cache.c
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03, "ppc64le": 0x0503}
_LARGEST_CACHE = 64 << 20
NO_FILE = NO_LIBRARY._replace(problem="not there", skipped=True)
_TOKEN = re.compile(r"\$(?:(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_])|\{(ORIGIN|LIB|PLATFORM)\})")
_PROGRAM, _LIBRARY, _PIE, _NO_DEFAULTS = 2, 3, 0x08000000, 0x800
DRIVER_LIBRARIES = {
    "libcuda.so.1": "cu[A-Z]",
    "libnvidia-ml.so.1": "nvml",
    "libnvcuvid.so.1": "cuvid",
    "libnvidia-encode.so.1": "NvEnc",
}
"""What the driver brings into a container, and an expression for the symbols of each:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"""
TOO_MANY = "more than %d folders in search paths" % MOST_FOLDERS
NOTHING_FOUND = "cannot open shared object file: no such file"


class LinkError(Exception):
    """A call that opens a library ends here; ``kind`` is one of :data:`KINDS`."""

    def __init__(self, kind: str, text: str, library: str, by: "str | None") -> None:
        super(LinkError, self).__init__(text)
        self.kind, self.text, self.library, self.by = kind, text, library, by


def _once(read: "Callable[[], object] | None") -> "Callable[..., object] | None":
    """The function, read on its first call; an answer to ``lazy`` is kept for each argument."""
    kept = {}  # type: dict[tuple[object, ...], object]

    def answer(*arguments: object) -> object:
        if arguments not in kept:
            kept[arguments] = read(*arguments) if read is not None else None
        return kept[arguments]

    return answer if read is not None else None


def remembered(facts: ElfFile) -> ElfFile:
    """Equal facts, each of whose tables is read once."""
    asked, offered, symbols = [_once(read) for read in (facts.asked, facts.offered, facts.symbols)]
    return facts._replace(asked=asked, offered=offered, symbols=symbols)


class DiskView(object):
    """Files of this machine. Folders and headers are read once: not for a machine that changes meanwhile."""

    def __init__(self) -> None:
        self._folders = {}  # type: dict[str, frozenset[str]]
        self._keys = {}  # type: dict[str, tuple[int, int] | None]
        self._files = {}  # type: dict[tuple[int, int], ElfFile]

    def copy(self) -> "DiskView":
        """A view that has read the same files, and no folder: for when some of them are others now."""
        other = DiskView()
        other._files = dict(self._files)
        return other

    def names(self, folder: str) -> "frozenset[str]":
        """The names in a folder; none of one that cannot be read."""
        if folder not in self._folders:
            try:
                self._folders[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._folders[folder] = frozenset()
        return self._folders[folder]

    def key(self, path: str) -> "tuple[int, int] | None":
        """The identity of a file, equal for all paths to it; None for no file."""
        if path not in self._keys:
            try:
                about = os.stat(path)
                self._keys[path] = about.st_dev, about.st_ino
            except OSError:
                self._keys[path] = None
        return self._keys[path]

    def file(self, path: str) -> ElfFile:
        key = self.key(path)
        if key is None:
            return elf_file(path)
        if key not in self._files:
            self._files[key] = remembered(elf_file(path))
        return self._files[key]


class ListedView(object):
    """Files that are known by their facts: {path: ElfFile}. Of a path that is no key, there is no file."""

    def __init__(self, files: "dict[str, ElfFile]") -> None:
        self._files = {os.path.normpath(path): remembered(facts) for path, facts in files.items()}
        self._folders = {}  # type: dict[str, set[str]]
        for path in self._files:
            folder, name = os.path.split(path)
            while name:
                self._folders.setdefault(folder, set()).add(name)
                folder, name = os.path.split(folder)

    def names(self, folder: str) -> "set[str]":
        return self._folders.get(os.path.normpath(folder), set())

    def key(self, path: str) -> str:
        return os.path.normpath(path)

    def file(self, path: str) -> ElfFile:
        return self._files.get(os.path.normpath(path), NO_FILE)


def _numbers(text: str) -> "tuple[int, ...]":
    return tuple(int(part) for part in re.findall(r"\d+", text))


class Loaded(object):
    """A library in a process; ``facts`` is None for one that the driver brings."""

    def __init__(self, path: "str | None", name: str, facts: "ElfFile | None", key: object) -> None:
        self.path, self.facts, self.key = path, facts, key
        self.names = {name, path or name}
        whole = os.path.join(os.getcwd(), path) if path else ""
        self.origin = os.path.dirname(whole)
        self.asker = None  # type: Loaded | None
        self.handed = ()  # type: tuple[object, ...] | None
        self.program = self.checked = self.relocated = False
        self.given = None  # type: str | None
        self.paths = {}  # type: dict[str, list[tuple[str | None, str]]]

    def handed_down(self) -> "tuple[Loaded, object] | None":
        """(library, the rest) of those with a DT_RPATH, from this one up to what was opened; None without."""
        if self.handed == ():
            above = self.asker.handed_down() if self.asker is not None else None
            own = self.facts is not None and self.facts.rpath and self.facts.runpath is None
            self.handed = (self, above) if own else above
        return self.handed  # type: ignore[return-value]

    def who(self) -> str:
        return self.path or "/".join(sorted(self.names))


class LinkProcess(object):
    """One process, as the loader has it: what is loaded, in which order, and whose symbols all others see.

    With ``symbols`` false, symbols are left out of the proof: it is about files and versions then.
    """

    def __init__(self, view: "DiskView | ListedView", search: Search, symbols: bool = True) -> None:
        self.view, self.search, self.symbols = view, search, symbols
        self.loaded = []  # type: list[Loaded]
        self.everywhere = []  # type: list[Loaded]
        self.rows = []  # type: list[LinkRow]
        self._by_name = {}  # type: dict[str, Loaded]
        self._folders = 0

    # -- what is there before anything is opened

    def start(self, program: str, interpreter: "str | None" = None, preload: "Iterable[str]" = ()) -> Opened:
        """Start a program; ``preload``: LD_PRELOAD, of which what is not found is left out, as ld.so does."""
        real = os.path.realpath(program) if isinstance(self.view, DiskView) else program
        main = Loaded(real, "", self.view.file(real), self.view.key(real))
        main.program = main.relocated = True
        self._take(main)
        if interpreter is not None:
            self.adopt([interpreter])
        roots = [main]

        def preloaded() -> "Iterator[Loaded]":
            for name in preload:
                try:
                    yield self._map(name, main)
                except LinkError as fault:
                    if fault.kind == "doubt" or "truncated" in fault.text:
                        raise

        def opening() -> "list[Loaded]":
            roots.extend(preloaded())
            return self._closure(roots)

        return self._attempt(opening, everywhere=True, lazy=True)

    def adopt(self, paths: "Iterable[str]") -> None:
        """Take these files as loaded already, as those that a running process has mapped."""
        for path in paths:
            one = Loaded(path, path, self.view.file(path), self.view.key(path))
            one.checked = one.relocated = True
            one.names |= {os.path.basename(path), one.facts.soname if one.facts is not None else path}
            self._take(one)

    def _take(self, one: Loaded) -> None:
        """Add a library; of two with one soname the first is meant by it."""
        self.loaded.append(one)
        soname = one.facts.soname if one.facts is not None else None
        for name in one.names | ({soname} if soname else set()):
            self._by_name.setdefault(name, one)

    def fork(self) -> "LinkProcess":
        """A process that goes on from here, apart from this one."""
        other = LinkProcess(self.view, self.search, self.symbols)
        other.loaded, other.everywhere = list(self.loaded), list(self.everywhere)
        other._by_name = dict(self._by_name)
        return other

    # -- opening

    def open(
        self, name: str, caller: "str | None" = None, everywhere: bool = False, lazy: bool = False
    ) -> Opened:
        """``dlopen``: by the library at ``caller``, with RTLD_GLOBAL and RTLD_LAZY if so.

        A call that fails takes back all that it has loaded.
        """
        asker = next((one for one in self.loaded if caller is not None and one.path == caller), None)
        asker = asker or (self.loaded[0] if self.loaded else None)

        def opening() -> "list[Loaded]":
            there = set(map(id, self.loaded))
            root = self._map(name, asker)
            if id(root) not in there:
                root.asker = None  # the caller was of use for the search alone
            if root.facts is not None and root.facts.flags & _PIE:
                raise LinkError("unusable", "a program, not a library", root.who(), None)
            return self._closure([root])

        return self._attempt(opening, everywhere, lazy)

    def _attempt(
        self, opening: "Callable[[], list[Loaded]]", everywhere: bool = False, lazy: bool = False
    ) -> Opened:
        count, rows = len(self.loaded), len(self.rows)
        try:
            scope = opening()
            for one in scope:
                self._check_versions(one)
            self._check_symbols([one for one in scope if not one.relocated], scope, lazy)
        except (LinkError, ValueError, OSError, MemoryError, OverflowError, struct.error) as problem:
            fault = problem if isinstance(problem, LinkError) else _unreadable(problem)
            found = self.rows[rows:]
            gone = set(map(id, self.loaded[count:]))
            self._by_name = {name: one for name, one in self._by_name.items() if id(one) not in gone}
            del self.loaded[count:], self.rows[rows:]
            return Opened(None if fault.kind == "doubt" else False, fault.kind, fault.text, fault.library,
                          fault.by, found)  # fmt: skip
        for one in scope:
            one.checked = one.relocated = True
            if everywhere and one not in self.everywhere:
                self.everywhere.append(one)
        return Opened(True, None, None, None, None, self.rows[rows:])

    def _closure(self, roots: "list[Loaded]") -> "list[Loaded]":
        """The roots and all that they need, breadth first, each once."""
        found, seen = list(roots), set(map(id, roots))
        for one in found:
            for name in one.facts.needed if one.facts is not None else ():
                text = self._expand(name, one) if "$" in name else name
                if text is None:
                    raise LinkError("doubt", "what %s stands for" % name, name, one.who())
                other = self._map(text, one)
                if id(other) not in seen:
                    seen.add(id(other))
                    found.append(other)
        return found

    def _map(self, name: str, asker: "Loaded | None") -> Loaded:
        there = self._by_name.get(name)
        if there is not None:
            there.names.add(name)
            return there
        by = asker.who() if asker is not None else None
        found = self.find(name, asker)
        if found.path is None and name in self.search.given:
            return self._add(None, name, None, name, asker, "the driver")
        if found.doubt is not None:
            raise LinkError("doubt", found.doubt, name, by)
        if found.path is None:
            passed = ["%s is %s" % row for row in found.passed]
            raise LinkError("absent", "; ".join([NOTHING_FOUND, *passed]), name, by)
        key, facts = self.view.key(found.path), self.view.file(found.path)
        for one in self.loaded:
            if one.key == key:
                one.names.add(name)
                self._by_name[name] = one
                return one
        problem = None
        if facts.asked is None:
            problem = facts.problem or "without a dynamic section"
        if facts.kind not in (None, _LIBRARY):
            problem = "a program, not a library" if facts.kind == _PROGRAM else "no shared object"
        if problem:
            raise LinkError("unusable", "it is %s" % problem, found.path, by)
        return self._add(found.path, name, facts, key, asker, found.by)

    def _add(  # noqa: PLR0917
        self, path: "str | None", name: str, facts: "ElfFile | None", key: object,
             asker: "Loaded | None", step: str) -> Loaded:  # fmt: skip
        if len(self.loaded) >= MOST_LOADED:
            raise LinkError(
                "doubt",
                "more than %d libraries" % MOST_LOADED,
                name,
                asker.who() if asker is not None else None,
            )
        one = Loaded(path, name, facts, key)
        one.asker = asker
        one.given = self.search.given[name] if path is None else None
        self._take(one)
        self.rows.append(LinkRow(name, path, asker.who() if asker is not None else None, step))
        return one

    def _check_versions(self, one: Loaded) -> None:
        if one.checked or one.facts is None:
            return
        for file, version, weak in one.facts.asked():
            other = self._by_name.get(file)
            if other is None or file not in other.names:
                other = next((row for row in self.loaded if file in row.names), None)
            if other is None:  # where glibc ends the process by an assertion
                raise LinkError("unusable", "it asks for %s of %s, which it does not need" % (version, file),
                                one.who(), None)  # fmt: skip
            offered = other.facts.offered() if other.facts is not None and other.facts.offered else None
            if offered is not None and not weak and version not in offered:
                text = "version %s not found (required by %s)" % (version, one.who())
                raise LinkError("version", text, other.who(), one.who())

    def _check_symbols(self, new: "list[Loaded]", scope: "list[Loaded]", lazy: bool) -> None:
        """Each symbol that a new library cannot do without is one of those whose symbols it sees."""
        if not self.symbols:
            return
        seen = self.everywhere + [one for one in scope if one not in self.everywhere]
        given = [one.given for one in seen if one.given]
        tables, unread = [], []
        for one in seen:
            read = one.facts.symbols if one.facts is not None else None
            table = read() if read is not None else None
            if table is not None:
                tables.append((table.defined, one.names))
            elif not one.given:
                unread.append(one.who())
        for one in reversed(new):
            if one.facts is None:
                continue
            table = one.facts.symbols() if one.facts.symbols is not None else None
            if table is None:
                raise LinkError("doubt", "nobody read its symbols", one.who(), None)
            bare = self._takes_bare_symbols()
            lacking = [at for at, row in table.wanted.items() if not _offered(row, tables, one, bare)]
            used = table.used(lazy) if lacking else ()
            names = [table.wanted[at] for at in lacking if at in used]
            names = [row for row in names if not any(re.match(text, row[0].decode()) for text in given)]
            if names and unread:
                raise LinkError("doubt", "nobody read the symbols of %s" % unread[0], one.who(), None)
            if names:
                name, version = names[0][0].decode("utf-8", "replace"), names[0][1]
                text = "undefined symbol: %s%s" % (name, ", version %s" % version if version else "")
                raise LinkError("symbol", text, one.who(), None)

    def _takes_bare_symbols(self) -> "bool | None":
        """Whether the loader takes a symbol without versions from the file of which a version is asked.

        From glibc 2.41 on; before, it ends the process by an assertion. None if its C library is not known.
        https://sourceware.org/git/?p=glibc.git;a=commit;h=bdaf50035354407add60d080d68fabe127330563
        """
        for one in self.loaded:
            offered = one.facts.offered() if one.facts is not None and one.facts.offered else None
            if offered is not None and "libc.so.6" in one.names:
                return "GLIBC_2.41" in offered
        return None

    # -- the search

    def find(self, name: str, asker: "Loaded | None" = None) -> Found:
        """The file that the loader finds for a name that is not loaded."""
        if "/" in name:
            text = self._expand(name, asker) if asker is not None else name
            if text is None:
                return Found(None, None, [], "what %s stands for" % name)
            parent, _, base = text.rpartition("/")
            there = base in self.view.names(parent or "/")
            return Found(text if there else None, "its path", [], None)
        passed = []  # type: list[tuple[str, str]]
        for folder, by in self._places_for(name, asker):
            if folder is None:
                return Found(None, None, passed, by)
            if name in self.view.names(folder):
                path = folder.rstrip("/") + "/" + name
                if not self._passed_over(path, passed):
                    return Found(path, by, passed, None)
        doubt = None if self.search.complete else "nobody read which libraries the base has"
        return Found(None, None, passed, doubt)

    def _passed_over(self, path: str, passed: "list[tuple[str, str]]") -> bool:
        facts = self.view.file(path)
        if facts.problem and facts.skipped:
            passed.append((path, facts.problem))
            return True
        return False

    def _places_for(self, name: str, asker: "Loaded | None") -> "Iterator[tuple[str | None, str]]":
        """(folder, step) in the order of the search; a folder is None where nobody knows it: why."""
        for folder, step in self._folders_for(name, asker):
            if folder is not None and step != "ld.so.cache" and "glibc-hwcaps" in self.view.names(folder):
                if self.search.hwcaps is None:
                    yield None, "which glibc-hwcaps this processor has"
                for capability in self.search.hwcaps or ():
                    yield "%s/glibc-hwcaps/%s" % (folder, capability), step
            yield folder, step

    def _folders_for(self, name: str, asker: "Loaded | None") -> "Iterator[tuple[str | None, str]]":
        runpath = asker.facts.runpath if asker is not None and asker.facts is not None else None
        no_defaults = asker is not None and asker.facts is not None and asker.facts.flags & _NO_DEFAULTS
        if runpath is None:
            handed, main = asker.handed_down() if asker is not None else None, False
            while handed is not None:
                one, handed = handed  # type: ignore[assignment]
                main = main or one.program
                yield from self._path_of(one, "rpath", "DT_RPATH")
            if not main and self.loaded and self.loaded[0].program:
                yield from self._path_of(self.loaded[0], "rpath", "DT_RPATH of the program")
        for folder in self.search.library_path:
            yield self._folder(folder, asker), "LD_LIBRARY_PATH"
        if asker is not None and runpath is not None:
            yield from self._path_of(asker, "runpath", "DT_RUNPATH")
        cached = os.path.dirname(self.search.cache.get(name, ""))
        if cached and not (no_defaults and cached in self.search.defaults):
            yield cached, "ld.so.cache"
        if not no_defaults:
            for folder in self.search.defaults:
                yield folder, "default folder"

    def _path_of(self, one: Loaded, which: str, step: str) -> "list[tuple[str | None, str]]":
        """The folders of DT_RPATH or DT_RUNPATH in which there is something."""
        if which not in one.paths:
            text = getattr(one.facts, which) if one.facts is not None else None
            if which == "rpath" and one.facts is not None and one.facts.runpath is not None:
                text = None
            found = []  # type: list[tuple[str | None, str]]
            one.paths[which] = found
            for part in dict.fromkeys(text.split(":")) if text else ():
                folder = self._folder(part, one)
                self._folders += 1
                if folder is None or self._folders > MOST_FOLDERS:
                    found.append((None, "what %s stands for" % part if folder is None else TOO_MANY))
                    break
                if self.view.names(folder):
                    found.append((folder, step))
        return one.paths[which]

    def _folder(self, text: str, one: "Loaded | None") -> "str | None":
        """An element of a path; an empty one is the current folder. None if it cannot be said."""
        folder = self._expand(text, one) if "$" in text and one is not None else text or "."
        return folder if folder is None else folder.rstrip("/") or "/"

    def _expand(self, text: str, one: "Loaded | None") -> "str | None":
        values = {"ORIGIN": one.origin if one is not None else None, "LIB": self.search.lib, "PLATFORM": None}
        names = [first or second for first, second in _TOKEN.findall(text)]
        if any(values[name] is None for name in names):
            return None
        return _TOKEN.sub(lambda found: values[found.group(1) or found.group(2)] or "", text)


def search_here(library_path: "str | None" = None, given: "dict[str, str] | None" = None) -> Search:
    """The search of this machine's programs; ``library_path``: LD_LIBRARY_PATH, if not this process's own."""
    text = os.environ.get("LD_LIBRARY_PATH") if library_path is None else library_path
    defaults, hwcaps = default_folders(), hwcaps_here()
    lib = next((folder.strip("/") for folder in defaults if folder.startswith("/lib")), None)
    cache = {}  # type: dict[str, str]
    for name, path in reversed(read_cache()):  # the first of several counts
        capability = (
            path.rpartition("/glibc-hwcaps/")[2].partition("/")[0] if "/glibc-hwcaps/" in path else None
        )
        if capability is None or capability in hwcaps:
            cache[name] = path
    return Search(split_path(text), cache, defaults, hwcaps, lib, given or {}, True)


def split_path(text: "str | None") -> "list[str]":
    """LD_LIBRARY_PATH; an empty element means the current folder, as the loader has it."""
    return [part or "." for part in text.replace(";", ":").split(":")] if text else []


@lru_cache(maxsize=None)
def hwcaps_here() -> "list[str]":
    """The folders below ``glibc-hwcaps`` that the loader looks into on this processor, the best first."""
    try:
        with open("/proc/cpuinfo", "rb") as stream:
            text = stream.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r"(?m)^flags\s*:(.*)$", text)
    flags, names = set(found.group(1).split() if found else ()), []  # type: tuple[set[str], list[str]]
    for level, wanted in _LEVELS:
        if not set(wanted.split()) <= flags:
            break
        names.insert(0, level)
    return names


@lru_cache(maxsize=None)
def default_folders() -> "list[str]":
    """The folders that the loader searches last: they are compiled into it. Those that are usual if not."""
    machine = os.uname()[4]
    for path in sorted(glob.glob("/lib*/ld-linux*.so.*")):
        try:
            with open(path, "rb") as stream:
                found = _SYSTEM.search(stream.read(1 << 22))
        except OSError:
            continue
        if found:
            return [part.decode().rstrip("/") for part in found.group(1).split(b"\0") if part]
    usual = ["/lib/%s-linux-gnu" % machine, "/usr/lib/%s-linux-gnu" % machine]
    return [f for f in [*usual, "/lib64", "/usr/lib64", "/lib", "/usr/lib"] if os.path.isdir(f)]


def read_cache(path: str = "/etc/ld.so.cache") -> "list[tuple[str, str]]":
    """(file name, path) pairs in the cache's own order, of this machine's word size; [] if there is none."""
    try:
        with open(path, "rb") as stream:
            return _cache_entries(stream.read(_LARGEST_CACHE))
    except (OSError, struct.error, ValueError):
        return []


def _cache_entries(data: bytes) -> "list[tuple[str, str]]":
    start = 0
    if data.startswith(_OLD_CACHE):
        count = struct.unpack_from("<I", data, 12)[0]
        start = (16 + 12 * count + 7) // 8 * 8
    if data[start : start + len(_NEW_CACHE)] != _NEW_CACHE:
        return []
    count = struct.unpack_from("<I", data, start + 20)[0]
    wanted = _CACHE_FLAGS.get(os.uname()[4])
    rows = (struct.unpack_from("<iII", data, start + 48 + 24 * index) for index in range(count))
    places = [row[1:] for row in rows if wanted in (None, row[0])]
    return [(_text_at(data, start + name), _text_at(data, start + path)) for name, path in places]


def _text_at(data: bytes, place: int) -> str:
    return data[place : data.index(b"\0", place)].decode("utf-8", "surrogateescape")


def _unreadable(problem: Exception) -> LinkError:
    return LinkError("doubt", "a table that cannot be read: %s" % problem, "", None)


def _offered(
    row: "tuple[bytes, str | None, str | None]",
    tables: "list[tuple[object, set[str]]]",
    one: Loaded,
    bare: "bool | None",
) -> bool:
    """Whether one of the libraries has a symbol: of its version, or of none where it is not hidden.

    ``bare``: as :meth:`LinkProcess._takes_bare_symbols` has it.
    """
    name, version, file = row
    for defined, names in tables:
        for own, hidden in defined.get(name, ()):  # type: ignore[attr-defined]
            if own is None and version is not None and file in names and not bare:
                text = "%s has no version %s of %s" % (file, version, name.decode("utf-8", "replace"))
                if bare is None:
                    text += ", which glibc takes from 2.41 on, and which glibc is here nobody read"
                raise LinkError("doubt" if bare is None else "version", text, file or "", one.who())
            if own is None or own == version or (not hidden and (version is None or own == "")):
                return True
    return False


# What the import of a framework opens: (file, RTLD_GLOBAL), torch/__init__.py (_load_global_deps) and
# tensorflow/python/pywrap_tensorflow.py. Of the others, no import opens a library that one beside them is
# linked with: JAX opens NVIDIA's at its first computation (jax_plugins/xla_cuda12/__init__.py), ONNX Runtime
# in preload_dlls, which the program calls, CuPy at first use by cuda-pathfinder (at import cuTENSOR, for
# itself), Paddle libnvrtc-builtins (paddle/__init__.py), and CTranslate2 none
FRAMEWORK_CALLS = {
    "torch": (("torch/lib/libtorch_global_deps.so", True), ("torch/lib/libtorch_python.so", False)),
    "tensorflow": (
        ("tensorflow/libtensorflow_framework.so.2", False),
        ("tensorflow/libtensorflow_cc.so.2", False),
        ("tensorflow/python/_pywrap_tensorflow_internal.so", True),
    ),
}
# (since, folder/library): what torch/__init__.py opens of NVIDIA's wheels, in this order, when its first
# library has brought CUDA's runtime, and all of it when that one does not load; read of 2.1.2 to 2.15.0
_TORCH_OPENS = (
    ((2, 10), "cublas/libcublasLt"), ((2, 10), "cublas/libcublas"), ((2, 10), "cudnn/libcudnn"),
    ((2, 6), "cuda_nvrtc/libnvrtc"), ((2, 9), "cuda_nvrtc/libnvrtc-builtins"),
    ((2, 10), "cuda_runtime/libcudart"), ((2, 10), "cuda_cupti/libcupti"), ((2, 10), "cufft/libcufft"),
    ((2, 6), "nvjitlink/libnvJitLink"), ((2, 10), "cusparse/libcusparse"),
    ((2, 10), "cusparselt/libcusparseLt"), ((2, 10), "cusolver/libcusolver"), ((2, 10), "nccl/libnccl"),
    ((2, 10), "nvshmem/libnvshmem_host"), ((2, 10), "cufile/libcufile"), ((2, 10), "nvtx/libnvToolsExt"),
)  # fmt: skip


def import_framework(
    process: LinkProcess, framework: str, version: str, site: str
) -> "list[tuple[str, Opened]]":
    """Open what the import of a framework opens, as far as it loads; (file, answer) of its own libraries.

    ``version``: of its release; ``site``: the folder that it lies in. [] for a framework that is not known.
    """
    answers = []
    for file, everywhere in FRAMEWORK_CALLS.get(framework, ()):
        path = os.path.join(site, file)
        answer = process.open(path, everywhere=everywhere)
        if framework == "torch" and everywhere:
            for other in _torch_opens(process, answer, _numbers(version)[:2], site):
                process.open(other)
            answer = answer if answer.loads else process.open(path, everywhere=True)
        answers.append((file, answer))
    return answers


def _torch_opens(
    process: LinkProcess, first: Opened, version: "tuple[int, ...]", site: str
) -> "Iterator[str]":
    """The paths of NVIDIA's libraries that PyTorch opens by itself after its ``first`` library."""
    names = [one.path or "" for one in process.loaded] if first.loads else [first.library or ""]
    runtime = next(filter(None, (re.search(r"libcudart\.so\.(\d+)", name) for name in names)), None)
    if first.loads and runtime is None:
        return  # a build without CUDA
    for since, row in _TORCH_OPENS:
        if first.loads and version < since:
            continue
        folder, stem = row.split("/")
        places = ["nvidia/" + folder, folder]
        places[1:1] = ["nvidia/cu" + runtime.group(1)] if runtime is not None else []
        for place in places:
            whole = os.path.join(site, place, "lib")
            found = [n for n in process.view.names(whole) if re.match(re.escape(stem) + r"\.so\..*\d$", n)]
            if found:
                yield os.path.join(whole, min(found))
                break
