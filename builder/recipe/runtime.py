"""What an image of the profile ``colab`` gets beside the probe, as files of its recipe."""

from __future__ import annotations

from builder import resources
from builder.recipe.values import RecipeFile


def runtime_files() -> dict[str, RecipeFile]:
    """``runtime/…`` by name, in the order of the names."""
    root = resources.runtime()
    return {
        f"runtime/{path.relative_to(root).as_posix()}": RecipeFile(content=path.read_bytes())
        for path in sorted(root.rglob("*.py"))
    }
