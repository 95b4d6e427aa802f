"""Signing in to Google: a local runtime has no account of its own."""

from __future__ import annotations

import os

from .errors import say


def authenticate_user(clear_output: bool = True, project_id: str | None = None) -> None:
    """Sign nobody in, and say how; ``project_id`` is put where Google's libraries look for it."""
    del clear_output
    if project_id:
        os.environ["GOOGLE_CLOUD_PROJECT"] = project_id
    say(
        "nobody was signed in. Google's libraries find your own credentials where they always look: start"
        ' with --volume "$HOME/.config/gcloud:/home/colab/.config/gcloud:ro", after `gcloud auth'
        " application-default login`."
    )


authenticate_service_account = authenticate_user
