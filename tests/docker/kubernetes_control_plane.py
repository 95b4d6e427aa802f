"""A real Kubernetes 1.20 control plane out of Debian 12: API server, controllers and scheduler, over etcd.

Debian has the source with its vendor tree, and no package of the daemons: they are built once, offline, which
takes a quarter of an hour, and kept in the cache. No kubelet is among them: `doubles/kubelet_stand_in.py`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_cluster import debian_site, free_ports

from builder.core import resources

if TYPE_CHECKING:
    from pathlib import Path

DAEMONS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
TOKEN = "test"
_SUITE = "bookworm"
_BUILD_DEPENDS = "bash-completion,debhelper,dpkg-dev,etcd-server,golang-go,jq,rsync"
_BUILD = """\
set -e
mount -t proc proc /proc
cd /build
[ -d source ] || { dpkg-source --no-check -x *.dsc part && mv part source; }
cd source
mkdir -p .go/src/k8s.io
ln -sfn ../../.. .go/src/k8s.io/kubernetes
make WHAT="$*"
"""


def programs() -> Path:
    """The folder of the four programs of Kubernetes and of ``etcd``, with what that is linked to.

    The first call downloads 300 MB and builds: 3 GB, of which 500 MB stay.
    """
    folder = resources.cache() / "kubernetes" / "bin"
    if folder.is_dir():
        return folder
    root, part = folder.with_name("root"), folder.with_name("part")
    if not (root / "build").is_dir():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        site = debian_site()
        source = (
            'mkdir "$1/part" && cd "$1/part" &&'
            ' APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --download-only source kubernetes &&'
            ' mv "$1/part" "$1/build"'
        )
        subprocess.run(
            [
                *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={_BUILD_DEPENDS}"),
                f"--customize-hook={source}",
                *(_SUITE, str(root), f"deb {site} {_SUITE} main", f"deb-src {site} {_SUITE} main"),
            ],
            check=True,
            timeout=1800,
        )
    goals = [f"cmd/{name}" for name in DAEMONS]
    variables = [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/build",
        "CGO_ENABLED=0",
        "GOPATH=/build/source/.go",
    ]
    subprocess.run(
        # no network: what is built is what Debian has
        [
            *(
                "nice",
                "-n",
                "15",
                "unshare",
                "--mount",
                "--net",
                "chroot",
                str(root),
                "env",
                "-i",
                *variables,
            ),
            *("sh", "-c", _BUILD, "sh", *goals),
        ],
        check=True,
        timeout=7200,
    )
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name in DAEMONS:
        (built,) = (root / "build/source/_output/local/bin/linux").glob(f"*/{name}")
        shutil.copy2(built, part)
    linked = subprocess.run(
        ["chroot", str(root), "ldd", "/usr/bin/etcd"], capture_output=True, text=True, check=True
    ).stdout
    for path in ("/usr/bin/etcd", *(word for word in linked.split() if word.startswith("/"))):
        shutil.copy2(root / path[1:], part)
    part.rename(folder)
    shutil.rmtree(root, ignore_errors=True)
    return folder


@dataclass
class ControlPlane:
    """Runs on ports of loopback until it is stopped; ``kubeconfig`` leads there. Everybody may do all."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(4))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bin = programs()
        self.api = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self.folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [
                        {"name": "test", "cluster": {"server": self.api, "insecure-skip-tls-verify": True}}
                    ],
                    "users": [{"name": "test", "user": {"token": TOKEN}}],
                }
            )
        )
        (self.folder / "tokens").write_text(f"{TOKEN},test,1\n")
        key = self.folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)

    def start(self, name: str) -> None:
        """``etcd`` or one of the daemons."""
        at, key = f"http://127.0.0.1:{self.port + 1}", self.folder / "service-account.key"
        options = {
            "etcd": [
                f"--data-dir={self.folder}/etcd",
                f"--listen-client-urls={at}",
                f"--advertise-client-urls={at}",
                f"--listen-peer-urls=http://127.0.0.1:{self.port + 2}",
            ],
            "kube-apiserver": [
                *(f"--etcd-servers={at}", f"--secure-port={self.port}", "--bind-address=127.0.0.1"),
                *(f"--cert-dir={self.folder}/certificates", "--authorization-mode=AlwaysAllow"),
                f"--token-auth-file={self.folder}/tokens",
                *("--service-account-issuer=https://test", f"--service-account-key-file={key}"),
                *(f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount"),
                *("--default-not-ready-toleration-seconds=2", "--default-unreachable-toleration-seconds=2"),
            ],
            "kube-controller-manager": [
                *(f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0"),
                *("--node-monitor-period=1s", "--node-monitor-grace-period=8s"),
            ],
            "kube-scheduler": [
                *(f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0")
            ],
        }[name]
        command = [str(self.bin / name), *options]
        if name == "etcd":  # with the C library that it was linked to
            command = [str(self.bin / "ld-linux-x86-64.so.2"), "--library-path", str(self.bin), *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log, cwd=self.folder
            )

    def up(self) -> None:
        self.start("etcd")
        self.start("kube-apiserver")
        self.ready()
        self.start("kube-controller-manager")
        self.start("kube-scheduler")

    def ready(self) -> None:
        """Wait until the API server answers."""
        until = time.monotonic() + 180
        while self.ask("get", "--raw", "/readyz", check=False) != "ok":
            assert time.monotonic() < until, self.logs()
            assert self.processes["kube-apiserver"].poll() is None, self.logs()
            time.sleep(0.5)

    def ask(self, *words: str, check: bool = True) -> str:
        command = [str(self.bin / "kubectl"), "--kubeconfig", str(self.kubeconfig), *words]
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60).stdout

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def down(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-12:])
            for path in sorted(self.folder.glob("*.log"))
        )
