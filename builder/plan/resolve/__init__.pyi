from .clash import nothing
from .conda import in_wheels, read
from .last import LastRelease, last_release
from .proof import brought, prove
from .requirements import (
    NamedRequirement,
    Wishes,
    from_arguments,
    from_notebook,
    from_pylock,
    from_pyproject,
    from_requirements,
    read_text,
)
from .solve import Demand, Proposal, distributions, meant, needs_standalone, search, split, to_matrix_yaml
from .substitutes import Substitution, nearest

__all__ = [
    "Demand",
    "LastRelease",
    "NamedRequirement",
    "Proposal",
    "Substitution",
    "Wishes",
    "brought",
    "distributions",
    "from_arguments",
    "from_notebook",
    "from_pylock",
    "from_pyproject",
    "from_requirements",
    "in_wheels",
    "last_release",
    "meant",
    "nearest",
    "needs_standalone",
    "nothing",
    "prove",
    "read",
    "read_text",
    "search",
    "split",
    "to_matrix_yaml",
]
