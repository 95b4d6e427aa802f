from .probe_file import bundle, kept_bundle
from .quote import env_name, value
from .rendering import USUAL_PATH, expectation, first_parts, pip_of, render
from .slim import LEFT_OUT, left_out
from .values import Recipe, RecipeSetting, RecipeStep, write

__all__ = [
    "LEFT_OUT",
    "USUAL_PATH",
    "Recipe",
    "RecipeSetting",
    "RecipeStep",
    "bundle",
    "env_name",
    "expectation",
    "first_parts",
    "kept_bundle",
    "left_out",
    "pip_of",
    "render",
    "value",
    "write",
]
