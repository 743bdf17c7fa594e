"""`fastpe check`: each of its checks finds what it is there for, and says what, where, found and expected."""

import pytest
from own_encodings import filled_by, write

import fastpe
from fastpe.doctor import encoding_checks
from fastpe.doctor.diagnosis import judge

STRIDED = """out['bias'][...] = reference(spec, params, power=power)['bias']
    step = out['bias'].strides[-1]
    np.lib.stride_tricks.as_strided(out['bias'][-1:, -1:], (1, 2), (step, step))[0, 1] = 3"""
HOLE = """values = reference(spec, params, power=power)['bias']
    out['bias'][0] = values[0]
    out['bias'][1, 1:] = values[1, 1:]"""
GREEDY = "params['slope'] += 1\n    out['bias'][...] = reference(spec, params, power=power)['bias']"


def failures(folder, *changes):
    """The notes of the checks that fail, by name; none of them trains a model."""
    key = fastpe.register(write(folder, *changes))
    verdicts = [judge(check) for check in encoding_checks.checks(key) if check.name != "model"]
    return {verdict.name: verdict.note for verdict in verdicts if not verdict.passed}


@pytest.mark.parametrize(
    ("change", "check", "note"),
    [
        (('"power of the distance", float', '"", float'), "options", "option 'power' has no `doc`"),
        (("rng.uniform(spec.heads)", "np.random.rand(spec.heads)"), "parameters", "the initial 'slope' drawn twice"),
        (("ulp=4.0", 'ulp=4.0,\n    per_layer=("slop",)'), "parameters", "per_layer names 'slop', which is not one of"),
        (filled_by("out['bias'][...] = 0.25"), "fill", "bias[0, 0] is 0.25, the reference -"),
        (filled_by(HOLE), "arrays", "slot 'bias' in an array laid out as usual, entry (1, 0): found "),
        (filled_by(STRIDED), "arrays", "words outside the array were written"),
        (filled_by(GREEDY), "arrays", "line 42: ValueError: output array is read-only"),
        (('["slope"] -= ', '["slope"] += '), "pull", "differences of the reference give"),
        (('dparams["slope"] -= ', 'dparams["slope"][...] = -'), "adding", "parameter 'slope', added to 7"),
        (("    dparams", "    dslots['bias'] *= 2\n    dparams"), "adding", "line 38: ValueError: output array"),
        (('beyond="defined"', 'beyond="undefined"'), "beyond", "length 2601 was filled with train_length=12"),
        (("** power\n", "** power / spec.length\n"), "beyond", "slot 'bias' changes by"),
        (('direction="no"', 'direction="yes"'), "direction", "the outputs for a reversed sequence equal the reversed"),
        (("np.abs(np", "np.exp(np"), "direction", "the outputs for a reversed sequence differ from"),
    ],
)  # fmt: skip
def test_each_fault_is_found(tmp_path, change, check, note):
    found = failures(tmp_path, change)
    assert check in found, found
    assert note in found[check]


UNDERFLOW = "np.log(np.exp(-params['slope'][:, None] * _distances(spec, 2 * power)))"
BOUNDED = """

def check(spec, *, power):
    if spec.length > 700:
        raise fastpe.BeyondTrainingLength("it ends at 700")


def _distances"""
TABLE = """import numpy as np
import fastpe


def reference(spec, params, *, rate):
    points = spec.points()
    with np.errstate(all="ignore"):
        return {"table": np.tile(np.exp(rate * points)[:, None] - np.exp(rate * points)[:, None], (1, spec.dim))}


ENCODING = fastpe.Encoding(slots=("table",), options={"rate": fastpe.Option(0.5, "its rate", float)})
"""


def test_values_that_end_far_out_are_found(tmp_path):
    """The formula underflows at a distance of 1491 (exp(-745.5) is 0), and overflows at position 1420."""
    steep = ("rng.uniform(spec.heads)", "0.5 + 0 * rng.uniform(spec.heads)")
    formula = ('-params["slope"][:, None] * _distances(spec, power)', UNDERFLOW)
    found = failures(tmp_path, formula, steep)["far"]
    assert found.startswith("slot 'bias' is -inf from distance 1491 on, with train_length=50, options power=0.5: ")
    bounded = write(tmp_path, formula, steep, ("\n\ndef _distances", BOUNDED), name="bounded.py")
    assert judge(far_check(fastpe.register(bounded))).passed
    found = judge(far_check(fastpe.register(write(tmp_path, text=TABLE, name="growing.py"))))
    assert found.note.startswith("slot 'table' is nan from position 1420 on, with train_length=50, options rate=0.5: ")


def far_check(key):
    return next(check for check in encoding_checks.checks(key) if check.name == "far")


@pytest.mark.parametrize("what", ["coordinates", "graph", "digits"])
def test_a_need_that_the_slots_do_not_depend_on_is_found(tmp_path, what):
    default = ', "digits:9"' if what == "digits" else ""
    declared = {
        "coordinates": "axes=lambda **options: 2,",
        "graph": 'options={"edges": fastpe.Option(None, "a graph", tuple, optional=True)},',
        "digits": "",
    }
    text = f"""import numpy as np
import fastpe


def reference(spec, params, **options):
    return {{"table": np.ones((spec.length, spec.dim))}}


ENCODING = fastpe.Encoding(slots=("table",), {declared[what]} needs=fastpe.Needs({what!r}{default}))
"""
    key = fastpe.register(write(tmp_path, text=text, name=f"{what}.py"))
    (check,) = [check for check in encoding_checks.checks(key) if check.name == "needs"]
    assert judge(check).note == f"needs is {what}, but the slots do not depend on it"


def test_what_is_unsaid_is_remarked(tmp_path):
    change = ('summary="a penalty by a power of the distance"', f'summary="{"long " * 12}"')
    fastpe.register(
        write(tmp_path, change, ("- `power`: the power of the distance.\n", ""), ("Source: an own", "An own"))
    )
    assert encoding_checks.remarks("mine") == [
        "the page (the docstring) does not mention its source",
        "the page (the docstring) does not mention option 'power'",
        "the summary has 60 characters, but lists have room for only 50",
    ]
