"""Settings of all tests."""

import compiled_kinds
import pytest
import selection

try:
    from hypothesis import settings
except ImportError:  # the adapters are also tested where there are frameworks and little else
    pass
else:  # the same examples for everybody; others, for every change, are drawn by tests/fuzz
    settings.register_profile("same", derandomize=True, deadline=None)
    settings.load_profile("same")

PASSED = "fastpe/passed"  # in pytest's cache: node ids

# without tests or examples, and they import what only the extra `peers` brings
collect_ignore = [f"support/peers/{name}.py" for name in ("make_torch_values", "small_models", "sweep_transformers")]


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run all tests, not the default selection")
    parser.addoption(
        "--rest", type=int, metavar="N",
        help="run what the last run of the default selection left out or skipped: one in N parameter sets of each test",
    )  # fmt: skip


def pytest_configure(config):
    config.pluginmanager.import_plugin("isolation")
    config.addinivalue_line("markers", "full(reason): only run with --full, or by name")
    config.addinivalue_line("markers", "dtypes: all dtypes of its parameters belong to the default selection")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """The default selection and ``--full`` run in a process for each core, at most 4, unless ``-n`` says otherwise."""
    option, is_worker = config.option, hasattr(config, "workerinput")
    if not is_worker and selection.is_whole(config) and getattr(option, "numprocesses", 0) is None:
        option.numprocesses, option.maxprocesses, option.dist = "logical", option.maxprocesses or 4, "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Of pytest-xdist, for every worker."""
    node.workerinput["default_selection"] = selection.is_default(node.config)


def pytest_collection_modifyitems(config, items):
    if selection.is_default(config):
        kept = selection.selected(items, selection.seed_of_tree())
    elif share := config.getoption("--rest"):
        passed = set(config.cache.get(PASSED, []))
        rest = [item for item in items if item.nodeid not in passed]
        kept = selection.drawn(rest, lambda count: -(-count // share), selection.seed_of_tree())
    else:
        return
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def pytest_terminal_summary(terminalreporter, config):
    """Keep what the default selection passed, for ``--rest``."""
    if selection.is_default(config) and hasattr(config, "cache"):  # which -p no:cacheprovider switches off
        passed = {report.nodeid for report in terminalreporter.getreports("passed")}
        config.cache.set(PASSED, sorted(passed))


@pytest.fixture(scope="session", autouse=True)
def few_kinds(request):
    """In the default selection large kernels are compiled for few kinds of arguments."""
    with pytest.MonkeyPatch.context() as patch:
        if selection.is_default(request.config):
            compiled_kinds.limit(patch)
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
