"""What a library asks of a system: other libraries, and a glibc."""

from dataclasses import dataclass

from builder.core.elf import elf_links, elf_machine, elf_segments, reader_of
from builder.core.versions import key


@dataclass(frozen=True, kw_only=True)
class Needs:
    libraries: tuple[str, ...] = ()
    """As ``DT_NEEDED`` has them: ``libcudnn.so.9``."""
    glibc: str | None = None
    """None if no symbol of glibc's is versioned."""
    paths: tuple[str, ...] = ()
    """Where it looks first, ``$ORIGIN`` and all: ``DT_RPATH`` and ``DT_RUNPATH``."""


def needs_of(content: bytes) -> Needs | None:
    """What the library asks for; None for what is no such library, or not a whole one."""
    read = reader_of(content)
    try:
        links = elf_links(read, elf_segments(read)) if elf_machine(read) is not None else None
        if links is None:
            return None
        asked = (version for _, version, _ in links.asked())
        glibc = [name.removeprefix("GLIBC_") for name in asked if name.startswith("GLIBC_2")]
    except ValueError:
        return None
    paths = [path for text in (links.rpath, links.runpath) for path in (text or "").split(":") if path]
    return Needs(libraries=tuple(links.needed), glibc=max(glibc, key=key, default=None), paths=tuple(paths))
