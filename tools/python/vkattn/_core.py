"""Who owns what, and whose turn it is.

C wants what is made from a device to be destroyed before it, and one thread at a time. Python's
collector runs where and in whatever order it likes, cycles included. So a device's core keeps the
list of what lives, every call holds the core's lock, and what the collector finds while another
call runs is put aside and destroyed by the call that has the turn.
"""

from __future__ import annotations

import collections
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable

from ._abi import lib, text_of
from ._errors import ClosedError, VkattnError, error_of

if TYPE_CHECKING:
    from ._device import Device


class Core:
    """A C device with its children. `with core:` takes the turn, and fails where it is closed."""

    def __init__(self, box: Any, log: Any) -> None:
        self.box = box  # struct vka_device **
        self._log = log  # C calls it as long as the device lives
        self._live: dict[Any, Callable[[Any], None]] = {}  # struct vka_x **: its destroy function
        self._dead: collections.deque[Any] = collections.deque()
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._process = os.getpid()

    def _take_turn(self) -> None:
        if self._process != os.getpid():
            raise VkattnError("the device was made before this process was forked: make another")
        if self._holder == threading.get_ident():
            raise VkattnError("a log callback must not call back into vkattn")
        self._lock.acquire()
        self._holder = threading.get_ident()

    def _end_turn(self) -> None:
        self._sweep()
        self._holder = None
        self._lock.release()

    def _sweep(self) -> None:
        while self._dead:
            box = self._dead.popleft()
            destroy = self._live.pop(box, None)
            if destroy:
                destroy(box)

    def __enter__(self) -> Core:
        self._take_turn()
        if not self.box[0]:
            self._end_turn()
            raise ClosedError("the device has been closed")
        return self

    def __exit__(self, *_: object) -> None:
        self._end_turn()

    def check(self, status: int) -> None:
        """Raises unless VKA_OK; within a turn, as the sentence lives until the next failure."""
        if status:
            raise error_of(status, text_of(lib.vka_device_error(self.box[0])))

    def adopt(self, box: Any, destroy: Callable[[Any], None]) -> None:
        self._live[box] = destroy

    def retire(self, box: Any) -> None:
        """Destroys a child now or, where a call has the turn, when that call ends. Never waits."""
        self._dead.append(box)
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            self._holder = threading.get_ident()
            self._end_turn()

    def close(self) -> None:
        if self._process != os.getpid():
            return
        self._take_turn()
        self._dead.extend(self._live)
        self._sweep()
        lib.vka_device_destroy(self.box)
        self._end_turn()


class Child:
    """What is made from a device."""

    device: Device
    _box: Any

    def _own(self, device: Device, box: Any, destroy: Callable[[Any], None]) -> None:
        """Takes what a create function just put into box; within a turn."""
        self.device = device
        self._box = box
        core = device._core
        core.adopt(box, destroy)
        self._finalizer = weakref.finalize(self, core.retire, box)

    @property
    def _pointer(self) -> Any:
        """The C object; within a turn, so that no other thread closes it meanwhile."""
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} has been closed")
        return self._box[0]

    def close(self) -> None:
        """Gives back what the object holds on the device. Closing twice does nothing."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        return not (self._finalizer.alive and self._box[0])

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_child(x: object, kind: type, what: str) -> Any:
    """x, which must be a `kind`."""
    if not isinstance(x, kind):
        raise TypeError(f"{what}: expected a {kind.__name__}, got {type(x).__name__}")
    return x
