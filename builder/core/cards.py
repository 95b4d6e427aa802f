"""Names of cards, as drivers print and people write them: the card that a name means, and the names in a
text.

The known cards are data: ``facts/tables/gpus.toml``. The probe takes this module in
(:mod:`builder.image.recipe.probe_file`), so it needs nothing but the standard library of Python 3.6.
"""

import re
from collections import namedtuple
from collections.abc import Collection, Iterable, Iterator, Mapping

# capabilities: {joined words of a name: compute capability}; generations: {word: compute capabilities};
# short: joined words of two characters that are a card's name also without a brand before them;
# written: {joined words as people write them: the names that these may mean}
KnownCards = namedtuple("KnownCards", "capabilities generations short written")

_BRANDS = frozenset(("nvidia", "tesla", "geforce", "quadro", "grid", "jetson", "agx"))
"""Words that do not tell one card from another."""
_SERIES = {"gtx": "rtx", "rtx": "gtx"}
_BEGIN = re.compile(
    r"(?<![\w./-])(?:(?P<brand>(?i:NVIDIA|Tesla|GeForce|Quadro|GRID|Jetson|AGX|TITAN|RTX|GTX|GT|MX|CMP)(?![a-z]))"
    r"|[A-Z]{1,3}\d{1,4}[A-Za-z]{0,3}(?!\w|\.\w)|[A-Z][a-z]+(?= \(nvgpu\)))"
)
_NAME = re.compile(r"[A-Za-z0-9]+(?:[ _(-]{1,2}[A-Za-z0-9]+){0,7}")
_NAME_WORDS = frozenset(("laptop", "mobile", "super", "ti", "with"))
"""Words of a name that people write in small letters."""
_AFTER = re.compile(
    r"[ (]+(?:with(?! max)|has|have|is|are|was|and|or|on|in|at|by|to|of|for|from|but|which|that|as|using|"
    r"needs|shows|gives|says|prints|not|sm_?\d+|via|under|after|before|since|when|while|skipped|detected|fails|failed|compute)\b.*",
    re.IGNORECASE | re.DOTALL,
)
"""Words of a sentence behind a name, and what follows them; ``with Max-Q Design`` is part of one."""


def words_of(name: str) -> "list[str]":
    """The words of a name that tell cards apart, in small letters."""
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _BRANDS]


def first_card(words: "list[str]", known: KnownCards) -> "tuple[str | None, list[str]]":
    """The joined words of the known name that the most of the first words spell, and the words after them.

    ``(None, words)`` if no name fits, or if the name is one of another generation: an ``RTX 6000 Blackwell``
    is no ``RTX 6000``.
    """
    for count in range(len(words), 0, -1):
        name, rest = "".join(words[:count]), words[count:]
        if name not in known.capabilities and name[:3] in _SERIES:
            name = _SERIES[name[:3]] + name[3:]  # people write GTX 3090
        if name in known.capabilities:
            generations = [known.generations[word] for word in rest if word in known.generations]
            if all(known.capabilities[name] in served for served in generations):
                return name, rest
            break
    return None, words


def index_cards(
    capabilities: "Mapping[str, str]", generations: "Mapping[str, Collection[str]]", short: "frozenset[str]"
) -> KnownCards:
    """The known cards, with the index of people's names for them."""
    written: dict[str, set[str]] = {}
    for name in capabilities:
        for text in _short_names(name, generations):
            written.setdefault(text, set()).add(name)
    return KnownCards(capabilities, generations, short, written)


def meant_by(text: str, known: KnownCards) -> "list[str]":
    """The joined words of all known names that a text may mean.

    NVIDIA used numbers again: ``RTX 6000`` is the Quadro of Turing, the RTX 6000 Ada or the RTX PRO 6000. A
    word for the generation decides, and Quadro, which no card since Ampere is called
    (https://developer.nvidia.com/cuda-gpus).
    """
    words = words_of(text)
    told = [known.generations[word] for word in words if word in known.generations]
    plain = [word for word in words if word not in known.generations]
    for count in range(len(plain), 0, -1):
        short = "".join(plain[:count])
        meant = known.written.get(short, ())
        names = [name for name in known.capabilities if name in meant] if meant else []
        if short.isalpha() and len(short) > 3 and short not in known.capabilities:
            others = [name for name in known.capabilities if _core(name).startswith(short)]
            names = [*names, *(name for name in others if name not in names)]
        names = [name for name in names if all(known.capabilities[name] in served for served in told)]
        if "pro" in words:  # RTX 6000 Pro
            names = [name for name in names if "pro" in name] or names
        if names:
            quadro = "quadro" in text.lower() and short in names
            return [short] if quadro else names
    return []


def is_ambiguous(text: str, known: KnownCards) -> bool:
    """Whether a name stands for cards of several compute capabilities."""
    return len({known.capabilities[name] for name in meant_by(text, known)}) > 1


def _core(name: str) -> str:
    """``titanx`` of ``gtxtitanx``: a name without the series before it."""
    return re.sub(r"^[gr]tx(?=[a-z])", "", name)


def _short_names(name: str, generations: "Iterable[str]") -> "set[str]":
    """People's names for a card: without the generation, ``PRO`` and ``SFF``, the series, all letters."""
    plain = re.sub(rf"pro(?=\d)|(?:sff)?(?:{'|'.join(generations)})$", "", name)
    number = re.sub(r"^[a-z]+(?=\d{3})", "", plain)
    return {name, plain, _core(name), _core(plain), re.sub(r"^rtx(?=pro)", "", name), number}


def cards_in(text: str, known: KnownCards) -> "Iterator[tuple[str, str]]":
    """``(name as written, its joined words)`` of each known card that a text names, in its order."""
    end = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < end:
            continue
        found = _NAME.match(text, begin.start())
        written = _AFTER.sub("", found.group(0)) if found else begin.group(0)
        name, rest = first_card(words_of(written), known)
        if name is None or (len(name) < 3 and not begin.group("brand") and name not in known.short):
            continue
        after = text[begin.start() + len(written) :]
        if is_ambiguous(written, known):
            continue
        if not rest and re.match(r" ?(?:\.\.\.|…)", after) and not _alike(name, known):
            continue
        end = begin.start() + len(written)
        told = re.sub(r"(?<![Ll]aptop) GPUs?$", "", written.partition("(")[0].rstrip())
        yield _without_words(told, name, known), name


def _without_words(written: str, name: str, known: KnownCards) -> str:
    """A name as written without the words of a sentence behind it, which begin with one in small letters."""
    words = written.split(" ")
    for count, word in enumerate(words):
        kept = not word.isalpha() or not word.islower() or word in known.generations or word in _NAME_WORDS
        shorter = " ".join(words[:count])
        if not kept and first_card(words_of(shorter), known)[0] == name:
            return shorter
    return written


def _alike(begin: str, known: KnownCards) -> bool:
    """Whether all cards whose names begin so have one compute capability: ``nvidia-smi`` cuts long names."""
    return len({known.capabilities[name] for name in known.capabilities if name.startswith(begin)}) == 1
