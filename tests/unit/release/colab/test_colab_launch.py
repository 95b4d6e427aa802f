"""The docker command for a wish and a machine, and what is said about it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from builder.core.errors import CellError, UsageError
from builder.image.engine.facts import EngineFacts, GpuFacts
from builder.release.colab import launch
from builder.release.colab.launch import (
    LaunchPlan,
    Machine,
    Wish,
    mount,
    parse_user,
    plan,
    verdict_exit,
)

NO_GPU = GpuFacts(request=None, traces=())
TOOLKIT = GpuFacts(request="gpus", traces=("/dev/nvidia0",), toolkit="1.17.8", driver="550.54.15")
ENGINE = EngineFacts(
    version="26.1.5",
    store="containerd",
    driver="overlayfs",
    root="/var/lib/docker",
    disk_free=None,
    platform="linux/amd64",
    host="unix:///var/run/docker.sock",
    memory=8 << 30,
)
IMAGE = "rtbuild/colab:cell"


def machine(gpu: GpuFacts = NO_GPU, **changes: Any) -> Machine:
    engine = {name: changes.pop(name) for name in ("security", "memory") if name in changes}
    settings: dict[str, Any] = {
        "docker": ("docker",),
        "engine": dataclasses.replace(ENGINE, gpu=gpu, **engine),
        "user": (1001, 1002),
        "home": Path("/home/me"),
        "cache": Path("/home/me/.cache/rtbuild"),
    }
    return Machine(**{**settings, **changes})


def wish(content: Path | None = None, **changes: Any) -> Wish:
    return Wish(**{"image": IMAGE, "colab": True, "content": content, **changes})


def words(planned: LaunchPlan) -> str:
    return shlex.join(planned.command)


def test_jupyter_for_the_caller_on_loopback(tmp_path: Path) -> None:
    planned = plan(wish(tmp_path), machine())
    assert words(planned) == (
        "docker run --rm --name rtbuild-8888 --security-opt no-new-privileges --shm-size 4096m"
        " --user 1001:1002"
        f" --mount type=bind,source={tmp_path},target=/content"
        " --mount type=bind,source=/home/me/.cache/rtbuild/home,target=/home/colab/.cache"
        " --env KERAS_HOME=/home/colab/.cache/keras --env CUDA_CACHE_PATH=/home/colab/.cache/nv"
        " --publish 127.0.0.1:8888:8888 rtbuild/colab:cell"
    )
    assert (planned.mode, planned.port, planned.name) == ("jupyter", 8888, "rtbuild-8888")
    assert planned.folders == (Path("/home/me/.cache/rtbuild/home"),)
    assert planned.notes == ("no GPU on this machine: started without one",)


def test_another_port_is_the_same_inside() -> None:
    planned = plan(wish(port=9000), machine())
    assert "--publish 127.0.0.1:9000:9000 --env RTBUILD_PORT=9000" in words(planned)
    assert planned.name == "rtbuild-9000"
    assert not [note for note in planned.notes if "--port" in note]


def test_a_port_without_jupyter_is_told_to_open_nothing() -> None:
    planned = plan(wish(port=9000, mode="shell"), machine())
    assert planned.port is None
    assert any(note.startswith("--port 9000 is Jupyter's, and shell is started") for note in planned.notes)


@pytest.mark.parametrize(
    ("gpu", "flags"),
    [
        (TOOLKIT, "--gpus all --ulimit memlock=-1"),
        (dataclasses.replace(TOOLKIT, request="cdi"), "--device nvidia.com/gpu=all --ulimit memlock=-1"),
    ],
    ids=["toolkit", "cdi"],
)
def test_gpus_are_handed_in_as_this_engine_does(gpu: GpuFacts, flags: str) -> None:
    planned = plan(wish(), machine(gpu))
    assert flags in words(planned)
    assert planned.notes == ()


def test_a_gpu_that_the_engine_cannot_hand_in_is_named_with_the_remedy() -> None:
    planned = plan(wish(), machine(GpuFacts(request=None, traces=("/dev/nvidia0",), toolkit="1.17.8")))
    assert "--gpus" not in planned.command
    assert "has a GPU, which its engine cannot hand to a container" in planned.notes[0]
    assert "nvidia-ctk runtime configure" in planned.notes[0]


def test_gpus_by_the_callers_own_word() -> None:
    assert "--gpus" in plan(wish(gpus=True), machine()).command
    assert "--gpus" not in plan(wish(gpus=False), machine(TOOLKIT)).command


def test_a_shell_in_a_plain_image(tmp_path: Path) -> None:
    planned = plan(wish(tmp_path, colab=False, terminal=True), machine())
    assert words(planned) == (
        "docker run --rm --init --security-opt no-new-privileges --shm-size 4096m --user 1001:1002"
        f" --mount type=bind,source={tmp_path},target=/content --workdir /content"
        " --interactive --tty --env HOME=/tmp rtbuild/colab:cell bash"
    )
    assert planned.port is None


def test_the_probe_gets_nothing_to_write_to() -> None:
    planned = plan(wish(colab=False, mode="verify"), machine(TOOLKIT))
    assert words(planned) == (
        "docker run --rm --init --gpus all --ulimit memlock=-1 --network none --read-only --tmpfs /tmp:exec"
        " --user 65534:65534 rtbuild/colab:cell cudnn-verify"
    )
    assert [verdict_exit(status) for status in (0, 10, 20, 21, 22, 23, 30, 125)] == [
        0,
        5,
        1,
        1,
        5,
        5,
        None,
        None,
    ]


def test_jupyter_of_an_image_that_has_none() -> None:
    with pytest.raises(CellError, match="has no Jupyter") as raised:
        plan(wish(colab=False, mode="jupyter"), machine())
    assert "profile: colab" in str(raised.value.hint)


def test_what_the_caller_adds() -> None:
    ports = ("6006:6006", "0.0.0.0:1:1", "8080")
    added = wish(volumes=("/data:/data:ro",), env=("HF_TOKEN", "A=b c"), publish=ports)
    command = words(plan(added, machine()))
    assert "--volume /data:/data:ro" in command
    assert "--env HF_TOKEN --env 'A=b c'" in command
    assert "--publish 127.0.0.1:6006:6006 --publish 0.0.0.0:1:1 --publish 127.0.0.1::8080" in command


# -- whose files


def test_a_rootless_engines_root_is_the_caller(tmp_path: Path) -> None:
    assert "--user 0:0" in words(plan(wish(tmp_path), machine(security=("seccomp", "rootless"))))


def test_root_takes_the_owner_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(user=(0, 0))
    owner = tmp_path.stat()
    planned = plan(wish(tmp_path), root)
    assert f"--user {owner.st_uid}:{owner.st_gid}" in words(planned)
    assert any("you are root" in note for note in planned.notes) is (owner.st_uid == 0)
    # a folder of root's can be written to by root alone, whoever runs the tests
    of_root = os.stat_result((0o40755, *(0,) * 9))
    monkeypatch.setattr("pathlib.Path.stat", lambda *_args, **_kept: of_root)
    planned = plan(wish(tmp_path), root)
    assert "--user 0:0" in words(planned)
    assert not any("chown" in note for note in planned.notes)
    monkeypatch.undo()
    assert "--user 1000:1000" in words(plan(wish(), root))
    assert "--user 5:6" in words(plan(wish(tmp_path, user="5:6"), root))


def test_a_user_is_two_numbers() -> None:
    assert (parse_user("7"), parse_user("7:8")) == ((7, 7), (7, 8))
    for wrong in ("me", "7:me", ":7", ""):
        with pytest.raises(UsageError, match="is not a pair of numbers"):
            parse_user(wrong)


# -- which folders


@pytest.mark.parametrize("folder", ["/", "/home", "/home/me"])
def test_the_home_folder_is_given_to_notebooks_only_by_name(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    with pytest.raises(UsageError, match="would be open to every notebook"):
        plan(wish(Path(folder)), machine())
    assert f"source={folder},target=/content" in words(
        plan(wish(Path(folder), content_given=True), machine())
    )


def test_a_work_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is no folder"):
        plan(wish(tmp_path / "nowhere"), machine())


def test_folders_with_commas_and_colons() -> None:
    assert mount(Path("/a:b, c"), "/content") == 'type=bind,"source=/a:b, c",target=/content'


def test_a_remote_engine_has_no_folder_of_this_machine(tmp_path: Path) -> None:
    planned = plan(wish(tmp_path), machine(dataclasses.replace(NO_GPU, remote=True)))
    assert "--mount" not in planned.command
    assert any("another machine" in note for note in planned.notes)


def test_selinux_is_told() -> None:
    assert "--security-opt label=disable" in words(plan(wish(), machine(security=("selinux",))))


# -- devcontainer.json


def test_a_devcontainer_is_written_once(tmp_path: Path) -> None:
    document = launch.devcontainer(IMAGE, name="cell", user="colab", memory=8 << 30)
    path = launch.write_devcontainer(document, tmp_path, force=False)
    found = json.loads(path.read_text())
    assert path == tmp_path / ".devcontainer" / "devcontainer.json"
    assert found["image"] == IMAGE
    assert found["remoteUser"] == "colab"
    assert found["hostRequirements"] == {"gpu": "optional"}
    assert {"--shm-size=4096m", "--no-healthcheck"} <= set(found["runArgs"])
    assert found["init"] is True
    assert launch.write_devcontainer(document, tmp_path, force=False) == path

    other = launch.devcontainer("another:image", name="cell", user=None, memory=None)
    with pytest.raises(UsageError, match="is there already, and says something else") as raised:
        launch.write_devcontainer(other, tmp_path, force=False)
    assert "--force" in str(raised.value.hint)
    assert json.loads(path.read_text())["image"] == IMAGE
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="says something else"):
        launch.write_devcontainer(other, tmp_path, force=False)
    launch.write_devcontainer(other, tmp_path, force=True)
    assert "remoteUser" not in json.loads(path.read_text())
    assert [entry.name for entry in path.parent.iterdir()] == ["devcontainer.json"]


def test_the_images_user_by_name() -> None:
    passwd = "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\nbroken\n"
    assert launch.user_named(passwd, 1000) == "ubuntu"
    assert launch.user_named(passwd, 1001) is None


def test_the_users_network_reaches_the_container_and_no_password_the_command(tmp_path: Path) -> None:
    bundle = tmp_path / "company.crt"
    bundle.write_text("-----BEGIN CERTIFICATE-----")
    planned = plan(wish(), machine(authorities=bundle, proxies=("HTTPS_PROXY", "NO_PROXY")))
    text = words(planned)
    assert "--env HTTPS_PROXY --env NO_PROXY " in text
    assert f"--mount type=bind,source={bundle},target=/run/rtbuild/ca-bundle.crt,readonly" in text
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"):
        assert f"--env {name}=/run/rtbuild/ca-bundle.crt" in text


def test_a_verification_has_no_network_to_reach(tmp_path: Path) -> None:
    asked = {"content_given": True, "volumes": ("/a:/b",), "env": ("A=b",), "publish": ("1:1",), "user": "1"}
    told = "cudnn-verify is given none of --content, --volume, --env, --publish, --user: it runs as"
    assert plan(wish(mode="verify", **asked), machine(TOOLKIT)).notes[0].startswith(told)
    assert not plan(wish(mode="verify"), machine(TOOLKIT)).notes
    planned = plan(wish(mode="verify"), machine(authorities=tmp_path / "x", proxies=("HTTPS_PROXY",)))
    assert "HTTPS_PROXY" not in planned.command
    assert "ca-bundle" not in words(planned)
