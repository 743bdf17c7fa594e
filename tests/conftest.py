"""Settings of all tests."""

import pytest

# without tests or examples, and they import what only the extra `peers` brings
collect_ignore = ["support/peers/make_torch_values.py", "support/peers/small_models.py"]


def pytest_configure(config):
    config.pluginmanager.import_plugin("isolation")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
