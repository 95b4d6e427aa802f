"""The CUDA driver API through ctypes: the functions to reach a device, allocate and copy.

Reference: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from ..common.tables import beside, read_patterns
from .library_files import mapped_libraries

try:
    import ctypes
except ImportError:  # a Python built without libffi
    ctypes = None

ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR, ATTRIBUTE_COMPUTE_MODE = 75, 76, 20
OUT_OF_MEMORY = 2

PROTOTYPES = beside("measure/prototypes.txt")
# Results by number: [name, cause or None].
RESULTS = {int(number): (row.split() + [None])[:2] for number, row in read_patterns()["cuda-results"].items()}
RESULT_CAUSES = {number: cause for number, (_, cause) in RESULTS.items() if cause}


def prototypes_of(library):
    """{function: its result and parameters by kind} of one library in ``prototypes.txt``."""
    rows = (line.split() for line in PROTOTYPES.splitlines())
    return {row[1]: row[2] for row in rows if row[0] == library}


DRIVER_PROTOTYPES = prototypes_of("cuda")


class CudaError(Exception):
    def __init__(self, call, result):
        Exception.__init__(self, "%s returned %d (%s)" % (call, result, result_name(result)))
        self.call, self.result = call, result
        self.cause = RESULT_CAUSES.get(result)


class MissingSymbolError(Exception):
    """A library lacks a function that every real one of its kind exports."""

    def __init__(self, library, symbol):
        Exception.__init__(self, "%s has no function %s" % (library, symbol))
        self.symbol = symbol


def result_name(result):
    return RESULTS.get(result, ("not a known result", None))[0]


def need_ctypes():
    """The ctypes module; raises ImportError with a clear text if this Python was built without it."""
    if ctypes is None:
        raise ImportError("this Python has no ctypes module, without which no library can be tested")
    return ctypes


def open_library(path, **options):
    """``ctypes.CDLL``, whose OSError also comes if the loader's answer holds a path that is no UTF-8."""
    try:
        return need_ctypes().CDLL(path, **options)
    except UnicodeDecodeError as error:
        raise OSError(error.object.decode("utf-8", "surrogateescape"))


class Library(object):
    """An open library with functions of ``prototypes``; its calls are bracketed by the stage's lines."""

    def __init__(self, ctx, path, prototypes):
        self.ctx, self.path, self.prototypes = ctx, path, prototypes
        with ctx.call("dlopen %s" % path):
            self.library = open_library(path)
        # a stand-in built by rtbuild's tests says so
        self.test_double = self.has("rtbuild_test_double")

    def has(self, symbol):
        try:
            return getattr(self.library, symbol) is not None
        except (AttributeError, UnicodeDecodeError):  # ctypes fails to say no if the path is no UTF-8
            return False

    def function(self, symbol):
        """A function with the types of its prototype; raises MissingSymbolError."""
        kinds = {"i": ctypes.c_int, "n": ctypes.c_size_t, "p": ctypes.c_void_p, "u": ctypes.c_uint64}
        kinds.update(s=ctypes.c_char_p, v=None)
        if not self.has(symbol):
            raise MissingSymbolError(self.path, symbol)
        function, prototype = getattr(self.library, symbol), self.prototypes[symbol]
        function.restype = kinds[prototype[0]]
        function.argtypes = [kinds[letter] for letter in prototype[2:-1]]
        return function

    def status(self, symbol, *arguments):
        """Call a function; returns its number."""
        with self.ctx.call(symbol):
            return self.function(symbol)(*arguments)

    def call(self, symbol, *arguments):
        """Call a function; raises the library's ``error`` unless it succeeds."""
        status = self.status(symbol, *arguments)
        if status != 0:
            raise self.error(symbol, status)


class Driver(Library):
    """``libcuda.so.1``; ``path`` is the real path of the mapped file, or the name without /proc."""

    error = CudaError

    def __init__(self, ctx):
        super(Driver, self).__init__(ctx, "libcuda.so.1", DRIVER_PROTOTYPES)
        mapped = [row["path"] for row in mapped_libraries() or [] if row["name"].startswith("libcuda.so")]
        self.path = (mapped or [self.path])[0]

    def number(self, symbol, *arguments, **options):
        """The number that a function writes to where its first parameter points; ``kind``: a ctypes type."""
        value = options.get("kind", ctypes.c_int)(0)
        self.call(symbol, ctypes.byref(value), *arguments)
        return value.value

    def describe(self, index):
        """{index, name, compute_capability, memory_total, compute_mode} of a device; memory in bytes."""
        device, name = self.number("cuDeviceGet", index), ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 255, device)
        numbers = (ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR, ATTRIBUTE_COMPUTE_MODE)
        major, minor, mode = [self.number("cuDeviceGetAttribute", number, device) for number in numbers]
        row = {"index": index, "name": name.value.decode("utf-8", "replace"), "compute_mode": mode}
        row["memory_total"] = self.number("cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t)
        return dict(row, compute_capability="%d.%d" % (major, minor))

    def use(self, index):
        """Retain the primary context of a device and make it current: the one that cuDNN uses, too."""
        context = ctypes.c_void_p()
        device = self.number("cuDeviceGet", index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def memory(self):
        """(free, total) bytes of the current device."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size):
        return self.number("cuMemAlloc_v2", size, kind=ctypes.c_uint64)

    def download(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, address, size)
        return data.raw
