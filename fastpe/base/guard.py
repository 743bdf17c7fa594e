"""One call at a time: a guard that heals, whatever interrupt comes when.

A signal handler, or another thread's asynchronous exception, may raise between any two steps of a `with` statement:
when a lock is taken and nothing knows of it yet, or when it is about to be left. So nothing here waits to be told that
a call is over. A *hold* names the frame of its `with` statement, and is over when that frame has left it, or has left
the stack of its thread without a word. Each hold is followed by one other, chosen in a single step that no interrupt
and no thread can come between; the last of them has the guard.
"""

import inspect
import sys
from threading import Lock, get_ident
from time import monotonic, sleep
from types import FrameType

_LOOK = 0.02  # seconds between looks at whether a hold that is waited for is over
_BLINK = 5e-5  # seconds between looks at whether another thread has taken its turn
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class OneAtATime:
    """A lock for what is used by one thread at a time. Where waiting would be for ever, entering is an error instead.

    To be used as ``with guard:`` in a function that lets exceptions out. Not in a generator: it leaves the stack.

    Parameters
    ----------
    nested : bool
        Whether a call may enter again what it has entered; else that is an error, too: a signal handler runs inside a
        call that may have entered already, and must not use what that call has half changed.
    """

    def __init__(self, *, nested: bool = False) -> None:
        self._nested = nested
        self._newest = _Hold(0, None)

    def __enter__(self) -> None:
        mine = _Hold(get_ident(), sys._getframe(1))
        while (last := self._last()) is not mine:
            if last.over() or last.frame is mine.frame:  # one frame cannot be inside and before it
                _give_way(mine, last)
                last.next.setdefault(0, mine)  # one step: another thread's may be there by now
            elif last.thread == mine.thread:
                if self._nested:
                    return
                raise RuntimeError(_MIDST)
            else:
                _wait(mine, last)
        self._newest = mine

    def __exit__(self, *error: object) -> None:
        last = self._last()
        if last.frame is sys._getframe(1):  # and not a nested entry
            last.frame = None
            last.left.release()

    def _last(self) -> "_Hold":
        hold = self._newest
        while hold.next:
            hold = hold.next[0]
        return hold


_MIDST = "fastpe was called, by a signal handler perhaps, in the midst of another of its calls"


class _Hold:
    """A thread's hold on a guard, from within a frame."""

    __slots__ = ("frame", "left", "next", "thread", "waiting")

    def __init__(self, thread: int, frame: FrameType | None) -> None:
        self.thread, self.frame = thread, frame
        self.next: dict[int, _Hold] = {}
        self.left = Lock()  # wakes those who wait; that nobody releases it costs them a look
        self.left.acquire()
        self.waiting = 0  # a thread that waits for the end of this one

    def over(self) -> bool:
        frame = self.frame
        return frame is None or not runs(self.thread, frame)


def runs(thread: int, frame: FrameType) -> bool:
    """Whether a frame is on the stack of its thread: how one knows of a call that an interrupt ended unnoticed."""
    here = sys._current_frames().get(thread)
    while here is not None and here is not frame:
        below = here.f_back
        if below is None and here.f_code.co_flags & _PAUSES:
            return True  # a generator that was left while we looked: the thread has gone on, so look again
        here = below
    return here is not None


_waiting: dict[int, tuple[_Hold, _Hold]] = {}  # by thread: its own hold to be, and the one that it waits for


def _wait(mine: _Hold, other: _Hold) -> None:
    """Return when another thread has perhaps left its hold."""
    try:
        _waiting[mine.thread] = mine, other
        if _in_a_circle(mine.thread):
            raise RuntimeError(f"{_MIDST}, and the two would wait for each other")
        other.waiting = mine.thread
        if other.left.acquire(timeout=_LOOK):
            other.left.release()  # for the next who waits
    finally:
        _waiting.pop(mine.thread, None)


def _give_way(mine: _Hold, last: _Hold) -> None:
    """Let a thread that waits have its turn first: one that calls without a pause would be back before it is awake."""
    if last.waiting not in (0, mine.thread):
        end = monotonic() + _LOOK  # it may wait no more
        while not last.next and monotonic() < end:
            sleep(_BLINK)


def _in_a_circle(thread: int) -> bool:
    """Whether a thread waits for one that waits for it.

    A handler may want what another thread has entered, which waits for the very call that the handler has interrupted.
    """
    seen, at = set[int](), thread
    while at not in seen and (found := _waiting.get(at)) is not None:
        mine, other = found
        if mine.over() or other.over():
            return False
        seen.add(at)
        at = other.thread
    return at == thread and bool(seen)
