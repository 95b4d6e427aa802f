"""Every stage of the probe; their import registers them."""

from .coimport import coimport_stage
from .convolution import convolution_stage
from .driver import driver_stage
from .environment import environment_stage
from .files import files_stage
from .fw_registry import framework_by_stage
from .library import library_stage
from .packages import packages_stage
from .resolution import resolver_stage
from .runtime import runtime_stage
from .session import session_stage

REGISTERED = (
    environment_stage,
    files_stage,
    packages_stage,
    resolver_stage,
    driver_stage,
    runtime_stage,
    library_stage,
    convolution_stage,
    framework_by_stage,
    coimport_stage,
    session_stage,
)
