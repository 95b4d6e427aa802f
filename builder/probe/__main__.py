"""``python -m builder.probe``, and the end of the one-file form."""

import sys

from .main import probe

if __name__ == "__main__":
    sys.exit(probe())
