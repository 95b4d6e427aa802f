"""The standard streams: whatever they are, what is said is said once, and the JSON document stands alone."""

import os
import sys


def open_standard_streams():
    """Put /dev/null in the place of closed standard streams: the next file opened would get their number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def say(text):
    """One message on stderr, which may be closed."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        sys.stderr = None


def flush_output():
    """Write out what is buffered, so that a fork does not print it twice; false if a stream is closed."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return False
    return True


def divert_stdout():
    """Send what Python's start has printed so far (a sitecustomize may do so) to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    flush_output()
    os.dup2(own, 1)
    os.close(own)


def show_progress(name=""):
    """Name the stage under way on a terminal; without a name, clear the line."""
    if hasattr(sys.stderr, "isatty") and sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + (name and name + " ..."))
        sys.stderr.flush()


def write(text):
    """Print, in ASCII if the stream has no more; a closed stream loses the text, never the exit code."""
    if sys.stdout is None:
        return
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            sys.stdout.write(text.encode("ascii", "replace").decode("ascii"))
        sys.stdout.flush()
    except (OSError, ValueError):
        # the reader is gone: keep the interpreter from complaining about it once more at its end
        sys.stdout = None
