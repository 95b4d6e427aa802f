"""From requirements to cells: demands, possible cells, and whether there are wheels."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cuda_variants import pages_of as pages_of
    from .environments import from_conda as from_conda
    from .manifests import from_pylock as from_pylock, from_pyproject as from_pyproject
    from .notes import ProposalNote as ProposalNote
    from .native_code import build_variables as build_variables
    from .other_systems import (
        AskedSystem as AskedSystem,
        ElsewhereLine as ElsewhereLine,
        asked_system as asked_system,
        left_out_on as left_out_on,
        of_jetson as of_jetson,
        system_in as system_in,
        windows_lines as windows_lines,
        without_cuda as without_cuda,
    )
    from .project_files import from_file as from_file
    from .project_install import line_of_itself as line_of_itself, with_variables as with_variables
    from .proposing import AskedMachine as AskedMachine, ProposedMatrix as ProposedMatrix, propose as propose
    from .refusals import last_release as last_release
    from .source_files import from_notebook as from_notebook
    from .solve import (
        Proposal as Proposal,
        needs_standalone as needs_standalone,
        to_matrix_yaml as to_matrix_yaml,
    )
    from .uv_project import to_uv_project as to_uv_project
    from .wishes import TYPED as TYPED, Wishes as Wishes, from_arguments as from_arguments
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
