"""What an encoding is not given: each mistake has an error that names it, and nothing leaves its dtype unseen."""

import numpy as np
import pytest
from encoding_requests import ENCODINGS, LEARNERS, LENGTH, NAMES, requests, sizes_of
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.encodings import combined, registry
from fastpe.encodings.bias import alibi
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.slots import make_spec


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "'wavelett' is unknown; did you mean 'wavelet'", {"name": "wavelett"}),
        (ValueError, r"^\.\./random: the file of an encoding must end in \.py", {"name": "../random"}),
        (ValueError, "names the same encoding twice", {"name": "alibi+alibi"}),
        (TypeError, "encoding must be a name, not 3", {"name": 3}),
        (ValueError, "'bse' of encoding 'sinusoidal' is unknown; did you mean 'base'", {"bse": 1}),
        (ValueError, "did you mean 'wavelet.scale'", {"name": "wavelet+alibi", "scale": 1.0}),
        (TypeError, "option 'base' must be a finite number >= 1, not '10'", {"base": "10"}),
        (ValueError, "option 'base' must be a finite number >= 1, not nan", {"base": float("nan")}),
        (ValueError, "length must be at least 1, not 0", {"length": 0}),
        (TypeError, "length must be an integer, not 2.5", {"length": 2.5}),
        (ValueError, "dim must be at least 1, not -4", {"dim": -4}),
        (ValueError, "heads must be at least 1, not 0", {"heads": 0}),
        (ValueError, "train_length must be at least 1, not 0", {"train_length": 0}),
        (TypeError, "causal must be True or False, not 1", {"causal": 1}),
        (TypeError, "reference must be True or False, not 'yes'", {"reference": "yes"}),
        (TypeError, "start must be a number, not 'a'", {"start": "a"}),
        (ValueError, "start must be finite, not inf", {"start": float("inf")}),
        (ValueError, "start must be finite, but it is larger than any float64", {"start": 10**400}),
        (ValueError, "must lie within", {"start": 1e300}),
        (TypeError, "dtype must be float32 or float64, not None", {"dtype": None}),
        (ValueError, "must lie within", {"positions": [0, 1, 2**27 + 1, 3]}),
        (ValueError, "positions must be finite", {"positions": [0, 1, float("nan"), 3]}),
        (ValueError, r"positions must have shape \(4,\) or \(B, 4\), not \(3,\)", {"positions": [1, 2, 3]}),
        (TypeError, "positions must hold real numbers, not complex128", {"positions": [1j, 0, 0, 0]}),
        (TypeError, "dtype must be float32 or float64, not 'float16'", {"dtype": "float16"}),
        (TypeError, "dtype must be float32 or float64, not 'a'", {"dtype": "a"}),  # of which NumPy warns
        (TypeError, "dtype must be float32 or float64, not '>f4'", {"dtype": ">f4"}),
        (ValueError, r"params must have the keys \[\], not \['a'\]", {"params": {"a": [1.0]}}),
        (ValueError, r"must have the keys \['table'\]", {"name": "learned", "params": {}}),
        (TypeError, r"^params must be a dict of arrays, not list$", {"name": "learned", "params": [("table", [1.0])]}),
        (
            ValueError,
            r"params\['table'\] must have shape \(4, 64\), not \(3, 64\)",
            {"name": "learned", "params": {"table": np.zeros((3, 64))}},
        ),
        (ValueError, "seed must be at least 0", {"name": "learned", "seed": -1}),
        (ValueError, r"out must be a dict with the keys \['table'\]", {"out": {}}),
        (ValueError, r"out\['table'\] must be an array, float32 \(4, 64\)", {"out": {"table": np.zeros((4, 64))}}),
        (
            ValueError,
            r"out\['table'\] must be writeable",
            {"out": {"table": np.broadcast_to(np.float32(0), (4, 64))}},
        ),
    ],
)
def test_bad_requests_name_what_is_wrong(error: type, message: str, arguments: dict) -> None:
    with pytest.raises(error, match=message):
        fastpe.build(**{"name": "sinusoidal", "length": 4, **arguments})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            {"name": "sinusoidal", "scale": 1e300},
            r"slot 'table' of 'sinusoidal' is not finite in float32.*scale=1e\+300",
        ),
        ({"name": "alibi", "slope": 1e38}, r"slot 'bias' of 'alibi' is not finite in float32.*slope=1e\+38 .* to 5"),
        ({"name": "alibi", "slope": 1e308, "dtype": np.float64}, r"is not finite in float64.*slope=1e\+308"),
        ({"name": "wavelet", "scale": -1e39}, r"scale=-1e\+39"),
        ({"name": "legendre", "scale": 1e39}, r"scale=1e\+39"),
        ({"name": "learned", "scale": 1e45}, r"scale=1e\+45"),
        ({"name": "learned", "scale": 9.0, "params": {"table": np.full((6, 4), 1e38)}}, "scale=9"),
        ({"name": "sinusoidal+legendre", "sinusoidal.scale": 3e38, "legendre.scale": 3e38}, r"sinusoidal\.scale=3e"),
    ],
)
def test_values_that_leave_the_dtype_are_refused(request_: dict, words: str) -> None:
    request_ = {"length": 6, "dim": 4, **request_}
    with pytest.raises(ValueError, match=words):
        fastpe.build(**request_)
    if request_.get("dtype") != np.float64:
        for reference in (False, True):
            exact = fastpe.build(**{**request_, "dtype": np.float64}, reference=reference)
            assert all(np.isfinite(array).all() for array in exact.values())


# of others `test_registry` holds every number against the reference
@pytest.mark.parametrize(
    "name", [key for key in NAMES if any(each.kind is float for each in ENCODINGS[key].options.values())]
)
@given(data=st.data())
def test_nothing_infinite_is_ever_returned(name: str, data: st.DataObject) -> None:
    """The rule that says which arrays need no look is one: numbers of any size, and the largest table it lets pass."""
    request = data.draw(requests(name))
    power = data.draw(st.sampled_from([10.0**k for k in (-300, -30, 4, 20, 28, 36, 38)]))
    for key, option in ENCODINGS[name].options.items():
        if option.kind is float and request[key] is not None and power * request[key] >= option.minimum:
            request[key] *= power
    try:
        built = fastpe.build(name, **request)
    except ValueError:  # refused
        return
    for array in built.values():
        assert isinstance(array, str) or np.isfinite(array).all()


def test_a_table_that_cannot_overflow_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "_check_finite", lambda *_: pytest.fail("a second pass was made"))
    for name in NAMES:
        for dtype in (np.float32, np.float64):
            request = {**sizes_of(name), "train_length": 2**12, "dtype": dtype}
            try:
                fastpe.build(name, 72, **request, start=2**12 - 72)
            except BeyondTrainingLength:  # a learned grid ends before
                fastpe.build(name, 72, **request)


def test_pull_refuses_gradients_that_do_not_fit() -> None:
    params = fastpe.init("learned", dim=2, train_length=3)
    with pytest.raises(ValueError, match="dslots must hold the gradient of 'table'"):
        fastpe.pull("learned", 3, {}, params=params, dim=2)
    with pytest.raises(ValueError, match=r"dslots must have the keys \['table'\]"):
        fastpe.pull("learned", 3, {"bias": np.zeros(3)}, params=params, dim=2)
    with pytest.raises(ValueError, match=r"dslots\['table'\] must have shape \(3, 2\)"):
        fastpe.pull("learned", 3, {"table": np.zeros((2, 2))}, params=params, dim=2)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("wavelet.scale", "2", 2.0),
        ("wavelet.scales", "none", None),
        ("wavelet.shifts", "0,1,-5", (0, 1, -5)),
        ("alibi.learned", "yes", True),
        ("alibi.slope", "0.5", 0.5),
    ],
)
def test_options_are_read_from_text(key: str, text: str, value: object) -> None:
    got = registry.parse_option("wavelet+alibi", key, text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("key", "text"), [("learned", "maybe"), ("slope", "x"), ("slope", "inf"), ("slope", "-1")])
def test_bad_text_of_an_option_is_an_error(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"option '{key}' must be .* not "):
        registry.parse_option("alibi", key, text)


@pytest.mark.parametrize("name", LEARNERS)
def test_gradients_past_the_dtype_are_infinite_without_a_warning(name: str) -> None:
    """Warnings are errors here: a model that diverges says so by its loss."""
    request = {**sizes_of(name), "dtype": np.float32}
    params = fastpe.init(name, **request)
    slots = fastpe.build(name, LENGTH, params=params, **request)
    arrays = {slot: array for slot, array in slots.items() if isinstance(array, np.ndarray) and slot != "index"}
    for size in (np.finfo(np.float32).max, -1e30):
        # not all alike: what is the same on both sides of a diagonal turns nothing
        parts = {slot: np.linspace(0.5, 1.0, array.size).reshape(array.shape) for slot, array in arrays.items()}
        dslots = {slot: (size * parts[slot]).astype(array.dtype) for slot, array in arrays.items()}
        dparams = fastpe.pull(name, LENGTH, dslots, params=params, **request)
        assert all(array.any() for array in dparams.values())


def test_slots_without_room_are_refused_before_parameters_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alibi, "slopes", lambda heads: pytest.fail(f"drawn for {heads} heads"))
    with pytest.raises(ValueError, match=r"^slot 'bias' of 'alibi' with length=2000, .* GB"):
        fastpe.build("alibi", 2000, heads=2**30, dim=2**36, learned=True)


@pytest.mark.parametrize("name", ["huang1", "huang2", "huang3", "huang4", "shaw", "li_eq5", "deberta"])
def test_a_reach_of_which_no_sequence_has_use_is_refused(name: str) -> None:
    words = rf"^option 'reach' must be an integer >= 1 and <= 1e\+06( or none)?, not {2**27}$"
    with pytest.raises(ValueError, match=words):
        fastpe.build(name, 9, reach=2**27)


@pytest.mark.parametrize(("name", "power"), [("length", 27), ("train_length", 27), ("dim", 40), ("heads", 40)])
def test_sizes_have_limits(name: str, power: int) -> None:
    sizes = {"length": 3, "train_length": 3, "dim": 4, "heads": 1, "causal": False, "positions": None, "start": 0}
    spec = make_spec(**{**sizes, name: 2**power}, dtype=np.float32, axes=1)
    assert getattr(spec, name) == 2**power
    with pytest.raises(ValueError, match=rf"^{name} must be at most 2\*\*{power}, not {2**power + 1}$"):
        make_spec(**{**sizes, name: 2**power + 1}, dtype=np.float32, axes=1)
