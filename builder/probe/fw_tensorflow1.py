"""TensorFlow without eager execution: the same computations as a graph in a session, as 1.x runs them."""


def graph_convolve(tf, device, dtype, case):
    """As :meth:`fw_common.Framework.convolve`; where it was computed is read from the run's trace."""
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x, w, dy = _tf1_inputs(tf, dtype, case)
            y = _tf1_conv(tf, x, w)
            dx, dw = tf.gradients(y, [x, w], grad_ys=dy)
        results, devices = _tf1_run(tf, [y, dx, dw], device)
    y, dx, dw = results
    return {"y": _tf1_nchw(y), "dx": _tf1_nchw(dx), "dw": _tf1_oihw(dw), "devices": devices}


def graph_fused(tf, device, dtype, case, bias):
    """As :meth:`fw_common.Framework.fused`."""
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x, w, _ = _tf1_inputs(tf, dtype, case)
            y = tf.nn.relu(tf.nn.bias_add(_tf1_conv(tf, x, w), tf.constant(bias, dtype=dtype)))
        results, devices = _tf1_run(tf, [y], device)
    return {"y": _tf1_nchw(results[0]), "devices": devices}


def graph_train(tf, device, data):
    """As :meth:`fw_common.Framework.train`, with the session's own optimizer."""
    import numpy

    v1 = _tf1_module(tf)
    with tf.Graph().as_default():
        with tf.device(device or "/CPU:0"):
            x = numpy.array(data["x"], dtype="float32").reshape(8, 3, 8, 8).transpose(0, 2, 3, 1)
            w = numpy.array(data["w"], dtype="float32").reshape(4, 3, 3, 3).transpose(2, 3, 1, 0)
            kernel, bias = tf.Variable(w), tf.Variable(numpy.zeros(4, "float32"))
            v = tf.Variable(numpy.array(data["v"], dtype="float32").reshape(4, 1))
            hidden = tf.nn.relu(tf.nn.bias_add(_tf1_conv(tf, tf.constant(x), kernel), bias))
            targets = tf.constant(numpy.array(data["targets"], dtype="float32").reshape(8, 1))
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
    import numpy

    def constant(name, order):
        array = numpy.array(case[name], dtype="float32").reshape(case[name + "_shape"])
        return tf.constant(array.transpose(*order), dtype=dtype)

    return constant("x", (0, 2, 3, 1)), constant("w", (2, 3, 1, 0)), constant("dy", (0, 2, 3, 1))


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


def _tf1_nchw(array):
    return [float(value) for value in array.astype("float32").transpose(0, 3, 1, 2).ravel()]


def _tf1_oihw(array):
    return [float(value) for value in array.astype("float32").transpose(3, 2, 0, 1).ravel()]
