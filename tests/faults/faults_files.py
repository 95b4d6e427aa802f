"""Faults in the files of a cuDNN, with doubles in the place of the real one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fault_list import add, fault
from fault_scene import replace, swap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fault_scene import Scene


@fault("no cuDNN at all beside a working GPU", verdict="broken", cause="cudnn-missing")
def no_cudnn(scene: Scene) -> None:
    scene.driver()


@fault("a sub-library deleted from the set", verdict="broken", cause="cudnn-sublibrary-missing")
def sublibrary_deleted(scene: Scene) -> None:
    (scene.cudnn() / "libcudnn_cnn.so.9").unlink()


@fault(
    "an engine library deleted, which shows at no call", verdict="broken", cause="cudnn-sublibrary-missing"
)
def engine_deleted(scene: Scene) -> None:
    (scene.cudnn() / "libcudnn_engines_precompiled.so.9").unlink()


@fault("cuDNN 8 without its training library", verdict="broken", cause="cudnn-sublibrary-missing")
def train_library_deleted(scene: Scene) -> None:
    (scene.cudnn("8.9.7") / "libcudnn_cnn_train.so.8").unlink()


@fault(
    "one sub-library from a neighbouring patch release", verdict="broken", cause="cudnn-sublibrary-mismatch"
)
def sublibrary_of_another_patch(scene: Scene) -> None:
    swap(scene.cudnn() / "libcudnn_cnn.so.9", scene.build.cudnn("9.10.1") / "libcudnn_cnn.so.9")


def _silent_part(part: str) -> None:
    def prepare(scene: Scene) -> None:
        name = f"libcudnn_{part}.so.9"
        swap(scene.cudnn() / name, scene.build.cudnn("9.10.1") / name)
        next(scene.site.glob("*.dist-info/RECORD")).unlink()

    title = f"{part} from a neighbouring patch release, without RECORD"
    name = f"{part.replace('_', '-')}-of-another-patch-without-record"
    add(name, title, "broken", "cudnn-sublibrary-mismatch", prepare)


for _part_name in ("heuristic", "engines_precompiled", "engines_runtime_compiled"):
    _silent_part(_part_name)


@fault("cuDNN 8 with one library from another release", verdict="broken", cause="cudnn-sublibrary-mismatch")
def sublibrary_of_another_release_8(scene: Scene) -> None:
    name = "libcudnn_cnn_infer.so.8"
    swap(scene.cudnn("8.9.7") / name, scene.build.cudnn("8.9.2") / name)


@fault("an empty library", verdict="broken", cause="cudnn-file-corrupt")
def library_empty(scene: Scene) -> None:
    replace(scene.cudnn() / "libcudnn_graph.so.9", b"")


@fault("a Git LFS pointer in the place of a library", verdict="broken", cause="cudnn-file-corrupt")
def library_is_text(scene: Scene) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 4096\n"
    replace(scene.cudnn() / "libcudnn.so.9", pointer)


@fault("a 32-bit library", verdict="broken", cause="cudnn-file-corrupt")
def library_of_32_bits(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_ops.so.9"
    data = bytearray(path.read_bytes())
    data[4] = 1  # EI_CLASS: ELFCLASS32
    replace(path, bytes(data))


@fault("a library for another machine", verdict="broken", cause="cudnn-file-corrupt")
def library_of_another_machine(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_ops.so.9"
    data = bytearray(path.read_bytes())
    data[18:20] = (22).to_bytes(2, "little")  # e_machine: IBM S/390
    replace(path, bytes(data))


@fault("a library cut off in the middle", verdict="broken", cause="cudnn-file-corrupt")
def library_truncated(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_graph.so.9"
    replace(path, path.read_bytes()[:6000])


@fault("a link to a library that is gone", verdict="broken", cause="cudnn-file-corrupt")
def link_dangling(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_graph.so.9"
    path.unlink()
    path.symlink_to("libcudnn_graph.so.9.10.2")


@fault(
    "the cuDNN for CUDA 11 installed over the one for CUDA 12", verdict="broken", cause="package-overwritten"
)
def cu11_over_cu12(scene: Scene) -> None:
    scene.cudnn()
    for path in scene.build.cudnn("9.10.2", 11).iterdir():
        swap(scene.cudnn_lib / path.name, path)
    scene.record("nvidia-cudnn-cu11", "9.10.2.21", sorted(scene.cudnn_lib.iterdir()))


@fault("one of two owners uninstalled, the files of both gone", verdict="broken", cause="package-overwritten")
def files_of_a_listed_package_gone(scene: Scene) -> None:
    for path in scene.cudnn().iterdir():
        path.unlink()


@fault("cuDNN for another CUDA than its package says", verdict="broken", cause="cudnn-cuda-flavour")
def cudnn_of_another_cuda(scene: Scene) -> None:
    for path in scene.cudnn().iterdir():
        swap(path, scene.build.cudnn("9.10.2", 11) / path.name)
    scene.record("nvidia-cudnn-cu12", "9.10.2.0", sorted(scene.cudnn_lib.iterdir()))


@fault("another version's folder on LD_LIBRARY_PATH", verdict="broken", cause="cudnn-shadowed")
def shadowed_by_an_incomplete_folder(scene: Scene) -> None:
    scene.cudnn()
    other = scene.folder("opt/cudnn/lib")
    swap(other / "libcudnn_graph.so.9", scene.build.cudnn("9.1.0") / "libcudnn_graph.so.9")
    scene.search(other)


@fault("a preloaded dlopen wrapper, as profilers bring it", verdict="host", cause="preload-interference")
def dlopen_wrapper(scene: Scene) -> None:
    scene.cudnn()
    scene.env["LD_PRELOAD"] = str(scene.build.wrapper())


@fault("a framework's own version check switched off", verdict="broken", cause="check-disabled")
def check_disabled(scene: Scene) -> None:
    scene.cudnn()
    scene.env["PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"] = "1"


@fault("another cuDNN than the matrix asked for", verdict="broken", cause="expect-mismatch")
def cudnn_not_as_expected(scene: Scene) -> None:
    scene.cudnn()
    scene.expect(cudnn="9.1.0", frameworks={})


@fault("another Python than the matrix asked for", verdict="broken", cause="expect-mismatch")
def python_not_as_expected(scene: Scene) -> None:
    scene.cudnn()
    scene.expect(cudnn="9.10.2", python="3.4", frameworks={})


@fault("an import that the matrix names and no package has", verdict="broken", cause="expect-mismatch")
def import_not_as_expected(scene: Scene) -> None:
    scene.cudnn()
    scene.expect(cudnn="9.10.2", frameworks={}, imports=["json:loads", "json.editor"])


@fault("the matrix asked for a cuDNN and none is there", verdict="broken", cause="cudnn-missing")
def expected_cudnn_absent(scene: Scene) -> None:
    scene.expect(cudnn="9.10.2", frameworks={})


@fault("a package that needs another cuDNN than is installed", verdict="broken", cause="package-pin-mismatch")
def pin_missed(scene: Scene) -> None:
    scene.cudnn("9.1.0")
    scene.record("somenet", "1.0", [], requires=("nvidia-cudnn-cu12 (==9.10.2.21)",))


def _part(name: str, title: str, cause: str, version: str, part: str, change: Callable[[Path], None]) -> None:
    def prepare(scene: Scene) -> None:
        change(scene.cudnn(version) / part)

    add(name, title, "broken", cause, prepare)


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: replace(path, change(path.read_bytes()))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _own_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


for _version, _parts in (
    ("9.10.2", ("graph", "ops", "adv", "heuristic", "engines_runtime_compiled")),
    ("8.9.7", ("ops_infer", "ops_train", "cnn_infer", "adv_infer", "adv_train")),
):
    for _name in _parts:
        _part(
            f"{_name.replace('_', '-')}-deleted-{_version[0]}",
            f"libcudnn_{_name} deleted from cuDNN {_version}",
            "cudnn-sublibrary-missing",
            _version,
            f"libcudnn_{_name}.so.{_version[0]}",
            lambda path: path.unlink(),
        )
_CORRUPT = "cudnn-file-corrupt"
_part("part-is-a-pipe", "a named pipe in a library's place", _CORRUPT, "9.10.2", "libcudnn_graph.so.9", _pipe)
_part("part-is-a-folder", "a folder in a library's place", _CORRUPT, "9.10.2", "libcudnn_cnn.so.9", _folder)
_part("shim-links-to-itself", "a link to itself", _CORRUPT, "9.10.2", "libcudnn.so.9", _own_link)
_part(
    "shim-empty-8",
    "an empty libcudnn.so.8",
    _CORRUPT,
    "8.9.7",
    "libcudnn.so.8",
    _changed(lambda data: data[:0]),
)
_part(
    "part-cut-8",
    "cuDNN 8 with a library cut",
    _CORRUPT,
    "8.9.7",
    "libcudnn_cnn_infer.so.8",
    _changed(lambda data: data[: len(data) // 2]),
)
_part("library-cut-7", "cuDNN 7 cut", _CORRUPT, "7.6.5", "libcudnn.so.7", _changed(lambda data: data[:9000]))
_part(
    "part-big-endian",
    "a big-endian library",
    _CORRUPT,
    "9.10.2",
    "libcudnn_adv.so.9",
    _changed(lambda data: data[:5] + b"\x02" + data[6:]),
)
_part(
    "part-ends-in-its-header",
    "a library that ends within its header",
    _CORRUPT,
    "9.10.2",
    "libcudnn_ops.so.9",
    _changed(lambda data: data[:40]),
)
_part(
    "part-is-a-page",
    "a proxy's page of HTML in a library's place",
    _CORRUPT,
    "9.10.2",
    "libcudnn_cnn.so.9",
    _changed(lambda data: b"<html>502 Bad Gateway</html>" * bool(data)),
)
_part(
    "shim-deleted",
    "all parts are here, and no libcudnn.so.9",
    "package-overwritten",
    "9.10.2",
    "libcudnn.so.9",
    lambda path: path.unlink(),
)


@fault("two parts that have changed their names", verdict="broken", cause="cudnn-file-corrupt")
def parts_exchanged(scene: Scene) -> None:
    folder = scene.cudnn()
    one, other = folder / "libcudnn_adv.so.9", folder / "libcudnn_cnn.so.9"
    first, second = one.read_bytes(), other.read_bytes()
    replace(one, second)
    replace(other, first)


@fault("a cut library whose package has no RECORD", verdict="broken", cause="cudnn-file-corrupt")
def library_cut_without_record(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn_graph.so.9"
    replace(path, path.read_bytes()[:6000])
    next(scene.site.glob("*.dist-info/RECORD")).unlink()


@fault("a part of 9.1 in 9.10", verdict="broken", cause="cudnn-sublibrary-mismatch")
def part_of_an_older_release(scene: Scene) -> None:
    swap(scene.cudnn() / "libcudnn_ops.so.9", scene.build.cudnn("9.1.0") / "libcudnn_ops.so.9")


@fault("cuDNN 8 with another release's training library", verdict="broken", cause="cudnn-sublibrary-mismatch")
def training_part_of_another_release(scene: Scene) -> None:
    name = "libcudnn_cnn_train.so.8"
    swap(scene.cudnn("8.9.7") / name, scene.build.cudnn("8.9.2") / name)


@fault("cuDNN 8.6 on LD_LIBRARY_PATH before the wheel's 8.9", verdict="broken", cause="cudnn-shadowed")
def shadowed_by_cudnn_8(scene: Scene) -> None:
    scene.cudnn("8.9.7")
    other = scene.folder("opt/cudnn/lib")
    name = "libcudnn_cnn_infer.so.8"
    swap(other / name, scene.build.cudnn("8.6.0") / name)
    scene.search(other)


@fault("two of the frameworks' own checks switched off", verdict="broken", cause="check-disabled")
def two_checks_disabled(scene: Scene) -> None:
    scene.cudnn()
    scene.env |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "MXNET_CUDNN_LIB_CHECKING": "0"}


@fault("another package than the matrix asked for", verdict="broken", cause="expect-mismatch")
def package_not_as_expected(scene: Scene) -> None:
    scene.cudnn()
    scene.expect(cudnn="9.10.2", frameworks={}, packages={"nvidia-cudnn-cu12": "9.9.0.52"})


@fault("a framework that was asked for and is not here", verdict="broken", cause="expect-mismatch")
def framework_expected_and_absent(scene: Scene) -> None:
    scene.cudnn()
    scene.expect(cudnn="9.10.2", frameworks={"jax": "0.6.2"})
