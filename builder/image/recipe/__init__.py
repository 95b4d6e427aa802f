"""A lock as a build context: a Dockerfile and all that it needs, which plain ``docker build`` accepts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .probe_file import bundle as bundle, kept_bundle as kept_bundle
    from .rendering import env_name as env_name, value as value
    from .rendering import (
        USUAL_PATH as USUAL_PATH,
        expectation as expectation,
        first_parts as first_parts,
        pip_of as pip_of,
        render as render,
    )
    from .slim import LEFT_OUT as LEFT_OUT, left_out as left_out
    from .values import (
        Recipe as Recipe,
        RecipeSetting as RecipeSetting,
        RecipeStep as RecipeStep,
        write as write,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
