"""A secret in each place of an address: it stands in no message, and in no file that is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from foreign_input import typed

from builder.core.documents import redact

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "c4nary/s3cret".replace("/", "-")
HOST = "127.0.0.1:9/simple"
URL = f"http://canary:{SECRET}@{HOST}"
URLS = {
    "login": URL,
    "name alone": f"http://{SECRET}@{HOST}",
    "an @ in the password": f"http://canary:p@{SECRET}@{HOST}",
    "query": f"http://{HOST}?token={SECRET}",
}
CELL = "include: [{framework: torch==2.1.2, python: '3.11', base: 'rootfs:debian/bookworm', cuda: wheels"

FILES = {
    "requirements.txt": (
        "--extra-index-url {}\n--index-url={}\n-i {}\n-f {}\n--proxy {}\n--find-links {}\n-e git+{}#egg=x\n"
        "name @ {}/name-1.0-py3-none-any.whl\ngit+{}\n{}\ntorch==2.1.2  # {}\n-c {}\n"
        "{}/torch-2.1.2-cp311-cp311-linux_x86_64.whl\nx==1 --hash=sha256:0 --config-settings={}\n"
    ),
    "wrong.txt": "torch==={} ; '{}'\n",
    "pyproject.toml": "[project]\ndependencies = ['torch==2.1.2', 'x @ {}/x.whl']\n",
    "poetry.toml": "[tool.poetry.dependencies]\ntorch = '2.1.2'\nx = {url = '{}'}\ny = {git = '{}'}\n",
    "a.ipynb": (
        '{"cells": [{"cell_type": "code", "source": ["!pip install torch==2.1.2 --extra-index-url {}\\n",'
        ' "!pip install git+{} x@{} \'{}"]}]}'
    ),
    "environment.yml": "dependencies:\n- pytorch=2.1.2\n- pip:\n  - --extra-index-url {}\n  - x @ {}/x.whl\n",
    "conda.txt": "{}/pytorch-2.1.2-py3.11_cuda12.1_0.tar.bz2\n",
    "freeze.txt": "torch==2.1.2\nx @ {}/x.whl\n-e git+{}#egg=y\ny @ git+{}\nz @ {}\n",
    "wrong-freeze.txt": "torch==2.1.2\nx {}\n-e {}\n",
    "index.yaml": "version: 1\nname: m\n" + CELL + ", index: ['{}']}]\n",
    "base.yaml": CELL.replace("rootfs:debian/bookworm", "{}").join(("version: 1\nname: m\n", "}]\n")),
    "m.yaml": "version: 1\nname: m\n" + CELL + "}]\n",
    "m.lock.json": '{"schema": 1, "{}": [], "matrix": "{}"}',
}
COMMANDS = (
    ("resolve", "-r", "requirements.txt"),
    ("resolve", "-r", "requirements.txt", "--json"),
    ("resolve", "-r", "wrong.txt"),
    ("resolve", "--pyproject", "pyproject.toml"),
    ("resolve", "--pyproject", "poetry.toml"),
    ("resolve", "--notebook", "a.ipynb"),
    ("resolve", "--conda", "environment.yml"),
    ("resolve", "--conda", "conda.txt"),
    ("resolve", "torch==2.1.2"),
    ("resolve", "torch @ {}"),
    ("resolve", "--offline", "x @ {}/x.whl", "torch==2.1.2"),
    ("init", "torch==2.1.2"),
    ("check", "index.yaml"),
    ("check", "base.yaml"),
    ("check", "m.yaml"),
    ("check", "m.yaml", "--read", "--mirror", "docker.io={}"),
    ("explain", "*", "index.yaml"),
    ("list", "index.yaml"),
    ("colab", "import", "--no-lock", "--python", "3.11", "--freeze", "freeze.txt"),
    ("colab", "import", "--no-lock", "--python", "3.11", "--freeze", "wrong-freeze.txt"),
    ("diagnose", "requirements.txt"),
    ("diagnose", "freeze.txt"),
    ("audit", "{}"),
    ("{}",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        # all commands, with each kind
        *(
            pytest.param(
                "pip.conf", kind, marks=[] if kind == "login" else pytest.mark.slow, id=f"pip.conf-{kind}"
            )
            for kind in URLS
        ),
        *(
            (where, kind)
            for where in ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX")
            for kind in URLS
        ),
    ],
)
def test_no_secret_of_an_address_is_told(
    kind: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = URLS[kind]
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    given = tmp_path / "given"
    given.mkdir()
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nindex-url={url}\nextra-index-url={url}/b\n" if where == "pip.conf" else "")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if where != "pip.conf":
        monkeypatch.setenv(where, url)
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "2")
    monkeypatch.chdir(given)
    sources = {}
    for name, text in FILES.items():
        (given / name).write_text(text.replace("{}", url))
        sources[given / name] = (given / name).read_bytes()
    for words in COMMANDS if where == "pip.conf" else COMMANDS[:1] + COMMANDS[8:9]:
        code = typed(*(word.replace("{}", url) for word in words), monkeypatch=monkeypatch)
        printed = capfd.readouterr()
        assert code != 70, (words, printed.err)
        assert SECRET not in printed.out + printed.err, words
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != conf and sources.get(path) != path.read_bytes():
            assert SECRET.encode() not in path.read_bytes(), path


def test_the_address_of_a_runtime_here_keeps_its_token() -> None:
    """`rtbuild run` is there to hand it out; an index here, or another machine, keeps none."""
    for address in ("http://127.0.0.1:9000/?token=abc", "http://localhost:8888/?token=abc"):
        assert redact(f"open {address} now") == f"open {address} now"
    for address in ("http://127.0.0.1:9/simple?token=", "http://127.0.0.1.example:9/?token="):
        assert redact(f"{address}abc") == f"{address}[redacted]"
