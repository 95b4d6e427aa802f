"""The start program's parts, each by itself: what is asked, where it listens, what it says."""

from __future__ import annotations

import ast
import errno
import logging
import os
import socket
import sys
import threading
from pathlib import Path

import pytest
import tornado.web
from rtbuild_runtime import guard, server, settings, start

RUNTIME = Path(settings.__file__).resolve().parents[1]


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=lambda p: str(p.relative_to(RUNTIME)))
def test_python_38_can_read_it(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    annotated = any(isinstance(node, ast.arg | ast.AnnAssign) and node.annotation for node in ast.walk(tree))
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert lazy or not annotated, "annotations are newer than 3.8: they must not be evaluated"


# -- settings


def test_a_token_is_random_by_default() -> None:
    first, second = settings.read({}), settings.read({})
    assert first.token != second.token
    assert len(first.token) == 48
    assert first.token_note is None
    assert (first.port, first.bind) == (8888, None)


def test_an_empty_token_is_no_token() -> None:
    asked = settings.read({"JUPYTER_TOKEN": " "})
    assert len(asked.token) == 48
    assert "random token was made" in str(asked.token_note)


def test_what_is_given_is_taken() -> None:
    given = {"JUPYTER_TOKEN": "a-token_of.16~ch", "RTBUILD_PORT": "9000", "RTBUILD_BIND": "127.0.0.1"}
    assert settings.read(given) == settings.Settings(9000, "127.0.0.1", "a-token_of.16~ch", None)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"JUPYTER_TOKEN": "short"}, "JUPYTER_TOKEN is too short"),
        ({"JUPYTER_TOKEN": "sixteen&characters"}, "characters that an address cannot hold"),
        ({"RTBUILD_PORT": "80"}, "RTBUILD_PORT is '80'"),
        ({"RTBUILD_PORT": "many"}, "RTBUILD_PORT is 'many'"),
        ({"RTBUILD_BIND": "192.168.1.2"}, "RTBUILD_BIND is '192.168.1.2'"),
    ],
)
def test_what_cannot_be_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(settings.StartError, match=said) as raised:
        settings.read(environment)
    assert raised.value.hint
    assert raised.value.status == 2


# -- where it listens


def interfaces(folder: Path, **numbers: tuple[int, int] | None) -> str:
    """A ``/sys/class/net``: ``ifindex`` and ``iflink`` by name, or None for a tap."""
    for name, pair in {"lo": (1, 1), **numbers}.items():
        (folder / name).mkdir()
        (folder / name / "ifindex").write_text(f"{(pair or (2, 2))[0]}\n")
        (folder / name / "iflink").write_text(f"{(pair or (2, 2))[1]}\n")
        if pair is None:
            (folder / name / "tun_flags").write_text("0x5002\n")
    return str(folder)


def test_a_network_of_its_own_is_listened_on(tmp_path: Path) -> None:
    assert settings.address(interfaces(tmp_path, eth0=(17, 18), eth1=(19, 20))) == "0.0.0.0"


def test_a_rootless_engines_tap_is_a_network_of_its_own(tmp_path: Path) -> None:
    assert settings.address(interfaces(tmp_path, tap0=None)) == "0.0.0.0"


@pytest.mark.parametrize(
    "numbers",
    [
        {"eth0": (2, 2)},
        {"eth0": (17, 18), "docker0": (3, 3)},
        {"eth0": (2, 2), "veth12": (8, 2)},
        {"wlan0": (3, 3), "tun0": None},
        {},
    ],
    ids=["card", "nested host", "host of containers", "host with vpn", "no network"],
)
def test_the_hosts_interfaces_are_not(tmp_path: Path, numbers: dict[str, tuple[int, int] | None]) -> None:
    assert settings.address(interfaces(tmp_path, **numbers)) == "127.0.0.1"


def test_where_nothing_is_known_only_loopback_is(tmp_path: Path) -> None:
    assert settings.address(str(tmp_path / "nowhere")) == "127.0.0.1"
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "ifindex").write_text("not a number")
    assert settings.address(str(tmp_path)) == "127.0.0.1"


def test_a_taken_port_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(settings.StartError, match=f"port {number} is taken") as raised:
            settings.refuse_taken("127.0.0.1", number)
    assert raised.value.status == 5
    settings.refuse_taken("127.0.0.1", number)


# -- whom it answers


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        (None, True),
        ("https://colab.research.google.com", True),
        ("http://127.0.0.1:8888", True),
        ("http://127.0.0.1:9999", False),
        ("http://colab.research.google.com", False),
        ("https://colab.research.google.com.example.invalid", False),
        ("https://colab.research.google.com:444", False),
        ("null", False),
        ("", False),
        ("https://[::1", False),
        ("file://127.0.0.1:8888", False),
    ],
)
def test_pages_that_may_talk_to_it(origin: str | None, may: bool) -> None:
    assert guard.allowed(origin, "127.0.0.1:8888") is may


def test_a_path_with_a_nul_is_no_file() -> None:
    """The contents API answered it with 500, as if the server were at fault."""
    assert guard.readable("/api/contents/a%20b/%25/notebook.ipynb")
    for path in ("/api/contents/%00", "/files/a%00.txt", "/api/contents/a\0b"):
        assert not guard.readable(path)


class ContentsDouble:
    """Finds files as Jupyter's does: it follows every link."""

    def __init__(self, root: Path) -> None:
        self.root_dir, self.checkpoints = str(root), None

    def _get_os_path(self, path: str) -> str:
        return str(Path(self.root_dir, path.strip("/")))


def test_no_link_leads_out_of_the_work_folder(tmp_path: Path) -> None:
    """Nor does the target of a renaming, which stands in a request's body."""
    work, beside = tmp_path / "content", tmp_path / "content-of-others"
    for folder in (work / "sub", beside):
        folder.mkdir(parents=True)
    for name, target in (("in", "sub"), ("out", "/etc"), ("beside", str(beside)), ("passwd", "/etc/passwd")):
        (work / name).symlink_to(target)
    (tmp_path / "linked").symlink_to(work)  # the folder itself may be behind a link
    for root in (work, tmp_path / "linked"):
        contents = ContentsDouble(root)
        contents.checkpoints = ContentsDouble(root)  # type: ignore[assignment]
        guard.confine(contents)
        for keeper in (contents, contents.checkpoints):
            assert keeper is not None
            assert keeper._get_os_path(path="in/new.ipynb") == str(root / "in/new.ipynb")
            assert keeper._get_os_path(path="") == str(root)
            for path in ("out", "out/passwd", "passwd", "beside/x", "in/../out/x", "..", "a\0b"):
                with pytest.raises(tornado.web.HTTPError) as raised:
                    keeper._get_os_path(path=path)
                assert raised.value.status_code == 404
                # notebook 6 leaves such a file out of a list by this alone
                assert isinstance(raised.value, OSError)
                assert raised.value.errno == errno.ELOOP


def test_tokens_do_not_reach_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = logging.getLogRecordFactory()
    try:
        guard._mask_tokens()
        log = logging.getLogger("test")
        log.warning("404 GET %s (%s)", "/api?token=0123abcdef&x=1", "::1")
        log.warning("Authorization: token=0123abcdef")
        log.warning("no argument for %s, and no toke", "this")
    finally:
        logging.setLogRecordFactory(make)
    assert "0123abcdef" not in caplog.text
    assert "404 GET /api?token=[secret]&x=1 (::1)" in caplog.text


# -- folders


def test_a_home_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {"HOME": "/proc/self"}
    home = start.settle_home(environment)
    assert home == environment["HOME"]
    assert Path(home).parent == tmp_path
    assert environment["USER"] == environment["LOGNAME"]
    assert "! the home folder /proc/self cannot be written to" in capsys.readouterr().out


def test_a_user_without_a_name_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    environment = {"HOME": str(tmp_path)}
    assert start.settle_home(environment) == str(tmp_path)
    assert capsys.readouterr().out == ""
    assert environment["USER"] == "user54321"


def test_nowhere_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: str) -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with pytest.raises(settings.StartError, match="neither the home folder /proc/self") as raised:
        start.settle_home({"HOME": "/proc/self"})
    assert raised.value.status == 5


# -- the probe beside it


def told(script: str) -> str:
    """What is said of a probe that does what the shell script does."""
    done = threading.Event()
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        done.set()

    start.Verdict(tell, ["sh", "-c", script])
    assert done.wait(60)
    return said[0]


def test_works_is_one_line() -> None:
    assert told("echo 'works: 3 convolutions on a T4'") == "cudnn-verify: works: 3 convolutions on a T4"


@pytest.mark.parametrize(
    ("status", "headline"),
    [
        (10, "U N V E R I F I E D"),
        (20, "B R O K E N"),
        (21, "U N S U P P O R T E D   G P U"),
        (22, "N O   G P U   F O R   T H I S   C O N T A I N E R"),
        (23, "G P U   B U S Y"),
        (30, "N O T   V E R I F I E D"),
        (1, "N O T   V E R I F I E D"),
    ],
)
def test_all_else_is_said_in_large_letters(status: int, headline: str) -> None:
    said = told(f"echo 'broken: cudnn-shadowed: two copies'; exit {status}")
    assert headline in said
    assert "cudnn-shadowed: two copies" in said
    assert "Jupyter runs all the same" in said


def test_a_probe_that_is_not_there() -> None:
    said: list[str] = []
    start.Verdict(said.append, ["/no/such/program"]).stop()
    assert "N O T   V E R I F I E D" in said[0]


def test_a_probe_that_is_stopped_says_nothing() -> None:
    said: list[str] = []
    under_way = start.Verdict(said.append, ["sleep", "600"])
    under_way.stop()
    assert under_way._process is not None
    assert under_way._process.wait(60) != 0
    assert said == []


# -- memory


def test_kills_for_memory_are_news_once(tmp_path: Path) -> None:
    events, limit = tmp_path / "memory.events", tmp_path / "memory.max"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    limit.write_text("2000000000\n")
    watch = start.MemoryWatch((str(events),), (str(limit),))
    assert watch.news() is None
    events.write_text("low 0\noom 2\noom_kill 2\n")
    assert "a process was killed at the limit of 2.0 GB" in str(watch.news())
    assert watch.news() is None
    limit.write_text("max\n")
    events.write_text("oom_kill 5\n")
    assert "3 processes were killed. " in str(watch.news())


def test_no_cgroup_no_news(tmp_path: Path) -> None:
    assert start.MemoryWatch((str(tmp_path / "nothing"),), ()).news() is None


# -- the whole


def test_an_image_without_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SERVERS", ("no_such_server",))
    with pytest.raises(settings.StartError, match="this image has no Jupyter") as raised:
        server.find()
    assert raised.value.status == 5


def test_an_error_is_two_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("RTBUILD_PORT", "x")
    assert start.main() == 2
    assert capsys.readouterr().out == (
        "error: RTBUILD_PORT is 'x'\nhint: a port is a number from 1024 to 65535\n"
    )


def test_a_server_that_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find", lambda: "no_such_server")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started = server.Server(1, "127.0.0.1", "secret", str(tmp_path), dict(os.environ))
    assert "JUPYTER_TOKEN" not in os.environ
    with pytest.raises(settings.StartError, match="Jupyter ended with status 1"):
        started.wait_until_it_answers(threading.Event())
    assert list(tmp_path.iterdir()) == []  # nor is the token left behind


def test_what_jupyter_logs_while_it_stops_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An open tab asks for kernels that are gone, and Jupyter logs a traceback for each."""
    (tmp_path / "talking_server.py").write_text(
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    print('Traceback (most recent call last)', file=sys.stderr, flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('a warning', file=sys.stderr, flush=True)\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(server, "find", lambda: "talking_server")
    (tmp_path / "python").write_text(f'#!/bin/sh\nshift; PYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    started = server.Server(1, "127.0.0.1", "secret", str(tmp_path), dict(os.environ))
    seen = ""
    while "a warning" not in seen:
        assert started.poll() is None, seen
        seen += capfd.readouterr().err
    started.stop()
    assert started.poll() == 0
    assert "Traceback" not in seen + capfd.readouterr().err


def test_the_page_has_what_a_person_needs() -> None:
    assert "      http://127.0.0.1:9000/?token=abc\n" in start.page(9000, "abc", "/content")
