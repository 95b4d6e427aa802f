from __future__ import annotations

import copy
import io
import tarfile
from types import SimpleNamespace

import pytest

from builder.image.engine.images import ImageStore, content_digest

# As `docker image inspect` gives it, from two stores.
CONTAINERD = {
    "Id": "sha256:3ab5147b3512f32325c571a70020bcb1a23ecd5db1599f220810f44c8f4fa1c1",
    "Created": "1970-01-01T00:00:01Z",
    "DockerVersion": "26.1.5+dfsg1",
    "Config": {
        "Hostname": "",
        "User": "",
        "AttachStdin": False,
        "Env": ["PATH=/bin", "A=b"],
        "Cmd": None,
        "Image": "",
        "Volumes": None,
        "WorkingDir": "/",
        "Entrypoint": None,
        "OnBuild": None,
        "Labels": {"io.rtbuild.inputs": "sha256:abc"},
    },
    "Architecture": "amd64",
    "Os": "linux",
    "Size": 1157430,
    "RootFS": {"Type": "layers", "Layers": ["sha256:1", "sha256:2"]},
}
GRAPHDRIVER = {
    "Id": "sha256:541a5ff5c15966d81d1a58d8c3e1037524d48fb49d8dc4121c64f65b0a363481",
    "Created": "2026-01-01T00:00:01Z",
    "Config": {
        "Cmd": [],
        "Env": ["PATH=/bin", "A=b"],
        "WorkingDir": "/",
        "Labels": {"io.rtbuild.inputs": "sha256:abc"},
    },
    "Architecture": "amd64",
    "Variant": "",
    "Os": "linux",
    "RootFS": {"Layers": ["sha256:1", "sha256:2"]},
}


def test_equal_content_has_an_equal_digest_in_every_store() -> None:
    assert content_digest(CONTAINERD) == content_digest(GRAPHDRIVER)


def test_what_a_container_would_notice_counts() -> None:
    def changed(*path: str, value: object) -> str:
        document = copy.deepcopy(CONTAINERD)
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return content_digest(document)

    digests = {
        content_digest(CONTAINERD),
        changed("RootFS", "Layers", value=["sha256:2", "sha256:1"]),
        changed("Config", "Env", value=["A=b", "PATH=/bin"]),
        changed("Config", "Labels", value={}),
        changed("Config", "User", value="1000"),
        changed("Architecture", value="arm64"),
    }
    assert len(digests) == 6
    assert changed("Created", value="2026-02-02T00:00:00Z") == content_digest(CONTAINERD)


@pytest.mark.parametrize(
    ("kind", "found"), [(tarfile.REGTYPE, b"x"), (tarfile.SYMTYPE, None), (tarfile.DIRTYPE, None)]
)
def test_a_file_is_read_and_a_link_of_its_name_is_none(kind: bytes, found: bytes | None) -> None:
    """The engine gives a link as it is: https://docs.docker.com/reference/api/engine/version/v1.45/"""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("passwd")
        member.type, member.linkname, member.size = (
            kind,
            "../nix/passwd" * (kind == tarfile.SYMTYPE),
            found is not None,
        )
        tar.addfile(member, io.BytesIO(b"x"))
    removed: list[str] = []
    api = SimpleNamespace(
        create_container=lambda *_, **__: {"Id": "c"},
        get_archive=lambda *_: ((chunk for chunk in [archive.getvalue()]), {}),
        remove_container=lambda name, **_: removed.append(name),
    )
    assert ImageStore(SimpleNamespace(api=api)).read_file("image", "/etc/passwd") == found  # type: ignore[arg-type]
    assert removed == ["c"]
