"""What the second of two builds may not take from the first, without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from builder.layers import LayerStore
from builder.oci.registry import Registry
from builder.pipeline.reproduce import _set_aside
from builder.pipeline.settings import Settings
from builder.pipeline.sharing import SharedLayers
from builder.pipeline.site import Site
from builder.verify import ReportStore

if TYPE_CHECKING:
    from pathlib import Path


def test_the_second_build_takes_no_layer_that_was_made_before(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "layers")
    layers = SharedLayers(
        registry=Registry.to_write(), repository="host/a", store=store, warn=lambda _text: None
    )
    doors = SimpleNamespace()  # nothing goes through them here
    site = Site(
        settings=Settings(cache=tmp_path),
        registry=layers.registry,
        debian=doors,  # type: ignore[arg-type]
        index=doors,  # type: ignore[arg-type]
        keepers={},
        probe=b"",
        layers=store,
        reports=ReportStore(tmp_path / "reports"),
        shared=layers,
        leaving=layers,
    )
    with _set_aside(site) as aside:
        assert (aside.shared, aside.leaving) == (None, None)
        assert aside.layers.root != store.root
        assert aside.layers.root.is_relative_to(aside.settings.cache)
    assert not aside.settings.cache.exists()
