"""What a container of an image sees, as far as two images can be held against one another."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile


def tree(image: str) -> dict[str, tuple[str, int, int, int, str, str]]:
    """Each path in a container of the image: kind, mode, owner, link, content."""
    made = subprocess.run(["docker", "create", image, "-"], capture_output=True, text=True, check=True).stdout
    try:
        with subprocess.Popen(["docker", "export", made.strip()], stdout=subprocess.PIPE) as process:
            found = {}
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                for member in tar:
                    file = tar.extractfile(member) if member.isfile() else None
                    content = hashlib.file_digest(file, "sha256").hexdigest() if file else ""  # type: ignore[arg-type]
                    found[member.name] = (
                        member.type.decode(), member.mode, member.uid, member.gid, member.linkname, content
                    )  # fmt: skip
    finally:
        subprocess.run(["docker", "rm", made.strip()], capture_output=True, check=True)
    return found
