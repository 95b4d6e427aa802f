"""cuDNN 7, 8 and 9 through ctypes: versions, self-checks, descriptors and the three convolutions.

Every symbol is looked up before it is called: the three majors do not export the same ones. A test compares
prototypes, enumerators and the layout of the one struct with NVIDIA's headers of every release from 8.5 on.
Reference: https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html
"""

from ..common.versions import cudnn_tuple
from .cuda import Library, ctypes, prototypes_of

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
