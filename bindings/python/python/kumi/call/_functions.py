"""Callbacks and files as arguments of calls."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import ArgumentError
from ._interface import Parameter, array


class Function:
    """A callback in the form of the native module: values and bytes by parameter, for arguments and results."""

    def __init__(self, routine: str, parameter: Parameter, function: Callable[..., Any]) -> None:
        self._name = f"{routine}`: `{parameter.name}"
        self._parameters = parameter.inner
        self._function = function
        #: The exception that it raised, which ends the call.
        self.error: BaseException | None = None

    def __call__(self, values: list[Any], shapes: list[tuple[int, ...]]) -> list[tuple[int, Any]]:
        try:
            return self._call(values, shapes)
        except BaseException as error:
            self.error = error
            raise

    def _call(self, values: list[Any], shapes: list[tuple[int, ...]]) -> list[tuple[int, Any]]:
        given = []
        for one in self._parameters:
            if one.sent:
                value = values[one.index]
                if one.is_array:
                    flat = np.frombuffer(value, one.dtype) if value else np.empty(0, one.dtype)
                    value = flat.reshape(shapes[one.index], order=one.order)  # type: ignore[call-overload]
                given.append(value)
        result = self._function(*given)
        back = [one for one in self._parameters if one.returned]
        single = len(back) == 1 and (back[0].is_array or not isinstance(result, tuple))
        results = result if isinstance(result, tuple) and not single else (result,)
        if not back and result is None:
            results = ()
        if len(results) != len(back):
            names = ", ".join(one.name for one in back) or "nothing"
            raise ArgumentError(f"`{self._name}` gave {len(results)} values, the routine wants {names}")
        return [
            (one.index, self._value(one, value, shapes[one.index]))
            for one, value in zip(back, results, strict=True)
        ]

    def _value(self, one: Parameter, value: Any, shape: tuple[int, ...]) -> Any:
        if not one.is_array:
            return value.item() if isinstance(value, (np.generic, np.ndarray)) else value
        given = array(self._name, one, value)
        if given.shape != tuple(shape):
            raise ArgumentError(
                f"`{self._name}`: `{one.name}` has the shape {given.shape}, the routine wants {tuple(shape)}"
            )
        # An array in column order is its transpose in row order.
        return given.T if one.order == "F" else given


class ResultFolder:
    """The temporary folder of a call for files without a path. It is removed with this object."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        #: Files that come back, by parameter: the path, and whether the content is the result.
        self.back: dict[int, tuple[Path, bool]] = {}

    def _path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kumi-call-"))
            weakref.finalize(self, shutil.rmtree, self._folder)
        return self._folder / name

    def pair(self, one: Parameter, value: Any, out: Any) -> tuple[str | None, str | None]:
        """The paths from which a file is sent and to which it is written."""
        sent = back = None
        if one.sent:
            sent = os.fspath(value) if isinstance(value, (str, os.PathLike)) else self._fill(one, value)
        if one.returned:
            path = self._path(f"{one.index}-out") if out is None else Path(out)
            self.back[one.index] = path, out is None
            back = os.fspath(path)
        return sent, back

    def _fill(self, one: Parameter, value: Any) -> str:
        path = self._path(f"{one.index}-in")
        with path.open("wb") as file:
            if hasattr(value, "read"):
                shutil.copyfileobj(value, file)
            else:
                try:
                    file.write(value)
                except TypeError:
                    raise ArgumentError(
                        f"`{one.name}` is a file: give a path, bytes or a binary file"
                    ) from None
        return os.fspath(path)

    def results(self) -> dict[int, Any]:
        """The files that came back: their bytes, or the caller's paths."""
        return {index: path.read_bytes() if read else path for index, (path, read) in self.back.items()}
