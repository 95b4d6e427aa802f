"""GPUs by name: the row of ``data/gpus.toml`` for a name that a driver prints, or that a person types."""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from builder.core.cards import KnownCards, first_card, index_cards, is_ambiguous, meant_by, words_of
from builder.core.errors import UsageError
from builder.core.versions import key
from builder.plan.facts.tables.frameworks import Row, TableFile
from builder.plan.facts.tables.loader import Facts, load
from builder.plan.facts.tables.rows import GpuRow, InstanceRow

_JAX = "https://docs.jax.dev/en/latest/installation.html"
_MAKERS = {
    "AMD": r"(?i)amd\b|ati\b|radeon|instinct|firepro|mi\s?\d{2,3}|rx[ _-]?(vega|\d{3,4})|gfx\d|rocm|hip\b|"
    r"ryzen|strix halo|vega\b|[5679]\d{3} ?(xtx?|gre)\b",
    "Intel": r"(?i)intel\b|arc\b|gaudi|iris\b|u?hd (graphics|\d)|uhd\b|data center gpu (max|flex)|xpu\b|"
    r"(a[357][1578]0|b5[78]0)\b",
    "Apple": r"(?i)apple\b|i?mac(book|mini)?( (pro|air|mini|studio))?\b|mps\b|metal\b|"
    r"m[1-9]( (pro|max|ultra))?( mac(book)?.*)?$",
    "Huawei": r"(?i)huawei\b|ascend",
    "Moore Threads": r"(?i)moore ?threads|mtt[ _-]?s\d",
    "Google": r"(?i)google\b|tpu|v\d[ep]?-\d",
}
"""Cards of other makers, by the beginning of a name, or of their software's."""
_BUILDS = {
    "AMD": "the frameworks' ROCm builds serve the cards on ROCm's list, and no others: "
    "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html; "
    f"PyTorch's are at https://pytorch.org/get-started/locally/, JAX's at {_JAX}",
    "Intel": "PyTorch's XPU builds serve Arc and newer: `pip install torch --index-url "
    "https://download.pytorch.org/whl/xpu`, https://docs.pytorch.org/docs/stable/notes/get_start_xpu.html",
    "Apple": "a Mac computes by Metal: `pip install torch` there brings it (device mps; "
    "`rtbuild resolve torch --system macos` has the line), "
    f"https://developer.apple.com/metal/pytorch/; for JAX see {_JAX}",
    "Huawei": "PyTorch's builds for it are torch_npu: https://github.com/Ascend/pytorch",
    "Moore Threads": "PyTorch's builds for it are torch_musa: https://github.com/MooreThreads/torch_musa",
    "Google": f'on the TPU\'s own machine `pip install "jax[tpu]"`, {_JAX}',
}
_OTHER_CARD = frozenset({"ti", "super", "laptop", "mobile", "max", "d"})
"""Words that make ``RTX 4090 Laptop GPU`` another card than the one it is named after."""
_CAPABILITY = re.compile(
    r"(?:sm|compute|cc)[_ ]?(\d{1,2})[.,]?(\d)[af]?|(\d{1,2})[.,](\d)|(\d)(\d)", re.IGNORECASE
)
_COUNT = re.compile(r"^\d{1,3} ?[xX] ?(?=[A-Za-z]|\d{3,4}\b)")
"""How many there are, before a name: ``8x H100``."""
_ATTACHED = re.compile(
    r"(?i)^(?:n1(?:-[a-z]+-\d+)?(?: ?[+&,] ?| with (?:an? )?| and |[ -])|[dh]gx[ -](?=[abh]\d))(?=\S)"
)
"""Google's instances whose card is attached, and NVIDIA's computers, before its name: ``n1-standard-8 + T4``,
``DGX H100``."""
_VGPU = re.compile(r"(?i)-(?:\d-)?(\d{1,2}|1\d\d)[QCAB](?:ME|\d)?$")
"""The type of a virtual GPU behind its card's name, with its frame buffer in GB: ``A10-8Q``, ``A100-1-5C``.

https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html
"""
_CONNECTED = re.compile(r"(?:sxm\d?|pcie|nvl)$")


def class_of(name: str, capability: str | None) -> str | None:
    """``NVIDIA A100-SXM4-40GB`` of compute capability 8.0 is an ``A100``; None for a GPU in no table.

    The name has to begin with the class word for word (a ``T4G`` is no ``T4``), and the compute capability
    has to be the one of the class.
    """
    known = known_class(name)
    return known if known is not None and load().gpus[known.lower()].capability == capability else None


def known_class(text: str) -> str | None:
    """The class as the tables write it, for a typed name: ``t4``, ``A100-SXM4``; None if unknown."""
    row, rest = _longest(text)
    return row.name if row is not None and _OTHER_CARD.isdisjoint(rest[:1]) else None


def cards_of(texts: Iterable[str]) -> list[GpuRow]:
    """The cards that texts name, as :func:`card_of`, without those that no table has."""
    return [card for text in texts if (card := card_of(text)) is not None]


@functools.lru_cache(maxsize=1024)
def card_of(text: str) -> GpuRow | None:
    """The card, or the compute capability (``7.5``, ``sm_75``), that a text names; None if no table has it.

    Words behind the model's name (``Laptop GPU``, ``-SXM4-80GB``, ``80GB HBM3``) do not change its compute
    capability, which is all that wheels and toolkits go by.
    """
    text = _whole(text)
    if found := _CAPABILITY.fullmatch(text):
        first, second = filter(None, found.groups())
        name, capability = f"sm_{first}{second}", f"{first}.{second}"
        if like := [row for row in load().gpus.values() if row.capability == capability]:
            mixed = len({row.consumer for row in like}) > 1
            consumer = None if mixed else like[0].consumer
            return replace(like[0], name=name, platform=None, consumer=consumer)
        # a generation of which no card has a name yet
        kind = next((row for row in load().architectures if capability in row.capabilities), None)
        if kind is None:
            return None
        return GpuRow(name=name, capability=capability, consumer=None, sources=kind.sources)
    known, _ = _longest(text)
    computer = load().computers.get(text.lower().removeprefix("nvidia "))
    instance = instance_of(text)
    if instance is not None:
        return load().gpus.get(instance.card.lower()) if instance.maker is None else None
    if known is None and computer is not None:
        return load().gpus[computer.card.lower()]
    return known or _without_series(" ".join(words_of(text)))


def _whole(text: str) -> str:
    """A name without how many there are of the card, and without the type of a virtual GPU of it, before
    which a letter may tell the card's memory: ``V100D-8Q``.
    """
    text = _COUNT.sub("", _ATTACHED.sub("", text.strip(), count=1), count=1)
    return re.sub(r"(?<=[VP]100)[DLX]X?$", "", _VGPU.sub("", text)) if _VGPU.search(text) else text


def instance_of(text: str) -> InstanceRow | None:
    """The family of a cloud's instances that a type is of: ``g4dn.xlarge``, ``Standard_NC6s_v3``."""
    kind = text.strip().lower().removeprefix("standard_")
    if (found := next((row for row in load().instances if re.match(row.pattern, kind)), None)) is not None:
        return found
    alike = _families(kind)  # of a name that two clouds have, neither is taken
    return alike[0] if len({row.card for row in alike}) == 1 and _longest(text)[0] is None else None


def _families(kind: str) -> list[InstanceRow]:
    """The families of instances of a name without a size: ``g5``; ``g2`` is one of two clouds."""
    return [row for row in load().instances if kind in {row.name, row.name.partition("-")[0]}]


def said_of(option: str, text: str) -> str | None:
    """What has to be known of a name that stands for less than a card, or for a machine; None for a card's.

    A virtual GPU's driver: https://docs.nvidia.com/vgpu/latest/index.html
    """
    row = card_of(text)
    if re.search(r"(?i)\bMIG\b|\b\dg\.\d+gb\b", text):
        return (
            f"{option} {text}: judged as the whole card; CUDA shows a process one MIG slice, the first, or "
            "that of CUDA_VISIBLE_DEVICES=MIG-<uuid>, as `nvidia-smi -L` prints it; where Slurm has set it, "
            "it stays; the memory is the slice's (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/)"
        )
    if row is not None and (found := _VGPU.search(text.strip())):
        kind = f"a virtual GPU of {row.name} with {found[1]} GB, and runs what {row.name} does"
        return (
            f"{option} {text} is {kind}; the driver in the virtual machine goes with the vGPU release of the "
            "host, which its administrator tells (https://docs.nvidia.com/vgpu/): do not install another "
            "branch there, nor NVIDIA's public driver"
        )
    if row is not None and instance_of(text) is not None:
        return f"{option} {text} is taken as {row.name}: `nvidia-smi -L` there says whether it is"
    return None


def _without_series(words: str) -> GpuRow | None:
    """The card of a name that leaves out its series, or has more joined to it: 3080ti, A6000."""
    words = _CONNECTED.sub("", re.sub(r"^(\d{3,4})(ti|super)\b", r"\1 \2", words))
    if re.match(r"\d{3,4}\b", words):  # 3090, 1080 Ti
        return _longest(f"RTX {words}")[0] or _longest(f"GTX {words}")[0]
    return _longest(f"RTX {words}")[0] if re.match(r"a\d{4}\b", words) else _longest(words)[0]


_NO_CARD = re.compile(r"(?i)auto|all|any|default|none|no|cpu")
"""Words that people type in the place of a card and that name none."""
_WITHOUT = re.compile(
    r"(?i)none|no[ -]?(?:card|gpu|nvidia|cuda)s?|without(?: an?)? (?:card|gpu)s?|cpu(?:[ -]?only)?"
)
_LENDS = re.compile(
    r"(?i)(?:google )?colab(?: pro)?|kaggle|paperspace|runpod|vast(?:\.ai)?|lambda(?: ?labs)?|sagemaker.*|"
    r"modal|lightning(?: ai)?|hugging ?face.*|aws|azure|gcp|oci"
)
"""Services that lend several kinds of cards."""
_ATTACHES = re.compile(r"(?i)n1(-[a-z]+-\d+)?")
"""Google's instances to which any of several cards is attached."""


def is_without(text: str) -> bool:
    """Whether a text says that there is no card: ``none``, ``no gpu``, ``CPU only``."""
    return _WITHOUT.fullmatch(text.strip()) is not None


ON_JETSON = (
    "on a Jetson people take NVIDIA's wheels for its JetPack or NVIDIA's l4t containers, which rtbuild does "
    "not build: `rtbuild resolve torch --system 'JetPack 6'` has the line; https://forums.developer.nvidia.com/t/pytorch-for-jetson/72048"
)
_JETSON = re.compile(r"(?i)jetson|tegra|^TX[12]i?$|^TK1$")
_LISTS = "https://developer.nvidia.com/cuda-gpus and cuda-legacy-gpus list it"


def named_card(option: str, text: str, *, alike: bool = True) -> str:
    """The name of a card as the tables have it, or ``sm_75`` for a compute capability.

    With ``alike`` a laptop's chip stands for the card of the same compute capability. Raises UsageError, in
    terms of the ``option`` that was given, if no table has it.
    """
    text = _ATTACHED.sub("", text.strip())
    row = card_of(text) if alike else None
    several = [part for part in re.split(r"\s*(?:[,;|+&/]|\band\b|\bor\b)\s*", text) if part]
    if len(several) > 1 and row is not None and not _CAPABILITY.fullmatch(text.strip()):
        ways = " ".join(f"{option} '{part}'" for part in several)
        raise UsageError(f"{option} {text} names several cards", hint=f"one option for each: {ways}")
    names = _meant(text)
    if len({_known().capabilities[name] for name in names}) > 1:
        number = re.search(r"\d{4}", text)  # labels leave the letter out: RTX A4000
        lettered = {f"rtxa{number[0]}"} & _by_words().keys() - {*names} if number else ()
        cards = _listed([*names, *lettered])
        told = "`nvidia-smi -L` prints its name in full, `nvidia-smi --query-gpu=compute_cap` the number"
        hint = f"{told}; then name it, as in {option} '{cards[0][0]}'; they are "
        hint += ", ".join(f"{one} ({of})" for one, of in cards)
        raise UsageError(f"{option} {text} may be one of several cards", hint=hint)
    if alike and names and (row is None or row.capability != _known().capabilities[names[0]]):
        row = _by_words()[names[0]]
    found = row.name if row is not None else None if alike else known_class(text)
    if found is not None:
        return found
    instance = instance_of(text)
    if instance is not None and instance.maker is not None:
        what = f"has {instance.card} of {instance.maker}"
        raise UsageError(
            f"{option} {text} {what}, and CUDA runs on NVIDIA's GPUs alone: no driver, image or build with "
            "CUDA serves it",
            hint=f"{_instances_beside(instance)}; or the CPU: {option} none"
            + (f"; {builds_of(instance.maker)}" if instance.maker in _BUILDS else ""),
        )
    maker = maker_of(text)
    if maker is not None:
        raise UsageError(
            f"{option} {text} is {maker}'s, and CUDA runs on NVIDIA's GPUs alone, in a container, too",
            hint=f"rtbuild serves NVIDIA's alone; {builds_of(maker)}",
        )
    if served := load().generations.get(text.strip().lower()):
        listed = ", ".join(sorted(served, key=key))
        raise UsageError(
            f"{option} {text} is a generation of cards, and not all of them are alike",
            hint=f"name the card, as in {option} T4, or its compute capability, one of {listed}",
        )
    raise UsageError(f"{option} {text} is no GPU that rtbuild knows", hint=_way_on(option, text))


def _instances_beside(instance: InstanceRow) -> str:
    """Instances of the same cloud with cards of NVIDIA's that the newest CUDA serves, in a clause."""
    oldest = max(load().families.values(), key=lambda family: key(family.major)).capability_min
    rows = [row for row in load().instances if row.source == instance.source and row.maker is None]
    young = (row for row in rows if key(load().gpus[row.card.lower()].capability) >= key(oldest or "0"))
    named = ", ".join(f"{row.name} ({row.card})" for row in young)
    return f"instances of the same cloud with NVIDIA's cards: {named}"


def _meant(text: str) -> list[str]:
    """The joined words of the cards that a text may mean; none for a compute capability."""
    text = _whole(text)
    return [] if _CAPABILITY.fullmatch(text) or instance_of(text) else meant_by(text, _known())


def _listed(names: list[str]) -> list[tuple[str, str]]:
    """Cards with their compute capabilities, by these."""
    rows = sorted((_by_words()[name] for name in names), key=lambda row: key(row.capability))
    return [(_with_generation(row), row.capability) for row in rows]


def other_cards(text: str) -> list[str]:
    """The cards of other compute capabilities that a text in a matrix may mean beside the one that is taken;
    none for a name as the table writes it."""
    row = card_of(text)
    if row is None or row.name.lower() == text.strip().lower():
        return []
    return [name for name, capability in _listed(_meant(text)) if capability != row.capability]


def _with_generation(row: GpuRow) -> str:
    """A name that no other card has: ``RTX6000-Turing``."""
    if not is_ambiguous(row.name, _known()):
        return row.name
    kind = next(kind for kind in load().architectures if row.capability in kind.capabilities)
    return f"{row.name}-{kind.name}"


def to_type(name: str) -> str:
    """The table's name of a card in the form that ``--gpu`` takes: ``RTX6000-Turing`` of ``RTX6000``."""
    row = load().gpus.get(name.lower())
    return name if row is None else _with_generation(row)


def _way_on(option: str, text: str) -> str:
    """A hint for a card that no table has."""
    oldest = min((one for of in load().generations.values() for one in of), key=key)
    if re.fullmatch(r"\d{1,2}\.\d", text) and key(text) < key(oldest):
        return f"no build on record has code for it: the oldest compute capability is {oldest}"
    if _JETSON.search(text):
        like = f"as in {option} 5.3 --platform linux/arm64"
        return f"its compute capability is taken, too ({_LISTS}), {like}; {ON_JETSON}"
    return _of_service(option, text) or _of_no_card(option, text) or _of_near(option, text)


def _of_service(option: str, text: str) -> str:
    """A hint for what has cards of several kinds; empty for anything else."""
    if several := _families(text.strip().lower()):
        told = " and ".join(f"{row.name} ({row.card})" for row in several)
        return f"several clouds' instances have that name: {told}; name the card, {option} {several[-1].card}"
    if _LENDS.fullmatch(text.strip()) or _ATTACHES.fullmatch(text.strip()):
        return f"its cards are of several kinds: `nvidia-smi -L` there prints yours, as in {option} T4"
    return ""


def _of_no_card(option: str, text: str) -> str:
    """A hint for words that name no card; empty for anything else."""
    if _NO_CARD.fullmatch(text.strip()) or is_without(text):
        return (
            f"this machine's own card is taken without {option}; `rtbuild resolve torch --gpu none` has "
            "pip's line for the CPU; in a matrix it is `cuda: none`, for PyTorch "
            f"{torch_for_cpu('VERSION')}: that of the default index brings CUDA's libraries"
        )
    return ""


def _of_near(option: str, text: str) -> str:
    """A hint with the names most alike."""
    near = near_names(text)
    first = f"one of {', '.join(near)}? Its" if near else "its"
    asked = "`nvidia-smi --query-gpu=compute_cap`"
    return f"{first} compute capability is taken too: {option} 8.9, as {asked} prints it, or {_LISTS}"


def torch_for_cpu(release: str) -> str:
    """PyTorch's build for the CPU, as a matrix asks for it: a local version on an index of its own.

    https://pytorch.org/get-started/previous-versions/
    """
    return f"torch=={release}+cpu with `index: [{load().elsewhere_systems['torch', 'linux'].index}]`"


def near_names(text: str) -> list[str]:
    """The known names most like one that no table has, the best first: of its series, or with its number.

    A GT 710 is no GTX 970, and a C2050 no RTX 2050.
    """
    letters, number = _series(text)
    alike = {
        words: row
        for words, row in _by_words().items()
        if _is_alike(letters, number, *_series(row.name)) and letters
    }
    if typing := {name: row for name, row in alike.items() if _is_slip(number, _series(row.name)[1])}:
        alike = typing
    close = difflib.get_close_matches("".join(words_of(text)), alike, n=len(alike) or 1, cutoff=0.4)
    close.sort(key=lambda name: sorted(_series(alike[name].name)[1]) != sorted(number))
    return [_with_generation(alike[name]) for name in close[:3]]


def _series(text: str) -> tuple[str, str]:
    """``("rtx", "4090")`` of ``RTX 4090 Ti``."""
    found = re.match(r"([a-z]*)([0-9]*)", "".join(words_of(text)).lower())
    return (found[1], found[2]) if found else ("", "")


def _is_alike(letters: str, number: str, series: str, other: str) -> bool:
    """Whether two names are of one series, or have one number in series whose names are as long."""
    if letters == series:
        return len(number) == len(other) or _is_slip(number, other)
    return number == other != "" and len(letters) == len(series) > 1


def _is_slip(number: str, other: str) -> bool:
    """Whether one number is another with a digit less, more or wrong, or two that changed places: 390, 30900,
    3091 and 3009 are a 3090.
    """
    if not number or not other or abs(len(number) - len(other)) > 1:
        return False
    long, short = sorted((number, other), key=len, reverse=True)
    if len(long) == len(short):
        wrong = [n for n, (a, b) in enumerate(zip(long, short, strict=True)) if a != b]
        changed = len(wrong) == 2 and wrong[1] == wrong[0] + 1 and sorted(long) == sorted(short)
        return len(wrong) == 1 or changed
    return any(long[:n] + long[n + 1 :] == short for n in range(len(long)))


def maker_of(text: str) -> str | None:
    """The maker that a card's name tells, if it is not NVIDIA: ``AMD`` of ``MI300X``. None if none does."""
    return next((maker for maker, names in _MAKERS.items() if re.match(names, text.strip())), None)


def builds_of(maker: str) -> str:
    """Where the frameworks' builds for cards of another maker are, in a clause."""
    return _BUILDS[maker]


def known_cards(facts: Facts) -> KnownCards:
    """The names of ``data/gpus.toml``, by the words in them."""
    rows = {"".join(words_of(row.name)): row for row in facts.gpus.values()}
    return index_cards(
        capabilities={words: row.capability for words, row in rows.items()},
        generations=facts.generations,
        short=frozenset(words for words, row in rows.items() if row.short),
    )


@functools.cache
def _known() -> KnownCards:
    return known_cards(load())


def _longest(text: str) -> tuple[GpuRow | None, list[str]]:
    """The row that the most of a name's first words spell, and the words after them."""
    name, rest = first_card(words_of(text), _known())
    return _by_words()[name] if name is not None else None, rest


@functools.cache
def _by_words() -> dict[str, GpuRow]:
    return {"".join(words_of(row.name)): row for row in load().gpus.values()}


@dataclass(frozen=True, kw_only=True)
class DriverInstallRow(Row):
    """The commands that install a driver on a system; ``{branch}`` is the branch that is wanted."""

    name: str
    newest: str
    """For cards that the newest branch serves."""
    last: str = ""
    """For cards that only an older branch serves, with its proprietary modules; empty if nobody read it."""
    unread: str = ""
    """The maker's page that was not read for the commands; empty if it was."""


def driver_installs(gpus: Sequence[str], least: str) -> Iterator[tuple[str, str]]:
    """Each system, and the commands that install a driver there, of the branch of ``least`` or newer, that
    serves all of the cards. Of several the generation that lost its drivers first decides.
    """
    cards = [row for gpu in gpus if (row := card_of(gpu)) is not None]
    kinds = [one for one in load().architectures if any(c.capability in one.capabilities for c in cards)]
    ends = [one.before for one in kinds if one.before is not None]
    branch = least.partition(".")[0]
    if ends:
        end = min(ends, key=key)
        branch = max((one for one in load().branches if key(one) < key(end)), key=key, default="")
        if not branch or key(branch) < key(least)[:1]:
            return  # none that is wanted serves them
    for way in TableFile(load().folder / "driver-installs.toml").rows(DriverInstallRow):
        if command := way.last if ends else way.newest:
            open_ = f" (written without the maker's page, which was not read: {way.unread})" * bool(
                way.unread
            )
            yield way.name + open_, command.replace("{branch}", branch)
