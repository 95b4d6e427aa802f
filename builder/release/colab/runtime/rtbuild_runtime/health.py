"""The image's health check: exit 0 where Jupyter answers."""

from __future__ import annotations

import sys

from .server import answers
from .settings import port

if __name__ == "__main__":
    sys.exit(0 if answers(port()) else 1)
