"""The log callback that C calls."""

from __future__ import annotations

from typing import Any, Callable

from ._abi import LOG_CALLBACK, enum_names, ffi, text_of
from ._sentences import in_python

_LEVELS = {value: name for name, value in enum_names("VKA_LOG_", "vka_log_level").items()}


class Log:
    """Keeps the last error, and passes everything on. Holds no Device.

    held: where this is a list, sentences are kept there, and the caller passes them on.

    C cannot raise: what `log` raises, or an interrupt that comes while it runs, is kept until the
    call of C is over.
    """

    def __init__(self, log: Callable[[str, str], object] | None) -> None:
        self.error = ""
        self.held: list[tuple[int, str]] | None = None
        self._kept: BaseException | None = None

        def pass_on(level: int, text: str) -> None:
            if log:
                log(_LEVELS.get(level, "info"), text)

        def receive(_user: Any, level: int, message: Any) -> None:
            text = in_python(text_of(message))
            if level == 0:
                self.error = text
            if self.held is None:
                pass_on(level, text)
            else:
                self.held.append((level, text))

        def keep(_kind: Any, error: BaseException, traceback: Any) -> None:
            self._kept = error.with_traceback(traceback)

        self.pass_on = pass_on
        self.callback = ffi.callback(LOG_CALLBACK, receive, onerror=keep)

    def raise_kept(self) -> None:
        error, self._kept = self._kept, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it refers to this frame
