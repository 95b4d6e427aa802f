"""The page ``docs/causes.md``, made from ``builder/verify/cudnn_verify/common/causes.ini``."""

from __future__ import annotations

from builder.verify.cudnn_verify.common.causes import CAUSES, EXIT_CODES, VERDICT_OF_SIDE
from builder.verify.cudnn_verify.read.signatures import read_signatures

from .checks import read_checks

_SIDES = {
    "image": "The image is at fault",
    "image-on-gpu": "This image on this GPU",
    "host": "The machine: driver, devices, container set-up",
    "busy": "The session: try again",
}
_HEAD = f"""\
# Causes

Generated from `builder/verify/cudnn_verify/common/causes.ini`; a test compares. \
`cudnn-verify --explain CAUSE` prints one of them.

A failed verdict names one of these {len(CAUSES)} causes. The first layer that fails is the cause; what
follows from it is listed as a consequence.
"""


def markdown() -> str:
    """The whole page."""
    lines = _HEAD.splitlines()
    rows = read_checks()
    for side, title in _SIDES.items():
        verdict = VERDICT_OF_SIDE[side]
        lines += ["", "## " + title, "", f"Verdict `{verdict}`, exit code {EXIT_CODES[verdict]}."]
        for cause in (cause for cause in CAUSES.values() if cause.side == side):
            checks = [row.id for row in rows if cause.id in row.causes.split()]
            checks += ["whatever loads something"] if cause.judged else []
            lines += ["", f"### {cause.id}", "", f"**{cause.title}.** {cause.explanation}", ""]
            lines += [f"Known by: {cause.proof}.", ""]
            named = f"Named by [checks](checks.md): {', '.join(checks)}."
            lines += [
                "No check of the probe looks for it: `diagnose` reads it in texts." if cause.texts else named
            ]
            lines += ["", f"What to do: {cause.remedy}", "", f"Source: <{cause.source}>"]
            lines += _texts(cause.id)
    return "\n".join(lines) + "\n"


def _texts(cause: str) -> list[str]:
    """The texts that people meet for a cause: those that prove it, and those that it fits."""
    proving, fitting = [], []
    for signature in read_signatures():
        row = f"- `{signature.example}` ([{', '.join(signature.systems)}]({signature.source}))"
        if signature.kind == "proves" and signature.causes == [cause]:
            proving.append(row)
        elif cause in signature.causes + [outcome for _, outcome in signature.when]:
            fitting.append(row)
    lines = ["", "Texts that say so:", "", *proving] if proving else []
    return lines + (["", "Texts that it fits, among other causes:", "", *fitting] if fitting else [])
