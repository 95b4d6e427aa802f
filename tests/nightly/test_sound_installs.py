"""Every minor release of three years, as its own documents install it: the probe blames none of them.

What is released tomorrow is in no list of faults. TensorFlow 2.21, CuPy 14, onnxruntime 1.31 and torch 2.15
were each called broken on the day they came, and TensorFlow 2.20.0 until somebody installed it, for things
that they do differently and rightly. 0.2 to 7 GB each, one after the other, each removed before the next.
"""

import datetime
import shutil
import subprocess

import pytest
from sound_installs import DOCUMENTED, install, probed, releases, said


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_probe_blames_no_release(name, tmp_path):
    row = DOCUMENTED[name]
    found = releases(row, today=datetime.datetime.now(datetime.UTC).date())
    assert found, "the index lists no release of three years"
    blamed = {}
    for version in found:
        folder = tmp_path / version
        folder.mkdir()
        try:
            blamed[version] = said(probed(folder, install(row, version, folder)))
        except (subprocess.SubprocessError, ValueError) as problem:
            blamed[version] = f"{type(problem).__name__}: {problem}"
        finally:
            shutil.rmtree(folder)
        print(f"\n{name} {version}: {blamed[version] or 'sound'}", flush=True)
    assert not {version: text for version, text in blamed.items() if text}
