from .clash import nothing
from .conda import in_wheels, read
from .proof import brought, prove
from .requirements import Wishes
from .solve import Demand, Proposal, distributions, meant, needs_standalone, search, split, to_matrix_yaml

__all__ = [
    "Demand",
    "Proposal",
    "Wishes",
    "brought",
    "distributions",
    "in_wheels",
    "meant",
    "needs_standalone",
    "nothing",
    "prove",
    "read",
    "search",
    "split",
    "to_matrix_yaml",
]
