"""The proof of whole locks: none of this repository's is refused, and sets that are known not to load are."""

import time
from pathlib import Path

import pytest

from builder.core.model import Base, Cell, Cuda, Pinned, RootfsBase
from builder.plan.facts.reading import ReadingCache
from builder.plan.facts.rules import check
from builder.plan.lock import lock_path, pinned_cell, read_lock
from builder.plan.matrix import load
from builder.sources.index import Index, Target

MATRICES = sorted(Path(__file__).resolve().parents[2].glob("matrices/*.yaml"))


def judged(pinned, readings):
    """What the rules say of a lock whose wheels were read for both proofs; they take 3 s at most."""
    index = Index.from_user(brief=True).with_extra(pinned.cell.index)
    readings.read_links(pinned.wheels, index)
    readings.read_imports(pinned.cell, pinned.wheels, pinned.base, index)
    start = time.process_time()
    found = check(pinned.cell, readings.truth(pinned.cell, pinned, links=True), only=("links", "imports"))
    assert time.process_time() - start < 3
    return [(one.outcome.value, one.message) for one in found if one.outcome.value != "possible"]


def test_no_lock_of_this_repository_is_refused(tmp_path):
    readings, seen = ReadingCache(cache=tmp_path), 0
    for path in MATRICES:
        entries = read_lock(lock_path(path))
        for cell in load(path).cells if entries else ():
            pinned = pinned_cell(cell, entries)
            if pinned is not None:
                assert judged(pinned, readings) == [], cell.id
                seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("framework", "package", "lacked", "by"),
    [
        ("torch==2.11.0", "xformers==0.0.35", "is linked with libcudart.so.12", "brings libcudart.so.13"),
        ("torch==2.11.0", "sgl-kernel==0.3.21", "is linked with libcudart.so.12", "brings libcudart.so.13"),
        ("torch==2.10.0", "torchaudio==2.11.0", "is linked with libcudart.so.13", "brings libcudart.so.12"),
        (
            "huggingface-hub==0.26.0",
            "diffusers==0.21.4",
            "imports huggingface_hub.cached_download",
            "hub 0.25.2, which has it",
        ),
        ("jax==0.4.30", "flax==0.6.0", "imports jax.linear_util", "jax 0.4."),
        ("scikit-learn==1.7.0", "imbalanced-learn==0.12.0", "imports sklearn.utils.", "scikit-learn 1."),
    ],
)
def test_a_set_that_does_not_load_is_refused(tmp_path, framework, package, lacked, by):
    cell = Cell(
        id="cell",
        matrix="test",
        frameworks=(framework,),
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="wheels"),
        pip=(package,),
    )
    target = Target(python="3.11", platform="linux/amd64", glibc="2.36")
    wheels = Index.from_user(brief=True).resolve([framework, package], target=target)
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    pinned = Pinned(cell=cell, base=base, wheels=wheels, epoch=0)
    ((outcome, text),) = judged(pinned, ReadingCache(cache=tmp_path))
    assert outcome == "impossible"
    assert lacked in text
    assert by in text
