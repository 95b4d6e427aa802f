"""TensorFlow without eager execution: the same computations as a graph in a session, as 1.x runs them."""

from .fw_common import flat, shaped

NCHW_TO_NHWC, OIHW_TO_HWIO = (0, 2, 3, 1), (2, 3, 1, 0)
NHWC_TO_NCHW, HWIO_TO_OIHW = (0, 3, 1, 2), (3, 2, 0, 1)


def graph_convolve(tf, device, dtype, case):
    """As :meth:`fw_common.Framework.convolve`; where it was computed is read from the run's trace."""
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x, w, dy = _tf1_inputs(tf, dtype, case)
            y = _tf1_conv(tf, x, w)
            dx, dw = tf.gradients(y, [x, w], grad_ys=dy)
        results, devices = _tf1_run(tf, [y, dx, dw], device)
    return dict(in_probes_order(*results), devices=devices)


def in_probes_order(y, dx, dw):
    """A convolution's answers as flat lists, in the order NCHW and OIHW."""
    return {"y": flat(y, *NHWC_TO_NCHW), "dx": flat(dx, *NHWC_TO_NCHW), "dw": flat(dw, *HWIO_TO_OIHW)}


def graph_fused(tf, device, dtype, case, bias):
    """As :meth:`fw_common.Framework.fused`."""
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x, w, _ = _tf1_inputs(tf, dtype, case)
            y = tf.nn.relu(tf.nn.bias_add(_tf1_conv(tf, x, w), tf.constant(bias, dtype=dtype)))
        results, devices = _tf1_run(tf, [y], device)
    return {"y": flat(results[0], *NHWC_TO_NCHW), "devices": devices}


def graph_train(tf, device, data):
    """As :meth:`fw_common.Framework.train`, with the session's own optimizer."""
    v1 = _tf1_module(tf)
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x = shaped(data["x"], (8, 3, 8, 8), *NCHW_TO_NHWC)
            w = shaped(data["w"], (4, 3, 3, 3), *OIHW_TO_HWIO)
            kernel, bias = tf.Variable(w), tf.Variable(shaped([0] * 4, (4,)))
            v = tf.Variable(shaped(data["v"], (4, 1)))
            hidden = tf.nn.relu(tf.nn.bias_add(_tf1_conv(tf, tf.constant(x), kernel), bias))
            targets = tf.constant(shaped(data["targets"], (8, 1)))
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.reduce_mean(hidden, [1, 2]), v) - targets))
            step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        losses = []
        with v1.Session(config=_tf1_config(v1, device)) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(8):
                losses.append(float(session.run([loss, step])[0]))
    return {"losses": losses, "devices": [kernel.device or "/CPU:0"]}


def _tf1_module(tf):
    """The names of TensorFlow 1: at the top in 1.x, under ``compat.v1`` in later ones."""
    compat = getattr(tf, "compat", None)
    return compat.v1 if hasattr(compat, "v1") else tf


def _tf1_config(v1, device):
    # Soft placement off: an operation that cannot run on the GPU has to fail, not to move to the CPU.
    return v1.ConfigProto(allow_soft_placement=not device)


def _tf1_inputs(tf, dtype, case):
    orders = (("x", NCHW_TO_NHWC), ("w", OIHW_TO_HWIO), ("dy", NCHW_TO_NHWC))
    arrays = [shaped(case[name], case[name + "_shape"], *order) for name, order in orders]
    return [tf.constant(array, dtype=dtype) for array in arrays]


def _tf1_conv(tf, x, w):
    return tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME")


def _tf1_run(tf, tensors, device):
    """(values, devices): the devices are those of the convolution's own steps in the run's trace."""
    v1 = _tf1_module(tf)
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    trace = v1.RunMetadata()
    with v1.Session(config=_tf1_config(v1, device)) as session:
        values = session.run(tensors, options=options, run_metadata=trace)
    devices = []
    for step in trace.step_stats.dev_stats:
        names = [node.node_name.lower() for node in step.node_stats]
        if "stream" not in step.device and any("conv2d" in name for name in names):
            devices.append(str(step.device))
    return values, sorted(set(devices)) or [tensor.device or "/CPU:0" for tensor in tensors]
