"""Masked arrays are refused by name wherever arrays are taken; of any other subclass nothing but its memory counts."""

import numpy as np
import pytest
from array_subclasses import TABLE, Handing, attended, liar, masked, of_model, uses

import fastpe

USES = uses()
WORDS = " must not be a masked array, nor contain one: pass its values"


def refused(argument, value):
    with pytest.raises(TypeError) as caught:
        USES[argument][1](value)
    assert str(caught.value).startswith(argument.partition(" of t")[0].partition(" of r")[0] + WORDS)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("argument", USES)
def test_a_masked_array_is_refused_by_name(argument):
    value = USES[argument][0]
    refused(argument, masked(value))
    refused(argument, np.ma.array(value))  # nothing is hidden, today
    refused(argument, np.ma.array(value).view(type("Own", (np.ma.MaskedArray,), {})))


@pytest.mark.parametrize("argument", sorted(USES.keys() - {"out['table']"}))
def test_a_list_that_holds_a_masked_array_is_refused_too(argument):
    value = USES[argument][0]
    refused(argument, [masked(row) for row in value] if value.ndim > 1 else [*value[:-1].tolist(), np.ma.masked])
    refused(argument, (*value[:-1].tolist(), masked(np.array(value[-1]))))
    refused(argument, Handing(masked(value)))


def test_a_list_that_holds_itself_is_no_array():
    endless = [1.0]
    endless += [endless, endless]
    with pytest.raises(TypeError, match=r"^positions must "):
        fastpe.build("sinusoidal", 4, positions=endless)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("option 'edges'", lambda x: fastpe.build("laplacian", 4, edges=x)),
        ("option 'window'", lambda x: fastpe.build("swin_bias", 4, window=x)),
        ("option 'scale'", lambda x: fastpe.build("wavelet", 4, scale=x[1])),
        ("length", lambda x: fastpe.build("nope", x[1])),
        ("length", lambda x: fastpe.build("nope", np.ma.array(3, mask=True))),  # of which NumPy would make 3
        ("causal", lambda x: fastpe.build("nope", 4, causal=x.astype(bool)[1])),
        ("causal", lambda x: fastpe.build("nope", 4, causal=np.ma.array(True, mask=True))),
        ("test_lengths", lambda x: fastpe.TrainConfig("nope", test_lengths=x)),
        ("window", lambda x: fastpe.resize("swin_bias", {"table": np.ones((9, 1))}, window=x, new_window=(3, 3))),
    ],
)
def test_settings_are_no_masked_arrays_either(argument, call):
    with pytest.raises(TypeError, match=f"^{argument}{WORDS}"):
        call(masked([2, 2]))


def test_a_masked_tolerance_is_no_number():
    with pytest.raises(TypeError, match=r"^tolerance must be a number, not masked"):
        attended(fastpe.attention, tolerance=np.ma.masked)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("argument", USES)
def test_of_another_subclass_only_the_memory_counts(argument):
    value, call = USES[argument]
    expected = call(value.copy())
    np.testing.assert_array_equal(np.asarray(call(liar(value))), expected)
    np.testing.assert_array_equal(np.asarray(call(value.view(type("Plain", (np.ndarray,), {})))), expected)
    if value.ndim == 2:
        np.testing.assert_array_equal(np.asarray(call(np.matrix(value))), expected)


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("x of tokens", [[0, 99, 0, 0]], r"x must hold tokens.*x\[0, 1\] is 99"),
        ("y of tokens", [[0, 0, 0, -100]], r"y must hold tokens.*y\[0, 3\] is -100"),
        ("index", np.full((3, 3), 10**6), "index must lie in"),
        ("lengths of keys", [10**6], "lengths of keys must lie in"),
        ("lengths of queries", [10**6], "lengths of queries must lie in"),
        ("positions", [1e300, 0, 0, 0], "positions plus start must lie within"),
        ("x", [[np.nan, 0, 0, 0]], "x must be finite"),
        ("bias", [[0, np.inf, 0, 0, 0]], "bias must be finite"),
        ("params['table']", np.full((3, 4), np.nan), r"params\['table'\] must be finite"),
        ("weights", [[np.nan, 0, 0, 1]], r"weights must hold finite numbers.*weights\[0, 0\] is nan"),
        ("parameters['embed.weight']", np.full((1, 8), np.nan), r"parameters\['embed.weight'\] must be finite"),
    ],
)
def test_a_subclass_cannot_hide_what_a_check_looks_for(argument, wrong, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        USES[argument][1](liar(wrong))


def test_a_masked_array_of_the_users_own_encoding_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        '"""Mine."""\nimport numpy as np\nfrom fastpe.encodings.record import Encoding\n'
        'ENCODING = Encoding(slots=("table",), summary="mine")\n'
        "def reference(spec, params):\n"
        '    return {"table": np.ma.ones((spec.length, spec.dim))}\n'
    )
    with pytest.raises(ValueError, match=r"^mine.py: reference must give 'table' as an array: table must not be a m"):
        fastpe.build(str(path), 3)


def test_a_shape_that_is_set_anew_reaches_nobody():
    given = TABLE.copy()
    array = fastpe.base.validation.array("x", given)
    given.resize((4, 3), refcheck=False)
    assert array.shape == (3, 4)


def test_masked_targets_hear_of_weights():
    with pytest.raises(
        TypeError, match=r"^y must not be a masked array.*and weights that are 0 where a target does not count$"
    ):
        of_model(5).loss([[1, 2]], np.ma.masked_equal([[1, -100]], -100))
