"""``rtbuild probe``: the one file that runs in an image, on Colab or on bare metal."""

import sys
from pathlib import Path
from typing import Annotated

from builder.cli import options as opt
from builder.recipe.bundle import bundle


def probe(
    output: Annotated[Path | None, opt.of("--output, -o: Write it there; without, to stdout.")] = None,
) -> int:
    """Print the probe, or write it executable."""
    if output is None:
        sys.stdout.buffer.write(bundle())
    else:
        output.write_bytes(bundle())
        output.chmod(0o755)
    return 0
