"""TensorFlow 2 and 1.x, with Keras as it comes with them; and the suites of TensorFlow 2."""

import os
import re

from ..common.tables import newest_row, opened_libraries
from ..common.versions import numbers
from .cuda import ctypes
from .fw_common import Framework, flat, shaped
from .library_files import mapped_paths, read_elf
from .suite_arrays import ArraySuites
from .suite_judge import EXACT

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


# -- suites


class TensorflowSuites(ArraySuites):
    """``device``: ``/GPU:0``. Nothing may move to another device without a word: soft placement is off."""

    masks, wide_softmax = ("causal", "mask"), False

    def lacks(self):
        if numbers(self.api.__version__)[:2] < (2, 2):
            return "TensorFlow %s has no DLPack, by which a tensor's address is known" % self.api.__version__
        return None if self.api.executing_eagerly() else "TensorFlow executes no operation at once here"

    def start(self):
        self.api.config.set_soft_device_placement(False)

    def run(self, suite):
        if self.lacking:
            return super(TensorflowSuites, self).run(suite)
        with self.api.device(self.device):
            return super(TensorflowSuites, self).run(suite)

    def send(self, array, dtype="float32"):
        with self.api.device(self.device):
            return self.api.cast(self.api.identity(self.api.constant(array, "float64")), dtype)

    def numbers(self, tensor):
        return self.api.cast(tensor, "float64").numpy()

    def place(self, tensor):
        return [tensor.device], address_of(self.api.experimental.dlpack.to_dlpack(tensor))

    def product(self, a, b, dtype):
        self.api.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        return self.api.matmul(a, b)

    def svd(self, a):
        s, u, v = self.api.linalg.svd(a)
        return u, s, self.api.transpose(v)

    def cholesky(self, a):
        return self.api.linalg.cholesky(a)

    def fourier(self, x):
        found = self.api.signal.fft(self.api.complex(x, self.api.zeros_like(x)))
        return self.api.stack([self.api.math.real(found), self.api.math.imag(found)], -1)

    def uniform(self, count):
        return self.api.random.uniform([count])

    def normal(self, count):
        return self.api.random.normal([count])

    def attend(self, name, operands, seen, what):  # noqa: ARG002 - one implementation
        tf, (q, k, v, dy) = self.api, operands
        if seen is None:
            seen = self.np.tril(self.np.ones((q.shape[1], q.shape[1]), bool))
        mask = tf.cast(self.send(self.np.where(seen, 0.0, -3e4)), q.dtype)
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            scores = tf.matmul(q, k, transpose_b=True) * tf.cast(q.shape[-1] ** -0.5, q.dtype)
            out = tf.matmul(tf.nn.softmax(scores + mask), v)
        return [out] + tape.gradient(out, [q, k, v], output_gradients=dy)

    def fused(self, how, w, b):
        tf = self.api

        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                z = x * w + b
                y = tf.reduce_sum(z * tf.sigmoid(z), -1)
            return y, tape.gradient(y, x)

        return tf.function(both, jit_compile=True) if how == "compiled" else both

    def compile(self):
        if numbers(self.api.__version__)[:2] < (2, 5):
            self.skipped["compile"] = "TensorFlow %s has no jit_compile" % self.api.__version__
            return []
        return super(TensorflowSuites, self).compile()

    def trained(self, x, targets, weights, steps, rate, dtype):
        tf, scale, losses, first = self.api, 1024.0, [], None

        @tf.function
        def step(weights):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                w1, b1, w2 = [tf.cast(weight, dtype) for weight in weights]
                hidden = tf.tanh(tf.matmul(tf.cast(x, dtype), w1) + b1)
                off = tf.cast(tf.matmul(hidden, w2), "float32") - targets
                loss = scale * tf.reduce_mean(off * off)
            return loss / scale, [slope / scale for slope in tape.gradient(loss, weights)]

        for _ in range(steps):
            loss, slopes = step(weights)
            losses.append(loss)
            first = first or slopes
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        return tf.stack(losses), first, weights

    def resize(self, image, side):
        last = self.api.transpose(image, [1, 2, 0])
        return self.api.transpose(self.api.image.resize(last, [side, side], method="bilinear"), [2, 0, 1])

    def kept(self, boxes, scores, threshold):
        found = self.api.image.non_max_suppression(boxes, scores, len(boxes), iou_threshold=threshold)
        return self.api.gather(boxes, found)

    def convolved(self, kind, x, w, dy):
        """In TensorFlow's own order, the channels last; the filters' order is (space, inputs, outputs)."""
        tf, axes = self.api, list(range(2, 2 + kind.dimensions))
        first, last = [0, 1 + kind.dimensions] + [at - 1 for at in axes], [0] + axes + [1]
        x, dy, w = tf.transpose(x, last), tf.transpose(dy, last), tf.transpose(w, axes + [1, 0])
        steps = [1] + [kind.stride] * kind.dimensions + [1]
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            if kind.transposed:
                # the padding of "same" is that of the reference where the size is odd
                y = tf.nn.conv2d_transpose(x, w, dy.shape, steps, padding="SAME")
            elif kind.groups > 1:
                y = tf.nn.depthwise_conv2d(x, tf.transpose(w, [0, 1, 3, 2]), steps, "SAME")
            else:
                dilations = [1] + [kind.dilation] * kind.dimensions + [1]
                convolve = tf.nn.conv3d if kind.dimensions == 3 else tf.nn.conv2d
                y = convolve(x, w, steps, "SAME", dilations=dilations)
        dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        turned = [len(axes) + 1, len(axes)] + [at - 2 for at in axes]
        return [tf.transpose(y, first), tf.transpose(dx, first), tf.transpose(dw, turned)]

    def loader(self):
        """Whole numbers by ``tf.data``: worked out in parallel, and fetched to the card ahead."""
        tf, seed, rows = self.api, int(self.random.randint(1, 250)), []

        def item(at):
            return tf.cast(tf.range(2048, dtype=tf.int64) * (at + seed) % 251, tf.float32)

        with tf.device("/CPU:0"):
            source = tf.data.Dataset.range(32).map(item, num_parallel_calls=2).batch(8)
            source = source.apply(tf.data.experimental.prefetch_to_device(self.device))
        for at, batch in enumerate(source):
            wanted = [number * (8 * at + index + seed) % 251 for index in range(8) for number in range(2048)]
            rows.append(self.row("batch %d of tf.data" % at, batch, wanted, EXACT, largest=0.0))
        told = dict(rows[0], what="four batches came") if rows else {}
        return rows + ([dict(told, found=[float(len(rows))], wanted=[4.0])] if rows else [])


def address_of(capsule):
    """The address in a capsule of DLPack, whose DLTensor has it first, and its offset after 40 bytes:
    https://dmlc.github.io/dlpack/latest/c_api.html
    """
    ask = ctypes.pythonapi.PyCapsule_GetPointer
    ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    place = ask(capsule, b"dltensor")
    return ctypes.c_uint64.from_address(place).value + ctypes.c_uint64.from_address(place + 40).value
