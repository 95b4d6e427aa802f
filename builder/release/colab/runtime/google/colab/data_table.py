"""Tables: a data frame is shown as pandas shows it."""

from __future__ import annotations

from typing import Any


class DataTable(object):
    """A data frame to be shown; the options of Colab's page are taken and have no effect."""

    def __init__(self, dataframe: Any, *_: Any, **__: Any) -> None:
        self._dataframe = dataframe

    @classmethod
    def formatter(cls, dataframe: Any, **_: Any) -> DataTable:
        return cls(dataframe)

    def _repr_html_(self) -> Any:
        return self._dataframe._repr_html_()

    def __repr__(self) -> str:
        return repr(self._dataframe)


def load_ipython_extension(*_: Any) -> None:
    """``%load_ext google.colab.data_table``. Nothing to do: pandas formats its frames."""


enable_dataframe_formatter = disable_dataframe_formatter = load_ipython_extension
