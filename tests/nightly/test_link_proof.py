"""The link proof beside the real loader: real installs, and sets out of them that are broken by a seed.

Each install is removed before the next: at most 9 GB at a time. Agreement by kind of break is printed.
"""

import os
import shutil
import subprocess

import pytest
from link_sets import Agreement, installs, sets_of, table

SETS = int(os.environ.get("RTBUILD_LINK_SETS", "22"))
"""Of each install: as installed, and broken in each way."""
SEED = int(os.environ.get("RTBUILD_LINK_SEED", "1"))


def test_the_proof_says_what_the_loader_does(tmp_path):
    found, refused = {}, []
    for row in installs():
        folder = tmp_path / row.name
        folder.mkdir()
        try:
            result = sets_of(row, folder, SETS, SEED)
        except subprocess.CalledProcessError as problem:
            refused.append(f"{row.name}: {problem.stderr.decode('utf-8', 'replace')[-300:]}")
            continue
        finally:
            shutil.rmtree(folder)
        for kind, one in result.items():
            found[kind] = found.get(kind, Agreement()) + one
        print(f"\n{row.name}\n{table(result)}", *(w for one in result.values() for w in one.words), sep="\n")
    print(f"\n{table(found)}", *refused, sep="\n")
    total = sum(found.values(), Agreement())
    if len(refused) > 3:
        pytest.fail(f"{len(refused)} installs are not to be had: {refused}")
    assert total.wrong_yes == 0
    assert total.wrong_no <= total.calls / 100
    assert total.unknown <= total.calls / 20
    assert total.same >= total.calls * 0.99
