"""TensorFlow 2 and 1.x, with Keras as it comes with them."""

import os
import re

from ..common.tables import newest_row, opened_libraries
from ..common.versions import numbers
from .fw_common import Framework, flat, shaped
from .library_files import mapped_paths, read_elf

_NCHW_TO_NHWC, _OIHW_TO_HWIO = (0, 2, 3, 1), (2, 3, 1, 0)
_NHWC_TO_NCHW, _HWIO_TO_OIHW = (0, 3, 1, 2), (3, 2, 0, 1)


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
        packages, own = self.ctx.facts.get("packages") or {}, ("tensorflow", "tensorflow-gpu", "tf-nightly")
        lines = [line for name in own if name in packages for line in packages[name].get("requires") or ()]
        known = [newest_row("tensorflow", key, self._release()) or None for key in ("cuda", "cudnn")]
        cudnn, said = pinned_cudnn(lines) or known[1], build.get("cudnn_version")
        if said and (not cudnn or numbers(cudnn)[0] != numbers(said)[0]):
            cudnn = str(said)
        return {"cuda": build.get("cuda_version") or known[0], "cudnn": cudnn}

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
        own = re.compile(r"/(libtensorflow_cc|libtensorflow_framework|_pywrap_tensorflow_internal)\.")
        openers = [path for path in sorted(mapped_paths() or {}) if own.search(path)]
        return [path for path in openers if "nvidia" in (read_elf(path)["runpath"] or "")]

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

    def convolve(self, device, dtype, case):
        tf = self.api
        if not self.eager:
            with tf.Graph().as_default(), tf.device(device or "/CPU:0"):
                x, w, dy = _inputs(tf, dtype, case)
                y = _conv(tf, x, w)
                results, devices = _run_graph(tf, [y] + tf.gradients(y, [x, w], grad_ys=dy), device)
            return dict(_in_probes_order(*results), devices=devices)
        with tf.device(device or "/CPU:0"):
            x, w, dy = _inputs(tf, dtype, case)
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                y = _conv(tf, x, w)
            if not device:
                if os.environ.get("XLA_FLAGS") and self._release() >= (2, 5):
                    # TensorFlow reads it as it compiles something, and may abort
                    tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
                return {"y": flat(y.numpy(), *_NHWC_TO_NCHW), "devices": [y.device]}
            dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        found = _in_probes_order(y.numpy(), dx.numpy(), dw.numpy())
        return dict(found, devices=[tensor.device for tensor in (y, dx, dw)])

    def fused(self, device, dtype, case, bias):
        tf = self.api
        if not self.eager:
            with tf.Graph().as_default(), tf.device(device or "/CPU:0"):
                x, w, _ = _inputs(tf, dtype, case)
                y = _layer(tf, x, w, tf.constant(bias, dtype=dtype))
                results, devices = _run_graph(tf, [y], device)
            return {"y": flat(results[0], *_NHWC_TO_NCHW), "devices": devices}

        @tf.function
        def layer(x, w, b):
            return _layer(tf, x, w, b)

        with tf.device(device or "/CPU:0"):
            x, w, _ = _inputs(tf, dtype, case)
            y = layer(x, w, tf.constant(bias, dtype=dtype))
        return {"y": flat(y.numpy(), *_NHWC_TO_NCHW), "devices": [y.device]}

    def train(self, device, data):
        """Keras' ``fit``: its compiled step is where a fused convolution of a wrong cuDNN shows."""
        if not self.eager:
            return _graph_train(self.api, device, data)
        keras = self.api.keras
        with self.api.device(device or "/CPU:0"):
            convolution = keras.layers.Conv2D(4, 3, padding="same", activation="relu")
            layers = [convolution, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
            net = keras.Sequential(layers)
            net.build((None, 8, 8, 3))
            w = shaped(data["w"], (4, 3, 3, 3), *_OIHW_TO_HWIO)
            net.set_weights([w, shaped([0] * 4, (4,)), shaped(data["v"], (4, 1)), shaped([0], (1,))])
            if not device:
                return {"losses": self._steps(net, data), "devices": ["/CPU:0"]}
            net.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
            x = shaped(data["x"], (8, 3, 8, 8), *_NCHW_TO_NHWC)
            targets = shaped(data["targets"], (8, 1))
            history = net.fit(x, targets, batch_size=8, epochs=8, verbose=0, shuffle=False)
            where = net(x).device
        return {"losses": history.history["loss"], "devices": [where]}

    def _steps(self, net, data):
        """The losses of the same steps one by one: over before ``fit`` has compiled its first."""
        x = self.api.constant(shaped(data["x"], (8, 3, 8, 8), *_NCHW_TO_NHWC))
        targets = self.api.reshape(self.api.constant(data["targets"], "float32"), (8, 1))
        optimizer, losses = self.api.keras.optimizers.SGD(0.1), []
        for _ in range(8):
            with self.api.GradientTape() as tape:
                loss = self.api.reduce_mean((net(x) - targets) ** 2)
            weights = net.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            losses.append(float(loss))
        return losses


def pinned_cudnn(lines):
    """``9.3.0.75`` out of a wheel's ``nvidia-cudnn-cu12==9.3.0.75; extra == "and-cuda"``, or None."""
    for line in lines:
        found = re.match(r"nvidia[-_.]cudnn[-_.]cu\d+[^;]*?[=>~]=\s*([\d.]+)", line)
        if found:
            return found.group(1)
    return None


def _inputs(tf, dtype, case):
    """x, w and dy of a case as TensorFlow orders them."""
    orders = (("x", _NCHW_TO_NHWC), ("w", _OIHW_TO_HWIO), ("dy", _NCHW_TO_NHWC))
    arrays = [shaped(case[name], case[name + "_shape"], *order) for name, order in orders]
    return [tf.constant(array, dtype=dtype) for array in arrays]


def _conv(tf, x, w):
    return tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME")


def _layer(tf, x, w, bias):
    return tf.nn.relu(tf.nn.bias_add(_conv(tf, x, w), bias))


def _in_probes_order(y, dx, dw):
    """A convolution's answers as flat lists, in the order NCHW and OIHW."""
    return {"y": flat(y, *_NHWC_TO_NCHW), "dx": flat(dx, *_NHWC_TO_NCHW), "dw": flat(dw, *_HWIO_TO_OIHW)}


# -- without eager execution: the same computations as a graph in a session, as 1.x runs them


def _graph_train(tf, device, data):
    """With the session's own optimizer."""
    v1 = _version_1(tf)
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x = shaped(data["x"], (8, 3, 8, 8), *_NCHW_TO_NHWC)
            kernel = tf.Variable(shaped(data["w"], (4, 3, 3, 3), *_OIHW_TO_HWIO))
            bias, v = tf.Variable(shaped([0] * 4, (4,))), tf.Variable(shaped(data["v"], (4, 1)))
            hidden = _layer(tf, tf.constant(x), kernel, bias)
            targets = tf.constant(shaped(data["targets"], (8, 1)))
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.reduce_mean(hidden, [1, 2]), v) - targets))
            step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with _session(tf, device) as session:
            session.run(v1.global_variables_initializer())
            losses = [float(session.run([loss, step])[0]) for _ in range(8)]
    return {"losses": losses, "devices": [kernel.device or "/CPU:0"]}


def _version_1(tf):
    """The names of TensorFlow 1: at the top in 1.x, under ``compat.v1`` in later ones."""
    return getattr(getattr(tf, "compat", None), "v1", tf)


def _session(tf, device):
    """Soft placement off: an operation that cannot run on the GPU has to fail, not to move to the CPU."""
    v1 = _version_1(tf)
    return v1.Session(config=v1.ConfigProto(allow_soft_placement=not device))


def _run_graph(tf, tensors, device):
    """(values, devices): the devices are those of the convolution's own steps in the run's trace."""
    v1 = _version_1(tf)
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    trace = v1.RunMetadata()
    with _session(tf, device) as session:
        values = session.run(tensors, options=options, run_metadata=trace)
    steps = [step for step in trace.step_stats.dev_stats if "stream" not in step.device]
    convolve = [s for s in steps if any("conv2d" in node.node_name.lower() for node in s.node_stats)]
    return values, sorted({str(s.device) for s in convolve}) or [t.device or "/CPU:0" for t in tensors]
