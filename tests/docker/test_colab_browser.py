"""A person's way in: the printed address opened in a browser, a cell typed, run, and its output read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chromium import opened
from colab_runtime import STACKS, build, running

if TYPE_CHECKING:
    from pathlib import Path

    from chromium import Tab
    from colab_page import Page

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.browser]

CONVOLUTION = "import numpy; print(numpy.convolve([1, 2, 3], [0, 1, 0.5]))"
OURS = ("rtbuild", "google/colab", "cudnn_verify", "jupyter_config", "ipython_config")
RESULT = "[0.  1.  2.5 4.  1.5]"

CELL = {"pinned": ".cell.code_cell .CodeMirror-lines", "newest": ".jp-CodeCell .cm-content"}
OUTPUT = {"pinned": ".output_area .output_text pre, .output_area pre", "newest": ".jp-OutputArea-output pre"}
IDLE = {
    "pinned": "window.Jupyter?.notebook?.kernel?.info_reply?.status === 'ok'",
    "newest": "document.querySelector('[data-status=idle]') !== null",
}


def new_notebook(page: Page, name: str) -> None:
    """Through the API, as Colab and Jupyter's own file list do."""
    cell = {
        "cell_type": "code",
        "id": "first",
        "source": "",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    answer = page.put(f"/api/contents/{name}", {"type": "notebook", "content": notebook})
    assert answer.status_code == 201, answer.text


def run_cell(tab: Tab, stack: str, code: str) -> str:
    """Type the code into the first cell, run it by Shift+Enter, and read what appears."""
    tab.wait_for(IDLE[stack])
    for _ in range(6):  # a page that has no kernel yet forgets what it was asked to run, and what was typed
        tab.click(CELL[stack])
        if code not in str(tab.value(f"document.querySelector({CELL[stack]!r}).innerText")):
            tab.type(code)
        tab.press_shift_enter()
        output = tab.look_for(f"document.querySelector({OUTPUT[stack]!r})?.innerText", seconds=10)
        if output:
            return str(output)
    raise AssertionError(tab.value("document.body.innerText"))


@pytest.mark.parametrize("stack", STACKS)
def test_a_convolution_is_typed_run_and_read(stack: str, tmp_path: Path) -> None:
    build()
    with running(stack) as runtime, opened(runtime.page.address) as tab:
        tab.wait_for("document.title.length > 0 && document.cookie.includes('_xsrf')")
        new_notebook(runtime.page, "first.ipynb")
        tab.call(
            "Page.navigate", url=f"{runtime.page.base}/notebooks/first.ipynb"
        )  # by the cookie of the token
        assert run_cell(tab, stack, CONVOLUTION).strip() == RESULT
        picture = tmp_path / f"{stack}.png"
        tab.screenshot(picture)
        assert picture.stat().st_size > 10_000
        # Jupyter's page may start and drop a second kernel, and the server then logs its own tracebacks
        blamed = [line for line in runtime.talk.splitlines() if line.lstrip().startswith("File ")]
        assert not [line for line in blamed if any(name in line for name in OURS)], runtime.talk
