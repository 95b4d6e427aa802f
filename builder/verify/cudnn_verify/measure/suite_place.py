"""Where a result lies, by the driver's word on its address."""

from .cuda import CudaError, ctypes
from .suite_judge import ON_CARD

_POINTER_TYPE, _POINTER_CARD = 2, 9  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _DEVICE_ORDINAL
PINNED = "pinned memory of the host"
_KINDS = {1: PINNED, 2: ON_CARD, 3: "an array", 4: "memory of both"}


def place_of_address(driver, address):
    """``device memory of card 0``, or another place; ``driver`` None: there is no card."""
    if driver is None or not address:
        return "memory of the host"
    try:
        kind = driver.number("cuPointerGetAttribute", _POINTER_TYPE, address, kind=ctypes.c_uint)
        card = driver.number("cuPointerGetAttribute", _POINTER_CARD, address)
    except CudaError as error:
        return "no memory of CUDA (%s)" % error
    return _KINDS.get(kind, "memory of kind %d" % kind) + ("%d" % card if kind == 2 else "")
