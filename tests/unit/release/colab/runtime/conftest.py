"""What goes into images is imported as it is there: from its own folder, and not as a part of rtbuild."""

from __future__ import annotations

import sys
from pathlib import Path

RUNTIME = Path(__file__).resolve().parents[5] / "builder" / "release" / "colab" / "runtime"
sys.path.insert(0, str(RUNTIME))
