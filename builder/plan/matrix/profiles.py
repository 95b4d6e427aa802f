"""Requirements and Debian packages that a cell's profile adds to the matrix's own.

A profile's requirements are ordinary ones of the cell: they are locked, compared and shown like all others.
"""

from collections.abc import Sequence

from builder.core.model import Profile
from builder.core.versions import canonical, holds, without_marker
from builder.plan.matrix.values import parse

# Versions of Colab's own runtime, the same in all lists from 2025.07 to 2026.07:
# https://github.com/googlecolab/backend-info/blob/main/pip-freeze.gpu.txt
_PIP: dict[Profile, tuple[str, ...]] = {
    "colab": (
        "ipykernel==6.17.1",
        'ipython==7.34.0; python_version < "3.12"',
        'ipython<9,>=8; python_version >= "3.12"',  # 7 imports imp, which went: %load_ext autoreload
        "ipywidgets==7.7.1",
        "jupyter-server<3,>=2",
        "notebook==6.5.7",
        'setuptools; python_version >= "3.12"',  # notebook 6 imports distutils, which went with 3.12
    )
}
# The commands that notebooks call most; Colab's own images have all of them:
# https://github.com/googlecolab/backend-info/blob/main/apt-list.txt
# tini is PID 1: it forwards signals, and reaps processes that notebooks leave behind.
_APT: dict[Profile, tuple[str, ...]] = {
    "colab": ("curl", "git", "less", "procps", "tini", "unzip", "wget", "zip")
}
PROFILE_PYTHON: dict[Profile, int] = {"colab": 8}
"""The oldest minor version that a profile runs on: that of ipykernel 6.17 and jupyter_server 2."""


def pip(profile: Profile, *, python: str, frameworks: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """``given`` requirements and the profile's. A project that the matrix names itself keeps its version."""
    named = {canonical(parse(text).name) for text in (*frameworks, *given)}
    own = (
        without_marker(requirement)
        for requirement in map(parse, _PIP.get(profile, ()))
        if canonical(requirement.name) not in named and holds(requirement, {"python_version": python})
    )
    return (*given, *own)


def apt(profile: Profile, given: Sequence[str]) -> tuple[str, ...]:
    """``given`` Debian packages and the profile's."""
    named = {text.partition("=")[0] for text in given}
    return (*given, *(name for name in _APT.get(profile, ()) if name not in named))
