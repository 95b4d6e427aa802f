"""Stand-ins for functions that want a window."""

from __future__ import annotations

from typing import Any


def cv2_imshow(a: Any) -> None:
    """Show an image of OpenCV (an array in BGR order) below the cell."""
    import cv2
    from IPython.display import Image, display

    whole = a.clip(0, 255).astype("uint8")
    encoded, data = cv2.imencode(".png", whole)
    if not encoded:
        raise ValueError("OpenCV cannot make a PNG of an array of shape %s" % (whole.shape,))
    display(Image(data=data.tobytes()))
