"""What a test or example registers is unknown to the next (tests/conftest.py brings this to examples too)."""

import os

import numba
import pytest

from fastpe.encodings.registry import ENCODINGS
from fastpe.kernels.threads import team as threads
from fastpe.pictures import canvas
from fastpe.tasks.registry import TASKS


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    """No encoding or task of one's own is known, and none stays known."""
    for found in (ENCODINGS, TASKS):
        monkeypatch.setattr(found, "_registered", {})
        vars(found).pop("_offered", None)
    yield
    for found in (ENCODINGS, TASKS):
        vars(found).pop("_offered", None)


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
