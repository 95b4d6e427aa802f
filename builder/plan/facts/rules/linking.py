"""Whether a locked set works together: its libraries load, by the link proof, and its packages import, by the
proof by imports.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from posixpath import normpath

from packaging.requirements import Requirement

from builder.core.import_outcomes import Missing
from builder.core.import_set import OWN, PYTHON
from builder.core.link_set import (
    SITE,
    FileProof,
    LinkFile,
    SetProof,
    WheelLinks,
    number_of,
    numberless,
    opened_by_import,
    other_forms,
    prove,
)
from builder.core.module_values import BY_OLD_PROTOC
from builder.core.versions import WITH_PKG_RESOURCES, at_least, contains, major, names_of, release, short
from builder.plan.facts.reading import WheelTruth
from builder.plan.facts.rules.compiled_packages import release_for, torch_of
from builder.plan.facts.rules.finding import (
    CELL,
    Finding,
    Outcome,
    Value,
    impossible,
    possible,
    unknown,
    warns,
)
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import CUDA_LIBRARY, NUMBERED, Source, SystemLibraryRow, load

_VERSIONED = {
    **dict.fromkeys(("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"), "GLIBC"),
    "libstdc++.so.6": "GLIBCXX",
}
"""Libraries of a base, and the kind of each one's symbol versions that is numbered by release."""


def links(stack: Stack) -> Iterator[Finding]:
    """``links``: the loader finds what a lock's libraries are linked with; each library has one owner."""
    wheels = stack.truth.links
    if not stack.truth.locked or not wheels:
        return
    read = {wheel.name for wheel in wheels}
    whole = all(wheel.name in read for wheel in stack.truth.wheels)
    yield from _loaded_by_imports(stack)
    yield from _one_of_imports(stack)
    floors = _versions_of_the_base(stack, wheels)
    given, maybe = _of_the_base(stack, wheels)
    proof = prove(
        wheels, cached=_folders(wheels), given=given, maybe=maybe, based=floors, loaded=stack.truth.loaded
    )
    yield from _two_owners(stack, proof, {wheel.name: wheel for wheel in wheels})
    for wheel in wheels if whole else ():
        if broken := proof.broken(wheel.name):
            yield _broken(stack, wheel, proof, broken, wheels)
        elif wheel.name in proof.runtimes:
            both = " and ".join(f"CUDA {number}" for number in proof.runtimes[wheel.name])
            text = (
                f"a process that imports {wheel.label} has the runtimes of {both}: it is made for one of them"
            )
            yield warns(text, _read_of(wheel, "libcudart, by major", ", ".join(proof.runtimes[wheel.name])))
        if not broken and (doubtful := proof.doubtful(wheel.name)):
            yield from _doubtful(stack, wheel, proof, doubtful)
    yield from _of_another_torch(stack, wheels)
    yield from _of_another_cuda(stack, wheels)


def _of_another_torch(stack: Stack, wheels: Iterable[WheelLinks]) -> Iterator[Finding]:
    """Extensions that ask for functions which PyTorch has not or, if its ``libc10`` alone was read, has in
    other forms alone.
    """
    wheels = tuple(wheels)
    torch = next((wheel for wheel in wheels if wheel.name == "torch"), None)
    defined = frozenset[str]().union(*torch.torch.values()) if torch is not None else frozenset[str]()
    for wheel in wheels if torch is not None else ():
        asking = {path: asked for path, asked in wheel.torch.items() if asked and wheel is not torch}
        whole = _asked_of_torch(torch, wheel, wheels) if wheel is not torch and torch is not None else {}
        asking |= wheel.torch_asked
        groups: dict[str, list[str]] = {}
        for path in asking:
            groups.setdefault(numberless(path), []).append(path)
        forms = {
            path: whole[path] if path in whole else other_forms(asked, defined)
            for path, asked in asking.items()
        }
        lacking = {
            path: forms[path] for group in groups.values() if all(map(forms.get, group)) for path in group
        }
        if not lacking or torch is None:
            continue
        path, (first, *_) = next(iter(sorted(lacking.items())))
        abi = ", and for the other of its C++ ABIs" if "cxx11" in first and not _cxx11(defined) else ""
        said = f"{wheel.label} was compiled for another PyTorch than {torch.label}{abi}"
        has = "has no such symbol" if path in whole else "has it with other arguments"
        values = (_read_of(wheel, path, first), _read_of(torch, "its libraries", has))
        text = f"{said}, which has no {first}: {path} does not load"
        row = load().package_names.get(wheel.name)
        needed = row is None or not row.optional
        known = row is not None and needed and lacking.keys() == asking.keys()
        # as of what is not found: a wheel of which no file loads does not work
        opened = {*opened_by_import(wheel.name, wheel.files)}
        none_loads = needed and bool(opened) and lacking.keys() >= opened
        if known or none_loads or stack.truth.comes_to(lacking):
            yield impossible(text, *values)
        else:
            yield unknown(f"{text}; whether {wheel.name} does without it is not known", *values)


def _asked_of_torch(
    torch: WheelLinks, wheel: WheelLinks, wheels: Iterable[WheelLinks]
) -> dict[str, list[str]]:
    """The symbols that PyTorch lacks, by file that asks for them, none if it has all; without files that are
    linked with libraries of a third wheel, which may define them.
    """
    if torch.torch_defined is None:
        return {}
    third = {
        path.rpartition("/")[2]
        for one in wheels
        if one is not torch and one is not wheel and not one.name.startswith("nvidia-")
        for path in one.files
    }
    third -= {path.rpartition("/")[2] for one in (torch, wheel) for path in one.files}
    return {
        path: sorted(one for one in asked if number_of(one) not in torch.torch_defined)
        for path, asked in wheel.torch_asked.items()
        if third.isdisjoint(wheel.files[path].needed)
    }


def _of_another_cuda(stack: Stack, wheels: Sequence[WheelLinks]) -> Iterator[Finding]:
    """NVIDIA's libraries that ask another one in the lock for symbols which it does not have."""
    owners: dict[str, list[tuple[WheelLinks, str]]] = {}
    for wheel in wheels:
        for path in wheel.files:
            owners.setdefault(path.rpartition("/")[2], []).append((wheel, path))
    linked = {name for wheel in wheels for file in wheel.files.values() for name in file.needed}
    # the import of PyTorch loads what it requires of NVIDIA's; its largest library, linked with it, is unread
    required = frozenset[str]().union(*(wheel.asks for wheel in wheels if wheel.name == "torch"))
    for wheel in wheels:
        for path, symbols in wheel.cuda.items():
            for name, asked in symbols.asked.items():
                if len(found := owners.get(name, [])) != 1 or found[0][1] not in found[0][0].cuda:
                    continue  # absent, or another copy may be loaded, or nobody read it
                ((other, place),) = found
                lacking = sorted(asked - other.cuda[place].offered)
                if not lacking or other is wheel:
                    continue
                more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
                asks = f"{wheel.label} asks for {lacking[0]}{more} of {name}"
                text = f"{asks}, which that of {other.label} has not"
                values = _read_of(wheel, path, lacking[0]), _read_of(other, place, "has no such symbol")
                mend = "take both out of one release of CUDA"
                opened = path.rpartition("/")[2] in linked or wheel.name in required
                if opened and _base_has_cuda(stack, name) is False:
                    yield impossible(f"{text}: {path} does not load; {mend}", *values)
                else:
                    yield unknown(f"{text}: whether {path} is loaded with it is not known; {mend}", *values)


def _cxx11(symbols: Iterable[str]) -> bool:
    return any("7__cxx11" in symbol for symbol in symbols)


def _folders(wheels: Iterable[WheelLinks]) -> set[str]:
    """Folders that the recipe tells the loader of: those of NVIDIA's wheels (``environment.sh.j2``)."""
    every = {path.rpartition("/")[0] for wheel in wheels for path in wheel.files}
    return {folder for folder in every if re.fullmatch(r"nvidia/[^/]+/lib", folder)}


def _of_the_base(stack: Stack, wheels: Iterable[WheelLinks]) -> tuple[set[str], set[str]]:
    """Names asked for that the base has, and those of which nobody knows whether it has them."""
    asked = {name for wheel in wheels for file in wheel.files.values() for name in file.needed}
    answers = {name: _base_has(stack, name) for name in asked}
    return {name for name in asked if answers[name]}, {name for name in asked if answers[name] is None}


def _loaded_by_imports(stack: Stack) -> Iterator[Finding]:
    """Libraries of the system that the import of a wheel is on record to load, and that the lock lacks."""
    debs = stack.truth.debs
    if debs is None or stack.cell.platform != "linux/amd64":
        return
    lacked: dict[WheelTruth, list[SystemLibraryRow]] = {}
    read = {one.name for one in stack.truth.links}
    for row in load().loaded_by_imports:
        for parsed in map(Requirement, row.loaded_by if row.is_there(_suite(stack), debs) is False else ()):
            wheel = stack.truth.wheel(parsed.name)
            if wheel is None or not contains(parsed.specifier, wheel.version):
                continue
            if wheel.name not in read and not wheel.file.endswith("-any.whl"):
                continue  # it may bring the library
            stem = row.name.partition(".so")[0]
            own = (path for one in stack.truth.links if one.name == wheel.name for path in one.files)
            if not any(path.rpartition("/")[2].startswith(stem) for path in own):
                lacked.setdefault(wheel, []).append(row)
    for wheel, rows in lacked.items():
        names = " and ".join(row.name for row in rows)
        ways = tuple(dict.fromkeys(way for row in rows if (way := _debian_package(stack, row))))
        text = f"the import of {wheel.name} {wheel.version} loads {names}, which nothing in the lock brings"
        value = Value("is loaded", names, rows[0].sources[-1])
        mend = f"; write {' and '.join(ways)} into `apt`" if ways else ""
        yield replace(impossible(f"{text}{mend}", value), apt=ways)


def _one_of_imports(stack: Stack) -> Iterator[Finding]:
    """Libraries of the system of which the import of a wheel loads one of several releases, and that the base
    has in none.
    """
    there = {path.rpartition("/")[2] for one in stack.truth.links for path in one.files}
    for row in load().system_choices if stack.cell.platform == "linux/amd64" else ():
        asked = [Requirement(text) for text in row.loaded_by]
        named = re.compile(rf"({'|'.join(row.names)})\.so\.\d+")
        for wheel in stack.truth.links:
            if not any(one.name == wheel.name and contains(one.specifier, wheel.version) for one in asked):
                continue
            every = {frozenset(filter(named.fullmatch, file.needed)) for file in wheel.files.values()}
            every.discard(frozenset())
            answers = [_has_all(stack, names - there) for names in every]
            if True in answers or not answers:
                continue
            text = f"the import of {wheel.label} loads the libraries of {row.title}, in one of"
            releases = sorted({min(names) for names in every if names})
            text += f" {len(every)} releases, none of which "
            value = Value("loads one of", ", ".join(releases), row.source)
            mend = f"; write {row.package} into `apt`"
            if None in answers:
                text = text.replace(", none of which ", ": ")
                yield unknown(f"{text}whether the base has one is not known{mend}", value)
            else:
                # whether it is imported is certain of what the cell names, not of what others ask for
                judge = (
                    impossible if wheel.name in names_of((*stack.cell.frameworks, *stack.cell.pip)) else warns
                )
                yield replace(judge(f"{text}the lock brings{mend}", value), apt=(row.package,))


def _has_all(stack: Stack, names: Iterable[str]) -> bool | None:
    """Whether the base has all of these libraries; None if nobody knows.

    Debian names the package of a library after it, and so of none with its name nobody brings it:
    https://www.debian.org/doc/debian-policy/ch-sharedlibs.html
    """
    debs, found = stack.truth.debs, list[bool | None]()
    for name in names:
        answer = _base_has(stack, name)
        if answer is None and debs is not None and name not in load().system_libraries:
            stem, _, number = name.partition(".so.")
            answer = None if any(deb.startswith(f"{stem}{number}") for deb in debs) else False
        found.append(answer)
    return False if False in found else None if None in found else True


def _suite(stack: Stack) -> str | None:
    return stack.system.suite if stack.system is not None else None


def _debian_package(stack: Stack, library: SystemLibraryRow) -> str | None:
    """The package that has it in the base's Debian, or in the one of its age; None if none has."""
    return next(iter(library.packages_in(_suite(stack))), None)


def _versions_of_the_base(stack: Stack, wheels: Iterable[WheelLinks]) -> dict[str, set[str]]:
    """The versions of the base's C library, and of a Debian rootfs's libstdc++, that are asked for and that
    it has, by library.
    """
    system, found = stack.system, dict[str, set[str]]()
    newest = {"GLIBC": system.glibc} if system is not None else {}
    if system is not None and system.libstdcxx and "libstdc++6" in (stack.truth.debs or ()):
        newest["GLIBCXX"] = system.libstdcxx
    asked = {row[:2] for wheel in wheels for file in wheel.files.values() for row in file.asked}
    for library, version in asked:
        counted = _VERSIONED.get(library, "")
        kind, _, number = version.partition("_")
        if counted in newest:
            has = found.setdefault(library, set())
            compared = kind == counted and re.fullmatch(r"\d+(\.\d+)*", number)
            if not compared or at_least(newest[counted], number):
                has.add(version)
    return found


def _base_has(stack: Stack, name: str) -> bool | None:
    """Whether the base has a library where the loader looks; None if nobody knows."""
    cell, debs = stack.cell, stack.truth.debs
    if re.fullmatch(rf"(?:{'|'.join(load().framework_libraries)})\w*\.so(?:\.\d+)*", name):
        return False  # wheels alone bring them
    if CUDA_LIBRARY.fullmatch(name):
        return _base_has_cuda(stack, name)
    if _OF_EACH_SYSTEM.fullmatch(name):
        return True
    if (row := load().system_libraries.get(name)) is None:
        return None
    if debs is not None:
        return row.is_there(_suite(stack), debs)
    there = load().bare_packages(stack.system) & {*row.packages_in(_suite(stack))}
    return True if there or not {*cell.apt}.isdisjoint(row.packages) else None


_OF_EACH_SYSTEM = re.compile(
    r"(?:ld-linux[\w-]*|lib(?:c|m|dl|pthread|rt|util|resolv|mvec|gcc_s|stdc\+\+))\.so\.\d+"
)
"""Libraries of glibc and GCC, which each system has that runs wheels for manylinux:
https://peps.python.org/pep-0600/
"""


_IN_FLAVOURS = {
    "base": re.compile(r"libcudart\."),
    "runtime": re.compile(r"lib(?!cusparseLt|cutensor|nvshmem|cupti|nvperf|pcsampling)"),
    "devel": re.compile(r"lib(?!cusparseLt|cutensor|nvshmem)"),
}
"""CUDA's libraries, cuDNN not counted, by the flavours of ``nvidia/cuda`` that have them:
gitlab.com/nvidia/container-images/cuda, ``dist/*``
"""


def _base_has_cuda(stack: Stack, name: str) -> bool | None:
    """Whether the base has a library of CUDA's; None if nobody knows."""
    cell, tag, found = stack.cell, stack.tag, NUMBERED.fullmatch(name)
    if any(key == "LD_LIBRARY_PATH" for key, _ in cell.env):
        return None
    if name.startswith("libcudnn"):
        return _base_has_cudnn(stack, name.rpartition(".so.")[2])
    if any(re.match(r"cuda|nvidia|lib(?:cu(?!dnn)|n)", text) for text in cell.apt):
        return None
    cuda = stack.base_cuda
    if cell.base.kind == "rootfs" or (cuda is not None and found and int(found[1]) != major(cuda.text)):
        return False
    return None if tag is None else _IN_FLAVOURS[tag.flavour].match(name) is not None


def _base_has_cudnn(stack: Stack, number: str) -> bool | None:
    """Whether the base, or its ``apt``, has a major release of cuDNN; None if nobody knows."""
    copies = [copy.version for copy in stack.copies if copy.place in {"base", "apt"}]
    if any(version is not None and str(major(version.text)) == number for version in copies):
        return True
    return None if None in copies or (stack.tag is None and stack.cell.base.kind == "registry") else False


def _read_of(wheel: WheelLinks, what: str, text: str) -> Value:
    return Value(what, text, Source("wheel", wheel.label))


def _two_owners(stack: Stack, proof: SetProof, wheels: Mapping[str, WheelLinks]) -> Iterator[Finding]:
    """Files of several wheels, with different contents."""
    paths: dict[tuple[str, ...], list[str]] = {}
    for row in proof.shared:
        paths.setdefault(row.owners, []).append(row.path)
    for owners, files in paths.items():
        yield from _both_bring(stack, {name: wheels[name].label for name in owners}, files)


def _both_bring(stack: Stack, owners: Mapping[str, str], files: Sequence[str]) -> Iterator[Finding]:
    """The finding that wheels, by their labels, bring files of one path; none if ``same-files`` has it."""
    if any(owners.keys() <= set(row.names) for row in load().same_files):
        return
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    said = f"{' and '.join(owners.values())} both bring {files[0]}{more}"
    yield Finding(
        _worst(stack),
        f"{said}, with different contents: an image has one of them",
        tuple(Value("file", files[0], Source("wheel", label)) for label in owners.values()),
    )


def _worst(stack: Stack) -> Outcome:
    """A list of packages as some machine has them is taken as it is, and this is said of it."""
    return Outcome.WARNS if stack.cell.dependencies == "listed" else Outcome.IMPOSSIBLE


def _broken(
    stack: Stack,
    wheel: WheelLinks,
    proof: SetProof,
    broken: list[list[FileProof]],
    wheels: tuple[WheelLinks, ...],
) -> Finding:
    """A wheel with files that cannot be loaded is refused if none can, else nobody knows."""
    first = min((one for group in broken for one in group), key=lambda one: (one.file.count("/"), one.file))
    lacked = (first.opened.library or "").rpartition("/")[2]
    by = normpath(first.opened.by).removeprefix(f"{SITE}/") if first.opened.by else ""
    through = f" through {by}" if by and by != first.file else ""
    values = [_read_of(wheel, first.file, f"{lacked}{through}")]
    said = f"{wheel.label} is linked with {lacked}{through} ({first.file}), which nothing in the lock brings"
    if first.opened.kind == "version":
        text = (first.opened.text or "").replace("/site-packages/", "")
        has = (
            f" of {stack.system.name}"
            if stack.system and not (first.opened.library or "").startswith(SITE)
            else ""
        )
        said = f"{wheel.label} asks for a version that {lacked}{has} has not: {text}"
    elif rival := _rival(lacked, wheels):
        other, name = rival
        said += f"; {other.label} brings {name}"
        values.append(_read_of(other, "brings", name))
    apt = tuple(_missing_packages(stack, first, lacked, wheels)) if first.opened.kind == "absent" else ()
    says = f"{said}: it does not load{_mend(stack, wheel, lacked, apt)}"
    row = load().package_names.get(wheel.name)
    if row is not None and row.optional:
        return warns(says, *values)
    certain = proof.loads(wheel.name) is False
    if certain or stack.truth.comes_to(one.file for group in broken for one in group):
        return replace(impossible(says, *values), apt=apt)
    if first.opened.kind == "version" and proof.loads(wheel.name):
        return warns(says.replace("it does not", "this file does not", 1), *values)
    part = says.replace("it does not load", "whether it does without this file is not known", 1)
    # what lies deeper is as often for what is optional: CuPy's cuTENSOR
    deep = first.file.count("/") >= 2 and first.opened.kind != "version"
    return possible(part, *values) if deep else replace(unknown(part, *values), apt=apt)


def _doubtful(
    stack: Stack, wheel: WheelLinks, proof: SetProof, doubtful: list[list[FileProof]]
) -> Iterator[Finding]:
    """Of a wheel with files for which the base has to have a library, and nobody knows whether it has."""
    first = min((one for group in doubtful for one in group), key=lambda one: (one.file.count("/"), one.file))
    row = load().package_names.get(wheel.name)
    others = [one for one in proof.files if one.wheel == wheel.name and not any(one in g for g in doubtful)]
    may_load = any(one.opened.loads is not False or not one.certain for one in others)
    deep = first.file.count("/") >= 2 and may_load
    if deep or (row is not None and row.optional):
        return  # as of those that certainly fail: what lies there is as often for what is optional
    name = first.base or ""
    library = load().system_libraries.get(name)
    way = _debian_package(stack, library) if library is not None else None
    text = f"{wheel.label} is linked with {name} ({first.file}), which nothing in the lock brings"
    mend = f"; Debian has it in {way}: write that into `apt`" if way else ""
    yield unknown(f"{text}: whether the base has it is not known{mend}", _read_of(wheel, first.file, name))


def _rival(lacked: str, wheels: Iterable[WheelLinks]) -> tuple[WheelLinks, str] | None:
    """The wheel that brings the same library under another number."""
    stem = lacked.partition(".so")[0]
    for wheel in wheels:
        for path in wheel.files:
            name = path.rpartition("/")[2]
            if name != lacked and name.partition(".so")[0] == stem and ".libs/" not in path:
                return wheel, name
    return None


def _missing_package(stack: Stack, lacked: str) -> str | None:
    """The Debian package with a library that a base of Debian's packages lacks."""
    row = load().system_libraries.get(lacked) if stack.truth.debs is not None else None
    way = _debian_package(stack, row) if row is not None else None
    return way if way not in (stack.truth.debs or ()) else None


def _missing_packages(
    stack: Stack, first: FileProof, lacked: str, wheels: Iterable[WheelLinks]
) -> Iterator[str]:
    """The Debian packages with what a file lacks, and all that it loads; none if no package has the library
    for want of which it fails.
    """
    by_name: dict[str, LinkFile] = {}
    for wheel in wheels:
        for path, file in wheel.files.items():
            by_name.setdefault(path.rpartition("/")[2], file)
            by_name.setdefault(file.soname or path, file)
    left = dict.fromkeys(
        (lacked, *(by_name[name].needed if (name := first.file.rpartition("/")[2]) in by_name else ()))
    )
    found = dict[str, None]()
    for name in (every := [*left]):
        if name in by_name:
            more = [one for one in by_name[name].needed if one not in left]
            left |= dict.fromkeys(more)
            every += dict.fromkeys(more)
        elif _base_has(stack, name) is False and (way := _missing_package(stack, name)):
            found[way] = None
        elif name == lacked:
            return
    yield from found


def _mend(stack: Stack, wheel: WheelLinks, lacked: str, apt: Sequence[str]) -> str:
    """The release of one of the two that mends it, as far as it is on record."""
    torch, ways = torch_of(stack), list[str]()
    if apt:
        return f"; write {' and '.join(apt)} into `apt`"
    one = next((one for one in stack.beside if one.name == wheel.name), None)
    other = release_for(stack, one, torch) if one is not None and torch is not None else None
    if other is not None and other.version != wheel.version:
        ways.append(f"{other.label} has nothing against {torch.label if torch else ''}")
    symbols = one.row.torch if one is not None and one.row is not None else ()
    found = NUMBERED.fullmatch(lacked)
    if found is not None and torch is not None and torch.table is not None:
        rows = [
            row
            for row in torch.table.rows
            if row.cuda is not None and major(row.cuda) == int(found[1]) and stack.cell.python in row.python
            if not symbols or short(row.version, 2) in symbols
        ]
        row = max(rows, key=lambda row: release(row.version), default=None)
        if row is not None and torch.cuda is not None and major(torch.cuda.text) != int(found[1]):
            local = f"+{row.variant}" if row.variant else ""
            ways.append(f"{torch.title} {row.version}{local} is for CUDA {short(row.cuda or '', 2)}")
        if one is None and torch.cuda is not None:
            ways.insert(0, f"take a build of {wheel.name} for CUDA {major(torch.cuda.text)}")
    return f"; {'; or '.join(ways)}" if ways else ""


def imports(stack: Stack) -> Iterator[Finding]:
    """``imports``: the names that the import of a package in the cell takes from another one are there."""
    labels = {wheel.name: f"{wheel.name} {wheel.version}" for wheel in stack.truth.wheels}
    for one in stack.truth.imports:
        if one.generated and _is_taken(one, dict(stack.cell.env)):
            continue
        taker, giver = (labels.get(name, name) for name in (one.taker, one.giver))
        if one.shared:
            yield from _both_bring(stack, {one.giver: giver, one.taker: taker}, [one.path])
            continue
        apt: tuple[str, ...] = ()
        if one.ends:
            text, values, apt = _ended(stack, one, taker, giver)
        else:
            text, values = _said(one, taker, giver, f"Python {stack.cell.python}")
        unsure = one.aside or (one.doubt and bool(one.ends))
        worst = Outcome.IMPOSSIBLE if one.root == OWN else _worst(stack)  # a list that the cell says more of
        outcome, bounds = Outcome.WARNS if unsure else worst, _bounds(one)
        lacked = names_of(bounds) if not one.giver else ()
        yield Finding(outcome, text, values, apt=apt, bounds=bounds, lacked=(*lacked,))


def _bounds(one: Missing) -> tuple[str, ...]:
    """The bounds with which an import has what it lacks, as far as a release is known that has it.

    Metadata without an upper bound was written before the name went: gradio 4 and huggingface_hub.HfFolder.
    Code of before Python 3.12 counts on the setuptools that each environment had, and on its pkg_resources.
    Code that protoc before 3.19 generated goes with protobuf before 4 (https://protobuf.dev/news/2022-05-06/).
    """
    if one.generated:
        return (f"{one.giver}<4" if _is_old(one) else f"{one.giver}>={one.generated}",)
    if one.aside:
        return ()
    if one.older or one.newer:
        return (f"{one.giver}<={one.older}" if one.older else f"{one.giver}>={one.newer}",)
    return (WITH_PKG_RESOURCES,) if not one.giver and one.lacked == "pkg_resources" else ()


def _through(one: Missing) -> str:
    """The words on the import that comes to the module that takes something."""
    if one.root == one.taker:
        return ""
    return f", which {OWN} names," if one.root == OWN else f", which an import of {one.root} imports,"


def _own(one: Missing, giver: str, python: str) -> tuple[str, tuple[Value, ...]]:
    """Of what the cell's own imports lack."""
    values = [Value(OWN, one.lacked, CELL)]
    said = f"{OWN} names {one.lacked}, which"
    if one.giver == PYTHON:
        text = f"{said} {python} does not have: take another Python, or take it out of {OWN}"
    elif one.giver:
        values.append(Value("not there", one.lacked, Source("wheel", giver)))
        way = _with_it(one) or f"another release of {one.giver}"
        text = f"{said} {giver} does not have: take {way}, or write the import that {giver} has"
    else:
        text = f"{said} nothing in the lock brings: add {_bringer(one.lacked)} to pip"
    return text, tuple(values)


def _bringer(lacked: str) -> str:
    """The packages that have a module, as far as one is on record."""
    top = lacked.partition(".")[0]
    tables = load().packages.items()
    names = [
        name
        for name, table in tables
        if any(re.match(rf"{top}[./]", path) for path in table.rows[-1].modules)
    ]
    return " or ".join(names) if names else f"the package that has {lacked}"


def _end(one: Missing) -> str:
    """The import that ends."""
    if not one.aside and not one.most:
        return "the import ends"
    module = one.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    named = f"`import {one.chain[0] if one.chain else module}`"
    if one.most:
        return f"{named} ends, as that of {one.most} modules of {one.root} does"
    return f"{named}, which is not the import of {one.root}, ends"


def _ended(
    stack: Stack, one: Missing, taker: str, giver: str
) -> tuple[str, tuple[Value, ...], tuple[str, ...]]:
    """Of an import that a module ends by itself; and the Debian packages with which it does not."""
    apt: tuple[str, ...] = ()
    through = _through(one)
    values = [Value(f"{one.path}, line {one.line}", one.ends, Source("wheel", taker))]
    way = f"take another release of {one.taker}"
    if one.giver == PYTHON:
        way += ", or of Python"
    elif one.giver and one.giver != one.taker:
        way += f" or of {one.giver}"
        values.append(Value("is there", giver, Source("wheel", giver)))
    elif (package := _package_named(stack, one.library)) is not None:
        apt = (package,)
        way = f"write {package} into `apt`"
    end = "whether its import does so is not known" if one.doubt else _end(one)
    return f"{taker}{through} {one.ends}: {end}; {way}", tuple(values), apt


def _package_named(stack: Stack, library: str | None) -> str | None:
    """The Debian package with a library by a name as programs open it."""
    rows = load().libraries_named(library) if library else ()
    return next((found for row in rows if (found := _debian_package(stack, row))), None)


def _is_taken(one: Missing, variables: Mapping[str, str]) -> bool:
    """Whether protobuf takes generated code that it refuses else."""
    if _is_old(one):
        return variables.get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION") == "python"
    return variables.get("TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK") == "true"


def _is_old(one: Missing) -> bool:
    return one.generated == ".".join(map(str, BY_OLD_PROTOC))


def _with_it(one: Missing) -> str:
    """The release of the giver that has what is lacking; empty if none is known."""
    if one.older:
        return f"{one.giver} {one.older}, which has it"
    return f"{one.giver} {one.newer} or newer, which has it" if one.newer else ""


def _said(one: Missing, taker: str, giver: str, python: str) -> tuple[str, tuple[Value, ...]]:
    if one.taker == OWN:
        return _own(one, giver, python)
    through = _through(one)
    takes = Value(f"{one.path}, line {one.line}", one.lacked, Source("wheel", taker))
    if one.giver == PYTHON:
        return (
            f"{taker}{through} {'uses' if one.used else 'imports'} {one.lacked}, which {python} does not"
            f" have: {_end(one)}; take another release of {one.taker}, or of Python"
        ), (takes, Value("not there", one.lacked, Source("wheel", taker)))
    if one.generated:
        by = "a protoc before 3.19" if _is_old(one) else f"protobuf {one.generated}"
        way = "protobuf<4" if _is_old(one) else f"protobuf {one.generated} or newer"
        return (
            f"{taker}{through} has code that {by} generated, which {giver} refuses: the import of {one.path}"
            f" ends; take {way}, or another release of {one.taker}"
        ), (takes, Value("generated by", by, Source("wheel", taker)))
    if one.argument:
        way = f"another release of {one.taker} or of {giver}"
        gives, does = ("without", "demands") if one.left_out else ("with", "does not take")
        return (
            f"{taker}{through} calls {one.lacked} {gives} the argument {one.argument}, which it {does} in"
            f" {giver}: {_end(one)}; take {way}"
        ), (takes, Value(does, one.argument, Source("wheel", giver)))
    if not giver:
        added = WITH_PKG_RESOURCES if one.lacked == "pkg_resources" else "it"
        return (
            f"{taker}{through} imports {one.lacked}, which nothing in the lock brings and {one.taker} does "
            f"not ask for: {_end(one)}; add {added} to pip, or take another release of {one.taker}"
        ), (takes,)
    way = f"another release of {one.taker}"
    way += f", or {_with_it(one)}" if one.older or one.newer else f" or of {one.giver}"
    return (
        f"{taker}{through} {'uses' if one.used else 'imports'} {one.lacked}, which {giver} does not have:"
        f" {_end(one)}; take {way}"
    ), (takes, Value("not there", one.lacked, Source("wheel", giver)))
