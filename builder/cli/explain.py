"""``rtbuild explain``: the reasons for a cell's verdict, or the meaning of a cause or a message."""

import sys
from typing import Annotated

from builder.cli import options as opt
from builder.cli.check import document, judge
from builder.cli.probing import explain_text, is_text
from builder.console import print_json_rows
from builder.errors import NothingSelectedError, UsageError
from builder.facts import Outcome, summary
from builder.facts import explain as page


def explain(
    cell: Annotated[str, opt.of("CELL|CAUSE|TEXT: A cell's id or glob; a cause's id; an error message.")],
    matrices: opt.Matrices = None,
    driver: Annotated[str | None, opt.of("--driver: The driver to answer for.")] = None,
    read: opt.Read = False,
    deep: opt.Deep = False,
    mirror: opt.Mirror = None,
    json_: opt.Json = False,
) -> int:
    """Everything about one cell's verdict, as JSON the same as ``check``; exit 1 if it is impossible."""
    if is_text(cell) or not (matrices or opt.matrix_files()):
        return explain_text(cell)
    loaded = opt.load_all(matrices)
    try:
        chosen = opt.choose_one(loaded, cell)
    except NothingSelectedError as none:
        try:
            return explain_text(cell)
        except UsageError:
            raise none from None
    found, reading = judge(
        loaded, [chosen], driver=opt.driver(driver), read=read, deep=deep, mirrors=opt.mirrors(mirror)
    )
    findings = found[chosen.id]
    if json_:
        print_json_rows(document([chosen], found, reading), "cells")
    else:
        sys.stdout.write(page(chosen, findings))
    return 1 if summary(findings) is Outcome.IMPOSSIBLE else 0
