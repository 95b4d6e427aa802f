"""The rules, by subject; :mod:`builder.plan.facts.rules.checking` has their table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bounds import free_bounds as free_bounds, kept_from_bad as kept_from_bad, with_bound as with_bound
    from .candidates import (
        Choice as Choice,
        Combination as Combination,
        choices as choices,
        why_cudnn as why_cudnn,
        platform_of as platform_of,
    )
    from .cell_packages import PYTORCH as PYTORCH, asked_once as asked_once
    from .checking import (
        BROKEN_SET as BROKEN_SET,
        OF_MACHINE as OF_MACHINE,
        OF_SET as OF_SET,
        broken_set as broken_set,
        check as check,
        check_candidate as check_candidate,
        cuda_of as cuda_of,
        glibc_for as glibc_for,
        left_to_lock as left_to_lock,
    )
    from .devices import (
        by_compat as by_compat,
        driver_of as driver_of,
        of_driver as of_driver,
        of_generations as of_generations,
        of_older_driver as of_older_driver,
    )
    from .finding import Finding as Finding, Outcome as Outcome, unknown as unknown
    from .machines import MachineDrivers as MachineDrivers, machines_told as machines_told
    from .packages import bad_pairs as bad_pairs
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
