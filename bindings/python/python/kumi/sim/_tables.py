"""Tables as pyarrow or pandas; both are loaded only when a table is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from .._errors import BadArgumentError
from ._command import MissingExtraError

if TYPE_CHECKING:
    import pandas
    import pyarrow

Kind = Literal["pandas", "arrow"]

# Types of whole numbers: always present, and possibly missing.
_WHOLE = ("job", "size", "user", "placed", "queued")
_OPTIONAL = ("max_tqlb", "min_tqlb")


def _need(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is needed ({error}): pip install kumi[sim]") from error


def read(text: bytes) -> pyarrow.Table:
    """A table that the command wrote. An empty cell is a missing number."""
    arrow, csv = _need("pyarrow"), _need("pyarrow.csv")
    header = text[: text.index(b"\n")].decode().split(",")
    types = {name: arrow.float64() for name in header}
    types |= {name: arrow.int64() for name in _WHOLE if name in types}
    types |= {name: arrow.int32() for name in _OPTIONAL if name in types}
    types |= {"policy": arrow.string(), "seed": arrow.uint64()}
    return csv.read_csv(
        arrow.BufferReader(text), convert_options=csv.ConvertOptions(column_types=types)
    )


def rows(values: Sequence[dict[str, Any]]) -> pyarrow.Table:
    """A table of rows, with every column that some row has."""
    arrow = _need("pyarrow")
    types = {"seed": arrow.uint64(), "max_tqlb": arrow.int32(), "error": arrow.string()}
    columns = {}
    for name in dict.fromkeys(name for row in values for name in row):
        cells = [row.get(name) for row in values]
        # A column of times, for example, can hold texts in some rows and numbers in others.
        if any(isinstance(cell, str) for cell in cells):
            cells = [None if cell is None else str(cell) for cell in cells]
        columns[name] = arrow.array(cells, types.get(name))
    return arrow.table(columns)


def joined(tables: Sequence[pyarrow.Table], numbers: Sequence[int]) -> pyarrow.Table:
    """Tables one after the other, with a first column that numbers them."""
    arrow = _need("pyarrow")
    return arrow.concat_tables(
        table.add_column(0, "case", arrow.array([number] * len(table), arrow.int64()))
        for number, table in zip(numbers, tables, strict=True)
    )


def as_kind(table: pyarrow.Table, kind: Kind) -> pandas.DataFrame | pyarrow.Table:
    """The table in the requested form."""
    if kind == "arrow":
        return table
    if kind != "pandas":
        raise BadArgumentError(f"there is no kind {kind!r} of table; there are pandas and arrow")
    pd = _need("pandas")
    # Columns in which whole numbers can be missing; numpy has no such type.
    arrow = _need("pyarrow")
    nullable = {arrow.int32(): pd.Int32Dtype(), arrow.uint64(): pd.UInt64Dtype()}
    return table.to_pandas(types_mapper=nullable.get)


def write(table: pyarrow.Table, path: str | os.PathLike[str]) -> None:
    """Writes a Parquet file."""
    _need("pyarrow.parquet").write_table(table, os.fspath(path))
