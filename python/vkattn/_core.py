"""Who owns what, whose turn it is, and that no interrupt breaks either.

C wants what is made from a device to be destroyed before it, and one thread at a time. Python
raises KeyboardInterrupt between any two steps of the main thread, and its collector runs wherever
it likes. So a call is a function that runs under the lock of the device's core; what C makes has an
owner before it is made; and what the collector finds is only noted, by a function of C in which no
interrupt can be lost, and destroyed by the next call.
"""

from __future__ import annotations

import atexit
import collections
import functools
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar

from ._abi import ffi, lib, text_of
from ._errors import ClosedError, VkattnError, error_of

if TYPE_CHECKING:
    from ._log import Log

T = TypeVar("T")

# Nanoseconds that C waits at a time: Python handles signals between two calls of C alone.
SLICE = 100_000_000
COMPILING = 600_000_000_000  # that a CPU driver may compile, for C too
_TIMEOUT = int(lib.VKA_TIMEOUT)


def run_locked(lock: Any, work: Callable[[], T]) -> T:
    """work() under an RLock, which is free afterwards wherever an interrupt strikes.

    The interpreter may be interrupted between the block of a `with` and the release (Python 3.9
    everywhere, later ones under a tracer), never at two places by one interrupt: so what `with`
    left is released here.
    """
    if lock._is_owned():
        raise VkattnError("a log callback or signal handler must not call back into vkattn")
    try:
        with lock:
            return work()
    finally:
        if lock._is_owned():
            lock.release()


class Remains(weakref.ref):  # type: ignore[type-arg]
    """What stays of an object that nothing refers to: how to destroy what C holds for it."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    # May be called again. Set a step after the object is made, which an interrupt may come between.
    end: Callable[[], object] = staticmethod(lambda: None)


_devices: set[Remains] = set()


def close_dropped() -> None:
    """Closes the devices that nothing refers to."""
    for remains in list(_devices):
        if remains() is None:
            remains.end()


@atexit.register
def _close_all() -> None:
    for remains in list(_devices):
        remains.end()


class Core:
    """A C device with its children."""

    def __init__(self, device: object, log: Log) -> None:
        self.box = ffi.new("struct vka_device **")
        self._log = log  # C calls it as long as the device lives
        self._live: set[Remains] = set()  # the children
        self._dead: collections.deque[Remains] = collections.deque()
        self._lock: Any = threading.RLock()
        self._process = os.getpid()
        self.kept: dict[int, Any] = {}  # memory of the host that the device uses, by its address
        self._remains = Remains(device)
        self._remains.end = self.close
        _devices.add(self._remains)

    def turn(self, work: Callable[[], T]) -> T:
        """work() when no other thread is in a call of this device. Raises where it is closed."""
        if self._process != os.getpid():
            raise VkattnError("the device was made before this process was forked: make another")
        close_dropped()
        return run_locked(self._lock, lambda: self._take_turn(work))

    def call(self, work: Callable[[], int]) -> None:
        """A turn whose work gives a status."""
        self.turn(lambda: self.check(work()))

    def wait(self, wait: Callable[[int], int], timeout: int, what: str = "") -> None:
        """Within a turn: waits up to timeout nanoseconds by wait(nanoseconds), a call of C.

        An interrupt is raised after a slice at the latest; the work goes on. A slice that runs out
        is no failure: its sentence is not logged. what: is not done in time; "": C says.
        """
        end, left = time.monotonic_ns() + timeout, timeout
        status = _TIMEOUT
        while left > SLICE and status == _TIMEOUT:
            held = self._log.held = []
            status = wait(SLICE)
            self._log.held = None
            for sentence in held[: -1 if status == _TIMEOUT else None]:
                self._log.pass_on(*sentence)
            self._log.raise_kept()
            left = max(end - time.monotonic_ns(), 1)
        status = wait(left) if status == _TIMEOUT else status
        if status == _TIMEOUT and timeout > 0 and what:  # C knows of the last slice alone
            seconds = f"{timeout * 1e-9:.3g} s"
            raise error_of(status, f"{what} is not done after {seconds} (timeout): wait again")
        self.check(status)

    def create(self, child: Child, destroy: Callable[[Any], None], fill: Callable[[], int]) -> None:
        """A turn in which fill() has C put an object into the child's box."""
        remains = child._remains = Remains(child, self._dead.append)
        remains.end = functools.partial(destroy, child._box)

        def work() -> None:
            self._live.add(remains)
            self.check(fill())
            child._made()

        self.turn(work)

    def retire(self, remains: Remains) -> None:
        """Destroys a child; within a call of this thread, when that ends."""
        self._dead.append(remains)
        if self._process == os.getpid() and not self._lock._is_owned():
            run_locked(self._lock, self._sweep)

    def close(self) -> None:
        """Destroys the children, then the device. May be called again."""
        if self._process == os.getpid():
            run_locked(self._lock, self._end)
            _devices.discard(self._remains)

    def check(self, status: int) -> None:
        """Raises unless VKA_OK; within a turn, as the sentence lives until the next failure."""
        if status:
            raise error_of(status, text_of(lib.vka_device_error(self.box[0])))

    def _take_turn(self, work: Callable[[], T]) -> T:
        if not self.box[0]:
            raise ClosedError("the device has been closed")
        self._log.held = None  # an interrupted wait may have left it
        self._sweep()
        try:
            return work()
        finally:
            self._sweep()

    def _sweep(self) -> None:
        while self._dead:
            remains = self._dead[0]  # until it is destroyed, were this interrupted
            remains.end()
            self._live.discard(remains)
            self._dead.popleft()
        self._log.raise_kept()

    def _end(self) -> None:
        for remains in list(self._live):
            remains.end()
        self._live.clear()
        lib.vka_device_destroy(self.box)
        self.kept.clear()
        self._sweep()


class HasCore(Protocol):
    """A device, as what is made from it sees it."""

    _core: Core


class Child:
    """What is made from a device."""

    device: Any  # the Device, as each kind of child says
    _box: Any  # struct vka_x **
    _remains: Remains
    _closed = False

    def _create(self, device: HasCore, kind: str, fill: Callable[[Any], int]) -> None:
        """Has fill(box) make a struct vka_<kind>, within a turn."""
        self.device = device
        box = self._box = ffi.new(f"struct vka_{kind} **")
        device._core.create(self, getattr(lib, f"vka_{kind}_destroy"), lambda: fill(box))

    def _made(self) -> None:
        """Called when the C object is there; within the turn."""

    @property
    def _pointer(self) -> Any:
        """The C object; within a turn, so that no other thread closes it meanwhile."""
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} has been closed")
        return self._box[0]

    def close(self) -> None:
        """Gives back what the object holds on the device. Closing twice does nothing."""
        self._closed = True
        self.device._core.retire(self._remains)

    @property
    def closed(self) -> bool:
        return self._closed or not self._box[0]

    def __copy__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied: make another")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it lies on a device")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_child(x: object, kind: type, what: str) -> Any:
    """x, which must be a `kind`."""
    if not isinstance(x, kind):
        raise TypeError(f"{what}: expected a {kind.__name__}, got {type(x).__name__}")
    return x
