"""A cell's output. What Colab does with JavaScript of its own page is explained."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

from .errors import refusal, say


def clear(wait: bool = False, output_tags: Any = ()) -> None:
    """Clear the cell's output: all of it, since elsewhere outputs have no tags."""
    from IPython.display import clear_output

    if not output_tags:
        clear_output(wait=wait)


def eval_js(script: str, ignore_result: bool = False, *_: Any, **__: Any) -> Any:
    """Run JavaScript in the page; its value does not come back."""
    from IPython.display import Javascript, display

    if not ignore_result:
        raise refusal("output.eval_js", "With ignore_result=True the script runs; its value cannot be had.")
    display(Javascript(script))


def register_callback(function_name: str, callback: Callable[..., Any]) -> None:
    """Colab's page would call ``callback``; no other page can."""
    del callback
    say(f"output.register_callback({function_name!r}): only scripts on Colab's own machines can call it.")


def no_vertical_scroll(*_: Any, **__: Any) -> None:
    """Nothing to do: Jupyter shows widgets by itself, and it is Colab's page that scrolls long output."""


enable_custom_widget_manager = disable_custom_widget_manager = no_vertical_scroll


def serve_kernel_port_as_window(port: int, *_: Any, **__: Any) -> None:
    """Say how to reach a port of the runtime."""
    say(
        f"port {port} of this runtime is not open. Start it with --publish 127.0.0.1:{port}:{port}, and open"
        f" http://127.0.0.1:{port} in your browser."
    )


serve_kernel_port_as_iframe = serve_kernel_port_as_window


@contextlib.contextmanager
def use_tags(*_: Any, **__: Any) -> Iterator[None]:
    """Areas and tags are parts of Colab's page: what is printed within them appears in the cell's output."""
    yield


redirect_to_element = temporary = to_default_area = to_footer_area = to_header_area = use_tags
