"""The CUDA driver API and cuDNN 7, 8 and 9 through ctypes: what reaches a device, allocates and copies;
versions, self-checks, descriptors and the three convolutions.

Every symbol is looked up before it is called: cuDNN's three majors do not export the same ones. A test
compares prototypes, enumerators and the layout of the one struct with NVIDIA's headers of every release from
8.5 on. References: https://docs.nvidia.com/cuda/cuda-driver-api/ and
https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html
"""

from ..common.tables import beside, read_patterns
from ..common.versions import cudnn_tuple
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


# -- cuDNN

FLOAT, HALF = 0, 2
_NCHW, _CROSS_CORRELATION = 0, 1

# A status that says more than that something failed -> the cause that it stands for by itself.
_STATUS_CAUSES = (
    ("ARCH_MISMATCH", "cudnn-arch-dropped"),
    ("INCOMPATIBLE_CUDA_DRIVER", "driver-too-old"),
    ("INCOMPATIBLE_CUDART", "cudnn-cuda-flavour"),
    ("RUNTIME_PREREQUISITE_MISSING", "nvrtc-missing"),
    ("SUBLIBRARY_UNAVAILABLE", "cudnn-sublibrary-missing"),
    ("SUBLIBRARY_LOADING_FAILED", "cudnn-sublibrary-missing"),
    ("HOST_ALLOCATION_FAILED", "host-memory"),
)
# The kind of each algorithm by its number in cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t, ...BwdFilterAlgo_t.
ALGORITHMS = {
    "Forward": ("direct", "direct", "direct", "direct", "fft", "fft", "winograd", "winograd"),
    "BackwardData": ("direct", "direct", "fft", "fft", "winograd", "winograd"),
    "BackwardFilter": ("direct", "direct", "fft", "direct", "winograd", "winograd", "fft"),
}
CUDNN_PROTOTYPES = prototypes_of("cudnn")
VERSION_CHECKS = {
    8: ("OpsInfer", "OpsTrain", "CnnInfer", "CnnTrain", "AdvInfer", "AdvTrain"),
    9: ("Graph", "Ops", "Cnn", "Adv", "SubquadraticOps"),  # the last from 9.22 on, in libcudnn_ext
}
"""Parts with a version check of their own, ``cudnn<Part>VersionCheck``, by cuDNN's major version."""
_CHECKS = {"cudnn%sVersionCheck" % part: "i()" for parts in VERSION_CHECKS.values() for part in parts}
VERSION_MISMATCH = {8: 14, 9: 1002}  # CUDNN_STATUS_VERSION_MISMATCH, CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH


class CudnnError(Exception):
    def __init__(self, call, status, name, reason):
        text = "%s returned %d (%s)" % (call, status, name)
        Exception.__init__(self, text + (": " + reason if reason else ""))
        self.status, self.name, self.reason, self.cause = status, name, reason, status_cause(name)
        # true if cuDNN has no such algorithm for this problem on this GPU, by its own word
        self.unsupported = name.startswith("CUDNN_STATUS_NOT_SUPPORTED")


def status_cause(text):
    """The cause that a status in a text stands for by itself, or None."""
    return next((cause for word, cause in _STATUS_CAUSES if "CUDNN_STATUS" in text and word in text), None)


def perf_type():
    """cudnnConvolution*AlgoPerf_t, the same in cuDNN 7, 8 and 9."""
    number, size, real = ctypes.c_int, ctypes.c_size_t, ctypes.c_float
    fields = [("algo", number), ("status", number), ("time", real), ("memory", size)]
    fields += [("determinism", number), ("math_type", number), ("reserved", number * 3)]
    return type("Perf", (ctypes.Structure,), {"_fields_": fields})


class Cudnn(Library):
    """One ``libcudnn.so.N``."""

    def __init__(self, ctx, path):
        super(Cudnn, self).__init__(ctx, path, dict(CUDNN_PROTOTYPES, **_CHECKS))
        self.version = cudnn_tuple(self.status("cudnnGetVersion"))
        self.major = self.version[0]

    def number_of(self, symbol):
        """A function without arguments that returns a size_t, or None if there is no such function."""
        return self.status(symbol) if self.has(symbol) else None

    def error(self, symbol, status):
        return CudnnError(symbol, status, self.status_name(status), self.last_error())

    def status_name(self, status):
        """cuDNN's own name for a status: numbers of the same meaning differ between majors."""
        if not self.has("cudnnGetErrorString"):
            return "CUDNN_STATUS_UNKNOWN"
        return (self.function("cudnnGetErrorString")(status) or b"").decode("ascii", "replace")

    def last_error(self):
        """cuDNN 9's own words about the last failure, or ''."""
        if not self.has("cudnnGetLastErrorString"):
            return ""
        text = ctypes.create_string_buffer(1024)
        self.function("cudnnGetLastErrorString")(text, 1023)
        return text.value.decode("utf-8", "replace").strip()

    def version_checks(self):
        """{function: status} of all the sub-libraries' own version checks that this major has."""
        names = ["cudnn%sVersionCheck" % part for part in VERSION_CHECKS.get(min(self.major, 9), ())]
        return {name: self.status(name) for name in names if self.has(name)}

    def create(self, kind=""):
        """A handle, or a descriptor such as ``TensorDescriptor``."""
        made = ctypes.c_void_p()
        self.call("cudnnCreate" + kind, ctypes.byref(made))
        return made

    def describe(self, kind, setter, *values):
        found = self.create(kind + "Descriptor")
        self.call("cudnnSet%sDescriptor" % setter, found, *values)
        return found

    def tensor(self, shape, data_type):
        return self.describe("Tensor", "Tensor4d", _NCHW, data_type, *shape)

    def filter(self, shape, data_type):
        return self.describe("Filter", "Filter4d", data_type, _NCHW, *shape)

    def convolution(self):
        """A 2-d cross-correlation with padding 1, stride 1, computed in FP32."""
        settings = (1, 1, 1, 1, 1, 1, _CROSS_CORRELATION, FLOAT)
        return self.describe("Convolution", "Convolution2d", *settings)

    def output_shape(self, convolution, x, w):
        sizes = [ctypes.c_int(0) for _ in range(4)]
        self.call("cudnnGetConvolution2dForwardOutputDim", convolution, x, w, *map(ctypes.byref, sizes))
        return tuple(size.value for size in sizes)

    def suggested(self, direction, handle, *descriptors):
        """The first algorithm that cuDNN's heuristics call good for a direction, or None."""
        symbol = "cudnnGetConvolution%sAlgorithm_v7" % direction
        if not self.has(symbol):
            return None
        count, rows = ctypes.c_int(0), (perf_type() * 8)()
        self.call(symbol, handle, *descriptors, 8, ctypes.byref(count), rows)
        return next((row.algo for row in rows[: count.value] if row.status == 0), None)

    def workspace(self, direction, handle, *arguments):
        size = ctypes.c_size_t(0)
        self.call("cudnnGetConvolution%sWorkspaceSize" % direction, handle, *arguments, ctypes.byref(size))
        return size.value
