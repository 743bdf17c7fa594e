"""The peak memory of a call, as the operating system reports it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Unknown(Exception):
    """Raised if this system does not report the peak memory of a call. The message gives the reason."""


def peak_growth(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and the largest growth of the process's resident memory during it, in bytes.

    Memory that was freed earlier but is still held by the process does not count as growth, so use a new process.

    Raises
    ------
    Unknown
        If the peak of the resident memory cannot be reset; only Linux can.
    """
    try:
        _RESET.write_text("5")  # proc(5): resets the peak of resident memory to its present value
        before = _resident("VmRSS")
    except OSError as error:
        raise Unknown(f"no peak of memory on this system: {error.strerror}") from None
    result = call()
    return result, _resident("VmHWM") - before


def _resident(name: str) -> int:
    """The value of a line of /proc/self/status, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise Unknown(f"no peak of memory on this system: {_STATUS} has no {name}")
