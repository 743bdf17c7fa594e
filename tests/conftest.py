"""Settings of all tests."""

import pytest

try:
    from hypothesis import settings
except ImportError:  # the adapters are also tested where there are frameworks and little else
    pass
else:  # the same examples for everybody; others, for every change, are drawn by tests/fuzz
    settings.register_profile("same", derandomize=True, deadline=None)
    settings.load_profile("same")

# without tests or examples, and they import what only the extra `peers` brings
collect_ignore = [f"support/peers/{name}.py" for name in ("make_torch_values", "small_models", "sweep_transformers")]


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run tests that take many minutes")


def pytest_configure(config):
    config.pluginmanager.import_plugin("isolation")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
