"""The profile ``colab`` on a real engine: the handshake of Colab's page, kernels, and what goes wrong."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import websocket
from colab_page import COLAB, Page, admits
from colab_runtime import MATRIX, STACKS, USER, build, cell, docker, free_port, image, rtbuild, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colab_runtime import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.long]

FOREIGN = ("https://evil.example.invalid", "https://colab.research.google.com.evil.example.invalid", "null")


@pytest.fixture(scope="module", params=STACKS)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    build()
    with running(request.param) as started:
        yield started


# -- the handshake


def test_a_preflight_of_colabs_page_is_granted(runtime: Runtime) -> None:
    for method, path in (
        ("GET", "/api/kernelspecs"),
        ("POST", "/api/sessions"),
        ("DELETE", f"/api/kernels/{uuid.uuid4()}"),
    ):
        answer = runtime.page.preflight(path, method=method, headers="authorization,content-type,x-xsrftoken")
        assert answer.ok
        assert admits(answer, COLAB)
        assert method in answer.headers["Access-Control-Allow-Methods"]
        assert {"authorization", "content-type", "x-xsrftoken"} <= set(
            answer.headers["Access-Control-Allow-Headers"].lower().replace(" ", "").split(",")
        )
        assert answer.headers["Access-Control-Allow-Private-Network"] == "true"


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_page_of_another_site_is_refused_even_with_the_token(runtime: Runtime, origin: str) -> None:
    page = Page(runtime.page.address, origin)
    for answer in (page.preflight("/api/kernelspecs"), page.get("/api/kernelspecs")):
        assert answer.status_code == 403
        assert not admits(answer, origin)
        assert "may not use this runtime" in answer.text
    runtime.wait_for(f"refused a page of {origin}: only {COLAB}")


def test_kernels_are_listed_with_the_token_and_not_without(runtime: Runtime) -> None:
    answer = runtime.page.get("/api/kernelspecs")
    assert answer.status_code == 200
    assert admits(answer, COLAB)
    assert answer.json()["default"] == "python3"
    assert runtime.page.get("/api/kernelspecs", token=False).status_code == 403
    wrong = Page(runtime.page.address.replace(runtime.page.token, "0" * 48))
    assert wrong.get("/api/kernelspecs").status_code == 403


def test_what_colabs_page_asks_first_is_not_there_and_harms_nothing(runtime: Runtime) -> None:
    assert runtime.page.get("/api/colab/build-info").status_code == 404


def test_a_name_that_resolves_to_loopback_is_not_this_server(runtime: Runtime) -> None:
    answer = runtime.page.get("/api/kernelspecs", Host=f"evil.example.invalid:{runtime.port}")
    assert answer.status_code == 403


def test_code_runs_over_the_websocket(runtime: Runtime) -> None:
    with runtime.page.kernel() as kernel:
        assert kernel.run("import numpy; numpy.convolve([1, 2, 3], [0, 1, 0.5])") == (
            "array([0. , 1. , 2.5, 4. , 1.5])\n"
        )
        assert "127.0.0.1" not in kernel.run("import os; print(os.environ.get('JUPYTER_TOKEN'), os.getcwd())")
        for origin in FOREIGN:
            with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
                Page(runtime.page.address, origin).channel(kernel.identifier)


def test_a_notebook_finds_what_it_finds_on_colab(runtime: Runtime) -> None:
    code = """
import os, getpass
from google.colab import files, drive, userdata, output, auth, data_table, ai
drive.mount('/content/drive')
print(userdata.get('HF_TOKEN'), os.getcwd(), getpass.getuser(), os.access(os.environ['HOME'], os.W_OK))
open('/content/made', 'w').close()
files.download('made')
"""
    with runtime.page.kernel() as kernel:
        said = kernel.run(code)
        assert f"hf_of_the_caller /content user{USER} True" in said
        assert "Google Drive cannot be mounted from inside" in said
        assert "made is on your machine already" in said
        assert (
            "LocalRuntimeError: google.colab.ai.generate_text works on Google's own machines only"
            in kernel.run("ai.generate_text('hello')")
        )
        assert kernel.run("%%shell\necho $((6 * 7)); id -u") == f"42\n{USER}\n"
        assert "unverified" in kernel.run("%load_ext cudnn_verify\n%cudnn_verify --quiet").lower()
    assert (runtime.content / "made").stat().st_uid == USER
    assert (runtime.content / "drive" / "MyDrive").is_dir()


def test_a_notebook_may_replace_and_remove_packages(runtime: Runtime) -> None:
    with runtime.page.kernel() as kernel:
        said = kernel.run("!pip uninstall --yes --no-input ipywidgets numpy")
        assert "Successfully uninstalled numpy-2.2.6" in said, said
        assert "ModuleNotFoundError" in kernel.run("!python -c 'import numpy'")


# -- what a person sees


def test_the_verdict_is_said_in_large_letters_and_the_token_only_in_the_address(runtime: Runtime) -> None:
    runtime.wait_for("U N V E R I F I E D")
    runtime.wait_for("Jupyter runs all the same")
    runtime.page.get("/api/colab/build-info")  # logged by its address, since it fails
    runtime.wait_for("token=[secret]")
    assert runtime.talk.count(runtime.page.token) == 1
    assert (
        "! no GPU on this machine: started without one" in runtime.talk
        or "--gpus" in runtime.document["command"]
    )


def test_only_loopback_listens(runtime: Runtime) -> None:
    """https://www.kernel.org/doc/Documentation/networking/proc_net_tcp.txt: state 0A listens."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    port = f"{runtime.port:04X}"
    assert {row[1].partition(":")[0] for row in rows if row[1].endswith(f":{port}") and row[3] == "0A"} == {
        "0100007F"
    }


def test_a_taken_port_is_named_with_one_that_is_free(runtime: Runtime) -> None:
    done = rtbuild("run", cell(runtime.stack), str(MATRIX), "--port", str(runtime.port), "--no-content")
    assert done.returncode == 5
    assert f"port {runtime.port} on 127.0.0.1 is taken" in done.stderr
    assert "is free" in done.stderr


def test_the_health_check_passes(runtime: Runtime) -> None:
    check = json.loads(docker("image", "inspect", image(runtime.stack)))[0]["Config"]["Healthcheck"]["Test"]
    docker("exec", str(runtime.document["container"]), *check[1:])


def test_it_ends_within_seconds_with_a_busy_kernel(runtime: Runtime) -> None:
    """The last one of a runtime: Ctrl-C for one stack, SIGTERM for the other."""
    number = signal.SIGINT if runtime.stack == "pinned" else signal.SIGTERM
    with runtime.page.kernel() as kernel:
        kernel.ask("import time\nwhile True: time.sleep(0.1)")
        status, seconds = runtime.stop(number)
    assert status == 0
    assert seconds < 12  # Docker itself would kill after ten
    assert "stopping" in runtime.talk
    until = time.monotonic() + 60  # the engine removes it by itself, and a busy one lists it meanwhile
    while runtime.document["container"] in docker("ps", "--all", "--format", "{{.Names}}").split():
        assert time.monotonic() < until
        time.sleep(0.2)


# -- what goes wrong


def start(*options: str, command: tuple[str, ...] = (), stack: str = "pinned") -> tuple[int, str]:
    """A container that is expected to end by itself."""
    build()
    done = subprocess.run(
        ["docker", "run", "--rm", *options, image(stack), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_nowhere_to_write() -> None:
    status, said = start("--read-only")
    assert status == 5
    assert "neither the home folder /home/colab nor a temporary folder can be written to" in said
    assert "hint: give the container a place to write: --tmpfs /tmp" in said


def test_an_empty_or_weak_token() -> None:
    status, said = start("--env", "JUPYTER_TOKEN=abc")
    assert status == 2
    assert "JUPYTER_TOKEN is too short" in said


def test_no_jupyter_in_the_image() -> None:
    site = "/opt/runtime/lib/python/site-packages"
    lost = " ".join(f"{site}/{name}" for name in ("notebook", "jupyterlab", "jupyter_server"))
    status, said = start(
        command=("sh", "-c", f"rm -r {lost}; exec python -I -m rtbuild_runtime"), stack="newest"
    )
    assert status == 5
    assert "this image has no Jupyter" in said
    assert "profile: colab" in said


def started_apart(name: str, *options: str) -> str:
    """A container in the background; what it said once it gave its address."""
    build()
    docker("run", "--detach", "--name", name, *options, image("pinned"))
    return logs_say(name, "/?token=")


def logs_say(name: str, text: str) -> str:
    """All that a container has said once ``text`` is part of it; its two streams come in any order."""
    until = time.monotonic() + 60
    while text not in (said := docker("logs", name)):
        assert time.monotonic() < until, said
        time.sleep(0.2)
    return said


@pytest.fixture
def container() -> Iterator[str]:
    name = f"rtbuild-test-{uuid.uuid4().hex[:12]}"
    yield name
    docker("rm", "--force", name, check=False)


def test_a_home_that_cannot_be_written_to(container: str) -> None:
    said = started_apart(container, "--read-only", "--tmpfs", "/tmp", "--env", "JUPYTER_TOKEN=")
    assert "the home folder /home/colab cannot be written to: /tmp/home-" in said
    assert "/content cannot be written to by user 1000" in said
    logs_say(container, "JUPYTER_TOKEN is empty: a random token was made")


def test_on_the_hosts_network_only_loopback_listens(container: str) -> None:
    port = free_port()
    said = started_apart(container, "--network", "host", "--env", f"RTBUILD_PORT={port}")
    assert f"http://127.0.0.1:{port}/?token=" in said
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert [row[1] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"] == [
        f"0100007F:{port:04X}"
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_a_kernel_that_is_killed_for_memory(container: str) -> None:
    said = started_apart(
        container, "--memory", "400m", "--memory-swap", "400m", "--publish", "127.0.0.1::8888"
    )
    port = docker("port", container, "8888").strip().rpartition(":")[2]
    address = next(line.strip() for line in said.splitlines() if "/?token=" in line).replace("8888", port)
    page = Page(address)
    with page.kernel() as kernel:
        kernel.ask("import numpy; x = numpy.ones(10**9)")
        said = logs_say(container, "out of memory")
    assert "out of memory: a process was killed at the limit of 0.4 GB" in said
    assert "docker run --memory" in said
    assert page.get("/api/kernelspecs").status_code == 200


def test_verify_alone() -> None:
    build()
    done = rtbuild("run", cell("pinned"), str(MATRIX), "--verify")
    assert done.returncode == 5, done.stderr
    assert done.stdout.lower().startswith("unverified")


def test_a_devcontainer_of_the_image(tmp_path: Path) -> None:
    build()
    for _ in range(2):  # the second time there is nothing to change
        done = rtbuild("devcontainer", cell("pinned"), str(MATRIX), "--output", str(tmp_path))
        assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / ".devcontainer" / "devcontainer.json").read_text())
    assert found["image"] == image("pinned")
    assert found["remoteUser"] == "colab"
    done = rtbuild("devcontainer", cell("newest"), str(MATRIX), "--output", str(tmp_path))
    assert done.returncode == 2
    assert "--force replaces it" in done.stderr
