"""Objects of classes at servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from .._native import NativeClient, NativeObject
from .._scope import Block
from . import _waits
from ._context import in_trace
from ._errors import RoutineNotFound
from ._futures import Sender
from ._handle import Handle
from ._interface import Routine
from ._out import Out
from ._output import OutputReceiver, TextSink
from ._prepare import Caller


_Answer = TypeVar("_Answer")


class Method:
    """A method of an object. ``print`` shows its parameters and results."""

    def __init__(self, owner: Object, name: str, routine: Routine) -> None:
        self.__name__ = name
        self.__doc__ = str(routine)
        self._owner = owner

    def __call__(
        self,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        output: TextSink | None = None,
        **named: Any,
    ) -> Any:
        """Calls the method as :meth:`Object.call` does."""
        return self._owner.call(self.__name__, *args, timeout=timeout, out=out, output=output, **named)

    def __repr__(self) -> str:
        return str(self.__doc__)


class Object(Caller, Block):
    """An object of a class: a server process that keeps its state from call to call. :meth:`Connection.object` creates it.

    .. code-block:: python

        counter = server.object("counter")
        counter.add(3)
        handle = counter.call_async("add", 4)
        counter.total()

    The methods of the class are methods of the object. If a name is taken, use :meth:`call`. Calls run one after the other.
    Only this connection can use the object. It ends

    - with :meth:`end`, the ``with`` or the connection,
    - when neither it nor a handle of one of its calls is referenced any more,
    - when one of its running calls crashes, is cancelled or exceeds its time limit.

    Later and waiting calls then raise :class:`ObjectLostError`.
    """

    def __init__(self, native: NativeObject, name: str, names: Callable[[str], list[str]]) -> None:
        self._native: NativeObject = native
        self._routines = {}
        self._class = name
        self._names = names
        self._ended = False
        # For what begins the calls of coroutines.
        self._lock = threading.Lock()
        self._sender: Sender | None = None

    @property
    def _target(self) -> NativeObject:
        return self._native

    def _ask(self, question: Callable[[NativeClient | NativeObject], _Answer]) -> _Answer:
        return question(self._native)

    @property
    def server(self) -> str:
        """The name of the object's server."""
        return self._native.server()

    @property
    def lost(self) -> bool:
        """Whether the object has ended, as far as the client knows without waiting."""
        return self._ended or self._native.is_lost()

    def call(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        output: TextSink | None = None,
        **named: Any,
    ) -> Any:
        """Calls a method and waits; arguments and results are those of :meth:`Connection.call`.

        Args:
            timeout: Time limit in seconds, including the wait for earlier calls. If a running call exceeds it, the object
                ends.
            out: As in :meth:`Connection.call`, also ``output``.

        Raises:
            ObjectLostError: The object has ended, and the method has not run.
            CallError: The call failed.
        """
        if output is not None:
            return self.call_async(name, *args, timeout=timeout, out=out, output=output, **named).result()
        call = self._prepared(name, args, named, out)
        # This call may wait for a slot that a call with functions has.
        if call.functions or _waits.under_way():
            return call.begun(in_trace(lambda: self._native.start(name, call.native, timeout))).result()
        return call.ran(lambda: in_trace(lambda: self._native.call(name, call.native, timeout)))

    def call_async(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        output: TextSink | None = None,
        **named: Any,
    ) -> Handle:
        """Begins a call and returns when the arguments are sent. The handle keeps the object alive."""
        call = self._prepared(name, args, named, out)
        receiver = None if output is None else OutputReceiver(output)
        native = self._native if receiver is None else self._native.printing(receiver.native)
        return call.begun(in_trace(lambda: native.start(name, call.native, timeout)), receiver)

    async def acall(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        output: TextSink | None = None,
        **named: Any,
    ) -> Any:
        """Calls a method in a coroutine, as :meth:`Connection.acall` calls a routine.

        If the task is cancelled while the method runs, the object ends.
        """
        begin = partial(self.call_async, name, *args, timeout=timeout, out=out, output=output, **named)
        with self._lock:
            if self._sender is None:
                self._sender = Sender(self)
            future = self._sender.put_awaited(begin)
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """Ends the object and its running call. Ending it again has no effect."""
        self._native.end()
        self._ended = True

    def _leave(self, error: BaseException | None) -> None:
        self.end()

    def __getattr__(self, name: str) -> Method:
        # Python itself looks up such names, for example to copy the object.
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
