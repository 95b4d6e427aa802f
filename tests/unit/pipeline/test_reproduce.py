"""What the second of two builds may not take from the first, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.pipeline.reproduce import _set_aside
from builder.pipeline.run_context import open_context, share_layers

if TYPE_CHECKING:
    from pathlib import Path


def test_the_second_build_takes_no_layer_that_was_made_before(tmp_path: Path) -> None:
    site = open_context([], lambda _event: None, cache=tmp_path)
    share_layers(site, source=None, target="host/a")
    assert site.left_in is not None
    store = site.stores.layers
    with _set_aside(site) as aside:
        assert (aside.taken_from, aside.left_in) == (None, None)
        assert aside.stores.layers.root != store.root
        assert aside.stores.layers.root.is_relative_to(aside.stores.cache)
        assert aside.sources.cache == aside.stores.cache
    assert not aside.stores.cache.exists()
