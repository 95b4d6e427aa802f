"""Puts the one file together from ``builder/verify/cudnn_verify/``; a source distribution has it
ready-made.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
BUNDLE = HERE.parent.parent / "builder" / "image" / "recipe" / "probe_file.py"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        if not BUNDLE.is_file():
            return
        sys.path.insert(0, str(BUNDLE.parents[3]))
        spec = importlib.util.spec_from_file_location("rtbuild_bundle", BUNDLE)
        bundle = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bundle)
        (HERE / "cudnn_verify.py").write_bytes(bundle.bundle())
