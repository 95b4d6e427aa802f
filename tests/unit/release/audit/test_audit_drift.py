"""What changed since a verification, and what that makes of the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from doubles import small_image
from doubles.registry import INDEX, sha256

from builder.release.audit import checks
from builder.release.audit.checks import AuditOutcome
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST
from builder.verify.evidence.judgement import Policy, judge, predicate_of

if TYPE_CHECKING:
    from pathlib import Path

    from doubles.registry import RegistryDouble

    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.judgement import JudgedReport

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    folder = tmp_path_factory.mktemp("image")
    return small_image.push_image(small_image.Memory(), "registry.example/team/tf", folder)


def verified(image: Staged, **report: Any) -> JudgedReport:
    verification = small_image.verification(image, document=small_image.double_report(**report))
    return judge(predicate_of(verification, image, claims=("T4",), exempt=()), image, Policy(now=NOW))


def loading(cudnn: str | None, cuda: str = "12.2", **packages: str) -> dict[str, Any]:
    framework = {
        "name": "tensorflow",
        "version": "2.15.1",
        "compiled": {"cuda": "12.2", "cudnn": "8"},
        "loaded": {"cuda": cuda, "cudnn": cudnn},
    }
    found = {name.replace("_", "-"): version for name, version in packages.items()}
    return {
        "frameworks": [framework],
        "libraries": [],
        "fingerprint": {"packages": found, "system_packages": {}},
    }


class TestBase:
    def base(self, registry: Registry, server: RegistryDouble, text: str, *, index: bool = False) -> str:
        """Push a base under its tag; the digest of its manifest."""
        content = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "layers": [], "annotations": {"a": text}}
        ).encode()
        name = f"{server.host}/nvidia/cuda"
        registry.put_manifest(f"{name}@{sha256(content)}", content, MANIFEST)
        if index:
            entry = {
                "digest": sha256(content),
                "size": 1,
                "mediaType": MANIFEST,
                "platform": {"os": "linux", "architecture": "amd64"},
            }
            listing = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
            registry.put_manifest(f"{name}:12", json.dumps(listing).encode(), INDEX)
        else:
            registry.put_manifest(f"{name}:12", content, MANIFEST)
        return sha256(content)

    def on(self, registry: Registry, server: RegistryDouble, folder: Path, digest: str) -> Staged:
        labels = {
            "org.opencontainers.image.base.name": f"{server.host}/nvidia/cuda:12",
            "org.opencontainers.image.base.digest": digest,
        }
        return small_image.push_image(registry, f"{server.host}/team/tf", folder, labels=labels)

    @pytest.mark.parametrize("index", [True, False])
    def test_it_is_what_it_was(
        self, index: bool, registry: Registry, server: RegistryDouble, tmp_path: Path
    ) -> None:
        digest = self.base(registry, server, "one", index=index)
        found = checks.base(registry, self.on(registry, server, tmp_path, digest))
        assert found.outcome is AuditOutcome.PASSES

    @pytest.mark.parametrize("index", [True, False])
    def test_it_was_pushed_again(
        self, index: bool, registry: Registry, server: RegistryDouble, tmp_path: Path
    ) -> None:
        image = self.on(registry, server, tmp_path, self.base(registry, server, "one", index=index))
        self.base(registry, server, "two", index=index)
        found = checks.base(registry, image)
        assert found.outcome is AuditOutcome.MIND
        assert "pushed again since" in found.message

    def test_it_was_removed(self, registry: Registry, server: RegistryDouble, tmp_path: Path) -> None:
        image = self.on(registry, server, tmp_path, "sha256:" + "b" * 64)
        found = checks.base(registry, image)
        assert found.outcome is AuditOutcome.MIND
        assert "was removed" in found.message

    @pytest.mark.parametrize("name", ["127.0.0.1:9/nvidia/cuda:12", "No Name At All"])
    def test_it_cannot_be_asked_for(
        self, name: str, registry: Registry, server: RegistryDouble, tmp_path: Path
    ) -> None:
        labels = {
            "org.opencontainers.image.base.name": name,
            "org.opencontainers.image.base.digest": "sha256:" + "b" * 64,
        }
        image = small_image.push_image(registry, f"{server.host}/team/tf", tmp_path, labels=labels)
        assert checks.base(registry, image).outcome is AuditOutcome.NOT_RUN

    @pytest.mark.parametrize(
        "host",
        [
            "169.254.169.254",
            "attacker.example",
            "localhost:1",
            "127.0.0.1:1",
            "[::1]:1",
            "docker.io.x.example",
        ],
    )
    def test_a_host_that_only_the_image_names_is_not_asked(
        self,
        host: str,
        registry: Registry,
        server: RegistryDouble,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        labels = {
            "org.opencontainers.image.base.name": f"{host}/nvidia/cuda:12",
            "org.opencontainers.image.base.digest": "sha256:" + "b" * 64,
        }
        image = small_image.push_image(registry, f"{server.host}/team/tf", tmp_path, labels=labels)
        asked: list[str] = []
        send = Client.request

        def request(client: Client, method: str, url: str, **options: Any) -> Any:
            asked.append(urlsplit(url).netloc)
            return send(client, method, url, **options)

        monkeypatch.setattr(Client, "request", request)
        found = checks.base(registry, image)
        assert found.outcome is AuditOutcome.NOT_RUN
        assert asked == []
        assert not registry.may_ask(f"{host}/nvidia/cuda:12", beside=image.repository)
        assert registry.may_ask("nvidia/cuda:12", beside=image.repository)
        assert registry.may_ask(f"{server.host}/nvidia/cuda:12", beside=image.repository)
        mirrored = Registry({host: "mirror.example"})
        assert mirrored.may_ask(f"{host}/nvidia/cuda:12", beside=image.repository)

    def test_there_is_none(self, registry: Registry, image: Staged) -> None:
        assert checks.base(registry, image).outcome is AuditOutcome.NOT_RUN


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (loading("8.9.4", nvidia_cudnn_cu12="8.9.4.25"), AuditOutcome.MIND),
        (loading("8.9.7", nvidia_cudnn_cu12="8.9.7.29"), AuditOutcome.PASSES),
        (loading("8.9.4", cuda="12.2"), AuditOutcome.MIND),
        (loading("99.1.0", nvidia_cudnn_cu12="99.1.0.1"), AuditOutcome.PASSES),
        (loading(None), AuditOutcome.NOT_RUN),
        (loading("nonsense"), AuditOutcome.NOT_RUN),
        (loading("9" * 5000), AuditOutcome.NOT_RUN),
    ],
    ids=["newer wheel", "newest", "newer base", "unknown line", "none", "no version", "a huge number"],
)
def test_a_newer_patch(report: dict[str, Any], outcome: AuditOutcome, image: Staged) -> None:
    assert checks.cudnn(verified(image, **report)).outcome is outcome


def test_a_pair_that_is_now_listed(image: Staged) -> None:
    bad = verified(image, **loading("9.10.0", nvidia_cudnn_cu12="9.10.0.56"))
    found = list(checks.known_bad([bad, bad], ["T4"]))
    assert [(f.outcome, f.what) for f in found] == [(AuditOutcome.FAILS, "known-bad")]
    assert "9.10.0 changed the order" in found[0].message
    assert "jax-ml/jax" in (found[0].hint or "")


def test_a_pair_that_is_bad_on_some_gpus_only(image: Staged) -> None:
    risky = verified(image, **loading("9.12.0", nvidia_cublas_cu12="12.9.1.4"))
    assert [f.outcome for f in checks.known_bad([risky], ["B200"])] == [AuditOutcome.MIND]
    assert [f.outcome for f in checks.known_bad([risky], ["T4"])] == [AuditOutcome.PASSES]


def test_versions_that_are_none_are_passed_over(image: Staged) -> None:
    odd = verified(image, **loading("8.9.4", numpy="9" * 5000, pip="", evil="\x1b[31m"))
    assert [f.outcome for f in checks.known_bad([odd], ["T4"])] == [AuditOutcome.PASSES]


@pytest.mark.parametrize(
    ("ago", "outcome", "text"),
    [
        (timedelta(hours=3), AuditOutcome.PASSES, "today"),
        (timedelta(days=1, hours=1), AuditOutcome.PASSES, "1 day ago"),
        (timedelta(days=91), AuditOutcome.MIND, "91 days ago"),
    ],
)
def test_age(ago: timedelta, outcome: AuditOutcome, text: str, image: Staged) -> None:
    found = checks.age([replace(verified(image), when=NOW - ago)], NOW)
    assert found.outcome is outcome
    assert text in found.message
