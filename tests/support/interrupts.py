"""Interrupts at every step that the interpreter makes, one after the other."""

import contextlib
import sys


class Interrupted(Exception):
    """What a signal handler raises."""


@contextlib.contextmanager
def interrupt_at(step, files):
    """Raise Interrupted before the bytecode instruction number `step`, of those in functions of these files.

    It tells, as a list, whether there were so many. A handler's exception comes at fewer places than these.
    """
    left, raised = [step], []

    def trace(frame, event, _):
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0 and not raised:
                raised.append(frame.f_code.co_name)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield raised
    finally:
        sys.settrace(before)


def interrupted_everywhere(call, files, after):
    """Interrupt `call` at every step, with `after` called each time; returns how many steps there were."""
    step, more = 0, True
    while more:
        with contextlib.suppress(Interrupted), interrupt_at(step, files) as raised:
            call()
        after()
        step, more = step + 1, bool(raised)
    return step - 1
