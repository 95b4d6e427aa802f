"""What the fake frameworks share: arithmetic in plain Python, and behaviour chosen by environment.

``RTBUILD_DOUBLE_TORCH="numbers=wrong,loss=flat"`` and the like; see the packages for what each understands.
"""

import ctypes
import os
import time
from pathlib import Path


def behaviour(name):
    """The settings of one fake framework as a dict of texts."""
    text = os.environ.get("RTBUILD_DOUBLE_" + name.upper(), "")
    return dict(pair.partition("=")[::2] for pair in text.split(",") if pair)


def open_own_library(package, name):
    """Load the library of the package's own that needs cuDNN, where the test put one there."""
    path = Path(package).parent / name
    if path.exists():
        ctypes.CDLL(str(path))


def stumble(settings, key):
    """What a real framework does in place of an answer: an exception, a hang, a death."""
    fault = settings.get(key)
    if fault == "hang":
        while True:
            time.sleep(60)
    if fault == "abort":
        os.abort()
    if fault == "exit":
        os._exit(0)
    if fault:
        raise RuntimeError(fault.replace("+", " "))


def taps(x, w):
    """(x index, w index, y index) of every product of a convolution with 3 x 3 filters and padding 1."""
    images, channels, height, width = x
    for image in range(images):
        for out in range(w[0]):
            for row in range(height):
                for column in range(width):
                    y = ((image * w[0] + out) * height + row) * width + column
                    for channel in range(channels):
                        for i in range(3):
                            for j in range(3):
                                r, c = row + i - 1, column + j - 1
                                if 0 <= r < height and 0 <= c < width:
                                    at = ((image * channels + channel) * height + r) * width + c
                                    yield at, ((out * channels + channel) * 3 + i) * 3 + j, y


def convolve(x, x_shape, w, w_shape):
    y = [0.0] * (x_shape[0] * w_shape[0] * x_shape[2] * x_shape[3])
    for ix, iw, iy in taps(x_shape, w_shape):
        y[iy] += x[ix] * w[iw]
    return y


def gradients(x, x_shape, w, w_shape, dy):
    dx, dw = [0.0] * len(x), [0.0] * len(w)
    for ix, iw, iy in taps(x_shape, w_shape):
        dx[ix] += dy[iy] * w[iw]
        dw[iw] += dy[iy] * x[ix]
    return dx, dw
