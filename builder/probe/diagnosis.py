"""From texts to causes: the signature of each line, and the decision between causes that fit equally."""

import re
from bisect import bisect_right

from .causes import CAUSES, read_looks
from .conditions import CONDITIONS
from .data import read_signatures
from .reading import redact
from .remedies import Remedies
from .told import Told, printed_by
from .versions import cudnn_tuple, dotted

PROVES, FITS, WRAPPER = 3, 2, 1
_STRENGTHS = {"proves": PROVES, "fits": FITS, "wrapper": WRAPPER}
_SURENESS = {PROVES: "proven by the text", FITS: "fits", WRAPPER: "a message that hides its cause"}
_WIDE = 60
_RESTART = ("pip", "apt", "conda")
# Somebody's words about a message that is gone.
_PAST = re.compile(
    r"\bno longer (?:see|get|have)|\b(?:fixed|solved|resolved|got rid of)\b|"
    r"\b(?:do|does|did)(?:n't| not) (?:see|get|have|show)",
    re.IGNORECASE,
)


class SignatureHit(object):
    """One signature in one line: causes that fit, the most frequent first, and how sure that is."""

    def __init__(self, signature, match, line, told, before):
        self.signature, self.line, self.told = signature, line, told
        self.detail = _detail(match, line)
        self.detail["printed_by"] = printed_by(before + line.text)
        self.detail["requirement"] = signature.wants
        self.strength = _STRENGTHS.get(signature.kind, 0)
        self.because = []
        causes = [cause for cause in signature.causes if not self._excluded(cause)]
        for condition, cause in signature.when:
            reason = CONDITIONS[condition](told, self.detail)
            if reason:
                causes, self.strength = [cause], PROVES
                self.because.append(reason)
                break
        if len(causes) == 1 and len(signature.causes) > 1 and self.strength == WRAPPER:
            self.strength = FITS
        self.causes = causes

    def _excluded(self, cause):
        for condition, out in self.signature.unless:
            reason = CONDITIONS[condition](self.told, self.detail) if out == cause else None
            if reason:
                self.because.append("not %s: %s" % (cause, reason))
                return True
        return False

    def says(self):
        """The meaning of this line, by its signature."""
        text = self.signature.says
        return text.format(**{k: v or "?" for k, v in self.detail.items()}) if text else None


def _detail(match, line):
    detail = dict(match.groupdict())
    for key in ("loaded", "compiled", "minimum"):
        if detail.get(key):
            detail[key] = _cudnn_text(detail[key])
    if detail.get("found"):
        detail["found_cuda"] = "%d.%d" % (int(detail["found"]) // 1000, int(detail["found"]) % 1000 // 10)
    matched = " ".join(match.group(0).split())  # a terminal wraps long lines
    text = matched + line.text
    library = re.search(r"lib[\w+]+\.so[\w.]*(?=: cannot|'; dlerror|' | is not found)", text)
    detail["library"] = library.group(0) if library else None
    if detail["library"] and not detail.get("major"):
        found = re.match(r"libcudnn\w*\.so\.(\d+)", detail["library"])
        detail["major"] = found.group(1) if found else None
    detail.setdefault("major", None)
    if match.re.pattern.find("libcudnn_") >= 0 and not detail["major"]:
        found = re.search(r"\.so\.(\d)", match.group(0))
        detail["major"] = found.group(1) if found else None
    detail["line"], detail["matched"] = line.text, matched
    return detail


def _cudnn_text(text):
    """``8.0.5`` out of a framework's form of it: 8.0.5, 7301, 90100, or (8, 7, 0)."""
    parts = [part for part in re.split(r"[,. ]+", text) if part]
    return dotted(cudnn_tuple(parts[0])) if len(parts) == 1 and len(parts[0]) >= 4 else ".".join(parts)


def diagnose(reading):
    """The answer as one document: causes, the likeliest first, the facts read, the next thing to look at."""
    told = Told(reading.lines)
    told.places |= reading.places
    findings, harmless = find(reading.lines, told)
    report = reading.reports[-1] if reading.reports else None
    causes = _from_report(report) if report else []
    causes += [row for row in _ranked(findings, told) if row["cause"] not in [c["cause"] for c in causes]]
    program = next((finding for finding in findings if finding.signature.kind == "program"), None)
    if causes and causes[0]["strength"] == PROVES:
        program = None
    elif program:
        causes = []  # what CUDA and cuDNN say after the program's own fault follows from it
    equal = [row["cause"] for row in causes if row["rank"] == causes[0]["rank"]]
    decided = bool(causes) and causes[0]["strength"] == PROVES
    silent = next((finding.says() for finding in findings if not finding.causes and finding.says()), None)
    return {
        "schema": 1,
        "read": dict(told.as_document(), sources=reading.sources, notes=reading.notes),
        "cause": causes[0]["cause"] if causes else None,
        "decided": decided,
        "equal": equal if len(equal) > 1 and not decided else [],
        "causes": causes,
        "program": program and {"line": _place(program.line), "says": program.says()},
        "harmless": harmless,
        "look": None if program else _look_for(equal if not decided else [], causes, told.places, silent),
    }


def find(lines, told):
    """[SignatureHit], and [{line, says, source}] of lines that mean nothing."""
    text, starts = _as_one_text(lines)
    findings, harmless, taken = [], [], []
    for signature in read_signatures():
        match = _free_match(signature.pattern, text, taken)
        if match is None:
            continue
        taken.append(match.span())
        index = bisect_right(starts, match.start()) - 1
        line = lines[index]
        if signature.kind == "harmless":
            row = {"line": _place(line), "says": signature.says, "source": signature.source}
            harmless.append(row)
        else:
            findings.append(SignatureHit(signature, match, line, told, _wrapped_before(lines, index)))
    return findings, harmless


def _wrapped_before(lines, index):
    """The two lines above if they are as long as a terminal is wide: this one may be their end."""
    return " ".join(line.text for line in lines[max(index - 2, 0) : index] if len(line.text) >= _WIDE)


def _free_match(pattern, text, taken):
    """The first match outside of the matches of earlier, more exact signatures."""
    for match in pattern.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        overlaps = any(match.start() < end and start < match.end() for start, end in taken)
        if not overlaps and not _PAST.search(before):
            return match
    return None


def _as_one_text(lines):
    starts, position, parts = [], 0, []
    for line in lines:
        starts.append(position)
        parts.append(line.text)
        position += len(line.text) + 1
    return "\n".join(parts), starts


def _place(line):
    return {"source": line.source, "line": line.number, "text": redact(line.text.strip())[:300]}


def _ranked(findings, told):
    """Causes in the order in which they are shown: by how sure, then as the signatures' order has it."""
    found = {}
    for finding in findings:
        for index, cause in enumerate(finding.causes):
            strength = finding.strength
            row = found.get(cause)
            if row is None or strength > row["strength"]:
                found[cause] = _row(cause, finding, strength, index, told)
    best = max([row["strength"] for row in found.values()] or [0])
    # a proof outweighs a text that fits, and that outweighs a wrapper
    kept = [row for row in found.values() if row["strength"] == best]
    kept.sort(key=lambda row: (-row["strength"], row["index"], row["line"]["line"]))
    for number, row in enumerate(kept):
        row["rank"] = number if best == PROVES else 0
    return [{key: value for key, value in row.items() if key != "index"} for row in kept]


def _row(cause, finding, strength, index, told):
    about = CAUSES[cause]
    # a wrapper's causes have nothing in common that could be mended
    silent = strength == WRAPPER and len(finding.causes) > 1
    remedies = Remedies(told, finding.detail, finding.signature.systems)
    commands = [] if silent else remedies.commands(cause)
    image = remedies.image() if strength == PROVES and about.side in ("image", "image-on-gpu") else None
    commands += [image] if image and "windows" not in told.places else []
    places = {"colab", "notebook"} & told.places
    row = _bare_row(cause, strength, _SURENESS[strength], _place(finding.line), finding.signature.source)
    return dict(
        row,
        says=finding.says(),
        remedy=remedies.words(cause),
        because=finding.because,
        signature=finding.signature.id,
        commands=[dict(command._asdict()) for command in commands],
        restart=bool(places) and any(command.where in _RESTART for command in commands),
        index=index,
    )


def _bare_row(cause, strength, how, line, source):
    about = CAUSES[cause]
    row = {"cause": cause, "title": about.title, "strength": strength, "how": how, "line": line, "rank": 0}
    row.update(says=None, because=[], source=source, signature=None, remedy=about.remedy)
    return dict(row, commands=[], restart=False)


def _from_report(report):
    """The cause of a report of this probe: it was proven there, by more than a text."""
    cause = report.get("cause")
    if cause not in CAUSES:
        return []
    text = redact(str(report.get("summary") or ""))[:300]
    line = {"source": "a report of cudnn-verify", "line": 1, "text": text}
    row = _bare_row(cause, PROVES, "proven by the probe", line, CAUSES[cause].source)
    return [dict(row, remedy=str(report.get("remedy") or CAUSES[cause].remedy), rank=-1)]


def _look_for(equal, causes, places, silent=None):
    """The one command that decides between causes that fit equally; the probe if there is none.

    ``silent``: the explanation of a line that hides its cause.
    """
    if causes and not equal:
        return None
    for look in read_looks():
        wanted = set(look.causes.split())
        fits = wanted & set(equal) if len(equal) > 1 else wanted == set(equal)
        if fits and (not look.place or look.place in places):
            return {"command": look.command, "decides": look.decides}
    text = "run where it fails, it proves the cause" if causes else "no signature fits this text"
    text += "; `rtbuild probe -o cudnn_verify.py` writes the probe"
    return {"command": "python3 cudnn_verify.py", "decides": silent or text}
