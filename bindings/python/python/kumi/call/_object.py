"""Objects of classes at servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._native import NativeObject
from .._scope import Block
from ._errors import RoutineNotFound
from ._handle import Handle
from ._interface import Routine
from ._out import Out
from ._prepare import Caller


class Method:
    """A method of an object; ``print`` shows what it takes and gives."""

    def __init__(self, owner: Object, name: str, routine: Routine) -> None:
        self.__name__ = name
        self.__doc__ = str(routine)
        self._owner = owner

    def __call__(self, *args: Any, timeout: float | None = None, out: Out = None, **named: Any) -> Any:
        """Calls it as :meth:`Object.call` does."""
        return self._owner.call(self.__name__, *args, timeout=timeout, out=out, **named)

    def __repr__(self) -> str:
        return str(self.__doc__)


class Object(Caller, Block):
    """An object of a class at a server, which keeps a state from call to call: :meth:`Connection.object` makes it.

    .. code-block:: python

        counter = server.object("counter")
        counter.add(3)
        handle = counter.call_async("add", 4)
        counter.total()

    The methods of its class are methods of it; those whose names it has itself are called by :meth:`call`. Its calls run one
    after the other. It is for this connection alone, and ends with :meth:`end` or the ``with``, when nobody has it nor a
    handle of one of its calls any more, with the connection, and when one of its calls crashes, is cancelled or takes too long
    while it runs. What is called on it then, or waits for it, raises :class:`ObjectLostError`.
    """

    def __init__(self, native: NativeObject, name: str, names: Callable[[str], list[str]]) -> None:
        self._native: NativeObject = native
        self._routines = {}
        self._class = name
        self._names = names
        self._ended = False

    @property
    def server(self) -> str:
        """The name of the server where it is."""
        return self._native.server()

    @property
    def lost(self) -> bool:
        """Whether it is no more, as far as can be seen without waiting."""
        return self._ended or self._native.is_lost()

    def call(
        self, name: str, /, *args: Any, timeout: float | None = None, out: Out = None, **named: Any
    ) -> Any:
        """Calls a method and waits; arguments and results are those of :meth:`Connection.call`.

        Args:
            timeout: Seconds that the call may take, waiting for earlier calls included. If they are over while it runs, the
                object ends.
            out: As of :meth:`Connection.call`.

        Raises:
            ObjectLostError: The object is no more, and the method has not run.
            CallError: It failed.
        """
        call = self._prepared(name, args, named, out)
        if call.functions:
            return call.begun(self._native.start(name, call.native, timeout)).result()
        return call.ran(lambda: self._native.call(name, call.native, timeout))

    def call_async(
        self, name: str, /, *args: Any, timeout: float | None = None, out: Out = None, **named: Any
    ) -> Handle:
        """Begins a call as :meth:`call` does; its arguments are sent when this returns. The object lives as long as the handle."""
        call = self._prepared(name, args, named, out)
        return call.begun(self._native.start(name, call.native, timeout))

    def end(self) -> None:
        """Ends it, and what it runs. Does nothing after its end."""
        self._native.end()
        self._ended = True

    def _leave(self, error: BaseException | None) -> None:
        self.end()

    def __getattr__(self, name: str) -> Method:
        # What Python looks for, as to copy it, is no method of the class.
        if name.startswith("_"):
            raise AttributeError(f"objects have no attribute `{name}`", name=name, obj=self)
        try:
            return Method(self, name, self.routine(name))
        except RoutineNotFound as error:
            raise AttributeError(str(error), name=name, obj=self) from error

    def __dir__(self) -> Iterable[str]:
        begin = f"{self._class}."
        methods = (name.removeprefix(begin) for name in self._names(begin) if name.startswith(begin))
        return {*super().__dir__(), *methods}

    def __repr__(self) -> str:
        return f"<kumi.call.Object of {self._class} at {self.server}{', lost' if self.lost else ''}>"
