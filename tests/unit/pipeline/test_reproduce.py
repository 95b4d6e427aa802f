"""What the second of two builds may not take from the first, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.pipeline.reproduce import _set_aside
from builder.pipeline.settings import Settings
from builder.pipeline.site import Site

if TYPE_CHECKING:
    from pathlib import Path


def test_the_second_build_takes_no_layer_that_was_made_before(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path, layers_from="host/a", layers_key="key", push="host/a")
    site = Site(settings, lambda _event: None)
    assert site.shared is not None
    assert site.leaving is not None
    store = site.layers
    with _set_aside(site) as aside:
        assert (aside.shared, aside.leaving) == (None, None)
        assert aside.layers.root != store.root
        assert aside.layers.root.is_relative_to(aside.settings.cache)
    assert not aside.settings.cache.exists()
