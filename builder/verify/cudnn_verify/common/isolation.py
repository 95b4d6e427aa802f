"""The standard library's modules for the probe, the user's for the frameworks; and the standard streams,
whatever they are: each message is said once, and the JSON document stands alone.

A ``platform.py`` of the user's, on PYTHONPATH or beside the probe's file, must not take the place of Python's
own in the probe; a framework has to meet it, as it does in the user's program.
"""

import errno
import os
import sys

UNWRITTEN = []
"""Why standard output was not written, if the device behind it refused it."""
USER_PATH = []
"""The user's ``sys.path``, once :func:`isolate` has taken it away."""


def is_standard(folder):
    """True for a folder of ``sys.path`` with Python's own modules: no site-packages, none of the user's."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    versions = ("python%d.%d" % sys.version_info[:2], "python%d%d.zip" % sys.version_info[:2])
    within = any(prefix and folder.startswith(prefix.rstrip("/") + "/lib") for prefix in prefixes)
    return within and any(name in folder for name in versions) and "-packages" not in folder


def isolate(own_folder=None):
    """Keep the standard library alone on ``sys.path``; ``own_folder``, if first, is not the user's."""
    USER_PATH[:] = [entry for index, entry in enumerate(sys.path) if index or entry != own_folder]
    standard = [entry for entry in sys.path if is_standard(entry)]
    if standard:
        sys.path[:] = standard


def user_path():
    """The user's ``sys.path``, whether or not it was taken away."""
    return USER_PATH or sys.path


def shadowed_modules():
    """{module: file} of Python's own and installed modules that a file of the user's takes the place of."""
    found = {}
    library = os.path.realpath(os.path.dirname(os.__file__))
    sites = [folder for folder in user_path() if folder.endswith("-packages")]
    for folder in user_path():
        real = os.path.realpath(folder or ".")
        if is_standard(folder) or real == library:
            break
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        others = [site for site in sites if os.path.realpath(site) != real]
        for name in names:
            stem = name[:-3] if name.endswith(".py") else name
            path = os.path.join(folder, name)
            if not (name.endswith(".py") or os.path.isfile(os.path.join(path, "__init__.py"))):
                continue
            taken = [os.path.join(library, stem + end) for end in (".py", "/__init__.py")]
            taken += [os.path.join(site, stem + end) for site in others for end in (".py", "")]
            if any(map(os.path.exists, taken)):
                found.setdefault(stem, path)
    return found


def return_to_user(shadowed=True):
    """Give a framework the user's path back, and the modules that it means by a name of Python's.

    With ``shadowed`` false the folders with such modules are left out: the counter-test.
    """
    if not USER_PATH:
        return
    if not shadowed:
        # behind the installed ones they would still win over a package without an __init__.py
        bad = {os.path.dirname(path) for path in shadowed_modules().values()}
        sys.path[:] = [entry for entry in USER_PATH if entry not in bad]
        return
    sys.path[:] = USER_PATH
    for name in shadowed_modules():
        for loaded in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
            del sys.modules[loaded]


def end_at_import(error, name):
    """This Python lacks a module of its own: say so as a report would, with exit status 30."""
    if name != "__main__":
        raise error
    text = "this Python (%s) lacks a module of its standard library: %s" % (sys.executable, error)
    quoted = text.encode("ascii", "replace").decode("ascii").replace("\\", "/").replace('"', "'")
    say_fault('{"schema": 1, "verdict": null, "cause": null, "summary": "%s"}' % quoted, text)
    sys.exit(30)


def say_fault(document, text):
    """Report a fault of the probe: stdout gets a document under ``--json``, else a line; stderr all."""
    write((document if "--json" in sys.argv else "NO VERDICT: " + text.partition("\n")[0]) + "\n")
    say("cudnn-verify: %s\n" % text)


def write(text, name="stdout"):
    """Print, in ASCII if the stream has no more. A closed stream loses the text, never the exit code; what a
    device refuses, a full one, is kept in mind.
    """
    try:
        stream = getattr(sys, name)
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "replace").decode("ascii"))
        stream.flush()
    except (AttributeError, OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        if name == "stdout" and number not in (None, errno.EPIPE, errno.EBADF):
            UNWRITTEN.append(os.strerror(number))
        setattr(sys, name, None)  # keeps the interpreter from complaining about it once more at its end


def say(text):
    """One message on stderr."""
    write(text, "stderr")


def show_progress(name=""):
    """Name the stage under way on a terminal; without a name, clear the line."""
    if hasattr(sys.stderr, "isatty") and sys.stderr.isatty():
        say("\r\033[K" + (name and name + " ..."))


def flush_output():
    """Write out what is buffered, so that a fork does not print it twice."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # it is closed


def open_standard_streams():
    """Put /dev/null in the place of closed standard streams: the next file opened would get their number.

    What Python's start has printed so far (a sitecustomize may do so) goes to stderr.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    own = os.dup(1)
    os.dup2(2, 1)
    flush_output()
    os.dup2(own, 1)
    os.close(own)
