"""A lock, called guard, that one call holds at a time, and that recovers from interrupts at any moment.

A signal handler, or another thread's asynchronous exception, may interrupt a `with` statement between any two steps:
after a lock is taken but before this is recorded, or before the lock is released. So the guard does not rely on a
release. Each time a call takes the guard, a *hold* records the frame of the `with` statement. A hold is over when that
frame has left the statement, or has left the stack of its thread. Each hold has at most one successor, which is set in
one atomic step. The last hold of this chain owns the guard.
"""

import inspect
import sys
from threading import Lock, get_ident
from time import monotonic, sleep
from types import FrameType

_LOOK = 0.02  # seconds between checks whether the hold that a thread waits for is over
_BLINK = 5e-5  # seconds between checks whether another thread has taken its turn
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class OneAtATime:
    """A lock for resources that one thread uses at a time. Entering raises an error if the thread would wait forever.

    Use it as ``with guard:`` in a function that does not catch exceptions around this statement. Do not use it in a
    generator, because the frame of a generator leaves the stack at every `yield`.

    Parameters
    ----------
    nested : bool
        Whether a thread that holds the guard may enter it again. If not, entering it again raises an error: a signal
        handler may run within a call that holds the guard, and must not use data that this call has half changed.
    """

    def __init__(self, *, nested: bool = False) -> None:
        self._nested = nested
        self._newest = _Hold(0, None)

    def __enter__(self) -> None:
        mine = _Hold(get_ident(), sys._getframe(1))
        while (last := self._last()) is not mine:
            if last.over() or last.frame is mine.frame:  # a frame that enters the statement has left its earlier hold
                _give_way(mine, last)
                last.next.setdefault(0, mine)  # atomic: does nothing if another thread has set it already
            elif last.thread == mine.thread:
                if self._nested:
                    return
                raise RuntimeError(_NESTED)
            else:
                _wait(mine, last)
        self._newest = mine

    def __exit__(self, *error: object) -> None:
        last = self._last()
        if last.frame is sys._getframe(1):  # not a nested entry
            last.frame = None
            last.left.release()

    def _last(self) -> "_Hold":
        hold = self._newest
        while hold.next:
            hold = hold.next[0]
        return hold


_NESTED = "fastpe was called within another call of fastpe, possibly by a signal handler"


class _Hold:
    """A thread's hold on a guard: the frame of a `with` statement, and the next hold."""

    __slots__ = ("frame", "left", "next", "thread", "waiting")

    def __init__(self, thread: int, frame: FrameType | None) -> None:
        self.thread, self.frame = thread, frame
        self.next: dict[int, _Hold] = {}
        # released at the end of the hold; if it never is, waiting threads notice the end at their next check
        self.left = Lock()
        self.left.acquire()
        self.waiting = 0  # identifier of a thread that waits for the end of this hold, or 0

    def over(self) -> bool:
        frame = self.frame
        return frame is None or not runs(self.thread, frame)


def runs(thread: int, frame: FrameType) -> bool:
    """Whether a frame is on the stack of its thread. It is not if an interrupt has ended its call."""
    here = sys._current_frames().get(thread)
    while here is not None and here is not frame:
        below = here.f_back
        if below is None and here.f_code.co_flags & _PAUSES:
            return True  # the thread has left a generator during this search: not known yet, callers ask again
        here = below
    return here is not None


_waiting: dict[int, tuple[_Hold, _Hold]] = {}  # by waiting thread: its future hold, and the hold that it waits for


def _wait(mine: _Hold, other: _Hold) -> None:
    """Wait until another thread may have left its hold."""
    try:
        _waiting[mine.thread] = mine, other
        if _waits_for_itself(mine.thread):
            raise RuntimeError(f"{_NESTED}, and the two calls would wait for each other")
        other.waiting = mine.thread
        if other.left.acquire(timeout=_LOOK):
            other.left.release()  # for the next waiting thread
    finally:
        _waiting.pop(mine.thread, None)


def _give_way(mine: _Hold, last: _Hold) -> None:
    """Let a waiting thread take the guard first. Otherwise, a thread that calls without a pause would always be
    faster."""
    if last.waiting not in (0, mine.thread):
        end = monotonic() + _LOOK  # a limit, because the thread may have stopped waiting
        while not last.next and monotonic() < end:
            sleep(_BLINK)


def _waits_for_itself(thread: int) -> bool:
    """Whether a thread waits for a thread that waits for it, directly or through others.

    This happens if a signal handler needs a guard that another thread holds, while that thread waits for the call that
    the signal has interrupted.
    """
    seen, at = set[int](), thread
    while at not in seen and (found := _waiting.get(at)) is not None:
        mine, other = found
        if mine.over() or other.over():
            return False
        seen.add(at)
        at = other.thread
    return at == thread and bool(seen)
