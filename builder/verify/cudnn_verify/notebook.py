"""In a notebook: ``%load_ext cudnn_verify``, then ``%cudnn_verify``, which runs beside the kernel."""

import os
import subprocess
import sys

from .measure.report import printed_report
from .page import Style, render_html, render_page


class Page(object):
    """A report that a notebook shows as HTML, and everything else as text."""

    def __init__(self, report):
        self.report = report

    def _repr_html_(self):
        return render_html(self.report)

    def __repr__(self):
        return render_page(self.report, Style(sys.stdout))


def verify(*arguments):
    """Run the probe in a process of its own, with the options of the command line.

    Shows its page, or prints its answer if that is no report. Returns the report, or None.
    """
    # these answer by a line or two, and no page
    answered = ("-q", "--quiet", "-h", "--help", "--version", "--read", "--fix")
    as_text = any(word in answered or word.startswith("--explain") for word in arguments)
    command = [sys.executable, os.path.abspath(__file__), "--pid", str(os.getpid())] + list(arguments)
    process = subprocess.Popen(
        command + ["--json"] * (not as_text),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    text, said = process.communicate()
    try:
        report = printed_report(text)
    except ValueError:
        print((text + said).rstrip())
        return None
    try:
        from IPython.display import display
    except ImportError:
        display = print
    display(Page(report))
    return report


def load_ipython_extension(ipython):

    def cudnn_verify(line):
        """Show whether cuDNN works here; the report itself is left in the variable ``cudnn_report``."""
        report = verify(*line.split())
        if report is not None:
            ipython.user_ns["cudnn_report"] = report

    def cudnn_fix(line):
        """Show the commands that mend the cause, ask, run them; undo them if they did not help."""
        report = verify()
        commands = [row["text"] for row in (report or {}).get("commands") or ()]
        if commands and (line.strip() == "--yes" or _agreed("Run this? [y/N] ")):
            verify("--fix", "--yes")

    ipython.register_magic_function(cudnn_verify, "line", "cudnn_verify")
    ipython.register_magic_function(cudnn_fix, "line", "cudnn_fix")


def _agreed(question):
    """Whether the person before the notebook says yes; no if there is nobody to ask."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, NotImplementedError, RuntimeError):
        return False
