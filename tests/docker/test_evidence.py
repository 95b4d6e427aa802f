"""Evidence on a private registry, as other people's tools see it: real docker-registry, cosign and oras."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from doubles import registry as registry_double
from doubles import small_image
from registry import LoopbackRegistry, serve
from rtbuild_command import RTBUILD, rtbuild
from typer.testing import CliRunner

from builder.cli.app import app
from builder.core.errors import CommandError
from builder.sources.net.http import Client
from builder.sources.oci.artifacts import referrers
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import parse_reference
from builder.verify.evidence.statement import CYCLONEDX, PROVENANCE, TEST_RESULT, Signer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.attach import Attached

pytestmark = [pytest.mark.docker, pytest.mark.long]

PASSWORD = "correct horse"
USER, REGISTRY_PASSWORD = "me", "secret"


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}: scripts/ensure-tools")
    return found


@dataclass(frozen=True)
class Site:
    """A private registry, the environment that logs in to it, and a key pair."""

    host: str
    environment: dict[str, str]
    registry: Registry
    key: Path
    public: Path

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        program = RTBUILD if command[0] == "rtbuild" else (tool(command[0]),)
        done = subprocess.run(
            [*program, *command[1:]],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def audit(self, reference: str, *options: str) -> tuple[int, dict[str, Any]]:
        """In this process, which has the user's environment."""
        done = CliRunner().invoke(app, ["audit", reference, "--json", *options], standalone_mode=False)
        assert done.exception is None, done.exception
        return done.return_value, json.loads(done.stdout)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackRegistry]:
    with serve(tmp_path_factory.mktemp("registry"), tls=True, login=(USER, REGISTRY_PASSWORD)) as registry:
        yield registry


@pytest.fixture(scope="module")
def site(running: LoopbackRegistry, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    auth = base64.b64encode(f"{USER}:{REGISTRY_PASSWORD}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {running.host: {"auth": auth}}}))
    kept = {"PATH", "HOME", "LANG"}
    environment = {name: text for name, text in os.environ.items() if name in kept}
    environment |= {
        "DOCKER_CONFIG": str(folder),
        "SSL_CERT_FILE": str(running.ca),
        "COSIGN_PASSWORD": PASSWORD,
    }
    subprocess.run(
        [tool("cosign"), "generate-key-pair"], cwd=folder, env=environment, check=True, capture_output=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(folder))
        registry = Registry(client=Client(ca=str(running.ca), retries=1))
    return Site(
        host=running.host,
        environment=environment,
        registry=registry,
        key=folder / "cosign.key",
        public=folder / "cosign.pub",
    )


@pytest.fixture(autouse=True)
def user(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the user whose login and password these are."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in site.environment.items():
        monkeypatch.setenv(name, text)


def publish(site: Site, folder: Path, name: str, **options: Any) -> Staged:
    image = small_image.push_image(site.registry, f"{site.host}/team/{name}", folder)
    small_image.attach_all(site.registry, image, small_image.evidence(image), **options)
    return image


def test_signed_evidence_for_everyone(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    original = subprocess.run

    def spy(command: Any, *args: Any, **options: Any) -> Any:
        commands.append([str(part) for part in command])
        return original(command, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", spy)
        image = publish(site, tmp_path, "signed", signer=Signer(key=str(site.key)))
    said = " ".join(part for command in commands for part in command)
    assert "attest" in said
    assert PASSWORD not in said
    assert REGISTRY_PASSWORD not in said

    for kind in (TEST_RESULT, CYCLONEDX, PROVENANCE):
        done = site.run(
            "cosign", "verify-attestation", "--key", str(site.public), "--type", kind,
            "--insecure-ignore-tlog=true", "--private-infrastructure=true", image.reference,
        )  # fmt: skip
        (line,) = done.stdout.splitlines()
        statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
        assert statement["predicateType"] == kind
        assert statement["subject"][0]["digest"]["sha256"] == image.digest.removeprefix("sha256:")

    shown = json.loads(site.run("oras", "discover", "--format", "json", f"{image.repository}:1").stdout)
    kinds = {entry["annotations"]["in-toto.io/predicate-type"] for entry in shown["manifests"]}
    assert kinds == {TEST_RESULT, CYCLONEDX, PROVENANCE}
    (first, *_) = shown["manifests"]
    pulled = site.run("oras", "manifest", "fetch", first["reference"])
    assert json.loads(pulled.stdout)["subject"]["digest"] == image.digest

    code, found = site.audit(
        f"{image.repository}:1", "--key", str(site.public), "--gpu", "T4", "--driver", "535"
    )
    assert (code, found["works"], found["digest"]) == (0, True, image.digest)
    assert [row["signed"] for row in found["evidence"]] == [True, True, True]
    assert found["listed_by"] == "tag"


@pytest.fixture
def signed(site: Site, once: dict[str, Any], tmp_path: Path) -> Staged:
    """One image with signed evidence, for tests that only look at it: a use of the key costs a second."""
    if not once:
        image = small_image.push_image(site.registry, f"{site.host}/team/once", tmp_path)
        evidence = small_image.evidence(image)
        small_image.attach_all(site.registry, image, evidence, signer=Signer(key=str(site.key)))
        once.update(image=image, evidence=evidence)
    found: Staged = once["image"]
    return found


@pytest.fixture(scope="module")
def once() -> dict[str, Any]:
    return {}


def test_signing_twice_adds_no_signature(site: Site, signed: Staged, once: dict[str, Any]) -> None:
    image = signed
    tag = f"{image.repository}:sha256-{image.digest.removeprefix('sha256:')}.att"
    before = site.registry.digest_of(tag)
    again = small_image.attach_all(site.registry, image, once["evidence"], signer=Signer(key=str(site.key)))
    assert site.registry.digest_of(tag) == before
    assert not any(row.new for row in again)


def test_unsigned_is_said(site: Site, tmp_path: Path) -> None:
    image = publish(site, tmp_path, "unsigned")
    code, found = site.audit(f"{image.repository}:1")
    assert (code, found["signatures"]) == (0, {"present": False, "checked": False, "by": None})
    assert "could have written it" in site.run("rtbuild", "audit", f"{image.repository}:1").stdout
    code, found = site.audit(f"{image.repository}:1", "--key", str(site.public))
    assert (code, found["works"]) == (1, False)
    assert site.run("rtbuild", "audit", image.reference, "--require-signature", check=False).returncode == 2


def test_the_key_of_somebody_else(site: Site, signed: Staged, tmp_path: Path) -> None:
    subprocess.run(
        [tool("cosign"), "generate-key-pair"],
        cwd=tmp_path,
        env=site.environment,
        check=True,
        capture_output=True,
    )
    code, found = site.audit(signed.reference, "--key", str(tmp_path / "cosign.pub"))
    assert (code, found["works"]) == (1, False)
    assert found["signatures"]["present"]


def test_the_envelope_of_another_image(site: Site, signed: Staged, tmp_path: Path) -> None:
    """Replayed: a signed envelope, moved under the tag of an image that nobody verified."""
    image = signed
    other = small_image.push_image(
        site.registry, image.repository, tmp_path, layers=(small_image.LAYERS[0],), tag="2"
    )
    hexes = [row.digest.removeprefix("sha256:") for row in (image, other)]
    site.run("oras", "tag", f"{image.repository}:sha256-{hexes[0]}.att", f"sha256-{hexes[1]}.att")
    site.run("oras", "tag", f"{image.repository}:sha256-{hexes[0]}", f"sha256-{hexes[1]}")
    for options in ([], ["--key", str(site.public)]):
        code, found = site.audit(f"{image.repository}:2", *options)
        assert (code, found["works"], found["verified"]) == (1, False, [])
    assert all("another image" in row["reason"] for row in found["refused"])


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_password_that_is_wrong(
    password: str | None, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if password is None:
        monkeypatch.delenv("COSIGN_PASSWORD")
    else:
        monkeypatch.setenv("COSIGN_PASSWORD", password)
    with pytest.raises(CommandError) as caught:
        publish(site, tmp_path, "wrong-password", signer=Signer(key=str(site.key)))
    assert "COSIGN_PASSWORD" in (caught.value.hint or "")


def test_no_login(site: Site, tmp_path: Path) -> None:
    image = publish(site, tmp_path, "private")
    env = site.environment | {"DOCKER_CONFIG": str(tmp_path)}
    done = rtbuild(tmp_path, "audit", image.reference, env=env, check=5)
    assert f"docker login {site.host}" in done.stderr


def test_what_oras_attached_stays(site: Site, tmp_path: Path) -> None:
    image = small_image.push_image(site.registry, f"{site.host}/team/shared", tmp_path)
    (tmp_path / "note.txt").write_text("from elsewhere")
    done = subprocess.run(
        [tool("oras"), "attach", "--artifact-type", "application/x-note", image.reference, "note.txt"],
        env=site.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    small_image.attach_all(site.registry, image, small_image.evidence(image))
    shown = json.loads(site.run("oras", "discover", "--format", "json", image.reference).stdout)
    kinds = sorted(entry["artifactType"] for entry in shown["manifests"])
    assert kinds == ["application/vnd.in-toto+json"] * 3 + ["application/x-note"]
    assert site.audit(image.reference)[0] == 0


def test_four_publishers_at_once(site: Site, tmp_path: Path) -> None:
    """All keep the list under one tag, which no registry swaps by comparison: nothing may get lost."""
    image = small_image.push_image(site.registry, f"{site.host}/team/crowd", tmp_path)

    def publisher(number: int) -> tuple[Attached, ...]:
        report = small_image.verification(image, verified=small_image.moment(days=number + 1))
        own = Registry(client=Client(ca=site.environment["SSL_CERT_FILE"], retries=1))
        return small_image.attach_all(own, image, small_image.evidence(image, verifications=(report,)))

    with ThreadPoolExecutor(4) as pool:
        made = {row.digest for rows in pool.map(publisher, range(4)) for row in rows}
    assert len(made) == 4 + 2
    name = parse_reference(image.repository).at(image.digest)
    assert {entry.digest for entry in referrers(site.registry, name).descriptors} == made


def test_a_registry_with_the_referrers_api(tmp_path: Path) -> None:
    """A registry double with the API, and the real oras asking it."""
    with registry_double.serve() as double:
        registry = Registry(client=Client(retries=0), login=lambda _host: None)
        image = small_image.push_image(registry, f"{double.host}/team/tf", tmp_path)
        made = small_image.attach_all(registry, image, small_image.evidence(image))
        assert {row.by for row in made} == {"referrers"}
        done = subprocess.run(
            [tool("oras"), "discover", "--plain-http", "--format", "json", image.reference],
            capture_output=True,
            text=True,
            check=True,
        )
        assert {entry["digest"] for entry in json.loads(done.stdout)["manifests"]} == {
            row.digest for row in made
        }
        assert list(double.tags) == ["1"], "no tag was needed"
