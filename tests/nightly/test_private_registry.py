"""docs/private-registry.md, followed: a registry with a login, behind a certificate authority of its own.

Debian's docker-registry with htpasswd. The commands have what the page says, the authority by its variable
and the login where `docker login` puts it, and nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from registry import serve
from rtbuild_command import rtbuild
from test_publish import store_double

from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image
from builder.sources.oci.wire import Login

if TYPE_CHECKING:
    from collections.abc import Iterator

    from registry import LoopbackRegistry

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.docker]

NAME, SECRET = "clerk", "c4nary-s3cret"


@dataclass(frozen=True, kw_only=True)
class Private:
    """A project whose images go to a private registry, and what its commands are given."""

    folder: Path
    registry: LoopbackRegistry
    env: dict[str, str]

    @property
    def staging(self) -> str:
        return f"{self.registry.host}/team/staging"

    @property
    def public(self) -> str:
        return f"{self.registry.host}/team/numpy"

    def say(self, *words: str, check: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        done = rtbuild(self.folder, *words, env=self.env | env, check=check, timeout=900)
        assert SECRET not in done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    folder = tmp_path_factory.mktemp("private")
    with serve(folder / "registry", tls=True, login=(NAME, SECRET)) as running:
        assert running.ca is not None
        known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
        system = Path(known).read_text() if known else ""
        (folder / "bundle.pem").write_text(system + running.ca.read_text())
        (folder / "docker").mkdir()
        auth = base64.b64encode(f"{NAME}:{SECRET}".encode()).decode()
        (folder / "docker/config.json").write_text(json.dumps({"auths": {running.host: {"auth": auth}}}))
        foreign = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
        env = {name: text for name, text in os.environ.items() if name not in foreign}
        env |= {"SSL_CERT_FILE": str(folder / "bundle.pem"), "DOCKER_CONFIG": str(folder / "docker")}
        there = Private(folder=folder, registry=running, env=env)
        (folder / "colab.yaml").write_text(
            "version: 1\nname: own\ndefaults: {profile: colab}\ninclude:\n"
            "- {framework: numpy==2.2.6, python: '3.13', base: rootfs:debian/trixie, cuda: none}\n"
            f"publish: {{staging: '{there.staging}', repository: '{there.public}',\n"
            "  aliases: {latest: '*'}}\n"
        )
        yield there


@pytest.fixture(scope="module")
def published(private: Private) -> Iterator[str]:
    """Built, pushed, verified by a double of a T4's word, and published; its digest."""
    told = private.say("build", "colab.yaml", "--engine", "none", "--push", private.staging, "--json", "-q")
    pushed = json.loads(told.stdout)["cells"][0]["image"]["pushed"]
    told = private.say("verify", "colab.yaml", "--from", private.staging, "--json", "-q", check=5)
    report = json.loads(told.stdout)["cells"][0]["verification"]["report"]
    told = private.say("publish", "colab.yaml", "--json", "-q", check=6)
    assert [row["kind"] for row in json.loads(told.stdout)["cells"][0]["refusals"]] == ["unverified"]
    registry = Registry(
        client=Client(ca=str(private.registry.ca), retries=0),
        login=lambda _host: Login(username=NAME, password=SECRET),
    )
    image = read_image(registry, private.staging, pushed.partition("@")[2])
    store_double(private.folder / "results", image, report)
    done = private.say("publish", "colab.yaml", "--json", "-q")
    assert json.loads(done.stdout)["cells"][0]["outcome"] == "published"
    yield image.digest
    for name in (f"{private.public}:latest", f"{private.public}@{image.digest}"):
        subprocess.run(["docker", "image", "rm", "-f", name], capture_output=True, check=False)


def test_without_the_login_or_the_authority_nothing_is_had(private: Private, published: str) -> None:
    """The tests below can fail."""
    for words in (("audit", f"{private.public}:latest"), ("catalogue", "--from", private.public, "-o", "x")):
        told = private.say(*words, check=None, DOCKER_CONFIG=str(private.folder / "nobody"))
        assert told.returncode
        assert f"docker login {private.registry.host}" in told.stderr
        told = private.say(*words, check=None, SSL_CERT_FILE="/etc/ssl/certs/ca-certificates.crt")
        assert told.returncode
        assert "certificate" in told.stderr
        assert "SSL_CERT_FILE" in told.stderr


def test_what_was_published_is_audited(private: Private, published: str) -> None:
    told = private.say("audit", f"{private.public}:latest", "--gpu", "T4", "--json")
    document = json.loads(told.stdout)
    assert document["digest"] == published
    assert document["answer"] == "known to work on T4"


def test_what_was_published_is_listed(private: Private, published: str) -> None:
    private.say("catalogue", "--from", private.public, "-o", "site")
    page = (private.folder / "site/images/index.html").read_text()
    assert f"{private.public}" in page
    assert published[7:19] in page
    assert "Tesla T4" in page


def test_it_is_pulled_and_runs_as_a_runtime_of_colab(private: Private, published: str) -> None:
    """The engine asks no authority about loopback; another host's belongs into its certs.d."""
    reference = f"{private.public}:latest"
    done = private.say("run", reference, "--verify", "--no-content", "--gpus", "none", check=None)
    assert "UNVERIFIED" in done.stdout + done.stderr
    shown = private.say("run", reference, "--dry-run", "--gpus", "none")
    assert "127.0.0.1:8888" in shown.stdout
    digests = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.RepoDigests}}", reference],
        capture_output=True,
        text=True,
        check=True,
    )
    assert published in digests.stdout
