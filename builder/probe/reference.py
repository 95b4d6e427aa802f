"""A convolution in whole numbers: the answer that a GPU has to give, computed by plain Python.

All values are small integers, so that FP32, TF32 and FP16 represent every product and sum exactly, and the
comparison can demand equality.
"""


def case():
    """The canonical case: x 1x3x8x8, w 4x3x3x3, dy 1x4x8x8, padding 1, stride 1; flat lists in NCHW order."""
    x = [(7 * i) % 5 - 2 for i in range(1 * 3 * 8 * 8)]
    w = [(5 * i) % 7 - 3 for i in range(4 * 3 * 3 * 3)]
    dy = [(3 * i) % 5 - 2 for i in range(1 * 4 * 8 * 8)]
    return {
        "x": x,
        "w": w,
        "dy": dy,
        "x_shape": (1, 3, 8, 8),
        "w_shape": (4, 3, 3, 3),
        "dy_shape": (1, 4, 8, 8),
    }


def _taps(x_shape, w_shape, pad):
    """Yield (index in x, index in w, index in y) of every product of a stride-1 cross-correlation."""
    n, c, h, width = x_shape
    k, _, r, s = w_shape
    rows, columns = h + 2 * pad - r + 1, width + 2 * pad - s + 1
    for image in range(n):
        for out in range(k):
            for row in range(rows):
                for column in range(columns):
                    y = ((image * k + out) * rows + row) * columns + column
                    for channel in range(c):
                        for i in range(r):
                            above = row + i - pad
                            if not 0 <= above < h:
                                continue
                            for j in range(s):
                                left = column + j - pad
                                if 0 <= left < width:
                                    yield (
                                        ((image * c + channel) * h + above) * width + left,
                                        ((out * c + channel) * r + i) * s + j,
                                        y,
                                    )


def forward(x, x_shape, w, w_shape, pad=1):
    """y = x * w (cross-correlation, as cuDNN and every framework mean it), stride 1; a flat list."""
    n, _, h, width = x_shape
    k, _, r, s = w_shape
    y = [0] * (n * k * (h + 2 * pad - r + 1) * (width + 2 * pad - s + 1))
    for ix, iw, iy in _taps(x_shape, w_shape, pad):
        y[iy] += x[ix] * w[iw]
    return y


def backward_data(dy, w, x_shape, w_shape, pad=1):
    """The gradient of ``sum(y * dy)`` by x."""
    n, c, h, width = x_shape
    dx = [0] * (n * c * h * width)
    for ix, iw, iy in _taps(x_shape, w_shape, pad):
        dx[ix] += dy[iy] * w[iw]
    return dx


def backward_filter(dy, x, x_shape, w_shape, pad=1):
    """The gradient of ``sum(y * dy)`` by w."""
    k, c, r, s = w_shape
    dw = [0] * (k * c * r * s)
    for ix, iw, iy in _taps(x_shape, w_shape, pad):
        dw[iw] += dy[iy] * x[ix]
    return dw


def bias_relu(y, bias, channels):
    """max(0, y + bias), the fused tail of a training call; ``y`` is NCHW with N = 1."""
    plane = len(y) // channels
    return [max(0, value + bias[index // plane]) for index, value in enumerate(y)]


def answers():
    """The canonical case with its answers ``y``, ``dx`` and ``dw``."""
    data = case()
    x_shape, w_shape = data["x_shape"], data["w_shape"]
    data["y"] = forward(data["x"], x_shape, data["w"], w_shape)
    data["dx"] = backward_data(data["dy"], data["w"], x_shape, w_shape)
    data["dw"] = backward_filter(data["dy"], data["x"], x_shape, w_shape)
    return data


def largest_difference(found, wanted):
    """The largest absolute difference of two flat lists; a NaN or a missing element is infinite."""
    if len(found) != len(wanted):
        return float("inf")
    largest = 0.0
    for a, b in zip(found, wanted):
        distance = abs(a - b)
        if distance != distance:
            return float("inf")
        largest = max(largest, distance)
    return largest
