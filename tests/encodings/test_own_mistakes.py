"""Mistakes in encodings of one's own: none reaches a kernel, and each is told in one line that names the file."""

import hashlib
import inspect
import os
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest
from own_encodings import LOOKED_UP, filled_by, without, write

import fastpe
from fastpe.base import own_files
from fastpe.doctor import encoding_checks
from fastpe.doctor.diagnosis import judge
from fastpe.encodings import record, registry

SIZES = {"dim": 8, "heads": 2}


def test_no_option_may_have_the_name_of_a_parameter_of_build():
    of_build = inspect.signature(fastpe.build).parameters
    assert {*of_build, "spec", "rng", "dslots", "dparams"} == set(record.TAKEN)


# What a kernel would follow -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["index", "values"])
def test_an_index_and_its_values_come_together(tmp_path, slot):
    alone = f"('{slot}',)"
    with pytest.raises(ValueError, match=r"^mine\.py: slots must not be .*: 'index' selects entries of 'values'"):
        fastpe.register(write(tmp_path, ('("index", "values")', alone), text=LOOKED_UP))
    key = fastpe.register(
        write(tmp_path, ("for slot in known", f"for slot in ['{slot}']"), text=LOOKED_UP, name="half.py")
    )
    with pytest.raises(ValueError, match=rf"^half\.py: shapes gives only slot '{slot}': 'index' selects"):
        fastpe.build(key, 4, **SIZES)


@pytest.mark.parametrize("value", ["0.5", "np.nan", "np.inf", "-1", "3", "2**40"])
def test_an_index_holds_whole_numbers_that_point_to_values(tmp_path, value):
    key = fastpe.register(write(tmp_path, ("ENTRY = 0", f"ENTRY = {value}"), text=LOOKED_UP))
    with pytest.raises(ValueError, match=r"^mine\.py: slot 'index' (must hold whole numbers, not|must lie in) "):
        fastpe.build(key, 4, **SIZES)
    right = fastpe.register(write(tmp_path, ("ENTRY = 0", "ENTRY = 2.0"), text=LOOKED_UP, name="right.py"))
    np.testing.assert_array_equal(fastpe.build(right, 4, **SIZES)["index"], np.full((4, 4), 2))


# Records -------------------------------------------------------------------------------------------------------------

OPTION = 'fastpe.Option(0.5, "power of the distance", float, above=0.0, maximum=4.0)'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('("bias",)', '["bias"]'), r"slots must be a tuple of names, .*, not \['bias'\]"),
        (('("bias",)', '("bias", "bias")'), "slots must name every slot only once, not "),
        (('("bias",)', '("bias", 3)'), "slot 3 is unknown"),
        (('"power": fastpe', '"dim": fastpe'), "options: 'dim' is an argument of fastpe.build"),
        (('"power": fastpe', '"a b": fastpe'), "options: 'a b' is not a valid Python name"),
        (('"power": fastpe', '3: fastpe'), "options: 3 is not a valid Python name"),
        (('options={"power": ' + OPTION + "}", "options=3"), "options must be a dict of names to fastpe.Option, not 3"),
        (("float, above", "complex, above"), "option 'power': kind must be one of bool, int, float, str, tuple, not "),
        (("fastpe.Option(0.5,", "fastpe.Option(5.0,"), "the default of option 'power' must be a finite number > 0"),
        (("maximum=4.0", "maximum='4'"), "option 'power': maximum must be a number, not '4'"),
        (('direction="no"', "direction=[]"), r"direction must be one of yes, .*, not \[\]"),
        (('summary="a', 'summary="a\\n'), "summary must be one line of at most 100 characters"),
        (('summary="a', f'summary="{"a" * 100}'), "summary must be one line of at most 100 characters"),
        (('source="an own construction"', "source=None"), "source must be a str, not None"),
        (("ulp=4.0", "use='poems'"), "use must be one of current, .*, study, or be left out, not 'poems'"),
        (("ulp=4.0", "formula=3"), "formula must be a str, not 3"),
        (("ulp=4.0", f"use_when={'a' * 111!r}"), "use_when must be one line of at most 110 characters"),
        (("ulp=4.0", "also_called='Root'"), r"also_called must be a tuple of names, as in .*, not 'Root'"),
        (("ulp=4.0", "not_to_be_confused=('alibi',)"), "not_to_be_confused must be a dict of names to the difference"),
        (("ulp=4.0", "ulp=0"), "ulp must be a finite number > 0, or a function"),
        (("ulp=4.0", "ulp=float('nan')"), "ulp must be a finite number > 0, or a function"),
        (("ulp=4.0", "reported=('holds', '', '')"), "reported must be None or a fastpe.Reported of three texts"),
        (("ulp=4.0", "reported=fastpe.Reported('well', '', '')"), "reported.outcome must be one of holds, partly"),
        (("ulp=4.0", "per_layer='slope'"), "per_layer must be a tuple of names, as in .*, not 'slope'"),
        (("ulp=4.0", "paper=3"), "paper must be a dict of options to values, not 3"),
        (("ulp=4.0", "paper={'powr': 1.0}"), "paper names 'powr', which is not an option; did you mean 'power'"),
        (("ulp=4.0", "tested={'power': 9.0}"), "tested: option 'power' must be a finite number > 0 and <= 4, not 9"),
        (("\n\nENCODING", "\n\naxes = 2\nENCODING"), "axes must be a function, not 2"),
        (("\n\nENCODING", "\n\nfrom math import exp as fill\nENCODING"), "fill is imported from math: set it in ENC"),
        (without("parameters"), "learned parameters need shapes and initial values: define parameters"),
        (without("init"), ".*define init"),
        (('slots=("bias",)', 'slots=("angles",)'), r"slot 'angles' \(H or 1, N, R/2\) has no usual shape: define sh"),
        (('slots=("bias",)', 'slots=("bias", "scale")'), ".*define plain"),
    ],
)  # fmt: skip
def test_each_field_of_the_record_is_checked(tmp_path, change, message):
    with pytest.raises(ValueError, match=rf"^mine\.py: {message}"):
        fastpe.register(write(tmp_path, change))


# What ends no program ------------------------------------------------------------------------------------------------

ENDS = "class Ends(SystemExit):\n    pass\n\n\n"


@pytest.mark.parametrize("end", ["SystemExit(3)", "GeneratorExit(3)", "Ends(3)"])
def test_no_file_ends_the_program(tmp_path, end):
    name, imported = end.partition("(")[0], ("def _distances", f"{ENDS}raise {end}\n\n\ndef _distances")
    with pytest.raises(ValueError, match=rf"^mine\.py, line \d+: {name}: 3$"):
        fastpe.register(write(tmp_path, imported))
    called = (("def _distances", f"{ENDS}def _distances"), ("    return {", f"    raise {end}\n    return {{"))
    key = fastpe.register(write(tmp_path, *called))
    with pytest.raises(ValueError, match=rf"^mine\.py, line \d+: {name}: 3$"):
        fastpe.build(key, 4, **SIZES)
    stated = fastpe.register(write(tmp_path, ("ulp=4.0", "ulp=lambda spec, power: exit(3)"), name="stated.py"))
    assert {each.name for each in failed(stated)} == {"fill"}


def failed(key):
    """The verdicts of the checks that fail; none of them trains a model."""
    verdicts = [judge(check) for check in encoding_checks.checks(key) if check.name != "model"]
    return [verdict for verdict in verdicts if not verdict.passed]


def test_an_interruption_passes(tmp_path):
    interrupted = ("    return {", "    raise KeyboardInterrupt\n    return {")
    key = fastpe.register(write(tmp_path, interrupted))
    with pytest.raises(KeyboardInterrupt):
        fastpe.build(key, 4, **SIZES)
    with pytest.raises(KeyboardInterrupt):
        fastpe.register(write(tmp_path, ("import fastpe\n", "import fastpe\nraise KeyboardInterrupt\n"), name="now.py"))


# What functions give -------------------------------------------------------------------------------------------------

RETURN, DRAWN = '{"bias": -', '{"slope": rng.uniform(spec.heads)}'
SCALED = ('("bias",)', '("bias", "scale")')
ADDED = "\n\nENCODING"


def defined(function, value):
    """A change that adds a function which returns this."""
    return (ADDED, f"\n\ndef {function}(*arguments, **options):\n    return {value}\n\n\nENCODING")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(RETURN, '{"bias": np.nan * -')], r": slot 'bias' must be finite in float32, not nan at \(0, 0\)"),
        ([(RETURN, '{"bias": np.where(np.arange(9) == 3, np.inf, 1) * -')], r": slot 'bias' must be .* \(0, 3\)"),
        ([(RETURN, '{"bias": "a" if 1 else -')], ": reference gives 'bias' as <U1, not as real numbers"),
        ([(RETURN, '{"bias": 1j * -')], ": reference gives 'bias' as complex128, not as real numbers"),
        ([(RETURN, '{"bias": [[1], [1, 2]] if 1 else -')], ": reference must give 'bias' as an array: "),
        ([(RETURN, '{3: 0, "bias": -')], ": reference gives slot 3, but ENCODING.slots allows only bias"),
        ([(DRAWN, '{"slope": np.full(2, np.nan)}')], ": init gives 'slope' a value that is not finite"),
        ([(DRAWN, '{"slope": ["a", "b"]}')], ": init gives 'slope' as <U1, not as real numbers"),
        ([(DRAWN, '{"slope": 1, 3: 1}')], r": init must return \['slope'\], as `parameters` does, not \[3, 'slope'\]"),
        ([defined("axes", "1.5")], ": axes must return an integer of at least 1, not 1.5"),
        ([defined("plain", "{}"), SCALED], ": plain gives no 'scale', which ENCODING.slots"),
        ([defined("plain", "{'scale': 1j}"), SCALED], ": plain gives 'scale' as complex128"),
        ([defined("plain", "{'scale': [[1], []]}"), SCALED], ": plain must give 'scale' as an ar"),
        ([defined("plain", "{'scale': np.inf}"), SCALED], ": plain gives slot 'scale' the val"),
        ([defined("plain", "{'scale': True}"), SCALED], ": plain gives slot 'scale' the value"),
        ([(RETURN, '{"bias": -np.ones(3) if 1 else -')], r": reference gives slot 'bias' the shape \(3,\), not"),
        ([(RETURN, '{"table": -')], ": reference gives slot 'table', but ENCODING.slots allows only bias"),
        ([(f"return {RETURN}", 'return {} and {"bias": -')], r": reference must return the slots \['bias'\], not \[\]"),
        ([(f"return {RETURN}", 'return 3, {"bias": -')], ": reference must return a dict, not tuple"),
        ([("[:, None]", "[:, 0]")], r", line 34: IndexError: "),
        ([("params, *, power", "params")], r": TypeError: reference\(\) got an unexpected keyword argument"),
        ([filled_by("out['bias'] = np.zeros(3)")], r": fill replaces out\['bias'\], of shape \(2, 9\), by an array of"),
        ([filled_by("out['table'] = 3")], r": fill adds 'table' to out, which must keep \['bias'\]"),
        ([filled_by("pass")], r".*slot 'bias', of shape \(2, 9\), but its first entry is unwritten or NaN"),
        ([filled_by("out['bias'][:, :-1] = 0")], ".*but its last entry is unwritten or NaN"),
        ([filled_by("out['bias'][...] = np.zeros(3)")], r", line \d+: ValueError: could not broadcast"),
        ([("rng.uniform(spec.heads)", "rng.uniform(3)")], r": init gives 'slope' the shape \(3,\), not \(2,\)"),
        ([('return {"slope": rng', 'return {"slop": rng')], r": init must return \['slope'\], as `parameters` do"),
        ([('{"slope": (spec.heads,)}', '{"slope": 2}')], ": parameters must map names to tuples of sizes, not 'slope'"),
        ([defined("shapes", "{'bias': (2, 4)}")],
         r": shapes gives slot 'bias' the shape \(2, 4\), not one of \(H, 2K\+1\) at length=5"),
    ],
)  # fmt: skip
def test_wrong_results_of_functions_are_named(tmp_path, changes, message):
    key = fastpe.register(write(tmp_path, *changes))
    with pytest.raises(ValueError, match=rf"^mine\.py{message}") as caught:
        fastpe.build(key, 5, **SIZES)
    assert not isinstance(caught.value, fastpe.BeyondTrainingLength)


@pytest.mark.parametrize(("function", "value"), [("moves", "1"), ("remarks", "'text'")])
def test_results_of_moves_and_remarks_are_checked(tmp_path, function, value):
    own = registry.get(fastpe.register(write(tmp_path, defined(function, value))))
    with pytest.raises(ValueError, match=rf"^mine\.py: {function} must return "):
        getattr(own, function)(*([None] if function == "remarks" else []), power=0.5)


@pytest.mark.parametrize("given", ["params['slope']", "dslots['bias']"])
def test_pull_cannot_change_its_arguments(tmp_path, given):
    key = fastpe.register(write(tmp_path, ("    dparams", f"    {given} *= 2\n    dparams")))
    params, dslots = fastpe.init(key, train_length=5, **SIZES), {"bias": np.ones((2, 9), np.float32)}
    with pytest.raises(ValueError, match=r"^mine\.py, line 38: ValueError: output array is read-only"):
        fastpe.pull(key, 5, dslots, params=params, **SIZES)


# Loading -------------------------------------------------------------------------------------------------------------


def test_a_file_that_registers_itself_is_refused(tmp_path):
    itself = ("import fastpe\n", "import fastpe\nfastpe.register(__file__)\n")
    with pytest.raises(ValueError, match=r"^mine\.py, line 19: .*'mine' registers or uses itself while its file is"):
        fastpe.register(write(tmp_path, itself))
    assert fastpe.register(write(tmp_path)) == "mine"  # it may be mended


def test_only_one_of_two_contents_is_registered(tmp_path):
    slow = ("import fastpe\n", "import fastpe\nimport time\ntime.sleep(0.2)\n")
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder, slow, ("0.5", "0.25" if folder == "one" else "0.75")))
    with ThreadPoolExecutor(2) as pool:
        found = [done.exception() for done in [pool.submit(fastpe.register, path) for path in paths]]
    (refused,) = [error for error in found if error is not None]
    assert "was registered from" in str(refused)


def test_what_runs_is_what_the_digest_is_of(tmp_path, monkeypatch):
    """A module whose file has changed since it was imported; one of a package keeps its relative imports."""
    package = tmp_path / "pkg_of_two"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("ROOM = 1\n")
    path = write(package, ("import fastpe\n", "import fastpe\n\nfrom .part import ROOM\n"), name="inner.py")
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("pkg_of_two.inner")
    path.write_text(path.read_text().replace("0.5", "0.25"))
    key = fastpe.register(module)
    assert registry.get(key).options["power"].default == 0.25
    assert registry.own_files(key)[key]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mine.py")
    with pytest.raises(ValueError, match=r"mine\.py is not a regular file"):
        fastpe.register(tmp_path / "mine.py")


def test_what_a_file_prints_is_no_result(tmp_path, capsys):
    fastpe.register(write(tmp_path, ("import fastpe\n", "import fastpe\nprint('loaded')\n")))
    assert capsys.readouterr() == ("", "loaded\n")


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "module_or_path must be a module or the path of a file that ends in .py, not ''"),
        ("alibi", "encoding 'alibi' comes with fastpe: register takes a module, or the path of a file"),
        ("~nobody_of_this_name/x.py", "~nobody_of_this_name/x.py cannot be read: "),
    ],
)
def test_names_that_are_no_path_of_a_file_are_refused(name, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        fastpe.register(name)


def test_a_folder_whose_name_holds_a_plus(folder):
    (folder / "a+b").mkdir()
    path = write(folder / "a+b")
    for name in ("a+b/mine.py", str(path), f"{path}+alibi"):
        with pytest.raises(ValueError, match=r"a path with '\+' cannot be part of a sum: pass it to fastpe.register"):
            fastpe.ModelConfig(name)
    assert fastpe.ModelConfig(f"{fastpe.register(path)}+alibi").encoding == "mine+alibi"


def test_made_for_causal_models_and_taken_by_others(tmp_path):
    key = fastpe.register(write(tmp_path, ('direction="no"', 'direction="causal"')))
    assert encoding_checks.remarks(key) == [
        "direction is 'causal', but models without a mask accept the encoding, too; a tested model without a mask does "
        "not distinguish left from right"
    ]


def test_another_digest_is_told_with_the_path_of_the_file(tmp_path):
    key = fastpe.register(path := write(tmp_path))
    with pytest.raises(ValueError, match=f"and that of {re.escape(str(path))} is "):
        own_files.check_same(
            tmp_path / "run", {key: {"file": "mine.py", "sha256": "0" * 64}}, registry.ENCODINGS, [key]
        )


def test_a_module_without_an_encoding_is_not_run_again():
    with pytest.raises(ValueError, match="module 'numpy' must define ENCODING"):
        fastpe.register(np)


def test_a_sum_has_no_page_and_cannot_be_resized():
    for ask in (fastpe.page, lambda name: fastpe.resize(name, {}, length=3)):
        with pytest.raises(ValueError, match=r"encoding must be a single encoding, not the sum 'wavelet\+alibi'"):
            ask("wavelet+alibi")
