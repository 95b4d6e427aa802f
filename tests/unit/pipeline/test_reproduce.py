"""What the second of two builds may not take from the first, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.pipeline.reproduce import _set_aside
from builder.pipeline.run_context import layer_cache, open_context

if TYPE_CHECKING:
    from pathlib import Path


def test_the_second_build_takes_no_layer_that_was_made_before(tmp_path: Path) -> None:
    site = open_context([], lambda _event: None, cache=tmp_path)
    site.layer_cache = layer_cache(site, source=None, target="host/a")
    assert site.layer_cache.target is not None
    store = site.stores.layers
    with _set_aside(site) as aside:
        assert (aside.layer_cache.source, aside.layer_cache.target) == (None, None)
        assert aside.stores.layers.root != store.root
        assert aside.stores.layers.root.is_relative_to(aside.stores.cache)
        assert aside.sources.cache == aside.stores.cache
    assert not aside.stores.cache.exists()
