"""What every encoding must do, driven by the registry: a new encoding is tested here without a line being added."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpe
from fastpe import encoding, sums
from fastpe.encoding import Encoding, Option, Part

NAMES = fastpe.list_encodings()
ENCODINGS = {name: encoding.get(name) for name in NAMES}
LEARNERS = [name for name in NAMES if ENCODINGS[name].pull is not None]
SIZES = {"dim": 24, "heads": 2, "train_length": 20}  # sizes that every encoding takes: heads 12 wide
LENGTH = 12


def sizes_of(name: str) -> dict:
    """Those sizes, for the kind of model that the encoding is made for."""
    return {**SIZES, "causal": ENCODINGS[name].direction == "causal"}


def values_of(option: Option) -> st.SearchStrategy:
    if option.samples:
        strategy = st.sampled_from(option.samples)
    elif option.kind in (str, tuple) and not option.choices:
        strategy = st.just(option.default)
    elif option.choices:
        strategy = st.sampled_from(option.choices)
    elif option.kind is bool:
        strategy = st.booleans()
    elif option.kind is int:
        strategy = st.integers(int(max(option.minimum, 0)), 6)
    else:
        strategy = st.floats(max(option.minimum, option.above, 0) + 0.1, 3.0)
    return st.just(option.default) | strategy


def axes_of(name: str, options: dict) -> tuple[int, ...]:
    """The last axis of positions, where they have several coordinates."""
    count = encoding.parse(name, options)[0].encoding.axes(**encoding.parse(name, options)[0].options)
    return () if count == 1 else (count,)


def refuses_positions(name: str) -> bool:
    """Whether the encoding knows offsets alone, and says so."""
    axes = axes_of(name, {})
    positions = np.ones((4, *axes)) * np.arange(4).reshape(4, *(1 for _ in axes))
    try:
        fastpe.build(name, 4, **sizes_of(name), positions=positions)
    except ValueError as error:
        if "positions" not in str(error):
            raise
        return True
    return False


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict:
    length = draw(st.integers(1, 20))
    whole = st.integers(0, 60)
    number = draw(st.sampled_from([whole, whole, st.integers(-60, 60), st.floats(-60, 60)]))
    options = {key: draw(values_of(option)) for key, option in ENCODINGS[name].options.items()}
    axes = axes_of(name, options)
    shape = draw(st.sampled_from([None, (length, *axes), (2, length, *axes)]))
    positions = None
    if shape is not None:
        count = math.prod(shape)
        positions = np.array(draw(st.lists(number, min_size=count, max_size=count))).reshape(shape)
    return {
        "length": length,
        "dim": draw(st.sampled_from([1, 2, 5, 16, 24, 48, 70])),
        "heads": draw(st.sampled_from([1, 3, 4])),
        "train_length": draw(st.sampled_from([64, 64, 20, 7, 1])),
        "causal": draw(st.booleans()),
        "positions": positions,
        "start": draw(st.sampled_from([0, 3, 3, 100])),
        "dtype": draw(st.sampled_from([np.float32, np.float64])),
        **options,
    }


def spec_of(request: dict, name: str) -> encoding.Spec:
    sizes = {key: value for key, value in request.items() if key not in ENCODINGS[name].options}
    axes = axes_of(name, {key: value for key, value in request.items() if key not in sizes})
    return encoding.make_spec(**sizes, axes=axes[0] if axes else 1)


def parts_of(request: dict, name: str) -> tuple[Part, ...]:
    return encoding.parse(name, {key: request[key] for key in ENCODINGS[name].options})


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_fill_keeps_its_stated_error(name: str, data: st.DataObject) -> None:
    request = data.draw(requests(name))
    spec, (part,) = spec_of(request, name), parts_of(request, name)
    try:
        part.encoding.check(spec, **part.options)
    except ValueError:
        with pytest.raises(ValueError, match=r"\w"):
            fastpe.build(name, **request)
        return
    expected = fastpe.build(name, **request, reference=True)
    out = {
        slot: np.full_like(array, np.nan if array.dtype.kind == "f" else -1)
        for slot, array in sums.allocate((part,), spec).items()
    }
    got = fastpe.build(name, **request, out=out)
    assert got is out
    assert set(got) == set(expected) <= set(part.encoding.slots)
    plain = part.encoding.plain(spec, **part.options)
    assert {slot: got[slot] for slot in plain} == {slot: expected[slot] for slot in plain} == plain
    expected = {slot: array for slot, array in expected.items() if slot not in plain}
    bounds = encoding.error_bound(part, spec, expected)
    for slot in expected:
        kind = encoding.SLOTS[slot].dtype
        assert got[slot].dtype == (request["dtype"] if kind == "same" else kind)
        if kind == "int32":
            np.testing.assert_array_equal(got[slot], expected[slot])
            continue
        assert expected[slot].dtype == np.float64
        np.testing.assert_array_less(np.abs(got[slot] - expected[slot]), bounds[slot] + 1e-300, err_msg=slot)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strided_out_and_repeated_calls_give_the_same_bits(name: str, dtype: type) -> None:
    first, again = (fastpe.build(name, LENGTH, **sizes_of(name), dtype=dtype) for _ in range(2))
    arrays = {slot: array for slot, array in first.items() if isinstance(array, np.ndarray)}
    guard = {slot: np.full((*a.shape[:-1], 2 * a.shape[-1] + 1), 7, a.dtype) for slot, a in arrays.items()}
    strided = fastpe.build(
        name, LENGTH, **sizes_of(name), dtype=dtype, out={slot: array[..., 1::2] for slot, array in guard.items()}
    )
    for slot, array in arrays.items():
        assert array.tobytes() == again[slot].tobytes() == strided[slot].tobytes()
        np.testing.assert_array_equal(guard[slot][..., ::2], 7)


@pytest.mark.parametrize("name", NAMES)
def test_given_positions_agree_with_the_implied_ones_row_by_row(name: str) -> None:
    if axes_of(name, {}) or refuses_positions(name):
        return
    slots = fastpe.build(name, LENGTH, **sizes_of(name), start=3)
    order = np.array([[5, 0, 11, 7], [1, 1, 2, 3]])
    moved = fastpe.build(name, 4, **sizes_of(name), start=3, positions=order)
    for slot in set(slots) & {"table", "qk_table", "growth"}:
        np.testing.assert_array_equal(moved[slot], slots[slot][order])
    if "angles" in slots:
        np.testing.assert_array_equal(moved["angles"], slots["angles"][:, order].transpose(1, 0, 2, 3))
    if "bias" in slots:
        offsets = order[:, None, :] - order[:, :, None]
        np.testing.assert_array_equal(moved["scores"], slots["bias"][:, offsets + LENGTH - 1].transpose(1, 0, 2, 3))


def has_gradient(slot: str) -> bool:
    return encoding.SLOTS[slot].dtype in ("same", "float64")


def learning_requests() -> list:
    cases = []
    for name in LEARNERS:
        switches = {key: True for key, option in ENCODINGS[name].options.items() if option.kind is bool}
        choices = {key: option.choices for key, option in ENCODINGS[name].options.items() if option.choices}
        variants = [{key: value} for key, values in choices.items() for value in values] or [{}]
        for variant in variants:
            axes = axes_of(name, {**switches, **variant})
            for positions in (None, [[3, 0, 4, 4, 1, 2]], [[9, 0, 2, 2, 6, 7], [1, 2, 3, 4, 5, 0]]):
                if positions is not None:
                    positions = np.array(positions).reshape(-1, 6, *[1 for _ in axes]) * np.ones(axes)
                request = {"length": 6, "dim": 12, "heads": 2, "train_length": 6, "positions": positions}
                cases.append((name, {**request, "dtype": np.float64, **switches, **variant}))
    return cases


def test_pull_is_the_gradient_of_the_reference() -> None:
    rng = np.random.default_rng(0)
    checked = set()
    for name, request in learning_requests():
        options = {key: value for key, value in request.items() if key in ENCODINGS[name].options}
        spec, (part,) = spec_of(request, name), encoding.parse(name, options)
        try:
            part.encoding.check(spec, **part.options)
        except ValueError:
            continue
        params = fastpe.init(name, dim=12, heads=2, train_length=6, dtype=np.float64, **options)
        params = {key: value + rng.uniform(0.1, 1, value.shape) for key, value in params.items()}
        slots = fastpe.build(name, **request, params=params, reference=True)
        dslots = {slot: rng.normal(size=array.shape) for slot, array in slots.items() if has_gradient(slot)}
        rounding = 1e-10 * sum(np.abs(slots[slot] * dslots[slot]).sum() for slot in dslots)  # of the quotient below
        got = fastpe.pull(name, **request, dslots=dslots, params=params)
        assert set(got) == set(params) != set()
        for key, value in params.items():
            expected = np.zeros_like(value)
            places = list(np.ndindex(value.shape))
            chosen = [places[i] for i in sorted(rng.permutation(len(places))[:24])]
            for place in chosen:
                ends = []
                for step in (1e-6, -1e-6):
                    moved = {k: v.copy() for k, v in params.items()}
                    moved[key][place] += step
                    built = fastpe.build(name, **request, params=moved, reference=True)
                    ends.append(sum((built[slot] * dslots[slot]).sum() for slot in dslots))
                expected[place] = (ends[0] - ends[1]) / 2e-6
            scale, where = max(1.0, np.abs(expected).max()), tuple(np.array(chosen).T)
            np.testing.assert_allclose(
                got[key][where], expected[where], atol=2e-8 * scale + rounding, err_msg=f"{name} {key} {request}"
            )
        checked.add(name)
    assert checked == set(LEARNERS)


@pytest.mark.parametrize("name", LEARNERS)
def test_pull_adds_and_float32_follows_float64(name: str) -> None:
    options = {key: True for key, option in ENCODINGS[name].options.items() if option.kind is bool}
    params = fastpe.init(name, dim=24, heads=2, train_length=8, **options)
    part = encoding.parse(name, options)
    results = {}
    for dtype in (np.float32, np.float64):
        spec = encoding.make_spec(8, dim=24, heads=2, dtype=dtype)
        slots = fastpe.build(name, 8, dim=24, heads=2, dtype=dtype, params=params, **options)
        dslots = {
            slot: np.cos(np.arange(array.size, dtype=array.dtype)).reshape(array.shape)
            for slot, array in slots.items()
            if has_gradient(slot)
        }
        typed = {key: value.astype(dtype) for key, value in params.items()}
        dparams = {key: np.full(value.shape, 5, dtype) for key, value in typed.items()}
        sums.add_gradients(part, spec, typed, dslots, dparams)
        results[np.dtype(dtype)] = dparams
        once = fastpe.pull(name, 8, dslots, params=typed, dim=24, heads=2, dtype=dtype, **options)
        for key in dparams:
            assert once[key].dtype == dtype
            np.testing.assert_allclose(dparams[key], once[key] + 5, rtol=4 * np.finfo(dtype).eps)
    for key, exact in results[np.dtype(np.float64)].items():
        np.testing.assert_allclose(results[np.dtype(np.float32)][key], exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_registry_says_is_complete(name: str) -> None:
    own = ENCODINGS[name]
    page = encoding.page(name)
    assert len(page.splitlines()[0]) < 100
    for word in ("Source:", "**Options**", "**Past the training length**", *(f"`{key}`" for key in own.options)):
        assert word in page
    assert own.source
    assert own.beyond in ("defined", "clipped", "resized", "undefined")
    assert own.direction in ("yes", "no", "causal")
    assert set(own.slots) <= set(encoding.SLOTS)
    assert (own.pull is None) == (own.parameters is Encoding.parameters)
    for key, option in own.options.items():
        assert option.doc
        assert option.validate(key, option.default) == option.default
        assert option.default is None or option.parse(key, str(option.default)) == option.default
        with pytest.raises((TypeError, ValueError), match=key):
            option.validate(key, object())
    encoding.parse(name, own.paper)


@pytest.mark.parametrize("name", LEARNERS)
def test_initial_values_depend_on_the_seed_alone(name: str) -> None:
    options = {key: True for key, option in ENCODINGS[name].options.items() if option.kind is bool}
    one = fastpe.init(name, dim=24, heads=2, train_length=8, **options)
    same = fastpe.init(name, dim=24, heads=2, train_length=8, dtype=np.float64, **options)
    spec = encoding.make_spec(8, dim=24, heads=2)
    assert {key: value.shape for key, value in one.items()} == sums.parameter_shapes(
        encoding.parse(name, options), spec
    )
    for key in one:
        np.testing.assert_array_equal(one[key], same[key].astype(np.float32))
    built = fastpe.build(name, 8, dim=24, heads=2, **options)
    given_back = fastpe.build(name, 8, dim=24, heads=2, params=one, **options)
    for slot in built:
        np.testing.assert_array_equal(built[slot], given_back[slot])


def test_listing_imports_neither_numpy_nor_numba() -> None:
    code = (
        "import sys, fastpe\n"
        "from fastpe.encoding import page\n"
        "assert 'wavelet' in fastpe.list_encodings() and page('wavelet')\n"
        "assert not {'numpy', 'numba'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "'wavelett' is unknown; did you mean 'wavelet'", {"name": "wavelett"}),
        (ValueError, r"'\.\./random' is unknown; known: alibi", {"name": "../random"}),
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
        (TypeError, "causal must be true or false, not 1", {"causal": 1}),
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
        (TypeError, "dtype must be float32 or float64, not '>f4'", {"dtype": ">f4"}),
        (ValueError, r"params must have the keys \[\], not \['a'\]", {"params": {"a": [1.0]}}),
        (ValueError, r"must have the keys \['table'\]", {"name": "learned", "params": {}}),
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


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, derandomize=True)
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
    monkeypatch.setattr(sums, "_check_finite", lambda *_: pytest.fail("a second pass was made"))
    for name in NAMES:
        for dtype in (np.float32, np.float64):
            fastpe.build(name, 72, **{**sizes_of(name), "train_length": 2**12}, start=2**12 - 72, dtype=dtype)


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
    got = encoding.parse_option("wavelet+alibi", key, text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("key", "text"), [("learned", "maybe"), ("slope", "x"), ("slope", "inf"), ("slope", "-1")])
def test_bad_text_of_an_option_is_an_error(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"option '{key}' must be .* not "):
        encoding.parse_option("alibi", key, text)
