"""The probe on a fresh runtime of Google Colab, by Google's own command line, ``google-colab-cli``.

``colab run --gpu T4 --timeout SECONDS SCRIPT`` runs a script in the kernel of a machine that is released
afterwards, and ends with the script's own exit code. The kernel has no file of the script, so the script
brings the probe along and starts it. As read in version 0.7.5, ``colab_cli/commands/run.py``:
https://github.com/googlecolab/google-colab-cli
"""

import base64
import json
import re
import subprocess
import tempfile
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from builder.core.documents import MalformedError, parse_object, read_file, shown
from builder.core.errors import CellError, MissingToolError, UsageError
from builder.core.files import write_whole
from builder.verify.runner import EXIT_CODES, ProbeDocument, parse

ColabGpu = Literal["T4", "L4", "G4", "A100", "H100"]
"""Cards that ``colab run --gpu`` takes."""
Login = Literal["oauth2", "adc"]
"""Ways of logging in that ``colab --auth`` takes."""
ABOUT = "a runtime of Google Colab"
_REPORT = re.compile(r"^rtbuild-report-begin$\n((?:[A-Za-z0-9+/=]+\n)+)^rtbuild-report-end$", re.MULTILINE)
_SCRIPT = """\
import base64, os, subprocess, sys, tempfile, textwrap, zlib

def lay(name, text):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(zlib.decompress(base64.b64decode(text)))
    return path

folder = tempfile.mkdtemp()
command = [sys.executable, lay("cudnn_verify.py", "{probe}"), "--json"]
if "{older}":
    command += ["--compare", lay("older.json", "{older}")]
done = subprocess.run(command, stdout=subprocess.PIPE)
print("rtbuild-report-begin")
print("\\n".join(textwrap.wrap(base64.b64encode(zlib.compress(done.stdout)).decode(), 20000)))
print("rtbuild-report-end")
sys.exit(done.returncode)
"""


def probe_runtime(
    gpu: ColabGpu, *, probe: bytes, older: dict[str, Any] | None, login: Login | None, seconds: int
) -> tuple[ProbeDocument, dict[str, Any]]:
    """The report on a fresh runtime with this card, which is released, and the same as the probe printed it.

    With ``older``, a report to compare with, it has ``changes``: ``what``, ``before`` and ``now`` of each.

    Raises:
        MissingToolError: the command line is not installed, nobody is logged in, Colab has no such card, or
            the probe did not end in ``seconds``.
    """
    with tempfile.TemporaryDirectory(prefix="rtbuild-colab-") as folder:
        script = Path(folder, "rtbuild_probe.py")
        script.write_text(_script(probe, older))
        auth = ["--auth", login] if login else []
        command = ["colab", *auth, "run", "--gpu", gpu, "--timeout", str(seconds), str(script)]
        try:
            done = subprocess.run(
                # no input: without a login it would wait for somebody to paste one
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=seconds + 600,
            )
        except FileNotFoundError as error:
            hint = "uv tool install google-colab-cli (Python 3.12 or later), and log in: colab usage"
            raise MissingToolError("Google's `colab` command line is not installed", hint=hint) from error
        except subprocess.TimeoutExpired as error:
            hint = "the runtime may still be there: colab sessions, colab stop"
            raise MissingToolError(f"`colab run` did not end in {seconds + 600} s", hint=hint) from error
    found = _REPORT.search(done.stdout)
    if found is None:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise MissingToolError(
            f"`colab run --gpu {gpu}` ended with {done.returncode} and no report: "
            + shown(said[-1] if said else "it said nothing"),
            hint="does `colab run --gpu T4` work here, and is somebody logged in? colab usage",
        )
    return _report(found[1], done.returncode)


def _script(probe: bytes, older: dict[str, Any] | None) -> str:
    def packed(content: bytes) -> str:
        return base64.b64encode(zlib.compress(content, 9)).decode()

    wanted = older and {name: older.get(name) for name in ("verdict", "cause", "fingerprint")}
    return _SCRIPT.format(probe=packed(probe), older=packed(json.dumps(wanted).encode()) if wanted else "")


def _report(text: str, code: int) -> tuple[ProbeDocument, dict[str, Any]]:
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text), 16 << 20)
        report, document = parse(content), parse_object(content)
    except (CellError, ValueError, zlib.error) as error:
        raise MissingToolError(f"what came back from Colab is no report: {shown(str(error))}") from error
    if EXIT_CODES.get(report.verdict) != code:
        raise MissingToolError(f"the report says {report.verdict}, and `colab run` ended with {code}")
    return report, document


def save(report: dict[str, Any], path: Path, *, gpu: ColabGpu, at: datetime) -> None:
    """Write what :func:`load` reads: no report on an image, and nothing that publishes takes it for one."""
    moment = at.isoformat(timespec="seconds")
    document = {"schema": 1, "about": ABOUT, "gpu": gpu, "at": moment, "report": report}
    write_whole(path, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def load(path: Path) -> dict[str, Any]:
    """The probe's report in a file that :func:`save` wrote. Raises UsageError."""
    try:
        document = parse_object(read_file(path))
        report = document["report"]
        if document["about"] != ABOUT or not isinstance(report["fingerprint"], dict):
            raise UsageError(f"{path} is about something else than {ABOUT}")
    except FileNotFoundError as error:
        raise UsageError(f"there is no {path}", hint="leave --compare out the first time") from error
    except (OSError, MalformedError, LookupError, TypeError) as error:
        raise UsageError(f"{path} is no report on {ABOUT}: {shown(repr(error))}") from error
    return dict(report)
