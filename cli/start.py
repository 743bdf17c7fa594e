"""The entry point of the command ``fastpe``: handles Ctrl-C before anything slow is imported."""

import sys
from typing import Any


def start() -> None:
    """Import and run the command, then end the process."""
    report, sys.unraisablehook = sys.unraisablehook, lambda event: _again(event, report)
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("fastpe: interrupted\n")
        sys.exit(130)


def _again(event: Any, report: Any) -> None:
    """Raise Ctrl-C again if it arrived inside a callback of the compiler, where Python only reports it."""
    if event.exc_type is not KeyboardInterrupt:
        report(event)
        return
    import _thread
    import threading

    threading.Timer(0.05, _thread.interrupt_main).start()
