"""In a notebook: ``%load_ext cudnn_verify``, then ``%cudnn_verify``. The probe runs beside the kernel,
not in it.
"""

import os
import subprocess
import sys


def verify(*arguments):
    """Run the probe in a process of its own and print its page; returns the exit code."""
    process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__)] + list(arguments) + ["--pid", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    text, _ = process.communicate()
    print(text)
    return process.returncode


def load_ipython_extension(ipython):
    """What ``%load_ext`` calls."""
    ipython.register_magic_function(lambda line: verify(*line.split()), "line", "cudnn_verify")
