"""Names of drivers, as they stand in ``nvidia-smi -L``, and the classes of the table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import UsageError
from builder.plan.facts.tables import gpus
from builder.plan.facts.tables import loader as tables
from builder.plan.facts.tables.frameworks import FactsError, read_table
from builder.plan.facts.tables.gpus import (
    _known,
    builds_of,
    card_of,
    class_of,
    known_class,
    maker_of,
    named_card,
    near_names,
    said_of,
    to_type,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("Tesla T4", "7.5", "T4"),
        ("NVIDIA A100-SXM4-40GB", "8.0", "A100"),
        ("NVIDIA A100 80GB PCIe", "8.0", "A100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0", "A100"),
        ("NVIDIA H100 80GB HBM3", "9.0", "H100"),
        ("NVIDIA GH200 480GB", "9.0", "GH200"),
        ("Tesla V100-SXM2-16GB", "7.0", "V100"),
        ("NVIDIA A10", "8.6", "A10"),
        ("NVIDIA A10G", "8.6", "A10G"),
        ("NVIDIA L40S", "8.9", "L40S"),
        ("NVIDIA GeForce RTX 3090", "8.6", "RTX3090"),
        ("GeForce GTX 1080", "6.1", "GTX1080"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9", "RTX6000-Ada"),
        ("NVIDIA RTX A6000", "8.6", "RTXA6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", "RTX-PRO-6000"),
        ("NVIDIA T4G", "7.5", "T4G"),
        ("NVIDIA GeForce RTX 3080 Ti", "8.6", "RTX3080-Ti"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", None),
        ("NVIDIA H20", "9.0", "H20"),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", "8.6", None),
        ("Tesla T4", "8.0", None),
        ("Tesla T4", None, None),
        ("", "7.5", None),
    ],
)
def test_class_of(name: str, capability: str | None, expected: str | None) -> None:
    assert class_of(name, capability) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("t4", "T4"), ("A100-SXM4-40GB", "A100"), ("rtx 3090", "RTX3090"), ("RTX6000-ada", "RTX6000-Ada")],
)
def test_what_a_person_types(text: str, expected: str) -> None:
    assert known_class(text) == expected


def test_what_no_table_has() -> None:
    assert known_class("Voodoo2") is None


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("Tesla T4", "7.5"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"),
        ("RTX 4090", "8.9"),
        ("3090", "8.6"),
        ("1080 Ti", "6.1"),
        ("7.5", "7.5"),
        ("sm_75", "7.5"),
        ("SM90a", "9.0"),
        ("compute_120", "12.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA L4", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA GeForce GTX 1080 Ti", "6.1"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("GeForce GTX TITAN X", "5.2"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("Tesla V100S-PCIE-32GB", "7.0"),
        ("GRID T4-16Q", "7.5"),
        ("NVIDIA GB200", "10.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("3080ti", "8.6"),
        ("nvidia 3090", "8.6"),
        ("geforce 1080", "6.1"),
        ("A6000", "8.6"),
        ("h100sxm", "9.0"),
        ("8x H100", "9.0"),
        ("2 x RTX 4090", "8.9"),
        ("T4 x2", "7.5"),
        ("7,5", "7.5"),
        ("86", "8.6"),
        ("sm_90a", "9.0"),
        ("NVIDIA-A100-SXM4-80GB", "8.0"),
        ("Jetson Orin Nano", "8.7"),
        ("Jetson Nano", None),
        ("RTX 9999", None),
        ("42.0", None),
        ("9", None),
    ],
)
def test_every_name_that_nvidia_smi_prints_and_capabilities(text: str, capability: str | None) -> None:
    card = card_of(text)
    assert (card.capability if card is not None else None) == capability


def test_every_card_is_known_however_it_is_written() -> None:
    for row in tables.load().gpus.values():
        plain = row.name.replace("-", " ")
        ways = (plain, plain.lower(), plain.upper(), f"NVIDIA {plain}", f"nvidia-{row.name}", f"4x {plain}")
        found = {text: card_of(text) for text in ways}
        assert {card.capability for card in found.values() if card} == {row.capability}, row.name
        assert not [text for text, card in found.items() if card is None]


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("RTX 6000", "RTX6000-Turing (7.5), RTXA6000 (8.6), RTX6000-Ada (8.9), RTX-PRO-6000 (12.0)"),
        ("8x rtx2000", "RTXA2000 (8.6), RTX2000-Ada (8.9), RTX-PRO-2000 (12.0)"),
        ("Titan X", "GTX-TITAN-X (5.2), TITAN-X-Pascal (6.1)"),
        ("Titan", "TITAN-V (7.0), TITAN-RTX (7.5)"),
        ("4000", "P4000 (6.1), RTX4000-Turing (7.5), RTXA4000 (8.6)"),
    ],
)
def test_a_name_of_several_cards_is_refused_with_their_names(text: str, cards: str) -> None:
    with pytest.raises(UsageError, match="may be one of several cards") as raised:
        named_card("--gpu", text)
    assert cards in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Quadro RTX 6000", "RTX6000"),
        ("RTX6000 Turing", "RTX6000"),
        ("RTX 6000 Ada Generation", "RTX6000-Ada"),
        ("6000 Ada", "RTX6000-Ada"),
        ("RTX 6000 Blackwell", "RTX-PRO-6000"),
        ("RTX 6000 Pro", "RTX-PRO-6000"),
        ("TITAN X (Pascal)", "TITAN-X"),
        ("RTX A6000", "RTXA6000"),
        ("3090", "RTX3090"),
        ("RTX 3050", "RTX3050"),
    ],
)
def test_a_name_of_one_card_is_taken(text: str, name: str) -> None:
    assert named_card("--gpu", text) == name


def test_each_name_that_an_answer_offers_is_taken() -> None:
    rows = tables.load().gpus
    texts = {*_known().written, *(row.name for row in rows.values()), "RTX 5000", "6000", "RTX 4001"}
    for text in texts:
        try:
            offered = {to_type(named_card("--gpu", text)): None}
        except UsageError as refused:
            listed = str(refused.hint).partition("they are ")[2]
            pairs = (one.rstrip(")").rpartition(" (") for one in listed.split(", ") if listed)
            offered = {name: capability for name, _, capability in pairs} or dict.fromkeys(near_names(text))
            assert offered, text
        for name, capability in offered.items():
            found = rows[named_card("--gpu", name).lower()].capability
            assert found == (capability or found), (text, name)


@pytest.mark.parametrize(
    ("text", "way"),
    [("ampere", "8.0, 8.6"), ("Jetson Nano", "JetPack"), ("RTX 5099", "one of RTX50"), ("Tesla", "8.9")],
)
def test_what_no_table_has_leads_on(text: str, way: str) -> None:
    with pytest.raises(UsageError) as raised:
        named_card("--gpu", text)
    assert way in str(raised.value.hint)


def test_a_card_that_no_table_has_is_named_with_its_neighbours() -> None:
    assert "RTX5090" in near_names("RTX 5099")
    for typed, meant in (("RTX 3009", "RTX3090"), ("RTX 4900", "RTX4090"), ("GTX 1008", "GTX1080")):
        assert near_names(typed)[0] == meant
    assert near_names("") == []


@pytest.mark.parametrize(
    ("text", "maker"),
    [
        ("MI300X", "AMD"),
        ("AMD Instinct MI250", "AMD"),
        ("Radeon RX 7900 XTX", "AMD"),
        ("RX 6800", "AMD"),
        ("gfx942", "AMD"),
        ("Intel Arc A770", "Intel"),
        ("Gaudi 3", "Intel"),
        ("Apple M3 Max", "Apple"),
        ("M2 Pro", "Apple"),
        ("TPU v5e", "Google"),
        ("v2-8", "Google"),
        ("rocm", "AMD"),
        ("xpu", "Intel"),
        ("mps", "Apple"),
        ("RTX 5099", None),
        ("Tesla M99", None),
        ("MX999", None),
    ],
)
def test_a_card_of_another_maker(text: str, maker: str | None) -> None:
    assert card_of(text) is None
    assert maker_of(text) == maker
    with pytest.raises(UsageError) as refused:
        named_card("--gpu", text)
    assert ("rtbuild serves NVIDIA's alone" in str(refused.value.hint)) is (maker is not None)
    assert maker is None or builds_of(maker) in str(refused.value.hint)


def test_no_card_of_nvidia_is_another_maker_s() -> None:
    assert not [row.name for row in tables.load().gpus.values() if maker_of(f"NVIDIA {row.name}")]


@pytest.mark.parametrize("name", ["Jetson Nano", "TX2", "GT 710", "GT 730", "Tesla C2050", "2.0"])
def test_an_old_card_is_not_taken_for_another_series(name: str) -> None:
    assert near_names(name) == []
    with pytest.raises(UsageError, match="is no GPU that rtbuild knows") as raised:
        named_card("--gpu", name)
    assert "one of" not in str(raised.value.hint)
    assert ("JetPack" in str(raised.value.hint)) is (name in {"Jetson Nano", "TX2"})


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("RXT 3090", "RTX3090"), ("GTX 3090", "RTX3090"), ("H1000", "H100"), ("RTX 390", "RTX3090")],
)
def test_a_misspelt_card_is_asked_about(typed: str, meant: str) -> None:
    assert meant in near_names(typed)
    assert "RTX500-Ada" not in near_names(typed)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("RTX 3090, RTX 4090", "--gpu 'RTX 3090' --gpu 'RTX 4090'"),
        ("A100 and H100", "--gpu 'A100' --gpu 'H100'"),
        ("T4/L4", "--gpu 'T4' --gpu 'L4'"),
        ("auto", "is taken without --gpu"),
        ("cpu", "`cuda: none`"),
    ],
)
def test_several_cards_and_none_are_told_how_they_are_written(text: str, way: str) -> None:
    with pytest.raises(UsageError) as raised:
        named_card("--gpu", text)
    assert way in str(raised.value.hint)


def test_how_many_cards_there_are_does_not_matter() -> None:
    assert named_card("--gpu", "2x3090") == named_card("--gpu", "4 x RTX 3090") == "RTX3090"


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("g4dn.xlarge", "T4", "is taken as T4"),
        ("g2-standard-8", "L4", "is taken as L4"),
        ("g2.2xlarge", "GRID-K520", "is taken as"),
        ("Standard_NC6s_v3", "V100", "is taken as V100"),
        ("Standard_NC24ads_A100_v4", "A100", "is taken as A100"),
        ("a2-highgpu-1g", "A100", "is taken as A100"),
        ("GRID A10-8Q", "A10", "a virtual GPU of A10 with 8 GB"),
        ("NVIDIA A100-1-5C", "A100", "a virtual GPU of A100 with 5 GB"),
        ("GRID V100D-16Q", "V100", "the host"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100", "one MIG slice"),
    ],
)
def test_names_that_stand_for_a_machine_or_a_part_of_a_card(text: str, name: str, told: str) -> None:
    assert named_card("--gpu", text) == name
    assert told in str(said_of("--gpu", text))
    assert said_of("--gpu", name) is None


def test_instances_name_cards_of_the_tables_and_those_of_others_are_refused_with_a_way_on() -> None:
    for row in tables.load().instances:
        assert row.maker is not None or row.card.lower() in tables.load().gpus, row
    with pytest.raises(UsageError, match=r"has Radeon Pro V520 of AMD, and CUDA") as caught:
        named_card("--gpu", "g4ad.xlarge")
    hint = str(caught.value.hint)
    assert "g4dn (T4)" in hint
    assert "p3 (" not in hint
    assert "and no others" in hint


def test_a_table_without_its_releases_is_an_error_of_the_facts(tmp_path: Path) -> None:
    """Not an OSError, which nobody expects of a table that ships with the program."""
    source = tables.load().folder / "jax.toml"
    (tmp_path / "jax.toml").write_text(source.read_text())
    with pytest.raises(FactsError, match=r"releases/jax\.json: FileNotFoundError"):
        read_table(tmp_path, "jax")


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("g5", "A10G"),
        ("p5", "H100"),
        ("A2", "A2"),  # a card's name comes before a2-highgpu
        ("P6", "P6"),
        ("n1-standard-8 with T4", "T4"),
        ("n1+T4", "T4"),
        ("DGX H100", "H100"),
    ],
)
def test_a_family_of_instances_and_a_computer_stand_for_their_card(text: str, card: str) -> None:
    assert gpus.named_card("--gpu", text) == card


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("g2", r"g2 \(GRID-K520\) and g2-standard \(L4\)"),  # of two clouds
        ("n1", "of several kinds"),
        ("colab", "of several kinds"),
        ("7900 XTX", "ROCm"),
        ("B580", "XPU"),
        ("Mac M2", "--system macos"),
        ("MacBook Pro M3", "--system macos"),
        ("Ascend 910B", "torch_npu"),
        ("no card", "--gpu none"),
    ],
)
def test_what_is_no_card_of_nvidia_s_has_the_next_step(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as problem:
        gpus.named_card("--gpu", text)
    assert re.search(hint, problem.value.hint or "")


@pytest.mark.parametrize("text", ["none", "no card", "No GPU", "CPU only", "cpu", "without a GPU"])
def test_that_there_is_no_card_is_said_in_many_words(text: str) -> None:
    assert gpus.is_without(text)
    assert not any(map(gpus.is_without, ("T4", "any", "", "no idea")))
