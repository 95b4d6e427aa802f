from .conda import in_wheels, read
from .last import last_release
from .proposing import AskedMachine, ProposedMatrix, propose
from .requirements import (
    Wishes,
    from_arguments,
    from_notebook,
    from_pylock,
    from_pyproject,
    from_requirements,
    read_text,
)
from .solve import Proposal, needs_standalone, to_matrix_yaml

__all__ = [
    "AskedMachine",
    "Proposal",
    "ProposedMatrix",
    "Wishes",
    "from_arguments",
    "from_notebook",
    "from_pylock",
    "from_pyproject",
    "from_requirements",
    "in_wheels",
    "last_release",
    "needs_standalone",
    "propose",
    "read",
    "read_text",
    "to_matrix_yaml",
]
