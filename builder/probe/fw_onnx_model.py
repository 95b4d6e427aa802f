"""A one-convolution ONNX model, written byte by byte: the ``onnx`` package need not be installed.

Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

ONNX_TYPES = {"float32": 1, "float16": 10}


def conv_model(dtype, inputs, output, relu=False):
    """A model y = Conv(x, w[, b]), pads 1, with Relu if asked; ``inputs``: (name, shape) pairs.

    The filter is an input and no constant, so that nothing is computed before the session runs.
    """
    kind = ONNX_TYPES[dtype]
    names = [name for name, _ in inputs]
    pads = _onnx_text(1, "pads") + b"".join(_onnx_int(8, 1) for _ in range(4)) + _onnx_int(20, 7)
    conv = _onnx_node("Conv", names, "conv" if relu else "y", _onnx_bytes(5, pads))
    nodes = _onnx_bytes(1, conv)
    if relu:
        nodes += _onnx_bytes(1, _onnx_node("Relu", ["conv"], "y"))
    graph = nodes + _onnx_text(2, "probe")
    for name, shape in inputs:
        graph += _onnx_bytes(11, _onnx_value(name, kind, shape))
    graph += _onnx_bytes(12, _onnx_value("y", kind, output))
    opset = _onnx_text(1, "") + _onnx_int(2, 11)
    return _onnx_int(1, 6) + _onnx_bytes(7, graph) + _onnx_bytes(8, opset)


def _onnx_node(operation, inputs, output, attributes=b""):
    data = b"".join(_onnx_text(1, name) for name in inputs) + _onnx_text(2, output)
    return data + _onnx_text(4, operation) + attributes


def _onnx_value(name, kind, shape):
    dims = b"".join(_onnx_bytes(1, _onnx_int(1, size)) for size in shape)
    tensor = _onnx_int(1, kind) + _onnx_bytes(2, dims)
    return _onnx_text(1, name) + _onnx_bytes(2, _onnx_bytes(1, tensor))


def _onnx_varint(number):
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _onnx_int(field, number):
    return _onnx_varint(field << 3) + _onnx_varint(number)


def _onnx_bytes(field, data):
    return _onnx_varint(field << 3 | 2) + _onnx_varint(len(data)) + data


def _onnx_text(field, text):
    return _onnx_bytes(field, text.encode("ascii"))
