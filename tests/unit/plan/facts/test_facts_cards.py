"""Each card is read alike by every reader: check, resolve, diagnose, the probe, reports and the picker."""

from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from builder.cli.options import card
from builder.core import cards
from builder.core.cards import is_ambiguous
from builder.core.errors import UsageError
from builder.plan.facts.rules import devices
from builder.plan.facts.rules.image_contents import stack_of
from builder.plan.facts.tables.gpus import card_of, class_of, known_cards
from builder.plan.facts.tables.loader import load
from builder.plan.facts.tables.probe_facts import portable
from builder.release.catalogue.values import cards_of
from builder.verify.cudnn_verify.common.tables import TABLES, read_cards
from builder.verify.cudnn_verify.read.text_facts import TextFacts

CARDS = tuple(load().gpus.values())
PRINTED = [
    tuple(line.split("\t"))
    for line in (Path(__file__).parent / "driver-cards.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
Line = namedtuple("Line", "text")


def by_resolve(name: str) -> str | None:
    try:
        row = card_of(card(name))
    except UsageError:
        return None
    assert row is not None
    return row.capability


def by_diagnose(text: str) -> str | None:
    return TextFacts([Line(text)]).capability


@pytest.fixture
def by_check(make):
    """What the rules about cards say of one; None if they do not know it."""
    cell = make("torch==2.9.1", python="3.12", base="nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04")
    stack = stack_of(cell)

    def said(gpu, platform="linux/amd64"):
        asked = replace(stack, cell=replace(cell, gpus=(gpu,), platform=platform))
        found = list(devices.gpus(asked))
        return None if "no GPU that rtbuild knows" in str(found) else [(f.rule, f.outcome) for f in found]

    return said


def test_each_card_of_the_table_is_read_alike_by_every_reader(by_check) -> None:
    picker = {found.name: found.capability.split(",")[0] for found in cards_of()}
    for row in CARDS:
        twice = is_ambiguous(row.name, read_cards())
        plain = f"{row.name} {'Turing' if row.capability == '7.5' else 'Pascal'}" if twice else row.name
        printed = f"{row.name} (nvgpu)" if row.tegra else f"NVIDIA {plain}"
        read = (by_resolve(plain), picker[row.name], by_diagnose(f"GPU 0: {printed} (UUID: GPU-5b7a)"))
        assert {*read} == {row.capability}, row.name
        assert class_of(row.name, row.capability) == row.name
        like = by_check(f"sm_{row.capability.replace('.', '')}", row.platform or "linux/amd64")
        said = by_check(row.name, row.platform or "linux/amd64")
        assert said is not None
        assert row.tegra or said == like, row.name  # what is said of a Jetson is said of it alone


@pytest.mark.slow
def test_a_name_that_drivers_print_is_read_alike_by_every_reader_and_never_wrongly(by_check) -> None:
    for name, truth in PRINTED:
        row = card_of(name)
        read = row.capability if row is not None else None
        # a name that stands for several chips is read as the oldest of them, or not at all
        assert read in {None, truth.split(maxsplit=1)[0]}, name
        assert by_resolve(name) == by_resolve(f"NVIDIA {name}") == read, name
        smi = f"|   0  NVIDIA {name}        Off | 00000000:01:00.0 Off |                  N/A |"
        assert by_diagnose(smi) == by_diagnose(f"GPU 0: NVIDIA {name} (UUID: GPU-5b7a)") == read, name
        assert (by_check(name) is None) == (read is None), name


def test_of_the_names_that_drivers_print_for_cards_of_today_all_are_known() -> None:
    unknown = [name for name, truth in PRINTED if truth[0] in "6789" and card_of(name) is None]
    boards = ("PG5", "Matrox", "Graphics Device", "DGX Display")  # not for sale by themselves
    assert [name for name in unknown if not any(board in name for board in boards)] == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX 6000...", None),  # cut by nvidia-smi: the Ada's name begins so, too
        ("NVIDIA GeForce RTX 3080 ...", "8.6"),
        ("RTX 6000 Blackwell", None),
        ("on my RTX 6000", None),  # one of three
        ("on my Quadro RTX 6000", "7.5"),
        ("on a Titan X", None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("Orin (nvgpu)", "8.7"),
        ("on Colab's T4", "7.5"),
        ("L2 regularization, P4 and A2", None),
        ("my RTX3090Ti", "8.6"),
        ("GTX 3090", "8.6"),
        ("GRID T4-16Q", "7.5"),
        ("NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2", None),
    ],
)
def test_a_card_in_a_text(text: str, read: str | None) -> None:
    assert by_diagnose(text) == read


def test_a_matrix_is_told_which_of_several_cards_is_taken(make) -> None:
    cell = make("torch==2.9.1", python="3.12", base="nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04")

    def told(gpu: str) -> bool:
        found = devices.gpus(stack_of(replace(cell, gpus=(gpu,))))
        return any("RTX5000-Ada or RTX-PRO-5000, too" in one.message for one in found)

    assert [told(name) for name in ("RTX 5000", "RTX5000", "Quadro RTX 5000")] == [True, False, False]


def test_the_probe_carries_the_tables_as_they_are() -> None:
    assert portable() == TABLES, "run `rtbuild facts export`"
    assert read_cards()._replace(generations=None) == known_cards(load())._replace(generations=None)


def test_a_log_that_names_cards_makes_the_index_of_names_once(monkeypatch) -> None:
    known, text = read_cards(), "GPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: RTX 6000\n"
    monkeypatch.setattr(cards, "_short_names", None)
    assert list(cards.cards_in(text, known)) == [("NVIDIA A100-SXM4-80GB", "a100")]
