"""Frameworks for inference only: ONNX Runtime and CTranslate2, and their suite ``infer``.

It is one layer of an encoder with fresh weights. Each runs a model that is written byte by byte, and is held
against :func:`encoder_reference`.
"""

import glob
import json
import os
import re
import shutil
import struct
import tempfile

from ..common.versions import numbers
from .fw_common import Framework, flat, imported, shaped
from .library_files import is_cuda_library, names_inside, read_elf, required_sublibraries, shim_major
from .suite_arrays import ArraySuites
from .suite_judge import TIMES, UNIT, encoder_reference

CUDA_PROVIDER = "CUDAExecutionProvider"
_ONNX_TYPES = {"float32": 1, "float16": 10}


class Onnxruntime(Framework):
    name, title, module = "onnxruntime", "ONNX Runtime", "onnxruntime"
    dtypes = ("float32", "float16")
    answers = ("y",)
    trains = False

    def _provider(self):
        """The library with the CUDA provider, or None."""
        pattern = os.path.join(os.path.dirname(self.api.__file__), "capi/libonnxruntime_providers_cuda*.so")
        return next(iter(glob.glob(pattern)), None)

    def cuda_build(self):
        providers = list(self.api.get_available_providers())
        return CUDA_PROVIDER in providers, {"providers": providers, "library": self._provider()}

    def compiled(self):
        """CUDA as the package says it; cuDNN's major version by the name that the provider is linked with."""
        info = imported("onnxruntime.capi.build_and_package_info")
        cudnn = [str(shim_major(name)) for name in self._needed() if shim_major(name)]
        return {"cuda": getattr(info, "cuda_version", None) or None, "cudnn": cudnn[0] if cudnn else None}

    def _needed(self):
        provider = self._provider()
        return [name for name in read_elf(provider)["needed"] if is_cuda_library(name)] if provider else []

    def wanted(self):
        """Without the driver's library, which 1.31 is linked with: the driver's own checks decide on it."""
        provider = self._provider()
        names = [name for name in self._needed() if name != "libcuda.so.1"]
        return names, [provider] if provider else []

    def rescue(self):
        """A line that a program has to have, for libraries in wheels:
        https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#preload-dlls
        """
        if hasattr(self.api, "preload_dlls"):  # from 1.21 on
            self.api.preload_dlls()
            return "onnxruntime.preload_dlls()"
        return "import torch" if imported("torch") else ""

    def devices(self):
        """A session that was asked for CUDA and lacks it has silently gone to the CPU."""
        model = conv_model("float32", [("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))], (1, 4, 8, 8))
        session = self.api.InferenceSession(model, providers=[CUDA_PROVIDER, "CPUExecutionProvider"])
        return [name for name in session.get_providers() if name == CUDA_PROVIDER]

    def fused(self, device, dtype, case, bias):
        return self.convolve(device, dtype, case, ("b", bias, (len(bias),)))

    def convolve(self, device, dtype, case, *bias):
        inputs = [(name, case[name], case[name + "_shape"]) for name in ("x", "w")] + list(bias)
        shapes = [(name, shape) for name, _, shape in inputs]
        model = conv_model(dtype, shapes, case["dy_shape"], relu=bool(bias))
        options = self.api.SessionOptions()
        if device:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        providers = [CUDA_PROVIDER] if device else ["CPUExecutionProvider"]
        session = self.api.InferenceSession(model, options, providers=providers)
        y = session.run(["y"], {name: shaped(data, shape).astype(dtype) for name, data, shape in inputs})[0]
        return {"y": flat(y), "devices": [session.get_providers()[0]]}


class Ctranslate2(Framework):
    """faster-whisper runs by it. Its wheel holds cuDNN's shim; its parts and cuBLAS come from elsewhere."""

    name, title, module = "ctranslate2", "CTranslate2", "ctranslate2"
    convolves = trains = False

    def load(self):
        super(Ctranslate2, self).load()
        if not hasattr(self.api, "get_cuda_device_count"):
            import ctranslate2._ext  # noqa: F401 - the package goes on without its compiled part, without a word
        # CUDA by the cuBLAS that it opens, cuDNN by the shim that it is linked with: 60 MB are read once
        paths = self._libraries("ctranslate2")
        opened = [name for path in paths for name in names_inside(path, rb"libcublas\.so\.\d+", 512 << 20)]
        linked = [name for path in paths for name in read_elf(path)["needed"] if name.startswith("libcudnn")]
        cudnn = linked[-1].partition(".so.")[2] if linked else ""
        self.built = {"cuda": opened[0].rpartition(".")[2] if opened else None, "cudnn": cudnn or None}

    def compiled(self):
        return self.built

    def _libraries(self, name):
        root = os.path.dirname(os.path.dirname(self.api.__file__))
        return glob.glob(os.path.join(root, "ctranslate2.libs", "lib%s-*.so*" % name))

    def cuda_build(self):
        libraries = self._libraries("ctranslate2")
        return bool(self.compiled()["cuda"]), {"libraries": libraries, "shim": self._libraries("cudnn")}

    def wanted(self):
        compiled, shims = self.compiled(), self._libraries("cudnn")
        names = ["libcublas.so.%s" % compiled["cuda"]] if compiled["cuda"] else []
        parts = required_sublibraries(numbers(compiled["cudnn"])[0]) if compiled["cudnn"] else []
        names += [name for name in parts if re.search("graph|_ops|_cnn", name) and "train" not in name]
        return names, (shims + self._libraries("ctranslate2"))[:1]

    def devices(self):
        return ["cuda:%d" % index for index in range(self.api.get_cuda_device_count())]


def conv_model(dtype, inputs, output, relu=False):
    """A model y = Conv(x, w[, b]), pads 1, with Relu if asked; ``inputs``: (name, shape) pairs.

    It is written byte by byte, since the ``onnx`` package need not be installed. The filter is an input and
    no constant, so that nothing is computed before the session runs.
    Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
    """
    names = [(1, name) for name, _ in inputs]
    pads = _onnx_attribute("pads", [1] * 4)
    graph = [(1, _onnx(*names, (2, "conv" if relu else "y"), (4, "Conv"), (5, pads)))]
    graph += [(1, _onnx((1, "conv"), (2, "y"), (4, "Relu")))] * relu
    graph += [(2, "probe")] + [(11, _onnx_value(name, dtype, shape)) for name, shape in inputs]
    graph.append((12, _onnx_value("y", dtype, output)))
    return _onnx((1, 6), (7, _onnx(*graph)), (8, _onnx((1, ""), (2, 11))))


def encoder_model(dtype, arrays, heads):
    """A model y = one layer of an encoder over x, as :func:`suite_judge.encoder_reference` has it.

    ``arrays``: x, for its shape, and the weights, which are constants of the model.
    """
    names = "x into into_b out out_b up up_b down down_b gain0 bias0 gain1 bias1 gain2 bias2".split()
    held = [_onnx_tensor(name, array.astype(dtype)) for name, array in list(zip(names, arrays))[1:]]
    (tokens, width), nodes = arrays[0].shape, []

    def node(kind, inputs, output, **attributes):
        said = [(5, _onnx_attribute(name, value)) for name, value in sorted(attributes.items())]
        nodes.append((1, _onnx(*[(1, name) for name in inputs.split()], (2, output), (4, kind), *said)))

    def normalized(x, at, output):
        own = output + "_"
        node("ReduceMean", x, own + "mean", axes=[1])
        node("Sub", "%s %smean" % (x, own), own + "off")
        node("Mul", "{0}off {0}off".format(own), own + "square")
        node("ReduceMean", own + "square", own + "variance", axes=[1])
        node("Add", own + "variance small", own + "raised")
        node("Sqrt", own + "raised", own + "root")
        node("Div", "{0}off {0}root".format(own), own + "even")
        node("Mul", "%seven gain%d" % (own, at), own + "scaled")
        node("Add", "%sscaled bias%d" % (own, at), output)

    def linear(x, name, output):
        node("MatMul", "%s %s" % (x, name), output + "_")
        node("Add", "%s_ %s_b" % (output, name), output)

    normalized("x", 0, "n0")
    linear("n0", "into", "qkv")
    node("Reshape", "qkv split", "parted")  # (tokens, 3 heads, width of one)
    node("Transpose", "parted", "turned", perm=[1, 0, 2])
    for at, name in enumerate("qkv"):
        node("Slice", "turned from%d to%d" % (at, at), name)
    node("Transpose", "k", "k_turned", perm=[0, 2, 1])
    node("MatMul", "q k_turned", "products")
    node("Mul", "products scale", "scores")
    node("Softmax", "scores", "weights", axis=2)
    node("MatMul", "weights v", "mixed")
    node("Transpose", "mixed", "back", perm=[1, 0, 2])
    node("Reshape", "back whole", "joined")
    linear("joined", "out", "attended")
    node("Add", "x attended", "x1")
    normalized("x1", 1, "n1")
    linear("n1", "up", "wide")
    node("Relu", "wide", "hidden")
    linear("hidden", "down", "fed")
    node("Add", "x1 fed", "x2")
    normalized("x2", 2, "y")

    one = arrays[0].flat[:1]
    for name, value in (("small", 1e-5), ("scale", (width // heads) ** -0.5)):
        held.append(_onnx_tensor(name, (one * 0 + value).astype(dtype)))
    whole = {"split": [tokens, 3 * heads, width // heads], "whole": [tokens, width]}
    for at in range(3):
        whole.update({"from%d" % at: [at * heads], "to%d" % at: [(at + 1) * heads]})
    for name, values in sorted(whole.items()):
        held.append(
            _onnx((1, len(values)), (2, 7), (8, name), (9, struct.pack("<%dq" % len(values), *values)))
        )
    graph = nodes + [(2, "probe")] + [(5, tensor) for tensor in held]
    graph += [(11, _onnx_value("x", dtype, arrays[0].shape)), (12, _onnx_value("y", dtype, arrays[0].shape))]
    return _onnx((1, 6), (7, _onnx(*graph)), (8, _onnx((1, ""), (2, 11))))


def _onnx_tensor(name, array):
    dims = [(1, size) for size in array.shape]
    return _onnx(*dims, (2, _ONNX_TYPES[str(array.dtype)]), (8, name), (9, array.tobytes()))


def _onnx_attribute(name, value):
    """An integer or a list of them."""
    if isinstance(value, int):
        return _onnx((1, name), (3, value), (20, 2))
    return _onnx((1, name), *[(8, one) for one in value], (20, 7))


def _onnx_value(name, dtype, shape):
    dims = [(1, _onnx((1, size))) for size in shape]
    tensor = _onnx((1, _ONNX_TYPES[dtype]), (2, _onnx(*dims)))
    return _onnx((1, name), (2, _onnx((1, tensor))))


def _onnx(*fields):
    """A message in protobuf's wire format; a field is its number with an integer, a text or a message."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += _onnx_varint(number << 3) + _onnx_varint(value)
        else:
            value = value.encode("ascii") if isinstance(value, str) else value
            data += _onnx_varint(number << 3 | 2) + _onnx_varint(len(value)) + value
    return data


def _onnx_varint(number):
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(data) + bytes([number])


# -- the suite ``infer``

_TOKENS, _WIDTH, _HEADS, _INNER = 24, 64, 4, 128


class InferSuites(ArraySuites):
    """``inferred(arrays, dtype, orders)``: for each order of the tokens (rows of the first array) the output
    of one and the same encoder; ``rounding(dtype)``: the unit of its sums.
    """

    def infer(self):
        rows = []
        for dtype in filter(self.offered, self.types()):
            arrays = self._model(dtype)
            unit = self.rounding(dtype)
            # the second run has other tokens: what was kept of the first one would be wrong
            orders = [list(range(_TOKENS)), [int(self.random.randint(_TOKENS)) for _ in range(_TOKENS)]]
            found = self.inferred(arrays, dtype, orders)
            for run, order in enumerate(orders):
                read = [arrays[0][order]] + arrays[1:]
                wanted = self.moved(lambda values, r: encoder_reference(values, r, _HEADS), read, unit)
                what = "encoder in %s%s" % (dtype, ", run again" if run else "")
                rows += self.moved_rows(what, ("output",), [found[run]], wanted, [TIMES])
        return rows

    def _model(self, dtype):
        """The arrays that :func:`encoder_reference` takes, of numbers that the type holds."""
        shapes = ((_WIDTH, 3 * _WIDTH), (3 * _WIDTH,), (_WIDTH, _WIDTH), (_WIDTH,))
        shapes += ((_WIDTH, _INNER), (_INNER,), (_INNER, _WIDTH), (_WIDTH,))
        arrays = [self.fresh(_TOKENS, _WIDTH)]
        arrays += [self.fresh(*shape) * (shape[0] ** -0.5 if shape[1:] else 0.1) for shape in shapes]
        for _ in range(3):
            arrays += [1.0 + 0.1 * self.fresh(_WIDTH), 0.1 * self.fresh(_WIDTH)]
        return [self.rounded(array, dtype) for array in arrays]


class OnnxruntimeSuites(InferSuites):
    """``device``: the name of the CUDA provider, or that of the CPU's."""

    def lacks(self):
        if not hasattr(getattr(self.api, "OrtValue", None), "data_ptr"):
            return "values of ONNX Runtime %s do not tell their address" % self.api.__version__
        return None

    def types(self):
        return ("float32", "float16")

    def rounding(self, dtype):
        """Products in float32 are by TF32 where the card has it."""
        card = self.driver and self.capability >= (8, 0)
        return UNIT["tf32"] if card and dtype == "float32" else self.unit(dtype)

    def send(self, array, dtype="float32"):
        kind = "cuda" if self.device == CUDA_PROVIDER else "cpu"
        return self.api.OrtValue.ortvalue_from_numpy(array.astype(dtype), kind, 0)

    def numbers(self, tensor):
        return tensor.numpy().astype("float64")

    def place(self, tensor):
        return ["%s:0" % tensor.device_name()], tensor.data_ptr()

    def inferred(self, arrays, dtype, orders):
        options = self.api.SessionOptions()
        if self.driver:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        model = encoder_model(dtype, arrays, _HEADS)
        session = self.api.InferenceSession(model, options, providers=[self.device])
        found = []
        for order in orders:
            x = self.send(arrays[0][order], dtype)  # the binding does not keep it
            y = self.send(self.np.full((_TOKENS, _WIDTH), float("nan")), dtype)
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", x)
            binding.bind_ortvalue_output("y", y)
            session.run_with_iobinding(binding)
            found.append(y)
        return found


class Ctranslate2Suites(InferSuites):
    """``device``: ``cuda:0``."""

    def lacks(self):
        views = hasattr(self.api, "Encoder") and hasattr(self.api.StorageView, "to_device")
        return None if views else "CTranslate2 %s gives no values of an encoder back" % self.api.__version__

    def types(self):
        offered = self.api.get_supported_compute_types(self.device.partition(":")[0])
        return [dtype for dtype in ("float32", "float16") if dtype in offered]

    def rounding(self, dtype):
        """Sums of float16 are kept in float16, by default:
        https://opennmt.net/CTranslate2/environment_variables.html#ct2-cuda-true-fp16-gemm
        """
        return self.unit(dtype) * (8 if dtype == "float16" else 1)

    def send(self, array, dtype="float32"):
        value = self.api.StorageView.from_array(array.astype(dtype))
        return value.to_device(self.api.Device.cuda) if self.device.startswith("cuda") else value

    def numbers(self, tensor):
        if tensor.device != "cpu":
            tensor = tensor.to_device(self.api.Device.cpu)
        return self.np.array(tensor).astype("float64")

    def place(self, tensor):
        interface = "__cuda_array_interface__" if tensor.device == "cuda" else "__array_interface__"
        name = "%s:%d" % (tensor.device, tensor.device_index)
        return [name], getattr(tensor, interface)["data"][0]

    def inferred(self, arrays, dtype, orders):
        folder = tempfile.mkdtemp(prefix="cudnn-verify-")
        try:
            _write_encoder(folder, arrays, self.np)
            model = self.api.Encoder(folder, self.device.partition(":")[0], compute_type=dtype)
            return [model.forward_batch([order]).last_hidden_state for order in orders]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _write_encoder(folder, arrays, numpy):
    """A model of CTranslate2's kind: ``model.bin``, ``config.json`` and a vocabulary.

    Format: https://github.com/OpenNMT/CTranslate2/blob/master/python/ctranslate2/specs/model_spec.py,
    ``_serialize``. Token i is embedded as row i of x; the table of positions holds zeros.
    """
    x, into, into_bias, out, out_bias, up, up_bias, down, down_bias = arrays[:9]
    layer, rows = "encoder/layer_0/", {"encoder/embeddings_0/weight": x}
    rows["encoder/position_encodings/encodings"] = numpy.zeros_like(x)
    parts = (("self_attention/linear_0", into, into_bias), ("self_attention/linear_1", out, out_bias))
    parts += (("ffn/linear_0", up, up_bias), ("ffn/linear_1", down, down_bias))
    for name, weight, bias in parts:
        rows.update({layer + name + "/weight": weight.T, layer + name + "/bias": bias})
    for at, name in enumerate((layer + "self_attention/", layer + "ffn/", "encoder/")):
        rows[name + "layer_norm/gamma"], rows[name + "layer_norm/beta"] = arrays[9 + 2 * at : 11 + 2 * at]
    told = [("encoder/num_heads", "<h", 2, _HEADS), ("encoder/pre_norm", "<b", 1, 1)]
    told += [("encoder/activation", "<b", 1, 0), ("encoder/embeddings_merge", "<b", 1, 0)]
    told += [("encoder/scale_embeddings", "<b", 1, 0)]
    data = (
        struct.pack("<I", 6) + _text("TransformerEncoderSpec") + struct.pack("<II", 1, len(rows) + len(told))
    )
    for name, form, kind, value in told:
        data += _text(name) + struct.pack("<BBI", 0, kind, struct.calcsize(form)) + struct.pack(form, value)
    for name, array in sorted(rows.items()):
        held = numpy.ascontiguousarray(array, "<f4")
        data += _text(name) + struct.pack("<B%dI" % held.ndim, held.ndim, *held.shape)
        data += struct.pack("<BI", 0, held.nbytes) + held.tobytes()
    words = ["<unk>", "<s>", "</s>"] + ["w%d" % at for at in range(3, len(x))]
    config = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "layer_norm_epsilon": 1e-5}
    files = {"model.bin": data + struct.pack("<I", 0), "config.json": json.dumps(config).encode("ascii")}
    files["vocabulary.json"] = json.dumps(words).encode("ascii")
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as stream:
            stream.write(content)


def _text(text):
    return struct.pack("<H", len(text) + 1) + text.encode("ascii") + b"\0"
