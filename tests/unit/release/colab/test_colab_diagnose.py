"""The notebook for Colab: what is committed is what the code makes, and it runs from start to end."""

import asyncio
import importlib.util
import warnings
from pathlib import Path

import pytest
from pages.diagnose import notebook

from builder.image.recipe.probe_file import bundle
from builder.release.colab.diff import listed
from builder.release.colab.runtimes import NAMED, REPOSITORY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Jupyter's own, as it is imported
    import nbformat
    from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[4]
NOTEBOOK = ROOT / "docs/diagnose-on-colab.ipynb"


def test_it_is_what_the_code_makes(generated):
    runtimes = [listed(name, folder=ROOT / "matrices") for name in NAMED]
    generated("docs/diagnose-on-colab.ipynb", notebook(bundle(), runtimes, repository=REPOSITORY))


def test_the_notebook_of_make_gpu_is_what_the_code_makes(generated):
    spec = importlib.util.spec_from_file_location("gpu_run", ROOT / "tests/gpu/run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    generated("docs/gpu-on-colab.ipynb", run.notebook())


@pytest.mark.filterwarnings("ignore")
def test_it_runs_from_start_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.reads(NOTEBOOK.read_text(), as_version=4)
    nbformat.validate(book)
    client = NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())
    outputs = {cell["id"]: cell.get("outputs", []) for cell in book.cells}
    assert "cudnn_verify.py, " in text(outputs["unpack"])
    (page,) = [row for row in outputs["look"] if row["output_type"] == "display_data"]
    assert "<b>UNVERIFIED</b>" in page["data"]["text/html"]
    assert page["data"]["text/plain"].startswith("UNVERIFIED: ")
    assert text(outputs["cause"]).startswith("unverified - ")
    assert "python" in text(outputs["runtime"])
    assert "2025.07: 3.11" in text(outputs["runtime"])
    assert "none of Colab's past runtimes" in text(outputs["runtime"])
    assert (tmp_path / "cudnn-report.json").is_file()
    assert (tmp_path / "cudnn_verify.py").read_bytes() == bundle()


def text(outputs):
    return "".join(row.get("text", "") for row in outputs if row["output_type"] == "stream")
