"""Settings of all tests."""

import gc
import signal

import compiled_kinds
import pytest
import selection

try:
    from hypothesis import settings
except ImportError:  # the adapters are also tested where there are frameworks and little else
    settings = None
else:  # the same examples for everybody; others, for every change, are drawn by tests/fuzz
    settings.register_profile("few", derandomize=True, deadline=None, max_examples=10)
    settings.register_profile("many", derandomize=True, deadline=None, max_examples=60)

PASSED = "fastpe/passed"  # in pytest's cache: node ids

# without tests or examples, and they import what only the extra `peers` brings
_OF_PEERS = ("make_torch_values", "position_schemes", "small_models", "sweep_transformers")
collect_ignore = [*(f"support/peers/{name}.py" for name in _OF_PEERS), "support/flex_mods.py"]


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run all tests, not the default selection")
    parser.addoption(
        "--rest", action="store_true", help="run all tests that did not pass in the last default selection"
    )


def pytest_configure(config):
    # shells start background jobs with SIGINT ignored, and so would the commands start that tests interrupt
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.import_plugin("isolation")
    config.addinivalue_line("markers", "full(reason): only run with --full, or by name")
    config.addinivalue_line("markers", "unsampled: all its parameter sets belong to the default selection")
    if settings is not None and not config.getoption("--hypothesis-profile", None):
        settings.load_profile("few" if selection.is_default(config) else "many")


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
    elif config.getoption("--rest"):
        passed = set(config.cache.get(PASSED, []))
        kept = [item for item in items if item.nodeid not in passed]
    else:
        return
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def pytest_terminal_summary(terminalreporter, config):
    """Remember what passed, for ``--rest``."""
    if selection.is_default(config) and hasattr(config, "cache"):  # which -p no:cacheprovider switches off
        config.cache.set(PASSED, sorted({report.nodeid for report in terminalreporter.getreports("passed")}))


def pytest_collection_finish():
    """Collected tests stay: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def few_kinds(request, tmp_path_factory):
    """In the default selection large kernels are compiled for few kinds of arguments, and before the first test."""
    with pytest.MonkeyPatch.context() as patch:
        if selection.is_default(request.config):
            compiled_kinds.limit(patch)
            worker = getattr(request.config, "workerinput", {"workerid": "gw0", "workercount": 1})
            number = int(worker["workerid"].removeprefix("gw"))
            compiled_kinds.compile_first(number, worker["workercount"], tmp_path_factory.getbasetemp().parent)
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
