"""The process of a call slot for Python functions, and the list of a module's routines.

``kumi call serve --python SOURCE`` starts it. Before the server has confined it, it imports only the
extension module of this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import traceback
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .call._classes import ServedClass
    from .call._serving import ServedFunction

_VERSION = 2
# The exit code if there is no such file or module, as of `kumi`.
_NO_SOURCE = 66


def _split(source: str) -> tuple[str, list[str]]:
    """A file or module and the names of its routines to serve; without names all of them."""
    place, colon, names = source.rpartition(":")
    return (place, names.split(",")) if colon else (source, [])


def _name(folder: str, stem: str) -> str:
    """The module name for a file: its own name if it is free, so that processes which the routine starts can
    import it too."""
    others = [path for path in sys.path if path != folder]
    taken = stem in sys.stdlib_module_names or PathFinder.find_spec(stem, others) is not None
    if stem.isidentifier() and not taken:
        return stem
    return "_kumi_" + re.sub(r"\W", "_", stem)


def _load(folder: str, place: str) -> ModuleType:
    """A module by name or, if it is a path, from its file."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = _name(folder, Path(place).stem)
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _routines(module: ModuleType) -> dict[str, ServedFunction | ServedClass]:
    from .call._classes import ServedClass, methods_of_unserved_classes
    from .call._decorator import served

    found: dict[str, ServedFunction | ServedClass] = {}
    for name, value in vars(module).items():
        one = served(value)
        if one is None:
            continue
        if isinstance(one, ServedClass) and one.cls is not value:
            raise ValueError(f"`{name}` is another class since kumi.call.routine: let that be its outermost decorator")
        if found.setdefault(one.name, one) is not one:
            raise ValueError(f"two routines are called `{one.name}`")
    for method in methods_of_unserved_classes(module, found.values()):
        raise ValueError(f"`{method}` has the decorator kumi.call.routine, and its class has not: give it to that too")
    return found


def describe(source: str) -> dict[str, Any]:
    """The descriptions that ``kumi call serve`` offers, and the program that runs them.

    Raises:
        ValueError: There is no routine.
    """
    place, names = _split(source)
    is_file = place.endswith(".py")
    if is_file:
        place = os.path.abspath(place)
    folder = os.path.dirname(place) if is_file else os.getcwd()
    module = _load(folder, place)
    routines = _routines(module)
    # An installed package needs nothing from this folder.
    imported = module.__file__ is not None and Path(module.__file__).absolute().is_relative_to(folder)
    for name in names:
        if name not in routines:
            raise ValueError(f"{place} has no routine `{name}`; it has {', '.join(routines) or 'none'}")
    if not routines:
        raise ValueError(f"{place} has no function and no class with the decorator kumi.call.routine")
    return {
        "version": _VERSION,
        "program": [sys.executable, "-P", "-m", "kumi._slot", folder, place],
        "folder": folder if imported else None,
        "interfaces": [json.loads(each) for name in names or routines for each in routines[name].descriptions()],
    }


def _loader(folder: str, place: str) -> Callable[[str], Any]:
    # One import serves all methods of a class, and the one instance of a process that is an object.
    routines: dict[str, ServedFunction | ServedClass] = {}
    instances: dict[str, Any] = {}

    def load(description: str) -> Any:
        from .call._classes import Method

        said = json.loads(description)
        name, of_class = said["name"], said.get("class")
        routines.update(routines or _routines(_load(folder, place)))
        offered = routines.get(of_class or name)
        one = offered.find(name) if offered is not None else None
        if one is None or json.loads(one.description) != said:
            raise ValueError(f"{place} has changed and has no such `{name}` any more; restart the server")
        through = os.environ.get("KUMI_CALL_THROUGH")
        if isinstance(one, Method):
            if through:
                raise ValueError(f"objects of `{of_class}` do not go on to a cluster: serve it without one")
            if of_class not in instances:
                instances[of_class] = one.new_instance()
            return one.of(instances[of_class]).run
        if through:
            from .call.adapters._remote import remote

            one = remote(one, through)
        return one.run

    return load


def _missing(source: str, error: Exception) -> str | None:
    """What is not there if it is the source itself."""
    place, _ = _split(source)
    if place.endswith(".py"):
        is_missing = isinstance(error, FileNotFoundError) and not os.path.exists(place)
        return f"there is no file {place}" if is_missing else None
    # Its parents are imported before it.
    if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}"
    return None


def _explain(error: Exception) -> str:
    """What is wrong with a source, with its places in the user's files and not in those of this package."""
    others = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(importlib.__file__), "<frozen ")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(others)]
    places = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    if not frames and isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return f"{error}\n"
    return "".join([*places, *traceback.format_exception_only(error)])


def _answer(source: str) -> None:
    """Describes a source on standard output, or says on standard error why it cannot be."""
    # Output of a module must not mix with the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        described = describe(source)
    except Exception as error:
        missing = _missing(source, error)
        sys.stderr.write(f"{missing}\n" if missing else _explain(error))
        sys.exit(_NO_SOURCE if missing else 1)
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(described, file)


def main(arguments: list[str]) -> None:
    """Runs the slot, or describes a source on standard output."""
    if arguments[:1] == ["--describe"]:
        _answer(arguments[1])
        return
    from ._native import run_slot

    folder, place = arguments
    run_slot(_loader(folder, place))


if __name__ == "__main__":
    main(sys.argv[1:])
