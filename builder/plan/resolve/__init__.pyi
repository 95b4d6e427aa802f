from .conda import from_conda
from .project_files import from_pylock, from_pyproject
from .proposing import AskedMachine, ProposedMatrix, propose
from .refusals import last_release
from .requirements import Wishes, from_arguments, from_notebook, from_requirements
from .solve import Proposal, needs_standalone, to_matrix_yaml

__all__ = [
    "AskedMachine",
    "Proposal",
    "ProposedMatrix",
    "Wishes",
    "from_arguments",
    "from_conda",
    "from_notebook",
    "from_pylock",
    "from_pyproject",
    "from_requirements",
    "last_release",
    "needs_standalone",
    "propose",
    "to_matrix_yaml",
]
