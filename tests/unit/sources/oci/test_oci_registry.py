"""A registry on loopback: what is read from it, and every way in which it can say no."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from doubles.http_server import HANG_UP, Answer, Request, Server
from doubles.registry import RegistryDouble, serve
from doubles.registry import sha256 as digest

from builder.core.errors import RegistryError, RegistrySilentError, UsageError
from builder.sources.net.http import Client
from builder.sources.oci import spec as oci
from builder.sources.oci import wire
from builder.sources.oci.registry import MIRROR_VARIABLE, Registry
from builder.sources.oci.wire import Login, docker_login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENV = [
    "PATH=/usr/bin",
    "CUDA_VERSION=11.8.0",
    "NVIDIA_REQUIRE_CUDA=cuda>=11.8 brand=tesla,driver>=450",
    "EMPTY=",
]


class CudaImage:
    """``nvidia/cuda`` in a registry: ``tag`` is an index, ``single`` the manifest of its one platform.

    The registry answers in its own way where neither ``guard`` nor a test's ``answers``, by path, do.
    """

    def __init__(self, registry: RegistryDouble) -> None:
        self.registry = registry
        config = {
            "os": "linux",
            "architecture": "amd64",
            "config": {"Env": ENV, "Labels": {"b": "2", "a": "1"}},
        }
        self.config = json.dumps(config).encode()
        self.layers = [b"layer one", b"layer two!"]
        manifest = {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST,
            "config": {"mediaType": "x", "digest": digest(self.config), "size": len(self.config)},
            "layers": [{"mediaType": "y", "digest": digest(c), "size": len(c)} for c in self.layers],
        }
        self.manifest = json.dumps(manifest).encode()
        index = {
            "schemaVersion": 2,
            "mediaType": oci.INDEX,
            "manifests": [
                {"digest": digest(self.manifest), "platform": {"os": "linux", "architecture": "amd64"}},
                {"digest": "sha256:" + "0" * 64, "platform": {"os": "unknown", "architecture": "unknown"}},
            ],
        }
        self.index = json.dumps(index).encode()
        for tag, content, kind in (
            ("tag", self.index, oci.INDEX),
            ("single", self.manifest, oci.MANIFEST),
        ):
            registry.tags[tag] = digest(content)
            registry.manifests[digest(content)] = (kind, content)
        registry.blobs |= {digest(content): content for content in (self.config, *self.layers)}
        registry.fault = self._fault
        self.guard: Callable[[Request], Answer | None] = lambda _request: None
        self.answers: dict[str, Answer | Callable[[Request], Answer]] = {}
        self.requests: list[Request] = []

    def _fault(self, request: Request) -> Answer | None:
        self.requests.append(request)
        answer = self.answers.get(request.path)
        return answer(request) if callable(answer) else answer or self.guard(request)

    def answer(self, path: str, answer: Answer | Callable[[Request], Answer]) -> None:
        """In place of the registry's own, below the repository."""
        self.answers[f"/v2/nvidia/cuda/{path}"] = answer


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def cuda(server: RegistryDouble) -> CudaImage:
    return CudaImage(server)


def registry(server: RegistryDouble, client: Client, **options: Any) -> Registry:
    options.setdefault("login", lambda _host: None)
    return Registry({"docker.io": server.host}, client=client, **options)


@pytest.mark.parametrize("tag", ["tag", "single"])
def test_inspect(cuda: CudaImage, server: RegistryDouble, client: Client, tag: str) -> None:
    base = registry(server, client).inspect(f"nvidia/cuda:{tag}", "linux/amd64")
    assert base.reference == f"nvidia/cuda:{tag}"
    assert base.digest == digest(cuda.manifest)
    assert base.variable("CUDA_VERSION") == "11.8.0"
    assert base.variable("NVIDIA_REQUIRE_CUDA") == "cuda>=11.8 brand=tesla,driver>=450"
    assert base.variable("EMPTY") == ""
    assert base.labels == (("a", "1"), ("b", "2"))
    assert base.size == sum(map(len, cuda.layers))
    layers = {f"/v2/nvidia/cuda/blobs/{digest(c)}" for c in cuda.layers}
    assert not layers & {request.path for request in cuda.requests}


def test_by_digest(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    reference = f"nvidia/cuda:gone@{digest(cuda.manifest)}"
    assert registry(server, client).inspect(reference, "linux/amd64").digest == digest(cuda.manifest)


def test_another_platform(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    for tag in ("tag", "single"):
        with pytest.raises(RegistryError, match="linux/arm64"):
            registry(server, client).inspect(f"nvidia/cuda:{tag}", "linux/arm64")


@pytest.mark.parametrize("what", ["manifest", "config", "tag"])
def test_altered_content_is_refused(
    cuda: CudaImage, server: RegistryDouble, client: Client, what: str
) -> None:
    kind = {"Content-Type": oci.MANIFEST}
    if what == "manifest":
        cuda.answer(f"manifests/{digest(cuda.manifest)}", Answer(200, cuda.manifest + b" ", kind))
    elif what == "config":
        cuda.answer(f"blobs/{digest(cuda.config)}", Answer(200, b"{}", kind))
    else:
        cuda.answer(
            "manifests/tag", Answer(200, cuda.index, kind | {"Docker-Content-Digest": "sha256:" + "0" * 64})
        )
    with pytest.raises(RegistryError, match="another content") as caught:
        registry(server, client).inspect("nvidia/cuda:tag", "linux/amd64")
    assert caught.value.message.count("\n") == 2


def error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


@pytest.mark.parametrize(
    ("answer", "words", "hint"),
    [
        (
            Answer(404, error("MANIFEST_UNKNOWN", "manifest unknown")),
            "does not exist .*manifest unknown",
            "deletes",
        ),
        (Answer(403, error("DENIED", "no")), "without a login", "docker login 127.0.0.1"),
        (Answer(401), "without a login", "docker login"),
        (Answer(429, error("TOOMANYREQUESTS", "slow down")), "too many requests .*slow down", "mirror"),
        (Answer(500), "problem of its own: HTTP 500", "later"),
        (Answer(503, b"<html>", {"Content-Type": "text/html"}), "problem of its own: HTTP 503", "later"),
        (Answer(404, b"<html>", {"Content-Type": "text/html"}), "a web page", "proxy"),
        (Answer(200, b"<html>sign in", {"Content-Type": "text/html"}), "a web page", "proxy"),
        (Answer(200, b"hello", {"Content-Type": "text/plain"}), "no manifest", "proxy"),
        (Answer(200, b"[]", {"Content-Type": "application/json"}), "no manifest", "proxy"),
        (
            Answer(200, b'{"schemaVersion": 1}', {"Content-Type": "application/json"}),
            "does not read",
            "schema 1",
        ),
        (Answer(418), "refuses: HTTP 418", "later"),
    ],
)
def test_refusals(
    cuda: CudaImage, server: RegistryDouble, client: Client, answer: Answer, words: str, hint: str
) -> None:
    cuda.answer("manifests/tag", answer)
    with pytest.raises(RegistryError, match=words) as caught:
        registry(server, client).inspect("nvidia/cuda:tag", "linux/amd64")
    assert hint in (caught.value.hint or "")


def test_a_passing_failure_is_retried(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    answers = [Answer(503), Answer(429)]
    cuda.guard = lambda _request: answers.pop() if answers else None
    assert registry(server, client).inspect("nvidia/cuda:tag", "linux/amd64").size > 0


def test_the_cuda_advice_is_for_cuda_only(server: RegistryDouble, client: Client) -> None:
    with pytest.raises(RegistryError) as caught:
        registry(server, client).inspect("someone/else:tag", "linux/amd64")
    assert "NVIDIA" not in (caught.value.hint or "")


def test_an_unreachable_registry_fails_fast_and_once() -> None:
    asked = Registry({"docker.io": "127.0.0.1:1"}, client=Client(retries=0), login=lambda _host: None)
    with pytest.raises(RegistryError, match="connection refused") as caught:
        asked.inspect("nvidia/cuda:tag", "linux/amd64")
    assert "--registry-mirror docker.io=" in (caught.value.hint or "")
    assert MIRROR_VARIABLE in (caught.value.hint or "")
    asked._client = None  # type: ignore[assignment]
    with pytest.raises(RegistryError, match="connection refused"):
        asked.inspect("nvidia/cuda:other", "linux/amd64")


def test_a_registry_that_swallows_connections(client: Client) -> None:
    # TEST-NET-1 of RFC 5737: no packet to it is ever answered.
    quick = Client(retries=2, connection_retries=1, backoff=0, connect_timeout=0.2)
    asked = Registry({"docker.io": "192.0.2.1:5000"}, client=quick, login=lambda _host: None)
    begun = time.monotonic()
    with pytest.raises(RegistryError, match="did not answer") as raised:
        asked.inspect("nvidia/cuda:tag", "linux/amd64")
    assert "rootfs" not in str(raised.value.hint)
    assert time.monotonic() - begun < 60


def test_the_mirror_variable(
    monkeypatch: pytest.MonkeyPatch, cuda: CudaImage, server: RegistryDouble
) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, f"docker.io={server.host},nvcr.io=unused.invalid")
    assert Registry.from_user().inspect("nvidia/cuda:tag", "linux/amd64").size > 0
    base = Registry.from_user().inspect("nvidia/cuda:tag", "linux/amd64")
    assert (Registry.from_user({"docker.io": "flag:1"}).at_mirror(base) or "").startswith(
        "flag:1/nvidia/cuda@"
    )


def bearer(cuda: CudaImage, server: RegistryDouble, token: Callable[[Request], Answer]) -> None:
    """A registry that wants a token, from a token service at ``/token``."""
    challenge = f'Bearer realm="http://{server.host}/token",service="reg",scope="repository:nvidia/cuda:pull"'
    cuda.answers["/token"] = token
    cuda.guard = lambda request: (
        None
        if request.headers.get("authorization") == "Bearer good"
        else Answer(401, b"", {"WWW-Authenticate": challenge})
    )


def test_an_anonymous_token(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    bearer(cuda, server, lambda _request: Answer(200, b'{"token": "good"}'))
    asked = registry(server, client)
    asked.inspect("nvidia/cuda:tag", "linux/amd64")
    asked.inspect("nvidia/cuda:single", "linux/amd64")
    (request,) = [request for request in cuda.requests if request.path == "/token"]
    assert request.query == {"service": ["reg"], "scope": ["repository:nvidia/cuda:pull"]}
    assert "authorization" not in request.headers


def test_no_thread_uses_up_the_token_of_another(
    cuda: CudaImage, server: RegistryDouble, client: Client
) -> None:
    """Each token is good for one request: a refused request sends its new one before others see it."""
    lock, valid = threading.Lock(), set[str]()

    def token(_request: Request) -> Answer:
        name = secrets.token_hex(4)
        with lock:
            valid.add(f"Bearer {name}")
        return Answer(200, json.dumps({"token": name}).encode())

    def used(request: Request) -> Answer | None:
        given = request.headers.get("authorization", "")
        with lock:
            if given in valid:
                valid.remove(given)
                return None
        return refuse(request)

    bearer(cuda, server, token)
    refuse, cuda.guard = cuda.guard, used
    asked = registry(server, client)

    def manifest(_: int) -> bytes:
        return asked.request("GET", f"{server.host}/nvidia/cuda:tag", "manifests/tag").content

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(manifest, range(100)))) == 1


def test_a_token_for_a_login(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    def token(request: Request) -> Answer:
        user = base64.b64decode(request.headers["authorization"].removeprefix("Basic "))
        return Answer(200, b'{"access_token": "good"}') if user == b"me:secret" else Answer(401)

    bearer(cuda, server, token)
    registry(server, client, login=lambda _host: Login(username="me", password="secret")).inspect(
        "nvidia/cuda:tag", "linux/amd64"
    )
    wrong = registry(server, client, login=lambda _host: Login(username="me", password="old"))
    with pytest.raises(RegistryError, match="without a login") as caught:
        wrong.inspect("nvidia/cuda:tag", "linux/amd64")
    assert "old" not in str(caught.value)


def test_an_identity_token(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    def token(request: Request) -> Answer:
        assert request.method == "POST"
        assert b"refresh_token=refresh" in request.body
        return Answer(200, b'{"access_token": "good"}')

    bearer(cuda, server, token)
    login = Login(username="", password="", identity="refresh")
    registry(server, client, login=lambda _host: login).inspect("nvidia/cuda:tag", "linux/amd64")


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Answer(200, b"<html>"), "else than JSON"), (Answer(500), "HTTP 500"), (Answer(200, b"{}"), "HTTP 200")],
)
def test_a_broken_token_service(
    cuda: CudaImage, server: RegistryDouble, client: Client, answer: Answer, words: str
) -> None:
    bearer(cuda, server, lambda _request: answer)
    with pytest.raises(RegistryError, match=words):
        registry(server, client).inspect("nvidia/cuda:tag", "linux/amd64")


def test_basic_login_from_dockers_file(
    cuda: CudaImage, server: RegistryDouble, client: Client, own_configuration: Path
) -> None:
    cuda.guard = lambda request: (
        None
        if request.headers.get("authorization") == "Basic " + base64.b64encode(b"me:secret").decode()
        else Answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
    )
    with pytest.raises(RegistryError, match="without a login"):
        registry(server, client, login=docker_login).inspect("nvidia/cuda:tag", "linux/amd64")
    folder = own_configuration / ".docker"
    folder.mkdir()
    auth = base64.b64encode(b"me:secret").decode()
    (folder / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": auth}}}))
    base = registry(server, client, login=docker_login).inspect("nvidia/cuda:tag", "linux/amd64")
    assert base.digest == digest(cuda.manifest)


def test_a_credential_helper(
    own_configuration: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_configuration / ".docker"
    folder.mkdir()
    (folder / "config.json").write_text('{"credHelpers": {"reg.example": "made-up"}}')
    with pytest.raises(RegistryError, match=r"reg\.example cannot be read"):
        docker_login("reg.example")
    helper = tmp_path / "docker-credential-made-up"
    helper.write_text('#!/bin/sh\ncat >/dev/null\necho \'{"Username": "me", "Secret": "secret"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert docker_login("reg.example") == Login(username="me", password="secret")
    assert docker_login("other.example") is None


def test_fetch_blob_carries_the_token(
    cuda: CudaImage, server: RegistryDouble, client: Client, tmp_path: Path
) -> None:
    bearer(cuda, server, lambda _request: Answer(200, b'{"token": "good"}'))
    layer = cuda.layers[0]
    asked = registry(server, client)
    path = asked.fetch_blob("nvidia/cuda", digest(layer), tmp_path / "blob", size=len(layer))
    assert path.read_bytes() == layer
    assert asked.exists("nvidia/cuda", digest(layer)) is True
    with pytest.raises(RegistryError, match="does not exist"):
        asked.fetch_blob("nvidia/cuda", digest(b"no"), tmp_path / "other")


def test_a_tags_digest(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    asked = registry(server, client)
    assert asked.digest_of("nvidia/cuda:tag") == digest(cuda.index)
    assert asked.digest_of("nvidia/cuda:absent") is None


@pytest.mark.parametrize(
    "stated", ["../../x", "sha256:" + "A" * 64, "sha512:" + "a" * 128, "sha256:" + "a" * 63]
)
def test_a_head_with_a_digest_that_is_none(
    cuda: CudaImage, server: RegistryDouble, client: Client, stated: str
) -> None:
    """It would become a part of paths and addresses."""
    cuda.answer("manifests/tag", Answer(200, b"", {"Docker-Content-Digest": stated}))
    with pytest.raises(RegistryError, match="the digest"):
        registry(server, client).digest_of("nvidia/cuda:tag")


def page_of_tags(cuda: CudaImage, pages: dict[str, list[str]]) -> None:
    """Pages by ``last``; each but the last one names the next."""
    keys = list(pages)

    def answer(request: Request) -> Answer:
        last = request.query.get("last", [""])[0]
        headers = {"Content-Type": "application/json"}
        if last != keys[-1]:
            headers["Link"] = '</v2/nvidia/cuda/tags/list?n=1000&last=x>; rel="next"'
        return Answer(200, json.dumps({"name": "nvidia/cuda", "tags": pages[last]}).encode(), headers)

    cuda.answer("tags/list", answer)


def test_all_pages_of_tags_are_read(cuda: CudaImage, server: RegistryDouble, client: Client) -> None:
    page_of_tags(cuda, {"": ["a", "b"], "b": ["c"]})
    assert registry(server, client).tags(f"{server.host}/nvidia/cuda") == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"[]", "no list of tags"), (b"{}", "no list of tags"), (b"<html>", "no list of tags")],
)
def test_tags_in_another_form_are_refused(
    cuda: CudaImage, server: RegistryDouble, client: Client, body: bytes, reason: str
) -> None:
    cuda.answer("tags/list", Answer(200, body, {"Content-Type": "application/json"}))
    with pytest.raises(RegistryError, match=reason):
        registry(server, client).tags(f"{server.host}/nvidia/cuda")


def test_pages_of_tags_that_go_in_a_circle_end(
    cuda: CudaImage, server: RegistryDouble, client: Client
) -> None:
    page_of_tags(cuda, {"": ["a"], "a": ["a"], "never": []})
    with pytest.raises(RegistryError, match="again and again"):
        registry(server, client).tags(f"{server.host}/nvidia/cuda")


@pytest.mark.parametrize(
    "name",
    [
        "[:1/x",
        "a\0b.example/x",
        "a" * 300 + ".example/x",
        "x.example:99999/y",
        "x.example:a/y",
        "localhost:99999/x",
        "..example/x",
        "x.example/" + "a" * 5000,
        "\ud800.example/x",
        "/x",
    ],
    ids=lambda name: ascii(name)[:20],
)
def test_a_base_whose_label_names_no_registry(name: str, client: Client) -> None:
    """A label is what whoever pushed the image wrote; audit asks for the base that it names."""
    asked = Registry(client=client, login=lambda _host: None)
    with pytest.raises((RegistryError, UsageError)):
        asked.manifest(name)
    with pytest.raises((RegistryError, UsageError)):
        asked.digest_of(name)


def test_a_registry_that_cut_the_first_contact_is_not_taken_for_https_for_ever() -> None:
    """It was starting, or full: the next question finds it as it is."""
    cut = [True, True]

    def answer(_request: Request) -> Answer:
        return HANG_UP if cut and cut.pop() else Answer(200, b"{}", {"Content-Type": "application/json"})

    with Server(answer) as server:
        registry = Registry(client=Client(retries=0), login=lambda _host: None, remembers=0)
        with pytest.raises(RegistrySilentError, match="the connection was cut"):
            registry.exists(f"{server.host}/team/x", "sha256:" + "0" * 64)
        cut.clear()
        assert registry.exists(f"{server.host}/team/x", "sha256:" + "0" * 64)


def test_a_registry_that_was_silent_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(wire.time, "monotonic", lambda: clock[0])
    down = [True]

    def answer(_request: Request) -> Answer:
        return HANG_UP if down else Answer(200, b"{}", {"Content-Type": "application/json"})

    with Server(answer) as server:
        registry = Registry(client=Client(retries=0), login=lambda _host: None, remembers=3)
        for _ in range(2):
            with pytest.raises(RegistrySilentError):
                registry.exists(f"{server.host}/team/x", "sha256:" + "0" * 64)
        asked = len(server.requests)
        down.clear()
        with pytest.raises(RegistrySilentError):
            registry.exists(f"{server.host}/team/x", "sha256:" + "0" * 64)
        assert len(server.requests) == asked
        clock[0] += 4
        assert registry.exists(f"{server.host}/team/x", "sha256:" + "0" * 64)


def test_whoever_writes_documents_hears_of_silence_within_a_minute() -> None:
    client = Registry.to_write(layers=False)._wire.client
    tries = 1 + (client.connection_retries or 0)
    assert tries * (client.read_timeout + client.connect_timeout) + client.backoff < 60
