"""What one test or example registers is unknown to the next (tests/conftest.py brings this to the examples too)."""

import pytest

from fastpe.encodings.registry import ENCODINGS
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
