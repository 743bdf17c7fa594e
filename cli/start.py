"""Where the command ``fastpe`` begins: nothing is imported before Ctrl-C is one line and an exit status."""

import sys
from typing import Any


def start() -> None:
    """Import and run the command; ends the process."""
    report, sys.unraisablehook = sys.unraisablehook, lambda event: _again(event, report)
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("fastpe: interrupted\n")
        sys.exit(130)


def _again(event: Any, report: Any) -> None:
    """Ctrl-C inside a callback, such as those of the compiler, would be reported and lost: it comes again."""
    if event.exc_type is not KeyboardInterrupt:
        report(event)
        return
    import _thread
    import threading

    threading.Timer(0.05, _thread.interrupt_main).start()
