"""What came from outside and ended a run, line by line: each fails its own cell now, in words."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shlex
import signal
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from builder.cli.boundary import BUG, guarded
from builder.cli.options import age, driver
from builder.core import files
from builder.core.digests import sha256_of
from builder.core.documents import MalformedError, parse_json, parse_moment, read_file, shown
from builder.core.errors import RegistryError, UsageError
from builder.core.files import remove_tree
from builder.core.model import RegistryBase
from builder.image.compose.cell_layers import registry_layers
from builder.image.layers.store import LayerStore
from builder.plan import matrix
from builder.plan.lock.file import read_lock
from builder.plan.matrix.values import APT, BadValue
from builder.plan.resolve import environments, manifests, requirements, source_files
from builder.release.dispatch.fleet import load_fleet
from builder.sources.index import archives
from builder.sources.oci.wire import Login, answer
from builder.verify.runner.reports import Damaged, ReportStore

if TYPE_CHECKING:
    from collections.abc import Callable


class Sends:
    """A client that notes what it is sent, and answers what a test wants."""

    def __init__(self, body: bytes = b"{}", status: int = 200) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.content, self.status_code, self.reason = body, status, "x"

    def get(self, url: str, **options: Any) -> Sends:
        self.sent.append((url, options))
        return self

    def request(self, _method: str, url: str, **options: Any) -> Sends:
        return self.get(url, **options)


LOGINS = [Login(username="me", password="secret"), Login(username="", password="", identity="refresh")]


def challenged(realm: str, *, own: str, client: Sends, login: Login | None = LOGINS[0]) -> str | None:
    challenge = f'Bearer realm="{realm}",service="x"'
    outside: Any = client
    return answer(outside, challenge, ("repository:a:pull",), lambda: login, "r.example", own=own)


@pytest.mark.parametrize("login", LOGINS, ids=["password", "identity"])
@pytest.mark.parametrize(
    "realm",
    [
        "http://attacker.example/token",
        "http://r.example/token",
        "http://127.0.0.1/token",
        "http://[::1/token",
    ],
)
def test_a_registry_with_tls_sends_no_login_without(realm: str, login: Login) -> None:
    client = Sends()
    with pytest.raises(RegistryError, match=r"has no TLS|without an address"):
        challenged(realm, own="https://r.example/v2/a/", client=client, login=login)
    assert client.sent == []


def test_a_registry_on_this_machine_has_its_token_service_there() -> None:
    client = Sends(b'{"token": "good"}')
    own = "http://127.0.0.1:5000/v2/a/"
    assert challenged("http://127.0.0.1:5001/token", own=own, client=client) == "Bearer good"
    with pytest.raises(RegistryError, match="has no TLS"):
        challenged("http://attacker.example/token", own=own, client=client)
    assert [url for url, _ in client.sent] == ["http://127.0.0.1:5001/token"]


def test_a_login_follows_no_redirect() -> None:
    client = Sends(b'{"token": "good"}')
    challenged("https://auth.example/t", own="https://r.example/v2/", client=client, login=LOGINS[1])
    assert client.sent[0][1]["allow_redirects"] is False


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"5",
        b'"x"',
        b"[" * 100_000,
        b'{"token": {}}',
        b'{"token": "a\\r\\nX-Header: 1"}',
        b"\xff",
        b"null",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_token_service_that_gives_no_token(body: bytes) -> None:
    with pytest.raises(RegistryError, match="token service"):
        challenged("https://auth.example/token", own="https://r.example/v2/", client=Sends(body))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[" * 65 + b"]" * 65,
        '{"a": 1}'.encode("utf-16"),
        b'"\\ud800"',
        b'{"size": 1e999}',
        b'{"size": NaN}',
        b'{"size": ' + b"9" * 30 + b"}",
        b"9" * 5_000,
        b"\xff",
        b"",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_json_that_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_json(text)


def test_json_that_is_read() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64)
    assert parse_json('{"a": [1, -9223372036854775808, 1.5, "\\ud83d\\ude00"]}')
    assert parse_json(b'{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(MalformedError, match="twice"):
        parse_json(b'{"a": 1, "a": 2}', strict=True)


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00", "x" * 99, 5],
)
def test_times_that_are_none(text: object) -> None:
    with pytest.raises(MalformedError):
        parse_moment(text)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def _utf16(path: Path) -> None:
    path.write_text('{"schema": 2}', "utf-16")


@pytest.mark.parametrize(
    "make",
    [
        _fifo,
        _deep,
        _utf16,
        Path.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.symlink_to(path),
    ],
    ids=["fifo", "deep", "utf-16", "folder", "device", "bytes", "circle"],
)
def test_a_results_folder_with_something_strange(make: Callable[[Path], object], tmp_path: Path) -> None:
    """A pipe waits for ever for its writer, and a device never ends."""
    make(tmp_path / "strange.json")
    began = time.monotonic()
    (found,) = ReportStore(tmp_path).entries()
    assert isinstance(found, Damaged)
    assert "strange.json" in found.why
    assert time.monotonic() - began < 60


def test_a_file_of_a_device_is_read_by_nobody() -> None:
    for path in ("/dev/zero", "/dev"):
        with pytest.raises(MalformedError, match="no regular file"):
            read_file(Path(path))


@pytest.mark.parametrize("text", ["bash-", "bash=5.2-", "-o", "bash;x", "a b", "--option", "bash/sid"])
def test_a_package_that_apt_takes_for_an_order(text: str) -> None:
    """apt-get(8): a hyphen behind the name of a package removes it."""
    with pytest.raises(BadValue, match="no Debian package"):
        APT.check(text)


@pytest.mark.parametrize(
    "text", ["bash", "g++", "libstdc++6=12.2.0-14", "python3.11", "libc6=2.36-9+deb12u9"]
)
def test_a_package_that_is_one(text: str) -> None:
    assert APT.check(text) == text


@pytest.mark.parametrize("text", ["\uff15\uff13\uff15", "535.\u0661", "²35"])
def test_a_driver_in_other_digits(text: str) -> None:
    with pytest.raises(UsageError):
        driver(text)


def test_text_for_people() -> None:
    assert shown("a\x1b[2J\u202eb\n c") == "a\ufffd[2J\ufffdb c"
    assert len(shown("x" * 9999)) == 400


def test_a_tree_that_is_deeper_than_calls_may_be(tmp_path: Path) -> None:
    """It ended every later build without an engine in rmtree, until somebody removed it by hand."""
    top = tmp_path / "rtbuild-top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()


LEFT = """
import os, sys, tempfile
from builder.plan import matrix
from builder.core import files
with files.one_folder():
    folder = tempfile.mkdtemp()
    print(folder, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""


def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LEFT, "killed"], env=env, capture_output=True, check=False)
    (left,) = tmp_path.iterdir()
    command = [sys.executable, "-c", LEFT, "alive"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        folder = Path(alive.stdout.readline().decode().strip())
        assert not left.exists()
        files.sweep(tmp_path, files.own_prefix())
        assert folder.is_dir(), "it belongs to a living process"
        alive.communicate()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with files.one_folder():
        pass  # a command that needs none goes on without


def test_a_full_disk_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    assert guarded(full) == 5
    said = capsys.readouterr().err
    assert "no space left for /tmp/x" in said
    assert "TMPDIR" in said


def test_a_bug_that_no_file_takes_is_told_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong() -> int:
        raise KeyError("x")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert guarded(wrong) == BUG
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_reaches_a_run_that_a_script_put_into_the_background() -> None:
    """A shell without job control starts `rtbuild … &` with SIGINT ignored."""
    code = (
        "import sys, time\n"
        "from builder.cli.boundary import guarded\n"
        "def program():\n"
        "    print('here', flush=True)\n"
        "    time.sleep(600)\n"
        "sys.exit(guarded(program))\n"
    )
    ignored = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.execv(sys.executable, sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", ignored, sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


DEEP = "x; " + "(" * 5000
PROJECTS = [
    "project = 5", "[project]\ndependencies = 5", "tool = 5", "[tool]\npoetry = 5",
    "[tool.poetry]\ndependencies = 5",
    "[project]\noptional-dependencies = 5", f"[project]\ndependencies = ['{DEEP}']",
    "[tool.poetry.dependencies]\nx = '^" + "9" * 5000 + "'", "a = " + "[" * 50_000,
    "[project]\ndependencies = [" + "'x'," * 100_000 + "]",
]  # fmt: skip
NOTEBOOKS: list[Any] = [
    5, {"cells": 5}, {"cells": [5, None]}, {"worksheets": {}},
    *({"cells": [{"cell_type": "code", "source": source}]} for source in (
        5, {"a": 1}, f"!pip install '{DEEP}'", "!pip install x " + "x " * 300_000,
        "!pip install x\n" * 100_000)),
]  # fmt: skip
REQUIREMENTS = [
    DEEP, "-" * 1_000_000, "x==1\n" * 100_000, "x \\\n" * 100_000, "-r requirements.txt",
    "-r /dev/zero", "-r b\n" * 300,
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((manifests.from_pyproject, text) for text in PROJECTS),
        *((manifests.from_pylock, text) for text in PROJECTS),
        *((source_files.from_notebook, json.dumps(document)) for document in NOTEBOOKS),
        *((requirements.from_requirements, text) for text in REQUIREMENTS),
        (lambda path: environments.read_conda(path.read_text()), "dependencies: [" + "a," * 200_000 + "]"),
    ],
    ids=lambda value: value.__name__.removeprefix("from_") if callable(value) else repr(value[:24]),
)
def test_wishes_that_are_none(read: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    (tmp_path / "b").touch()
    began = time.process_time()
    with pytest.raises(UsageError):
        read(path)
    assert time.process_time() - began < 10


def test_a_file_that_is_none_is_not_waited_for(tmp_path: Path) -> None:
    pipe, circle = tmp_path / "pipe", tmp_path / "circle"
    os.mkfifo(pipe)
    circle.symlink_to(circle)
    for path in (pipe, circle):
        for read in (matrix.load, load_fleet, read_lock, requirements.from_requirements):
            with pytest.raises((UsageError, OSError, RuntimeError) if path is circle else UsageError):
                read(path)


@pytest.mark.parametrize(
    "text", ["bytes 0-1/" + "9" * 5000, "bytes \u0661-2/3", "bytes 0-1/*", "bytes 0--1/2", "bytes 0-1/2/3"]
)
def test_ranges_that_are_none(text: str) -> None:
    answer = Sends()
    answer.headers = {"Content-Range": text}  # type: ignore[attr-defined]
    with pytest.raises(archives.UnknownError):
        archives._content_range(answer)  # type: ignore[arg-type]


def test_a_length_of_time_that_is_none_is_said_in_words() -> None:
    with pytest.raises(UsageError) as raised:
        age("7")
    assert raised.value.message == "--max-age: '7' is no length of time"


def test_an_entry_that_ends_as_a_zip64_directory_hides_no_others() -> None:
    """``zipfile`` takes the 20 bytes before the end record for zip64's locator of another end."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        made.writestr("torch/lib/libcudnn.so.9", b"")
        last = zipfile.ZipInfo("x")
        end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 0, 0, 0, 0)
        last.comment = end64 + struct.pack("<4sIQI", b"PK\x06\x07", 0, 0, 1)
        made.writestr(last, b"")
    whole = written.getvalue()
    directory = whole[whole.index(b"PK\x01\x02") : whole.rindex(b"PK\x05\x06")]
    with pytest.raises(archives.UnknownError, match="as a zip64 file does"):
        archives._entries(directory)


def test_a_member_on_a_server_that_expands_without_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of metadata that is a gigabyte."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    # a block that a full flush ends can be repeated
    packed = 400 * (deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)) + deflate.flush()
    whole = b"PK\x03\x04" + bytes(26) + packed
    archive = archives.RemoteZip("https://index.example/a.whl", session=Sends(), size=None)  # type: ignore[arg-type]
    entry = zipfile.ZipInfo("a")
    entry.compress_type, entry.CRC, entry.compress_size, entry.header_offset = 8, 1, len(packed), 0
    monkeypatch.setattr(archive, "_range", lambda *_, **__: whole)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(archives.UnknownError, match="checksum"):
        archive.content(entry)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 << 10


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 50_000,
        b"[]",
        b'{"rootfs": []}',
        b'{"rootfs": {"diff_ids": [1]}}',
        b'{"rootfs": {"diff_ids": 5}}',
    ],
)
@pytest.mark.parametrize("layers", [[{}], [5], 5, [{"mediaType": [], "digest": 5}]], ids=repr)
def test_a_base_that_is_no_image(content: bytes, layers: object, tmp_path: Path) -> None:
    class Hostile:
        def manifest(self, _reference: str) -> Any:
            config = {"digest": sha256_of(content), "size": len(content)}
            return SimpleNamespace(document={"config": config, "layers": layers})

        def fetch_blob(self, _reference: str, _digest: str, target: Path) -> None:
            target.write_bytes(content)

    registry: Any = Hostile()
    base = RegistryBase(reference="r.example/a:1", digest="sha256:" + "a" * 64, env=(), labels=(), size=1)
    store = LayerStore(tmp_path)
    with pytest.raises(RegistryError, match="no image that can be read"):
        registry_layers(base, registry, store.lease())


@pytest.mark.parametrize("name", ["a\n::error::b.yaml", "\x1b[2J.yaml", "\u202eb.yaml"])
def test_a_matrix_whose_name_is_an_order_to_who_reads_the_log(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="is no name for a matrix") as refused:
        matrix.load(tmp_path / name)
    assert name not in str(refused.value)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_output_is_closed(closed: str) -> None:
    text = "import sys; from builder.cli.boundary import guarded; "
    text += "sys.exit(guarded(lambda: print(sys.stdout.isatty()) or sys.stderr.flush() or 0))"
    program = shlex.join([sys.executable, "-c", text])
    done = subprocess.run(["sh", "-c", f"{program} {closed}"], capture_output=True, check=False)
    assert done.returncode == 0


def test_an_error_that_nobody_reads_is_no_traceback() -> None:
    """With ``--json`` an error is printed, too: `rtbuild check nothing.yaml --json | head -c 0`."""
    text = "from builder.cli import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        command = [sys.executable, "-c", text, "check", "nothing.yaml", "--json"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 141
    assert "no matrix file" in done.stderr
    assert "Traceback" not in done.stderr
