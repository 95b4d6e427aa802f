"""The suite ``infer``: one layer of an encoder with fresh weights, by ONNX Runtime and by CTranslate2.

Each runs a model that the suite writes byte by byte, and is held against :func:`encoder_reference`.
"""

import json
import os
import shutil
import struct
import tempfile

from .fw_inference import CUDA_PROVIDER, encoder_model
from .suite_arrays import ArraySuites
from .suite_reference import TIMES, UNIT, encoder_reference

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
