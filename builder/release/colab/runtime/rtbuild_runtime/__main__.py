"""``python -I -m rtbuild_runtime``: what an image of the profile ``colab`` runs."""

import sys

from .start import main

sys.exit(main())
