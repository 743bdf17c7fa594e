"""What a test or example registers is unknown to the next (tests/conftest.py brings this to examples too)."""

import os

import numba
import pytest

from fastpe.encodings.registry import ENCODINGS
from fastpe.kernels.threads import team as threads
from fastpe.pictures import canvas
from fastpe.tasks.registry import TASKS

_OFFERED = [(found, found._offered) for found in (ENCODINGS, TASKS)]
"""What installed packages offer. To read it takes milliseconds, too long for each test."""


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    """No encoding or task of one's own is known, and none stays known."""
    for found, offered in _OFFERED:
        monkeypatch.setattr(found, "_registered", {})
        vars(found)["_offered"] = offered


@pytest.fixture(autouse=True)
def one_thread():
    """Kernels take one thread where nobody says otherwise: workers side by side have a core each."""
    if "PYTEST_XDIST_WORKER" in os.environ and threads._threads_started:
        numba.set_num_threads(1)


@pytest.fixture
def no_pdf(monkeypatch):
    """Studies leave no PDF, which takes matplotlib a second."""
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)


@pytest.fixture(scope="module")
def no_pdf_at_all():
    """As `no_pdf`, for a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canvas, "find_spec", lambda name: None)
        yield
