"""TensorFlow 2 and 1.x, with Keras as it comes with them."""

import os
import re

from .data import newest_row, opened_libraries
from .fw_common import Framework, flat, shaped
from .fw_tensorflow1 import (
    NCHW_TO_NHWC,
    NHWC_TO_NCHW,
    OIHW_TO_HWIO,
    graph_convolve,
    graph_fused,
    graph_train,
    in_probes_order,
)
from .library_files import read_elf
from .maps import mapped_paths
from .versions import numbers


class Tensorflow(Framework):
    name, title, module = "tensorflow", "TensorFlow", "tensorflow"
    compiles = True

    def load(self):
        super(Tensorflow, self).load()
        if "small" in self.ctx.counter:
            for gpu in self._physical():
                self._config().set_memory_growth(gpu, True)
        self.eager = self.api.executing_eagerly()
        if self._release() < (2, 13):
            self.dtypes = ("float32", "float16")  # convolutions in bfloat16 came later
        return self.api

    def _release(self):
        return numbers(self.version())[:2]

    def _build(self):
        sysconfig = getattr(self.api, "sysconfig", None)
        if hasattr(sysconfig, "get_build_info"):
            return dict(sysconfig.get_build_info())
        return {"is_cuda_build": bool(self.api.test.is_built_with_cuda())}

    def cuda_build(self):
        build = self._build()
        return bool(build.get("is_cuda_build")), build

    def compiled(self):
        build = self._build()
        if not build.get("is_cuda_build"):
            return {"cuda": None, "cudnn": None}
        cudnn = self._pinned_cudnn() or self._known("cudnn")
        said = build.get("cudnn_version")
        if said and (not cudnn or numbers(cudnn)[0] != numbers(said)[0]):
            cudnn = str(said)
        return {"cuda": build.get("cuda_version") or self._known("cuda"), "cudnn": cudnn}

    def _known(self, key):
        return newest_row("tensorflow", key, self._release()) or None

    def _pinned_cudnn(self):
        packages = self.ctx.facts.get("packages") or {}
        for name in ("tensorflow", "tensorflow-gpu", "tf-nightly"):
            found = pinned_cudnn((packages.get(name) or {}).get("requires"))
            if found:
                return found
        return None

    def archs(self):
        return list(self._build().get("cuda_compute_capabilities") or [])

    def wanted(self):
        compiled = self.compiled()
        names = opened_libraries("tensorflow", compiled["cuda"])
        if not names or not compiled["cudnn"]:
            return [], []
        return names + ["libcudnn.so.%d" % numbers(compiled["cudnn"])[0]], self._openers()

    def _openers(self):
        """TensorFlow's libraries whose run paths its dlopen calls go by; from 2.21 on there are two."""
        openers = []
        for path in sorted(mapped_paths() or {}):
            if re.search(r"/(libtensorflow_cc|libtensorflow_framework|_pywrap_tensorflow_internal)\.", path):
                if "nvidia" in (read_elf(path)["runpath"] or ""):
                    openers.append(path)
        return openers

    def _config(self):
        config = self.api.config
        return config if hasattr(config, "list_physical_devices") else config.experimental

    def _physical(self):
        return self._config().list_physical_devices("GPU")

    def devices(self):
        if hasattr(self.api, "config"):
            return ["/GPU:%d" % index for index in range(len(self._physical()))]
        from tensorflow.python.client import device_lib

        return [d.name for d in device_lib.list_local_devices() if d.device_type == "GPU"]

    def _nhwc(self, values, shape, dtype):
        return self.api.constant(shaped(values, shape, *NCHW_TO_NHWC), dtype=dtype)

    def _hwio(self, values, shape, dtype):
        return self.api.constant(shaped(values, shape, *OIHW_TO_HWIO), dtype=dtype)

    def convolve(self, device, dtype, case):
        if not self.eager:
            return graph_convolve(self.api, device, dtype, case)
        tf = self.api
        with tf.device(device or "/CPU:0"):
            x = self._nhwc(case["x"], case["x_shape"], dtype)
            w = self._hwio(case["w"], case["w_shape"], dtype)
            dy = self._nhwc(case["dy"], case["dy_shape"], dtype)
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                y = tf.nn.conv2d(x, w, 1, "SAME")
            if not device:
                self._parse_xla_flags()
                return {"y": flat(y.numpy(), *NHWC_TO_NCHW), "devices": [y.device]}
            dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        found = in_probes_order(y.numpy(), dx.numpy(), dw.numpy())
        return dict(found, devices=[tensor.device for tensor in (y, dx, dw)])

    def _parse_xla_flags(self):
        """Compile something small if XLA_FLAGS is set: TensorFlow then reads it, and may abort."""
        if os.environ.get("XLA_FLAGS") and self._release() >= (2, 5):
            self.api.function(lambda x: x + 1, jit_compile=True)(self.api.constant(1.0))

    def fused(self, device, dtype, case, bias):
        if not self.eager:
            return graph_fused(self.api, device, dtype, case, bias)
        tf = self.api

        @tf.function
        def layer(x, w, b):
            return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), b))

        with tf.device(device or "/CPU:0"):
            x = self._nhwc(case["x"], case["x_shape"], dtype)
            w = self._hwio(case["w"], case["w_shape"], dtype)
            y = layer(x, w, tf.constant(bias, dtype=dtype))
        return {"y": flat(y.numpy(), *NHWC_TO_NCHW), "devices": [y.device]}

    def train(self, device, data):
        """Keras' ``fit``: its compiled step is where a fused convolution of a wrong cuDNN shows."""
        if not self.eager:
            return graph_train(self.api, device, data)
        keras = self.api.keras
        with self.api.device(device or "/CPU:0"):
            net = keras.Sequential(
                [
                    keras.layers.Conv2D(4, 3, padding="same", activation="relu"),
                    keras.layers.GlobalAveragePooling2D(),
                    keras.layers.Dense(1),
                ]
            )
            net.build((None, 8, 8, 3))
            w = shaped(data["w"], (4, 3, 3, 3), *OIHW_TO_HWIO)
            net.set_weights([w, shaped([0] * 4, (4,)), shaped(data["v"], (4, 1)), shaped([0], (1,))])
            if not device:
                return {"losses": self._steps(net, data), "devices": ["/CPU:0"]}
            net.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
            x = shaped(data["x"], (8, 3, 8, 8), *NCHW_TO_NHWC)
            targets = shaped(data["targets"], (8, 1))
            history = net.fit(x, targets, batch_size=8, epochs=8, verbose=0, shuffle=False)
            where = net(x).device
        return {"losses": history.history["loss"], "devices": [where]}

    def _steps(self, net, data):
        """The losses of the same steps one by one: over before ``fit`` has compiled its first."""
        x = self._nhwc(data["x"], (8, 3, 8, 8), "float32")
        targets = self.api.reshape(self.api.constant(data["targets"], "float32"), (8, 1))
        optimizer, losses = self.api.keras.optimizers.SGD(0.1), []
        for _ in range(8):
            with self.api.GradientTape() as tape:
                loss = self.api.reduce_mean((net(x) - targets) ** 2)
            weights = net.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            losses.append(float(loss))
        return losses


def pinned_cudnn(requires):
    """``9.3.0.75`` out of a wheel's ``nvidia-cudnn-cu12==9.3.0.75; extra == "and-cuda"``, or None."""
    for line in requires or ():
        found = re.match(r"nvidia[-_.]cudnn[-_.]cu\d+[^;]*?[=>~]=\s*([\d.]+)", line)
        if found:
            return found.group(1)
    return None
