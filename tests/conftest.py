"""Settings of all tests."""

import pytest

from fastpe.encodings import registry

# without tests or examples, and they import what only the extra `peers` brings
collect_ignore = ["support/peers/make_torch_values.py", "support/peers/small_models.py"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unregistered(monkeypatch):
    """No encoding of one's own is known, and none stays known."""
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    vars(registry.ENCODINGS).pop("_offered", None)
    yield
    vars(registry.ENCODINGS).pop("_offered", None)
