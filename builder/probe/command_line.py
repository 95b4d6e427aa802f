"""The command line: its options, and what a person is told who uses it wrongly."""

import argparse
import json
import os

from .expectation import read_expectation
from .schedule import in_order


class UsageError(Exception):
    """The command line, or a file it names, cannot be used."""


class Parser(argparse.ArgumentParser):
    """argparse, with the probe's own exit code: 2 would be a number without a meaning here."""

    def error(self, message):
        raise UsageError("%s\n%s" % (message, self.format_usage().strip()))


def make_parser():
    parser = Parser(
        prog="cudnn-verify",
        description="Says whether cuDNN works here and, if not, which one cause is to blame.",
        epilog="exit codes: 0 works, 10 unverified (no GPU here), 20 broken (the image), 21 unsupported-gpu, "
        "22 host, 23 busy,\n30 the probe itself failed or was called wrongly. CUDNN_VERIFY_EXPECT names an "
        "expectation file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("--html", action="store_true", help="print the report as a page of HTML")
    parser.add_argument("--expect", metavar="FILE", help="compare with what was asked for (JSON)")
    parser.add_argument("--strict", action="store_true", help="loaded cuDNN must equal the compiled one")
    parser.add_argument("--no-gpu", action="store_true", help="do not look for a GPU (at build time)")
    parser.add_argument(
        "--thorough", action="store_true", help="compare the hash of every library with its package's RECORD"
    )
    parser.add_argument("--only", metavar="STAGE", help="run this stage and what it needs")
    parser.add_argument("--compare", metavar="OLD.json", help="say what changed since an older report")
    parser.add_argument("--quiet", "-q", action="store_true", help="one line: verdict, cause, summary")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="limit of each stage")
    parser.add_argument(
        "--explain",
        metavar="CAUSE",
        help="explain a cause, or a text that a program printed ('all': the whole list as Markdown)",
    )
    parser.add_argument(
        "--read",
        metavar="FILE",
        nargs="+",
        help="say what a log, a notebook, a list of packages tells of the cause; - for standard input",
    )
    parser.add_argument("--fix", action="store_true", help="run the commands that mend it, after asking")
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    parser.add_argument("--pid", type=int, help="look at this running process, too")
    parser.add_argument("--version", action="store_true", help="print version and sha256 of this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    return parser


def read_options(arguments):
    """The options that stages see, out of the command line and the environment."""
    expect = arguments.expect or os.environ.get("CUDNN_VERIFY_EXPECT")
    document = read_expectation(expect) if expect else {}
    stages = [row.name for row in in_order()]
    if arguments.only and arguments.only not in stages:
        raise UsageError("there is no stage %s; there are: %s" % (arguments.only, ", ".join(stages)))
    if arguments.timeout is not None and not 0 < arguments.timeout < float("inf"):
        raise UsageError("--timeout wants a number of seconds above 0, not %g" % arguments.timeout)
    names = ("no_gpu", "thorough", "only", "timeout", "pid")
    options = {name: getattr(arguments, name) for name in names}
    return dict(options, expect=document, strict=bool(arguments.strict or document.get("strict")))


def read_older(path):
    """An older report to compare with."""
    try:
        with open(path, "rb") as stream:
            older = json.loads(stream.read().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError("cannot read the older report %s: %s" % (path, error))
    if not isinstance(older, dict) or not isinstance(older.get("fingerprint", {}), dict):
        raise UsageError("the older report %s is no report of this probe" % path)
    return older
