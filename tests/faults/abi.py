"""Functions, numbers and structs of NVIDIA's headers, as gcc understands them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_HEAD = """\
#include <%(header)s>
#include <stddef.h>
#include <stdio.h>
/* pointers p, four bytes i, eight bytes n: the letters of the probe's prototypes */
#define KIND(T) \\
    (__builtin_classify_type(*(T *)0) == 5 ? 'p' : sizeof(T) == 4 ? 'i' : sizeof(T) == 8 ? 'n' : '?')
#define FIELD(T, f) \\
    printf("%%s[\\"" #f "\\", %%zu, %%zu]", first++ ? ", " : "", offsetof(T, f), sizeof(((T *)0)->f))
int main(void) {
    int first;
    (void)first;
    printf("{");
"""


def declared(
    header: str, include: Iterable[Path], work: Path, names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """{function: (type of its result, types of its parameters...)} of those that the header declares."""
    source, listing = work / "declared.c", work / "declared.txt"
    source.write_text(f"#include <{header}>\n")
    _gcc([*_flags(include), "-fsyntax-only", "-aux-info", str(listing), str(source)])
    wanted, found = set(names), {}
    for line in listing.read_text().splitlines():
        match = re.search(r"extern (.+?)\s*\b(\w+) \((.*)\);", line)
        if match and match[2] in wanted:
            parameters = [] if match[3] == "void" else match[3].split(", ")
            found[match[2]] = (match[1], *parameters)
    return found


def measured(
    header: str,
    include: Iterable[Path],
    work: Path,
    *,
    functions: dict[str, tuple[str, ...]],
    numbers: Iterable[str],
    structs: dict[str, tuple[str, ...]],
) -> dict[str, dict[str, object]]:
    """{"functions": {name: prototype}, "numbers": {name: value}, "structs": {name: {"size", "fields"}}}."""
    body = _HEAD % {"header": header} + '    printf("\\"functions\\": {");\n'
    rows = []
    for name, (result, *parameters) in functions.items():
        kinds = ["'v'" if result == "void" else f"KIND({result})", *(f"KIND({kind})" for kind in parameters)]
        rows.append(f'"\\"{name}\\": \\"%c({"%c" * len(parameters)})\\"", {", ".join(kinds)}')
    body += _printed(rows) + '    printf("}, \\"numbers\\": {");\n'
    body += _printed([f'"\\"{name}\\": %lld", (long long){name}' for name in numbers])
    body += '    printf("}, \\"structs\\": {");\n'
    for index, (name, fields) in enumerate(structs.items()):
        comma = ", " if index else ""
        body += f'    printf("{comma}\\"{name}\\": {{\\"size\\": %zu, \\"fields\\": [", sizeof({name}));\n'
        body += "    first = 0;\n" + "".join(f"    FIELD({name}, {field});\n" for field in fields)
        body += '    printf("]}");\n'
    body += '    printf("}}\\n");\n    return 0;\n}\n'
    source, program = work / "measured.c", work / "measured"
    source.write_text(body)
    _gcc([*_flags(include), "-Wno-deprecated-declarations", "-o", str(program), str(source)])
    return json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def enumerators(include: Path, pattern: str) -> list[str]:
    """Names that any enum in these headers has, in order."""
    found: dict[str, None] = {}
    for header in sorted(include.glob("*.h")):
        names = re.findall(rf"^\s*({pattern})\b[^,;()]*(?:,|=|$)", header.read_text(), re.MULTILINE)
        found.update(dict.fromkeys(names))
    return list(found)


def _printed(rows: list[str]) -> str:
    return "".join(f'    printf("{", " if index else ""}" {row});\n' for index, row in enumerate(rows))


def _flags(include: Iterable[Path]) -> list[str]:
    return [f"-I{path}" for path in include]


def _gcc(arguments: list[str]) -> None:
    done = subprocess.run(["gcc", "-std=gnu11", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
