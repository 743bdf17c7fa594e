"""A lock for one call at a time that recovers from interrupts at any moment.

A signal handler, or another thread's asynchronous exception, may raise between any two steps of a `with` statement:
after a lock is taken but before that is recorded, or before it is released. So the guard does not rely on being told
that a call is over. A *hold* records the frame of its `with` statement. It is over when that frame has left the
statement, or has left the stack of its thread. Each hold has at most one successor, chosen in a single step that
neither interrupts nor other threads can divide. The last hold owns the guard.
"""

import inspect
import sys
from threading import Lock, get_ident
from time import monotonic, sleep
from types import FrameType

_LOOK = 0.02  # seconds between checks whether the awaited hold is over
_BLINK = 5e-5  # seconds between checks whether another thread has taken its turn
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class OneAtATime:
    """A lock for resources that one thread uses at a time. Entering raises an error if waiting could not end.

    Use it as ``with guard:`` in a function that lets exceptions out. Do not use it in a generator, which leaves the
    stack.

    Parameters
    ----------
    nested : bool
        Whether a call may enter again what it has entered. If not, that is an error, too: a signal handler runs inside
        a call that may have entered already, and must not use data that the call has half changed.
    """

    def __init__(self, *, nested: bool = False) -> None:
        self._nested = nested
        self._newest = _Hold(0, None)

    def __enter__(self) -> None:
        mine = _Hold(get_ident(), sys._getframe(1))
        while (last := self._last()) is not mine:
            if last.over() or last.frame is mine.frame:  # a frame cannot be inside and before the statement
                _give_way(mine, last)
                last.next.setdefault(0, mine)  # a single step: another thread may have set it already
            elif last.thread == mine.thread:
                if self._nested:
                    return
                raise RuntimeError(_MIDST)
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


_MIDST = "fastpe was called within another call of fastpe, possibly by a signal handler"


class _Hold:
    """A thread's hold on a guard, by a frame."""

    __slots__ = ("frame", "left", "next", "thread", "waiting")

    def __init__(self, thread: int, frame: FrameType | None) -> None:
        self.thread, self.frame = thread, frame
        self.next: dict[int, _Hold] = {}
        self.left = Lock()  # wakes waiting threads; if it is never released, they find out at their next check
        self.left.acquire()
        self.waiting = 0  # a thread that waits for the end of this hold

    def over(self) -> bool:
        frame = self.frame
        return frame is None or not runs(self.thread, frame)


def runs(thread: int, frame: FrameType) -> bool:
    """Whether a frame is on the stack of its thread; detects calls that an interrupt ended."""
    here = sys._current_frames().get(thread)
    while here is not None and here is not frame:
        below = here.f_back
        if below is None and here.f_code.co_flags & _PAUSES:
            return True  # a generator that was left while we looked: the thread has gone on, so look again
        here = below
    return here is not None


_waiting: dict[int, tuple[_Hold, _Hold]] = {}  # by thread: its future hold, and the one that it waits for


def _wait(mine: _Hold, other: _Hold) -> None:
    """Return when another thread may have left its hold."""
    try:
        _waiting[mine.thread] = mine, other
        if _in_a_circle(mine.thread):
            raise RuntimeError(f"{_MIDST}, and the two calls would wait for each other")
        other.waiting = mine.thread
        if other.left.acquire(timeout=_LOOK):
            other.left.release()  # for the next waiting thread
    finally:
        _waiting.pop(mine.thread, None)


def _give_way(mine: _Hold, last: _Hold) -> None:
    """Give a waiting thread its turn first: a thread that calls without a pause would otherwise always be faster."""
    if last.waiting not in (0, mine.thread):
        end = monotonic() + _LOOK  # the thread may not wait any more
        while not last.next and monotonic() < end:
            sleep(_BLINK)


def _in_a_circle(thread: int) -> bool:
    """Whether a thread waits for a thread that waits for it.

    A signal handler may need what another thread has entered, while that thread waits for the interrupted call.
    """
    seen, at = set[int](), thread
    while at not in seen and (found := _waiting.get(at)) is not None:
        mine, other = found
        if mine.over() or other.over():
            return False
        seen.add(at)
        at = other.thread
    return at == thread and bool(seen)
