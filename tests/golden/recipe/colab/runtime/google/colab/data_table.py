"""Tables: a data frame is shown as pandas shows it."""

from __future__ import annotations

from typing import Any

__all__ = ["DataTable", "disable_dataframe_formatter", "enable_dataframe_formatter"]


class DataTable(object):
    """A data frame to be shown; the options of Colab's page are taken and have no effect."""

    include_index = True
    num_rows_per_page = 25
    max_rows = 20000
    max_columns = 20

    def __init__(self, dataframe: Any, *_: Any, **__: Any) -> None:
        self._dataframe = dataframe

    @classmethod
    def formatter(cls, dataframe: Any, **_: Any) -> DataTable:
        return cls(dataframe)

    def _repr_html_(self) -> Any:
        return self._dataframe._repr_html_()

    def __repr__(self) -> str:
        return repr(self._dataframe)


def enable_dataframe_formatter() -> None:
    """Nothing to do: pandas formats its frames."""


def disable_dataframe_formatter() -> None:
    """Nothing to do."""


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext google.colab.data_table``."""
    del ipython


def unload_ipython_extension(ipython: Any) -> None:
    del ipython
