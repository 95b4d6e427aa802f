"""Two faults at once: the first layer's is the cause, and the other one stands among the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faults_driver  # noqa: F401
import faults_files  # noqa: F401
import faults_framework  # noqa: F401
import faults_gpu  # noqa: F401
import faults_packages  # noqa: F401
import faults_surroundings  # noqa: F401
from fault_list import FAULTS, add

if TYPE_CHECKING:
    from fault_scene import Scene

# The fault whose cause is to be named, and a second one.
PAIRS = (
    ("engine_deleted", "shadowed_by_an_incomplete_folder"),
    ("pinned_nvrtc_absent", "shadowed_by_an_incomplete_folder"),
    ("older_cudnn_preloaded", "sitecustomize_preloads"),
    ("driver_without_a_device", "pth_preloads"),
    ("framework_library_with_a_hole", "shadowed_by_an_incomplete_folder"),
    ("framework_library_cut", "address_space_limited"),
    ("library_truncated", "check_disabled"),
    ("sublibrary_deleted", "driver_without_a_device"),
    ("cudnn_of_another_cuda", "check_disabled"),
    ("pinned_library_absent", "standard_module_shadowed"),
    ("cudnn_too_old", "check_disabled"),
    ("driver_too_old", "wrong_forward"),
    ("no_kernels_for_this_gpu", "loss_is_flat"),
    ("framework_wrong_numbers", "loss_is_flat"),
    ("ptxas_removed", "shadowed_by_an_incomplete_folder"),
    ("cudnn_closed", "check_disabled"),
    ("cudnn_known_bad", "check_disabled"),
)


def _both(first: str, second: str) -> None:
    known = {row.name: row for row in FAULTS}
    one, two = known[first.replace("_", "-")], known[second.replace("_", "-")]
    name = f"{one.name}-and-{two.name}"

    def prepare(scene: Scene) -> None:
        two.prepare(scene)
        behaviour = {key: value for key, value in scene.env.items() if key.startswith("RTBUILD_DOUBLE_TORCH")}
        one.prepare(scene)
        for key, value in behaviour.items():
            if scene.env.get(key, value) != value:
                scene.env[key] = f"{scene.env[key]},{value}"

    add(name, f"{one.title}; and {two.title}", one.verdict, one.cause, prepare)


for _first, _second in PAIRS:
    _both(_first, _second)
