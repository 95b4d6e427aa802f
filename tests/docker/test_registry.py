"""The registry client against a real registry: plain, with TLS, with a login, and filled by a real engine."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from doubles import registry as registry_double
from doubles.unreliable import Fault, Proxy, before
from registry import LoopbackRegistry, serve

from builder.core.errors import RegistryError
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import INDEX, MANIFEST
from builder.sources.oci.wire import Login

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.docker


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def push_image(registry: Registry, reference: str, folder: Path) -> tuple[str, str, bytes]:
    """A made-up image behind an index; its manifest's digest, the index's digest, and its only layer."""
    layer = b"not really a layer " * 5000
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["CUDA_VERSION=11.8.0"], "Labels": {"a": "b"}},
    }
    repository = reference.rpartition(":")[0]
    blobs = {}
    for name, content in (("layer", layer), ("config", json.dumps(config).encode())):
        (folder / name).write_bytes(content)
        blobs[name] = {
            "mediaType": "application/octet-stream",
            "digest": digest(content),
            "size": len(content),
        }
        assert registry.push_blob(repository, digest(content), folder / name) is True
        assert registry.push_blob(repository, digest(content), folder / name) is False
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blobs["config"] | {"mediaType": "application/vnd.oci.image.config.v1+json"},
            "layers": [blobs["layer"] | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}],
        }
    ).encode()
    assert registry.put_manifest(f"{repository}@{digest(manifest)}", manifest, MANIFEST) == digest(manifest)
    entry: dict[str, Any] = {"mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest)}
    entry["platform"] = {"os": "linux", "architecture": "amd64"}
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
    registry.put_manifest(reference, index, INDEX)
    return digest(manifest), digest(index), layer


def round_trip(registry: Registry, host: str, folder: Path) -> None:
    reference = f"{host}/some/image:1"
    assert registry.digest_of(reference) is None
    manifest, index, layer = push_image(registry, reference, folder)
    assert registry.digest_of(reference) == index
    base = registry.inspect(reference, "linux/amd64")
    assert (base.digest, base.variable("CUDA_VERSION"), base.labels) == (manifest, "11.8.0", (("a", "b"),))
    assert base.size == len(layer)
    fetched = registry.fetch_blob(reference, digest(layer), folder / "fetched", size=len(layer))
    assert fetched.read_bytes() == layer
    with pytest.raises(RegistryError, match="does not exist"):
        registry.inspect(f"{host}/some/image:2", "linux/amd64")


def test_round_trip(server: LoopbackRegistry, tmp_path: Path) -> None:
    round_trip(Registry(login=lambda _host: None), server.host, tmp_path)


def test_a_download_is_continued(server: LoopbackRegistry, tmp_path: Path) -> None:
    registry = Registry(login=lambda _host: None)
    _, _, layer = push_image(registry, f"{server.host}/continued:1", tmp_path)
    (tmp_path / "blob.part").write_bytes(layer[:1234])
    counts: list[int] = []
    path = registry.fetch_blob(
        f"{server.host}/continued", digest(layer), tmp_path / "blob", size=len(layer), progress=counts.append
    )
    assert path.read_bytes() == layer
    assert counts[0] == 1234


def test_a_blob_that_is_not_what_it_says(server: LoopbackRegistry, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"something else")
    with pytest.raises(RegistryError, match="HTTP 400"):
        Registry(login=lambda _host: None).push_blob(f"{server.host}/bad", digest(b"x"), tmp_path / "blob")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A blob of a megabyte."""
    monkeypatch.setattr("builder.sources.oci.wire.time.sleep", lambda _seconds: None)
    (tmp_path / "large").write_bytes(random.Random(1).randbytes(1 << 20))
    return tmp_path / "large"


def cut(times: int) -> Callable[[int, str, str], Fault]:
    """The first so many bodies arrive in half."""
    left = iter(range(times))

    def fault(_number: int, method: str, _path: str) -> Fault:
        return "half" if method == "PUT" and next(left, None) is not None else None

    return fault


def patient() -> Registry:
    return Registry(client=Client(retries=2, backoff=0, read_timeout=20), login=lambda _host: None)


def test_an_upload_that_is_cut_is_sent_again(server: LoopbackRegistry, proxy: Proxy, large: Path) -> None:
    reference = f"{server.host}/cut/upload"
    proxy.fault = cut(2)
    assert patient().push_blob(f"{proxy.host}/cut/upload", digest(large.read_bytes()), large)
    assert patient().blob(reference, digest(large.read_bytes())) == large.read_bytes()
    proxy.fault = cut(99)
    large.write_bytes(large.read_bytes()[::-1])
    with pytest.raises(RegistryError, match="the connection was cut"):
        patient().push_blob(f"{proxy.host}/cut/upload", digest(large.read_bytes()), large)
    assert not patient().exists(reference, digest(large.read_bytes()))


def test_an_upload_whose_answer_is_lost_is_there(large: Path) -> None:
    with registry_double.serve() as double, before(double.host) as proxy:
        proxy.fault = lambda number, method, _path: "lost" if method == "PUT" and number < 5 else None
        assert patient().push_blob(f"{proxy.host}/team/x", digest(large.read_bytes()), large)
        assert double.blobs == {digest(large.read_bytes()): large.read_bytes()}


def test_a_token_that_runs_out_within_an_upload(server: LoopbackRegistry, proxy: Proxy, large: Path) -> None:
    """The file is sent again from its beginning, and not from its end."""
    proxy.token_lasts = 1
    assert patient().push_blob(f"{proxy.host}/token/upload", digest(large.read_bytes()), large)
    assert patient().exists(f"{server.host}/token/upload", digest(large.read_bytes()))


def test_as_a_mirror(server: LoopbackRegistry, tmp_path: Path) -> None:
    push_image(Registry(login=lambda _host: None), f"{server.host}/hub/nvidia/cuda:x", tmp_path)
    registry = Registry({"docker.io": f"{server.host}/hub"}, login=lambda _host: None)
    base = registry.inspect("nvidia/cuda:x", "linux/amd64")
    assert base.reference == "nvidia/cuda:x"
    with pytest.raises(RegistryError, match=r"mirror of docker\.io") as caught:
        registry.inspect("nvidia/cuda:gone", "linux/amd64")
    assert "NVIDIA deletes" in (caught.value.hint or "")


def test_tls_and_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(tmp_path / "registry", tls=True, login=("me", "secret")) as running:
        trusting = Client(ca=str(running.ca), retries=0)
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
        monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
        me = Registry(client=trusting, login=lambda _host: Login(username="me", password="secret"))
        round_trip(me, running.host, tmp_path)

        reference = f"{running.host}/some/image:1"
        for login in (None, Login(username="me", password="wrong")):
            stranger = Registry(client=trusting, login=lambda _host, login=login: login)
            with pytest.raises(RegistryError, match="without a login") as caught:
                stranger.inspect(reference, "linux/amd64")
            assert f"docker login {running.host}" in (caught.value.hint or "")

        distrusting = Registry(client=Client(retries=0), login=lambda _host: None)
        with pytest.raises(RegistryError, match="TLS: certificate verify failed"):
            distrusting.inspect(reference, "linux/amd64")

        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        (tmp_path / "docker").mkdir()
        auth = base64.b64encode(b"me:secret").decode()
        (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {running.host: {"auth": auth}}}))
        assert Registry(client=trusting).inspect(reference, "linux/amd64").size > 0


def test_what_a_real_engine_pushed(server: LoopbackRegistry, tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a Docker Engine")
    reference = f"{server.host}/engine/pushed:1"
    (tmp_path / "Dockerfile").write_text(
        "FROM scratch\nENV CUDA_VERSION=12.4.1\nLABEL a=b\nCOPY Dockerfile /\n"
    )
    try:
        subprocess.run([docker, "build", "-q", "-t", reference, tmp_path], check=True, capture_output=True)
        subprocess.run([docker, "push", "-q", reference], check=True, capture_output=True)
    finally:
        subprocess.run([docker, "image", "rm", "-f", reference], check=False, capture_output=True)
    base = Registry(login=lambda _host: None).inspect(reference, "linux/amd64")
    assert base.variable("CUDA_VERSION") == "12.4.1"
    assert base.labels == (("a", "b"),)
    assert base.size > 0
