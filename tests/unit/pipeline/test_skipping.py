"""What is there already: found by few questions and its label, and taken if nothing speaks against it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.registry import RegistryDouble, registry_client, serve

from builder.core.model import RootfsBase
from builder.image.engine.images import StoredImage
from builder.pipeline.build import Make, Reuse, images_in_engine, images_in_registry, plan_cells
from builder.pipeline.run_context import MadeImages, Stores
from builder.sources.oci.staging import staged_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from builder.sources.oci.staging import Staged

INPUTS = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64


class Shelf:
    """As much of an engine as is asked: images by name, with the inputs that their labels say."""

    def __init__(self, **images: str) -> None:
        self.images = {name.replace("__", "/").replace("_", ":"): inputs for name, inputs in images.items()}
        self.lists = 0

    def find(self, inputs: str, names: Sequence[str]) -> Any:
        name = next((name for name in names if self.images.get(name) == inputs), None)
        return name and SimpleNamespace(reference=name, content=f"content of {inputs}")

    def built(self) -> dict[str, tuple[str, ...]]:
        self.lists += 1
        return {inputs: (name,) for name, inputs in self.images.items()}


def recipe(cell: str, inputs: str) -> Any:
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    return SimpleNamespace(
        inputs=inputs, cell=small_image.cell(matrix="m", id=cell), pinned=SimpleNamespace(base=base)
    )


def asked(shelf: Shelf, *recipes: Any, made_here: bool = True) -> dict[str, str]:
    """The references of what is found; of what this machine made, or not, by its memory."""
    memory = SimpleNamespace(content=lambda inputs: f"content of {inputs}" if made_here else None)
    stores = SimpleNamespace(made=memory, image_name=Stores().image_name)
    site: Any = SimpleNamespace(engine=shelf, stores=stores)
    return {inputs: image.reference for inputs, image in images_in_engine(site, recipes).items()}


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


def test_what_this_machine_did_not_make_is_made(tmp_path: Path) -> None:
    """`verify --from` pulls whatever somebody has pushed, and its label says what he likes."""
    assert asked(Shelf(rtbuild__m_a=INPUTS), recipe("a", INPUTS), made_here=False) == {}
    assert asked(Shelf(pulled_a=INPUTS), recipe("a", INPUTS), made_here=False) == {}


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


def staged(server: RegistryDouble, folder: Path, notes: list[Any] | None = None) -> dict[str, Staged]:
    """What is found in a repository, by a client that has only ``folder`` of what earlier ones saw."""
    registry = registry_client()
    repository = f"{server.host}/team/staging"
    site: Any = SimpleNamespace(
        sources=SimpleNamespace(writing=registry),
        stores=SimpleNamespace(cache=folder / "cache", made=MadeImages(folder / "made")),
        own=None,
        emit=(notes if notes is not None else []).append,
    )
    if not server.tags:
        small_image.push_image(registry, repository, folder, tag=staged_tag(small_image.INPUTS))
    server.requests.clear()
    return images_in_registry(site, repository, [recipe("a", small_image.INPUTS)])


def configs(server: RegistryDouble) -> int:
    return sum("/blobs/" in request for request in server.requests)


def test_a_config_is_asked_for_once_and_a_manifest_each_time(server: RegistryDouble, tmp_path: Path) -> None:
    first = staged(server, tmp_path)
    assert configs(server) == 1
    assert staged(server, tmp_path) == first
    assert (configs(server), sum("/manifests/" in request for request in server.requests)) == (0, 1)


def test_a_kept_config_that_was_damaged_is_asked_for_again(server: RegistryDouble, tmp_path: Path) -> None:
    first = staged(server, tmp_path)
    (kept,) = (tmp_path / "cache" / "configs").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b"linux", b"linus"))
    assert staged(server, tmp_path) == first
    assert (configs(server), kept.read_bytes()) == (1, whole)


def test_a_cache_that_takes_nothing_is_done_without(server: RegistryDouble, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert list(staged(server, tmp_path)) == [small_image.INPUTS]
    assert list(staged(server, tmp_path)) == [small_image.INPUTS]
    assert configs(server) == 1


def test_a_tag_on_another_image_is_no_image_whatever_was_kept(server: RegistryDouble, tmp_path: Path) -> None:
    staged(server, tmp_path)
    registry = registry_client()
    small_image.push_image(
        registry,
        f"{server.host}/team/staging",
        tmp_path,
        labels={"io.rtbuild.inputs": OTHER},
        tag=staged_tag(small_image.INPUTS),
    )
    notes: list[Any] = []
    assert staged(server, tmp_path, notes) == {}
    assert "built again" in notes[0].text


def in_store(*, digest: str, content: str) -> StoredImage:
    return StoredImage(reference="rtbuild/m:a", digest=digest, content=content, size=1, labels=())


MANIFEST_DIGEST, CONFIG_DIGEST, CONTENT = "sha256:m", "sha256:c", "sha256:content"
BY_MANIFEST = in_store(digest=MANIFEST_DIGEST, content=CONTENT)
BY_CONFIG = in_store(digest=CONFIG_DIGEST, content=CONTENT)
ANOTHER_DIGEST = in_store(digest="sha256:x", content=CONTENT)
ANOTHER_CONTENT = in_store(digest=MANIFEST_DIGEST, content="sha256:y")
STAGED: Any = SimpleNamespace(digest=MANIFEST_DIGEST, config_digest=CONFIG_DIGEST, content=CONTENT)
NEW, AGAIN, DIFFERS = (
    Make(staged=None, new=True),
    Make(staged=None, new=False),
    Make(staged=STAGED, new=False),
)
NO_PUSH = "no repository is pushed to"


@pytest.mark.parametrize(
    ("stored", "staged", "step"),
    [
        (None, NO_PUSH, NEW),
        (None, None, NEW),
        (None, STAGED, STAGED),
        *((one, NO_PUSH, Reuse(stored=one, staged=None)) for one in (BY_MANIFEST, BY_CONFIG, ANOTHER_DIGEST)),
        *((one, None, AGAIN) for one in (BY_MANIFEST, BY_CONFIG, ANOTHER_DIGEST, ANOTHER_CONTENT)),
        *((one, STAGED, Reuse(stored=one, staged=STAGED)) for one in (BY_MANIFEST, BY_CONFIG)),
        *((one, STAGED, DIFFERS) for one in (ANOTHER_DIGEST, ANOTHER_CONTENT)),
    ],
)
def test_the_step_of_a_cell_follows_from_what_is_there(stored: Any, staged: Any, step: Any) -> None:
    in_engine = {} if stored is None else {INPUTS: stored}
    in_registry = None if staged is NO_PUSH else {} if staged is None else {INPUTS: staged}
    assert plan_cells([recipe("a", INPUTS), recipe("b", OTHER)], in_engine, in_registry) == [step, NEW]
