"""The engine room against a real Docker Engine, with an image of one megabyte."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

import docker
import pytest
import tiny
import zstandard

from builder.core.errors import CancelledError, CellError, CommandError
from builder.image.engine.build import BuildRequest
from builder.image.engine.container import LABEL, MAX_OUTPUT
from builder.image.engine.doctor import diagnose
from builder.image.engine.engine import Engine
from builder.sources.net import ca_bundle, proxies

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def engine():
    with Engine.connect() as engine:
        yield engine


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.busybox(tmp_path_factory.mktemp("busybox"))


@pytest.fixture
def build(engine: Engine, busybox: Path, tmp_path: Path):
    """Build a Dockerfile on top of busybox; its images are removed after the test."""
    names: list[str] = []

    def run(dockerfile: str, *, name: str | None = None, on_line=lambda _: None, cancel=None, **options):
        tag = name or tiny.name()
        names.append(tag)
        folder = tiny.context(tmp_path / f"context{len(names)}", busybox, dockerfile)
        platform = engine.facts().platform
        request = BuildRequest(context=folder, tag=tag, platform=platform, epoch=1_600_000_000, **options)
        cancel = cancel or threading.Event()
        engine.build(request, log=tmp_path / "build.log", on_line=on_line, cancel=cancel)
        return engine.inspect(tag)

    yield run
    for name in names:
        engine.remove(name)


@pytest.fixture(scope="module")
def image(engine: Engine, busybox: Path, tmp_path_factory: pytest.TempPathFactory):
    """An image with an entrypoint that must not be used."""
    folder = tmp_path_factory.mktemp("image")
    tag = tiny.name()
    context = tiny.context(folder / "context", busybox, 'ENTRYPOINT ["/bin/false"]\nENV A=b\n')
    request = BuildRequest(context=context, tag=tag, platform=engine.facts().platform, epoch=1)
    engine.build(request, log=folder / "log", cancel=threading.Event())
    yield engine.inspect(tag)
    engine.remove(tag)


def shell(engine: Engine, image, script: str, **options):
    settings = {"gpus": False, "timeout": 30.0}
    return engine.run_probe(image.digest, ["/bin/sh", "-c", script], **{**settings, **options})


def processes(text: str) -> list[str]:
    """The command lines on this machine that hold ``text``; a build's steps run here too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def containers() -> str:
    command = ["docker", "ps", "-aq", "--filter", f"label={LABEL}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_build_ends_in_the_store(engine: Engine, build, tmp_path: Path) -> None:
    lines: list[str] = []
    inputs = f"sha256:{uuid.uuid4().hex}"  # no image that an earlier run left behind has it
    image = build(
        f'RUN echo said; echo 7 > /seven\nENV A="b c"\nLABEL io.rtbuild.inputs={inputs}\n',
        on_line=lines.append,
        no_cache=True,
    )
    assert image.label("io.rtbuild.inputs") == inputs
    assert 1_900_000 < image.size < 4_000_000
    with closing(docker.from_env()) as client:
        inspected = client.images.get(image.reference)
        assert "A=b c" in inspected.attrs["Config"]["Env"]
        assert len(inspected.attrs["RootFS"]["Layers"]) == 3
        assert sum(entry["Size"] for entry in inspected.history()) == image.size
    assert any(line.endswith(" said") for line in lines)
    assert "said" in (tmp_path / "build.log").read_text()
    found = engine.find(inputs, engine.built()[inputs])
    assert found is not None
    assert found.content == image.content
    assert engine.read_file(image.reference, "/seven") == b"7\n"
    assert engine.read_file(image.reference, "/eight") is None


def test_a_file_that_is_too_large_is_refused_and_leaves_no_container(build, engine: Engine) -> None:
    """The engine removes no container while a file is copied out of it."""
    image = build("RUN dd if=/dev/zero of=/large bs=1M count=24\n")
    with pytest.raises(CellError, match=r"/large in .* is larger than 16777216 bytes"):
        engine.read_file(image.reference, "/large")
    with closing(docker.from_env()) as client:
        assert not client.containers.list(all=True, filters={"ancestor": image.reference})


def test_the_same_context_gives_the_same_image_twice(build) -> None:
    first = build("COPY --link busybox /again\n", no_cache=True)
    second = build("COPY --link busybox /again\n")
    assert first.content == second.content


def test_names_come_and_go(engine: Engine, image) -> None:
    other = tiny.name()
    assert engine.inspect(other) is None
    engine.tag(image.reference, other)
    tagged = engine.inspect(other)
    assert tagged is not None
    assert (tagged.digest, tagged.content) == (image.digest, image.content)
    assert engine.remove(other)
    assert not engine.remove(other)
    assert engine.inspect(image.reference) is not None


def test_a_named_context_replaces_a_stage(build, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "instead").mkdir()
    (tmp_path / "instead" / "word").write_text("from outside")
    dockerfile = (
        "FROM base AS wheels\nRUN echo from inside > /word\nFROM base\nCOPY --from=wheels /word /word\n"
    )
    built = build(dockerfile, build_contexts={"wheels": str(tmp_path / "instead")})
    assert engine.read_file(built.reference, "/word") == b"from outside"


def test_a_failure_shows_command_status_and_forty_lines(build) -> None:
    with pytest.raises(CommandError) as caught:
        build("RUN for i in $(seq 100); do echo line $i; done; exit 3\n")
    error = caught.value
    assert error.message.endswith("ended with status 3")
    assert error.command[:3] == ("docker", "buildx", "build")
    assert len(error.tail) == 40
    assert "line 100" in error.tail
    assert error.log is not None
    assert "line 1\n" in error.log.read_text()
    repeated = subprocess.run(error.command, capture_output=True, text=True, check=False)
    assert repeated.returncode == error.returncode


def test_cancel_leaves_no_process(build) -> None:
    cancel = threading.Event()

    def watch(line: str) -> None:
        if line.endswith(" sleeping"):
            assert processes("sleep 98765")
            cancel.set()

    began = time.monotonic()
    with pytest.raises(CancelledError):
        build("RUN echo sleeping; exec sleep 98765\n", on_line=watch, cancel=cancel)
    assert time.monotonic() - began < 60
    deadline = time.monotonic() + 60
    while processes("sleep 98765") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes("sleep 98765") == []


def test_the_network_s_secrets_stay_out_of_the_image(build, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("sesame-ca")
    env = {
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
        "SSL_CERT_FILE": str(bundle),
        "HTTPS_PROXY": "http://user:sesame-proxy@proxy.example.invalid:3128",
    }
    # The patterns are written so that the script itself does not hold what is looked for.
    dockerfile = """RUN --mount=type=secret,id=ca,target=/ca \\
        grep -q 's[e]same-ca' /ca && \\
        case "$https_proxy$HTTPS_PROXY" in *s[e]same-*s[e]same-*) echo seen > /seen;; *) exit 9;; esac
"""
    built = build(dockerfile, secrets={"ca": ca_bundle(env)}, proxies=proxies(env), no_cache=True)
    assert b"sesame" not in everything(built.reference)
    assert "sesame" not in (tmp_path / "build.log").read_text()


def everything(reference: str) -> bytes:
    """An image as saved, with its layers decompressed: configuration, history and files."""
    saved = subprocess.run(["docker", "save", reference], capture_output=True, check=True).stdout
    parts = []
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            data = file.read() if file else b""
            if data.startswith(zstandard.FRAME_HEADER):
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            parts.append(data)
    whole = b"".join(parts)
    assert b"seen" in whole
    return whole


def test_builds_run_side_by_side(build) -> None:
    done: dict[int, list[str]] = {1: [], 2: []}
    names = {number: tiny.name() for number in done}

    def one(number: int) -> None:
        build(
            f"RUN echo build {number}; sleep 1\n",
            name=names[number],
            no_cache=True,
            on_line=done[number].append,
        )

    threads = [threading.Thread(target=one, args=(number,)) for number in done]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    for number, lines in done.items():
        said = [line for line in lines if re.match(r"#\d+ \d+\.\d+ build", line)]
        assert [line.split(" ", 2)[2] for line in said] == [f"build {number}"]


def test_the_probe_s_container_may_do_nothing(engine: Engine, image) -> None:
    script = (
        "id -u; id -g; touch /x 2>/dev/null || echo read-only; touch /tmp/x && echo tmp;"
        " cp /bin/busybox /tmp/echo && /tmp/echo exec; grep -c . /proc/net/dev;"
        " grep -E 'CapEff|NoNewPrivs' /proc/self/status; echo $A $HOME; cat /given; exit 5"
    )
    given = Path(__file__)
    run = shell(engine, image, script, mounts={given: "/given"})
    out = run.stdout.splitlines()
    assert out[:6] == ["65534", "65534", "read-only", "tmp", "exec", "3"]  # two heading lines, and lo
    assert out[6].split() == ["CapEff:", "0" * 16]
    assert out[7].split() == ["NoNewPrivs:", "1"]
    assert out[8] == "b /tmp"
    assert given.read_text() in run.stdout
    assert (run.returncode, run.started, run.daemon_error, run.stderr) == (5, True, None, "")
    assert containers() == ""


def test_a_probe_that_hangs_is_stopped(engine: Engine, image) -> None:
    began = time.monotonic()
    run = shell(engine, image, "echo before; sleep 300", timeout=3.0)
    assert (run.timed_out, run.returncode, run.stdout) == (True, -1, "before\n")
    assert time.monotonic() - began < 60
    assert containers() == ""


def test_a_probe_that_closes_its_output_is_stopped_too(engine: Engine, image) -> None:
    run = shell(engine, image, "exec >/dev/null 2>&1; sleep 300", timeout=1.0)
    assert (run.timed_out, containers()) == (True, "")


def test_a_probe_that_floods_is_stopped(engine: Engine, image) -> None:
    run = shell(engine, image, "yes", timeout=60.0)
    assert run.truncated
    assert len(run.stdout) == MAX_OUTPUT
    assert containers() == ""


def test_a_probe_that_is_cancelled_leaves_nothing(engine: Engine, image) -> None:
    cancel = threading.Event()
    threading.Timer(1.0, cancel.set).start()
    with pytest.raises(CancelledError):
        shell(engine, image, "sleep 300", cancel=cancel)
    assert containers() == ""


def test_a_crash_shows_its_signal(engine: Engine, image) -> None:
    assert shell(engine, image, "sh -c 'kill -11 $$'; exit $?").returncode == 139


def test_a_program_that_is_not_there_does_not_start(engine: Engine, image) -> None:
    run = engine.run_probe(image.digest, ["/bin/nowhere"], gpus=False, timeout=10.0)
    assert not run.started
    assert "/bin/nowhere" in str(run.daemon_error)
    assert containers() == ""


def test_an_image_that_is_not_there_is_an_error(engine: Engine) -> None:
    with pytest.raises(CellError, match="the engine has no image"):
        engine.run_probe("rtbuild-test/nowhere:x", ["/bin/true"], gpus=False, timeout=10.0)


def test_a_gpu_on_a_machine_without_the_toolkit(engine: Engine, image) -> None:
    if engine.facts().gpu.request:
        pytest.skip("this engine can hand out GPUs")
    run = shell(engine, image, "true", gpus=True)
    assert not run.started
    assert run.daemon_error == 'could not select device driver "" with capabilities: [[gpu]]'
    assert containers() == ""


def test_the_doctor_finds_this_engine_sound(engine: Engine, tmp_path: Path) -> None:
    checks = {check.name: check for check in diagnose(engine, cache=tmp_path)}
    assert checks["engine"].outcome == checks["buildx"].outcome == "passed"
    assert engine.facts().version in checks["engine"].found
    assert checks["engine disk"].outcome in {"passed", "failed"}
