"""Runs inside an image, with nothing but its own Python and numpy: what a recipe left there, as JSON."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys
from os import environ

import numpy

ROOT = pathlib.Path("/opt/runtime")
SITE = ROOT / "lib/python/site-packages"
LEFT = ("/mnt", "/tmp", "/out", "/root/.cache", "/var/lib/apt/lists", "/var/log", "/run/secrets")
UNCHECKED = b"\1\0\0\0"
"""The flags of a .pyc that holds no time and is taken as it is: https://peps.python.org/pep-0552/"""
PLAIN = {"0o40755", "0o100644", "0o100755"}


def text(path):
    file = pathlib.Path(path)
    return file.read_text() if file.exists() else None


print(
    json.dumps(
        {
            "links": {
                str(path.relative_to(ROOT)): str(path.readlink())
                for path in [*ROOT.glob("bin/*"), *ROOT.glob("lib/*")]
                if path.is_symlink()
            },
            "prefix": sys.prefix,
            "base": sys.base_prefix,
            "numpy": numpy.__file__,
            "shebang": (ROOT / "bin/f2py").read_text().splitlines()[0],
            "compiled": len(list(SITE.rglob("*.pyc"))),
            "checked": [str(path) for path in SITE.rglob("*.pyc") if path.read_bytes()[4:8] != UNCHECKED],
            "strange": sorted({oct(path.lstat().st_mode) for path in SITE.rglob("*")} - PLAIN),
            "installer": {
                found.metadata["Name"]: found.read_text("INSTALLER")
                for found in importlib.metadata.distributions(path=[str(SITE)])
            },
            "direct": [str(path) for path in SITE.rglob("direct_url.json")],
            "config": text(ROOT / "pyvenv.cfg"),
            "loader": text("/etc/ld.so.conf.d/00-rtbuild-nvidia.conf"),
            "cache": subprocess.run(
                ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
            ).stdout,
            "aux": pathlib.Path("/var/cache/ldconfig/aux-cache").exists(),
            "left": [
                str(path)
                for folder in (
                    "/mnt",
                    "/tmp",
                    "/out",
                    "/root/.cache",
                    "/var/lib/apt/lists",
                    "/var/log",
                    "/run/secrets",
                )
                for path in pathlib.Path(folder).rglob("*")
                if path.is_file() and path.name not in {"lock", "btmp", "faillog", "lastlog", "wtmp"}
            ],
            "out": pathlib.Path("/out").exists(),
            "home": sorted(path.name for path in pathlib.Path("/root").iterdir()),
            "probe": oct(pathlib.Path("/usr/local/bin/cudnn-verify").stat().st_mode),
            "expect": json.loads(text(environ["CUDNN_VERIFY_EXPECT"])),
        }
    )
)
