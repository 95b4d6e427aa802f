"""What is there already: found by few questions, decided by the image's own label."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from builder.pipeline.settings import Settings
from builder.pipeline.skipping import built_before

if TYPE_CHECKING:
    from collections.abc import Sequence

INPUTS = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64


class Shelf:
    """As much of an engine as is asked: images by name, with the inputs that their labels say."""

    def __init__(self, **images: str) -> None:
        self.images = {name.replace("__", "/").replace("_", ":"): inputs for name, inputs in images.items()}
        self.lists = 0

    def find(self, inputs: str, names: Sequence[str]) -> Any:
        return next((name for name in names if self.images.get(name) == inputs), None)

    def built(self) -> dict[str, tuple[str, ...]]:
        self.lists += 1
        return {inputs: (name,) for name, inputs in self.images.items()}


def recipe(cell: str, inputs: str) -> Any:
    return SimpleNamespace(inputs=inputs, cell=SimpleNamespace(matrix="m", id=cell))


def asked(shelf: Shelf, *recipes: Any, **settings: Any) -> dict[str, Any]:
    site: Any = SimpleNamespace(engine=shelf, settings=Settings(**settings))
    return built_before(site, recipes)


def test_images_under_their_cells_names_need_no_list() -> None:
    shelf = Shelf(rtbuild__m_a=INPUTS, rtbuild__m_b=OTHER)
    found = asked(shelf, recipe("a", INPUTS), recipe("b", OTHER))
    assert found == {INPUTS: "rtbuild/m:a", OTHER: "rtbuild/m:b"}
    assert shelf.lists == 0


def test_a_name_that_another_image_has_is_not_trusted() -> None:
    shelf = Shelf(rtbuild__m_a=OTHER)
    assert asked(shelf, recipe("a", INPUTS)) == {}


def test_an_image_under_another_name_is_found_by_its_label() -> None:
    shelf = Shelf(rtbuild__m_a=OTHER, elsewhere_x=INPUTS)
    assert asked(shelf, recipe("a", INPUTS)) == {INPUTS: "elsewhere:x"}
    assert shelf.lists == 1


def test_nothing_is_asked_where_all_is_built_anew() -> None:
    shelf = Shelf(rtbuild__m_a=INPUTS)
    assert asked(shelf, recipe("a", INPUTS), no_cache=True) == {}
    assert shelf.lists == 0
