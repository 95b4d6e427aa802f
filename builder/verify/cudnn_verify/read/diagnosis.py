"""From texts to causes: the signature of each line, and the decision between causes that fit equally."""

import os
import re
from bisect import bisect_right
from collections import namedtuple
from copy import copy
from itertools import islice

from ..common.afterwards import check_after, pins_after
from ..common.asking import apart_told
from ..common.causes import CAUSES, VERDICT_OF_SIDE
from ..common.distributions import last_word
from ..common.package_facts import distribution_of
from ..common.remedies import Remedies
from ..common.shared_environment import OF_BOTH
from ..common.tables import read_patterns
from ..common.versions import dotted
from .conditions import CONDITIONS, card_age
from .fact_faults import whole_way
from .looks import OF_RELEASES, look_for
from .package_lists import as_working, compared, listed_packages, listed_within, machines_of
from .reading import TYPED_WORD, TextReading, redact, respelt, unwrapped
from .signatures import (
    FEWEST,
    Words,
    by_frequency,
    match_detail,
    read_counts,
    read_signatures,
)
from .text_facts import TextFacts, printed_by, text_words

WRAPPER, FITS, PROVES = 1, 2, 3
_STRENGTHS = {
    "wrapper": WRAPPER,
    "proves": PROVES,
    **dict.fromkeys(("class", "facts", "apart", "fits"), FITS),
}
_NO_DRIVER_INSIDE = "no driver in the image"
"""What a signature wants where a cause of the machine's is the image's for once."""
_INSTALLERS = ("pip", "conda", "apt", "winget")
"""Where commands change what is installed. For a cause that a class of messages has in the second place the
look decides first.
"""
_SURENESS = (None, "a message that hides its cause", "likely", "proven by the text")
# A line of a program: what it would print is no evidence that it printed it.
_PROGRAM_TEXT = re.compile(
    r"(?:\b(?:f?print(?:f|ln)?|cout|puts|echo|warn|raise \w[\w.]*|throw [\w:. ]+|sys\.exit|fail|"
    r"(?:log|logger|logging|warnings|console|st)\.\w+)\s*\(?|<<|\bassert\b[^\"']*,)\s*[rfbu]{0,2}[\"'][^\"']*$",
    re.IGNORECASE,
)
_FRAME = re.compile(r'\bFile "[^"\n]{1,300}", line \d+')
_SHORT, _END = 600, 400
"""Lines of a text that is compared with the classes of messages, and of a longer one's end."""
_TYPED = 60
"""Lines of a text that somebody may have typed."""
_AGAIN = 40
"""Places of one signature that no other one gets: programs log a line again and again."""
_SITE = re.compile(r"https?://[\w.:~/-]{1,200}$")
_FIELD = re.compile(r"\{(\w+)\}")
_NOT_THE_ONE = re.compile(r"(?:unset|export) LD_LIBRARY_PATH\b|uv pip install --upgrade \"torch>=")
_NOT_TOGETHER = (
    "At these versions the two do not go together in one environment: either releases of both that share a "
    "cuDNN, or an environment for each."
)
_PINNED_BELOW = (
    "%s %s, which is here, too, pins %s, and the one that was installed last decides: a later cuDNN of "
    "this major version serves both, although pip check names the pin; else a release whose pin is %s or "
    "later, its build for the CPU if it only feeds data, or an environment for each"
)
# Somebody's words about a message that is gone.
_PAST = re.compile(
    r"\bno longer (?:see|get|have)|\b(?:fixed|solved|got rid of)\b|"
    r"\bresolved (?:my|it|this|the (?:issue|problem|error))\b|"
    r"\b(?:was|is|been|has|have|it|which|that) resolved\b|"
    r"\b(?:do|does|did)(?:n't| not) (?:see|get|have|show)\b",
    re.IGNORECASE,
)


# One signature in one line. causes: those that fit, the most frequent first; says: the meaning of the line.
SignatureHit = namedtuple("SignatureHit", "signature line detail causes strength because says")


def _hit(signature, match, lines, index, facts):
    """A :class:`SignatureHit` of a match whose first line is ``lines[index]``; None where a condition that
    the signature needs does not hold.
    """
    line = lines[index]
    # lines as long as a terminal is wide: this one may be their end
    above = [line.text for line in lines[max(index - 2, 0) : index] if len(line.text) >= 60]
    detail = match_detail(match, line)
    detail.update(
        printed_by=printed_by(" ".join(above) + line.text), requirement=signature.wants, age=card_age(facts)
    )
    strength, causes = _STRENGTHS.get(signature.kind, 0), by_frequency(signature)
    because = [CONDITIONS[condition](facts, detail) for condition in signature.needs]
    if not all(because):
        return None
    if detail.get(
        "apart"
    ):  # the last line with what is not there, as of several failures the last one decides
        line = next((row for row in reversed(lines) if detail["apart"] in row.text), line)
    for condition, cause in signature.unless:
        reason = CONDITIONS[condition](facts, detail)
        if reason:
            causes = [other for other in causes if other != cause]
            because.append("not %s: %s" % (cause, reason))
    for condition, cause in signature.first:
        reason = cause in causes and CONDITIONS[condition](facts, detail)
        if reason:
            causes = [cause] + [other for other in causes if other != cause]
            because.append("%s first: %s" % (cause, reason))
    reasons = ((CONDITIONS[condition](facts, detail), cause) for condition, cause in signature.when)
    reason, cause = next((row for row in reasons if row[0]), (None, None))
    if reason:
        causes, strength, because = [cause], PROVES, because + [reason]
    elif len(causes) == 1 < len(signature.causes) and strength == WRAPPER:
        strength = FITS
    # a signature's words are about its own causes
    says = signature.says if not reason or cause in signature.causes else None
    says = says and _FIELD.sub(lambda found: str(detail.get(found.group(1)) or "?").rstrip("."), says)
    return SignatureHit(signature, line, detail, causes, strength, because, says)


def diagnose(reading):
    """The answer as one document: causes, the likeliest first, the facts read, the next thing to look at."""
    lists, rest = _lists_of(reading)
    others = TextFacts(rest) if len(lists) > 1 else None
    if others and not others.fails:
        return _comparison(reading, others, lists)
    facts = TextFacts(reading.lines)
    facts.places |= reading.places
    facts.empty, facts.written = reading.empty, reading.written
    findings, harmless = find(reading.lines, facts)
    told = find_facts(reading.lines, facts)
    if _hides_its_cause(findings):
        lines = {finding.line for finding in findings}
        others = [line for line in reading.lines if line not in lines]
        findings = find_class(others, facts) + findings
    if not findings:
        short = len(reading.lines) <= _SHORT  # nobody pastes a whole log out of a window
        whole = unwrapped(reading.lines) if short else reading.lines
        broken = len(whole) < len(reading.lines)
        if broken and not harmless:
            findings, harmless = find(whole, facts)
        findings = (
            findings
            or told[:1]
            or find_class(reading.lines, facts)
            or (find_class(whole, facts) if broken else [])
        )
    sure = all(finding.strength == PROVES or finding in told for finding in findings)
    whole = bool(told and facts.listed) and facts.quiet and sure
    if whole:  # nothing failed yet: all that does not fit in a list of packages is wanted
        findings = [hit._replace(strength=PROVES) for hit in findings + told if hit.causes]
    unknown = {cause for finding in findings for cause in finding.causes} <= {"system-library-missing"}
    if unknown and len(reading.lines) <= _TYPED and not harmless:  # none, or a library of unknown name
        typed = _find_mistyped(reading.lines, facts, "lib" * bool(findings))
        findings = typed if any(hit.causes for hit in typed) or not findings else findings
    findings = _apart_first(_facts_first(findings, told), find_facts(reading.lines, facts, "apart"))
    findings = _one_libc(_without_consequences([_against(finding, facts) for finding in findings]))
    report = reading.reports[-1] if reading.reports else None
    causes = _from_report(report) if report else []
    causes += [row for row in _ranked(findings, facts) if row["cause"] not in [c["cause"] for c in causes]]
    if whole and not report:  # what is uninstalled comes before what is installed
        causes.sort(key=lambda row: row["cause"] != "package-overwritten")
        causes = [dict(row, rank=number) for number, row in enumerate(causes)]
    elif causes and not report:
        _take_all_facts(causes[0], facts)
    _name_once(causes)
    elsewhere = next((hit for hit in findings if _outweighs(hit, causes)), None) if not report else None
    program = elsewhere or next((hit for hit in findings if hit.signature.kind == "program"), None)
    if causes and causes[0]["strength"] == PROVES and not elsewhere:
        program = None
    elif program:
        causes = []  # what CUDA and cuDNN say after the program's own fault follows from it
    equal = [row["cause"] for row in causes if row["rank"] == causes[0]["rank"]]
    decided = bool(causes) and causes[0]["strength"] == PROVES
    without = [(finding.because + [finding.says])[0] for finding in findings if not finding.causes]
    silent = next(filter(None, without), None)
    absent = [distribution_of(_module_of(finding)) for finding in findings if not finding.causes]
    absent = next(filter(None, absent), None)
    return {
        "schema": 1,
        "read": dict(
            facts.as_document(), sources=reading.sources, notes=reading.notes, nothing=reading.empty
        ),
        "cause": causes[0]["cause"] if causes else None,
        "decided": decided,
        "equal": equal if len(equal) > 1 and not decided else [],
        "causes": causes,
        "program": program
        and {
            "line": _place(program.line),
            "says": program.says,
            "elsewhere": program is elsewhere,
        },
        "harmless": harmless,
        "compared": None,
        "look": None if program else look_for(equal if not decided else [], causes, facts, silent, absent),
    }


def _outweighs(hit, causes):
    """Whether a line of another maker's software, or of a server, is the cause of what the other lines tell:
    where its signature names the causes that follow from it (``seems``), no other one may fit.
    """
    seems = hit.signature.seems
    first = causes[0] if causes and causes[0]["strength"] > WRAPPER else {"cause": None}
    return hit.signature.kind == "elsewhere" and (not seems or first["cause"] in [None, *seems])


def _lists_of(reading):
    """({source: its lines} of the texts that are lists of packages and nothing else, or else of several
    machines, the other lines); the cells of a notebook are one text.
    """
    texts = {}
    for line in reading.lines:
        texts.setdefault(line.source.partition(", cell ")[0], []).append(line)
    lists = {name: lines for name, lines in texts.items() if listed_packages(line.text for line in lines)}
    lists = lists if len(lists) > 1 else machines_of(texts) or lists
    return lists, [line for name, lines in texts.items() if name not in lists for line in lines]


def _comparison(reading, facts, lists):
    """The answer for several lists of packages, which are as many machines, or one machine at several times:
    what differs, and the fault that the packages of one show together, with what makes it as one that works.
    """
    texts = [[line.text for line in lines] for lines in lists.values()]
    packages = [listed_packages(rows) or listed_within(rows) for rows in texts]
    machines = [TextFacts(lines) for lines in lists.values()]
    drivers = [facts.driver or machine.driver for machine in machines]
    document = diagnose(TextReading())
    document["read"].update(sources=reading.sources, notes=reading.notes, nothing=False)
    cards = sorted({card for one in [facts, *machines] for card in one.cards})
    capability = facts.capability or next((one.capability for one in machines if one.capability), None)
    document["read"].update(driver=facts.driver, cards=cards, capability=capability)
    told = compared(packages, drivers if any(drivers) else None)
    document["compared"] = dict(told, lists=list(lists), faults=[])
    works = [index for index, machine in enumerate(machines) if machine.cuda_works and not machine.fails]
    for index, (name, lines) in enumerate(lists.items()):
        alone = TextReading()
        alone.lines, alone.empty = lines, False
        keys = ("cause", "title", "because", "says", "commands", "check", "keep")
        for row in diagnose(alone)["causes"][:1]:
            row = dict({key: row[key] for key in keys}, list=name)
            if len(works) == 1 and works[0] != index:
                good = list(lists)[works[0]]
                row.update(as_working(packages[index], packages[works[0]], good, row["because"]))
            document["compared"]["faults"].append(row)
    return dict(document, look=None)


def _module_of(finding):
    names = ("what", "absent", "gone", "who", "where")
    return next(filter(None, (finding.detail.get(name) for name in names)), None)


def _hides_its_cause(findings):
    """Whether all that was found are messages that fit several causes, or none, and tell of none."""
    kinds = {finding.signature.kind for finding in findings}
    return kinds == {"wrapper"} and any(len(finding.causes) != 1 for finding in findings)


def find(lines, facts):
    """[SignatureHit] of the exact signatures, and [{line, says, source}] of lines that mean nothing."""
    findings, harmless = [], []
    exact = [row for row in read_signatures() if row.kind not in ("class", "facts", "apart")]
    for hit in _hits(lines, exact, facts):
        if hit.signature.kind == "harmless":
            row = {"line": _place(hit.line), "says": hit.signature.says, "source": hit.signature.source}
            harmless.append(row)
        else:
            findings.append(hit)
    return findings, harmless


def find_facts(lines, facts, kind="facts"):
    """[SignatureHit] of the faults that the facts of a text show together, whatever its lines say. Those of
    kind ``apart`` are facts in prose that contradict each other: they make a cause likely, and prove none.
    """
    rows = [row for row in read_signatures() if row.kind == kind]
    hits = [hit for row in rows for hit in _hits(lines, [row], facts) if hit.causes]
    return [hit._replace(because=hit.because + _beside(hit, lines)) for hit in hits]


def _beside(hit, lines):
    """[The line with the other one of two facts that contradict each other]; [] if it is the same line."""
    told = re.compile(hit.detail.get("beside") or "(?!)", re.IGNORECASE)
    line = next((line for line in lines if told.search(line.text)), hit.line)
    return ["line %d: %s" % (line.number, redact(line.text.strip())[:160])] if line != hit.line else []


def _apart_first(findings, apart):
    """The findings; if they prove nothing, a contradiction of two facts that fits them comes first."""
    fits = {cause for finding in findings for cause in finding.causes}
    kinds = {finding.signature.kind for finding in findings}
    if kinds & {"program", "elsewhere", "facts"} or any(f.strength == PROVES for f in findings):
        return findings
    for hit in apart:
        if hit.causes[0] in fits or fits <= set(hit.signature.seems):
            return [hit] + [f._replace(causes=[c for c in f.causes if c != hit.causes[0]]) for f in findings]
    return findings


def _facts_first(findings, told):
    """The findings; where no line proves one, the fault that the facts tell in place of those that it decides
    between, or whose texts are its consequences.
    """
    best = max([finding.strength for finding in findings if finding.causes] or [0])
    equal = {cause for finding in findings if finding.strength == best for cause in finding.causes}
    if best == PROVES or any(
        finding.signature.kind in ("program", "elsewhere", "facts") for finding in findings
    ):
        return findings
    if not equal:
        return told[:1] + findings
    for hit in told:
        if hit.causes[0] in equal or equal <= set(hit.signature.seems):
            return [hit._replace(strength=PROVES)]
    return findings


def find_class(lines, facts):
    """[SignatureHit] of the first class of messages that is in a text for which no exact signature is known;
    lines that mean nothing are in none. Of a long text its end is asked about.
    """
    harmless = [row for row in read_signatures() if row.kind == "harmless"]
    lines = lines if len(lines) <= _SHORT else lines[-_END:]
    lines = [line for line in lines if not any(_is_in(row, line.text) for row in harmless)]
    rows = [row for row in read_signatures() if row.kind == "class"]
    hits = _hits(lines, rows, facts)
    return list(islice((hit for hit in hits if hit.causes or not hit.signature.causes), 1))


def _find_mistyped(lines, facts, start):
    """[SignatureHit] of a text that somebody typed, its words read as those of known messages that differ by
    one letter, and its hyphenated lines put together: each fits at most. ``start``: of the words alone that
    start so.
    """
    as_typed, spelt, joined = respelt(lines)
    findings = []
    for hit in find(spelt, facts)[0]:
        line = as_typed[hit.line[:2]]
        words = zip(TYPED_WORD.findall(line.text), TYPED_WORD.findall(hit.line.text))
        pairs = [
            pair for pair in words if pair[0].lower() != pair[1] and pair[1] in hit.detail["matched"].lower()
        ]
        mended = ["'%s' as '%s'" % pair for pair in pairs]
        mended += ["two lines as one"] * (line[:2] in joined)
        mended = [text for text in mended if text[1:].startswith(start)]
        if mended and hit.causes:
            told = "likely only, since words were read as if mistyped: " + ", ".join(mended[:4])
            strength, because = min(hit.strength, FITS), [told] + hit.because
            findings.append(hit._replace(line=line, strength=strength, because=because))
    return findings


def _is_in(signature, text):
    return signature.may_fit(Words(text)) and signature.pattern.search(text) is not None


def _hits(lines, signatures, facts):
    """:class:`SignatureHit` of those that a text has, in their order."""
    text, starts = "\n".join(line.text for line in lines), [0]
    for line in lines:
        starts.append(starts[-1] + len(line.text) + 1)
    taken, words = [], text_words(text)
    for signature in signatures:
        match = _free_match(signature, words, text, taken) if signature.may_fit(words) else None
        index = match and bisect_right(starts, match.start()) - 1
        hit = match and _hit(signature, match, lines, index, facts)
        if hit:
            if hit.causes or not signature.causes or signature.kind != "class":
                taken.append(match.span())
                # a line that is logged again is no line of a less exact signature
                again = words.matches(signature.pattern, signature.text, text)
                taken += [other.span() for other in islice(again, _AGAIN)]
            yield hit


def _free_match(signature, words, text, taken):
    """The first match outside of the matches of earlier, more exact signatures."""
    for match in words.matches(signature.pattern, signature.text, text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        overlaps = any(match.start() < end and start < match.end() for start, end in taken)
        source = _PROGRAM_TEXT.search(before[-300:]) and not _raised(text, before, match)
        if not overlaps and not _PAST.search(before) and not source:
            return match
    return None


def _raised(text, before, match):
    """Whether a text ends with the line of a traceback that raised, without the message below it."""
    above = text[: match.start() - len(before)].rstrip("\n")
    traced = _FRAME.search(above.rpartition("\n")[2]) or "Traceback (most recent call last)" in above
    return "\n" not in text[match.end() :].rstrip("`\n ") and "raise " in before and traced


_RULED_OUT = (
    ("driver-new", "driver-too-old"),
    ("driver-past-build", "driver-too-old"),
    ("devices-counted", "driver-missing"),
    ("devices-counted", "no-device"),
    ("list-with-card", "framework-arch-missing"),
)
"""(condition, cause): what a text shows of the machine speaks against a cause, whatever the line that seems
to tell it: a program's own check can be wrong, and a line can be about another machine.
"""
_CONSEQUENCE = re.compile(
    r"(?i)\bfall(?:s|ing|en)?[ -]?back\b|\bno usable GPU\b|"
    r"\b(?:running|runs|using|continu\w+) (?:on|with) (?:the )?CPU\b"
)
_ROUTINE = re.compile(r"^\W{0,3}(?:\S+ ){0,6}?\[?\b(?:INFO|DEBUG|TRACE)\b")
"""What a program does after a failure, and lines that it logs when nothing is wrong."""


def _against(finding, facts):
    """A finding without the causes that the facts of its text rule out; where that leaves none, one that fits
    and is not proven.
    """
    for condition, cause in _RULED_OUT:
        told = finding.signature.needs  # its own condition knows of both
        reason = cause in finding.causes and not told and CONDITIONS[condition](facts, dict(finding.detail))
        others = [other for other in finding.causes if other != cause]
        if reason and others:
            finding = finding._replace(
                causes=others, because=finding.because + ["not %s: %s" % (cause, reason)]
            )
        elif reason:
            told = finding.because + ["this speaks against it: " + reason]
            finding = finding._replace(strength=min(finding.strength, FITS), because=told)
    return finding


def _without_consequences(findings):
    """The findings; where others fit as well, those of lines that tell what a program did after its failure,
    or that it logs as routine, come as messages that hide their cause.
    """
    fits = [finding for finding in findings if finding.strength == FITS and finding.causes]
    later = [f for f in fits if _CONSEQUENCE.search(f.line.text) or _ROUTINE.search(f.line.text)]
    if not later or len(later) == len(fits):
        return findings
    return [f._replace(strength=WRAPPER) if f in later else f for f in findings]


def _one_libc(findings):
    """The findings; where the loader names the C library as too old, an installer's list of releases that
    ends before the one asked for follows from the same: wheels after it are for a later glibc.
    """
    libc = [finding for finding in findings if finding.causes[:1] == ["libc-too-old"]]
    ends = [finding for finding in findings if finding.signature.id in _LISTS_END]
    if not libc or not ends or not re.search(r"GLIBC_2\.\d", libc[0].line.text):
        return findings
    told = "line %d: %s: the list ends for the same reason, as pip leaves out what is for a later glibc"
    because = [told % (hit.line.number, hit.line.text.strip()[:80]) for hit in ends[:1]]
    first = libc[0]._replace(because=libc[0].because + because)
    return [first] + [finding for finding in findings if finding not in ends + libc[:1]]


_LISTS_END = ("no-matching-distribution", "pip-none-at-all")
"""Signatures of an installer that lists the releases which it may take."""


def _place(line, matched=""):
    """Where a line stands, and its text; of a long one, such as a record of a log, the part that matched."""
    text = redact(line.text.strip())
    start = text.find(matched[:40]) - 60 if matched and len(text) > 200 else 0
    text = "..." + text[start:] if start > 60 else text
    return {"source": line.source, "line": line.number, "text": text[:300]}


def _ranked(findings, facts):
    """Causes in the order in which they are shown: by how sure, then as the signatures' order has it."""
    # a proof outweighs a text that fits, and that outweighs a wrapper
    best = max([finding.strength for finding in findings if finding.causes] or [0])
    found = {}
    for finding in findings:
        for index, cause in enumerate(finding.causes if finding.strength == best else ()):
            index -= finding.signature.kind == "apart"
            first = found.setdefault(cause, (index, finding.line.number, finding))
            if finding.signature.wants and not first[2].signature.wants:  # the more exact one of the two
                found[cause] = (*first[:2], finding)
    kept = sorted(found, key=lambda cause: found[cause][:2])
    rows = enumerate(_row(cause, found[cause][2], facts) for cause in kept)
    return [dict(row, rank=number if best == PROVES else 0) for number, row in rows]


_TOGETHER = (
    ("driver-before-card", "driver-card-unsupported"),
    ("driver-without-card", "driver-card-unsupported"),
    ("driver-below-build", "driver-too-old"),
    ("build-without-card", "framework-arch-missing"),
    ("pair-unpublished", "build-not-published"),
    ("python-apart-here", "build-not-published"),
    ("companions-apart", "extension-mismatch"),
    ("triton-apart", "package-pin-mismatch"),
    ("jax-apart", "package-pin-mismatch"),
    ("cudnn-below-build", "cudnn-too-old"),
)
"""(condition, cause) of the contradictions between facts of a text, in the order in which they are mended."""


def _take_all_facts(row, facts):
    """Where several facts of a text contradict each other, all of that for its first cause, and one way that
    satisfies them at once: what mends one contradiction alone may keep another.
    """
    told = [(CONDITIONS[name](facts, {}), cause) for name, cause in _TOGETHER]
    told = [(sentence, cause) for sentence, cause in told if sentence]
    if len(told) > 1 and row["cause"] in [cause for _, cause in told]:
        sentences = [sentence for sentence, _ in told]
        row["because"] = sentences + [reason for reason in row["because"] if reason not in sentences]
        if not {"vllm", "lmdeploy"} & set(facts.packages):  # these bring the one PyTorch that they pin
            row["commands"] = [c._asdict() for c in whole_way(facts, [cause for _, cause in told])]


def _name_once(causes):
    """Leave out commands that an earlier cause has, too."""
    named = set()
    for row in causes:
        row["commands"] = [command for command in row["commands"] if command["text"] not in named]
        named |= {command["text"] for command in row["commands"]}


def _because(cause, finding, facts):
    """What speaks for a cause: for one of releases that do not fit, who asks whom for what, too, if its line
    is about that.
    """
    apart = facts.apart if cause in OF_RELEASES else None
    text = finding.line.text + " " + str(finding.detail.get("matched"))
    named = apart and (
        last_word(apart) in text or apart.kind == "python-new" and re.search("subscriptable|operand", text)
    )
    told = apart_told(apart, facts.python) if named else None
    if cause == "cudnn-too-old":
        remedies = Remedies(facts, dict(finding.detail), finding.signature.systems)
        pin = remedies.pin_below(remedies.wanted()) if remedies.wanted() else None
        told = _PINNED_BELOW % (pin + (dotted(remedies.wanted()[:2]),)) if pin else None
    return finding.because + [told] if told and told not in finding.because else finding.because


def _row(cause, finding, facts):
    strength, signature = finding.strength, finding.signature
    # a wrapper's causes have nothing in common that could be mended
    silent = strength == WRAPPER and len(finding.causes) > 1 and not signature.wants
    sure = strength == PROVES or len(finding.causes) == 1
    remedies = Remedies(facts, dict(finding.detail, sure=sure), signature.systems)
    commands = [] if silent else remedies.commands(cause)
    if signature.kind == "class" and not sure and cause != finding.causes[0]:
        commands = [command for command in commands if command.where not in _INSTALLERS]
    ours = strength == PROVES and CAUSES[cause].side in ("image", "image-on-gpu")
    image = remedies.image(cause) if ours and "windows" not in facts.places else None
    pair = next((command for command in commands if (command.note or "").endswith(OF_BOTH)), None)
    # what asks for two or a later one, or mends the loader's path alone, is no matter of an image of the one
    alone = pair or commands and _NOT_THE_ONE.match(commands[0].text)
    commands += [image] if image and not alone else []
    loaded = {"pip", "apt", "conda"} & {command.where for command in commands}
    words = [] if pair and cause != "toolkit-library-missing" else [remedies.words(cause, commands)]
    words += [_NOT_TOGETHER] * (pair is not None)
    words += [] if commands or silent else _no_command(cause, finding, facts, sure)
    rows = [dict(command._asdict()) for command in commands]
    return dict(
        _bare_row(
            cause,
            _how(cause, finding),
            _place(finding.line, finding.detail["matched"]),
            signature.source,
            " ".join(words),
        ),
        strength=strength,
        says=finding.says,
        because=_because(cause, finding, facts),
        signature=signature.id,
        commands=rows,
        check=None if silent else check_after(remedies, cause, rows),
        keep=pins_after(remedies, cause, rows),
        restart=bool(loaded and {"colab", "notebook"} & facts.places),
        **({"verdict": VERDICT_OF_SIDE["image"]} if signature.wants == _NO_DRIVER_INSIDE else {}),
        **(_OF_THE_IMAGE if remedies.known("image-of-major") and cause == "driver-too-old" else {}),
    )


_OF_THE_IMAGE = {
    "title": "The image demands a newer CUDA of the driver than the driver has to have",
    "verdict": VERDICT_OF_SIDE["image"],
}
"""Of a driver that serves all of the CUDA major version which an image is for."""


def _no_command(cause, finding, facts, sure):
    """[Why the place of a text has no command for a cause], where another place would have one."""
    for place, reason in read_patterns()["no-command"].items():
        elsewhere = copy(facts)
        elsewhere.places = facts.places - {place}
        there = Remedies(elsewhere, dict(finding.detail, sure=sure), finding.signature.systems)
        if place in facts.places and there.commands(cause):
            return [reason]
    return []


def _how(cause, finding):
    """How sure a cause is, and in how many confirmed threads with this line it was the one."""
    counts = read_counts().get(finding.signature.id, {})
    threads = sum(counts.values())
    # a fact of the text that puts a cause first outweighs how often others were it
    turned = any(" first: " in reason for reason in finding.because if reason)
    if finding.strength == PROVES or threads < FEWEST or turned:
        return _SURENESS[finding.strength]
    return "%s; the cause in %d of %d threads" % (_SURENESS[finding.strength], counts.get(cause, 0), threads)


def _bare_row(cause, how, line, source, remedy):
    row = {"cause": cause, "title": CAUSES[cause].title, "how": how, "line": line, "remedy": remedy}
    row.update(strength=PROVES, rank=-1, says=None, because=[], source=source, signature=None)
    row["verdict"] = VERDICT_OF_SIDE[CAUSES[cause].side]
    row["page"] = _page_of(cause)
    return dict(row, commands=[], check=None, keep=[], restart=False)


def _page_of(cause):
    """The address of a cause's page, whose path stays; None if ``RTBUILD_SITE`` names no site."""
    site = os.environ.get("RTBUILD_SITE", "")
    return "%s/causes/%s.html" % (site.rstrip("/"), cause) if _SITE.match(site) else None


def _from_report(report):
    """The cause of a report of this probe: it was proven there, by more than a text."""
    cause = report.get("cause")
    if not isinstance(cause, str) or cause not in CAUSES:
        return []
    text = redact(str(report.get("summary") or ""))[:300]
    line = {"source": "a report of cudnn-verify", "line": 1, "text": text}
    remedy = str(report.get("remedy") or CAUSES[cause].remedy)
    return [_bare_row(cause, "proven by the probe", line, CAUSES[cause].source, remedy)]
