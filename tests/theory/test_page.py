"""The page of an encoding: of all there are, with the values of the specification, and what it refuses."""

import json
import math
import warnings

import numpy as np
import pytest
from own_encodings import write
from paper_tables import near

import fastpe
from fastpe.encodings.registry import built_in
from fastpe.theory import page
from fastpe.theory.pages import collect, subject
from fastpe.theory.pages.quantities import IN_WINDOWS, QUANTITIES
from fastpe.theory.pages.record import Record, plain

SUMS = ("sinusoidal+alibi", "rope+shaw", "wavelet+learned_2d_detr")


def column(found, key, lengths=(50, 100, 200)):
    return [found[f"{key}@{length}"].value for length in lengths]


# ---------------------------------------------------------------------------------------------------------------------
# Every encoding


@pytest.mark.parametrize("name", [*built_in(), *SUMS])
def test_every_encoding_has_a_page(name):
    for sizes in ({}, {"length": 1, "train_length": 2, "heads": 2}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = page(name, **sizes)
        assert found
        for key, record in found.items():
            assert key == record.name
            assert "" not in (record.id, record.why, record.how, record.label)
            assert record.kind != "estimate" or record.low <= record.value <= record.high
            assert not math.isnan(record.value)
            assert json.loads(json.dumps(record.to_dict(), allow_nan=False)) == record.to_dict()


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    ("name", "shown", "absent"),
    [
        ("sinusoidal", {"nearest@50", "toeplitz"}, {"perplexity.most@50", "turned"}),
        ("alibi", {"perplexity.most@50", "window.2^-24.0"}, {"nearest@50", "turned", "toeplitz"}),
        ("rope", {"turned", "unseen.channels@100"}, {"nearest@50", "perplexity.most@50", "unseen.channels@50"}),
        ("sinusoidal+alibi", {"nearest@50", "perplexity.most@50", "window.2^-24.0"}, {"turned"}),
        ("sincos_2d_detr", {"qk_table.nearest@50"}, {"turned"}),
        ("shaw", {"rel_value.nearest@50"}, {"turned"}),
    ],
)
def test_a_slot_has_its_own_quantities_and_no_others(name, shown, absent):
    found = set(page(name))
    assert shown <= found
    assert not absent & found


def test_no_two_quantities_share_a_name_and_ranges_alone_share_a_label():
    assert len({each.key for each in QUANTITIES.values()}) == len(QUANTITIES)
    labels = [each.label for each in QUANTITIES.values() if not each.key.endswith(".least")]
    assert len(set(labels)) == len(labels)
    assert {"nearest", "qk_table.drift"} <= IN_WINDOWS
    assert "perplexity.most" not in IN_WINDOWS


# ---------------------------------------------------------------------------------------------------------------------
# The pages of the specification, section 5


@pytest.mark.full("takes seconds")
def test_the_page_of_a_table():
    found = page("legendre")
    assert column(found, "norm.most") == near((1.760348, 2.549870, 5.520529))
    assert column(found, "nearest") == near((0.410356, 0.263341, 0.120940), 4e-6)
    assert column(found, "noise") == near((0.0891489, 0.0619444, 0.0288098), 4e-6)
    assert column(found, "drift", (100, 200)) == near((2.578122, 5.542860))
    assert "drift@50" not in found
    assert column(found, "information.upper") == near((3.905582, 3.647713, 3.118767))
    for length, mean in ((50, 3.6968), (100, 3.1836), (200, 2.6344)):
        inside = found[f"information@{length}"]
        assert inside.kind == "estimate"
        assert inside.low - 0.02 < mean < inside.high + 0.02
        assert found[f"information.lower@{length}"].value <= inside.value <= found[f"information.upper@{length}"].value


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    ("name", "rank", "share", "equal", "collision", "zero"),
    [
        ("wavelet", (49, 49), 0.360839, (224, 224), 0.212894968, 256),
        ("legendre", (37, 27), 0.108116, (616, 340), 0.205177807, None),
    ],
)
def test_facts_of_tables(name, rank, share, equal, collision, zero):
    found = page(name)
    assert (found["rank.float64"].value, found["rank.float32"].value) == rank
    assert found["toeplitz"].value == near(share, 2e-6)
    assert (found["equal_from.float32"].value, found["equal_from.bfloat16"].value) == equal
    assert found["collision"].value == near(collision)
    assert (found["zero_from"].value if "zero_from" in found else None) == zero


def test_the_page_of_alibi():
    found = page("alibi", causal=True, alpha0=0.1)
    assert column(found, "perplexity.most") == near((49.979185, 99.833655, 198.676410))
    assert column(found, "within.most") == [50, 99, 198]
    assert column(found, "beyond") == pytest.approx((0.0, 0.475020813, 0.711348595), rel=1e-8)
    assert column(found, "bias_drift", (100, 200)) == near((0.475020813, 0.711348595))
    assert column(found, "effect") == near((0.024495, math.tanh(0.198 / 4), 0.099173), 1e-5)
    assert (found["limit.perplexity.most"].value, found["limit.within.most"].value) == (near(1359.141141), 2303)
    assert found["distance"].value == near(0.000416326624011)
    windows = {f"{name}.{content}": found[f"window.{name}.{content}"].value
               for name in ("2^-24", "2^-8", "1 %") for content in (0, 5)}  # fmt: skip
    assert (windows["2^-24.0"], windows["2^-24.5"], windows["2^-8.0"], windows["1 %.0"]) == (8317, 13317, 2772, 2302)
    assert found["symmetry.const"].value == 0 < found["symmetry.rev"].value
    assert column(found, "lipschitz") == [54, 54, 54]
    assert column(found, "attended", (50, 100)) == near((0.551779945, 0.576457), 1e-6)
    assert "task.running_sum@50" not in found
    assert found["task.position_index.constant@50"].value == 208.25


def test_what_alibi_makes_impossible_without_a_mask():
    found = page("alibi", alpha0=0.1)
    assert column(found, "task.running_sum") == [12.25, 24.75, 49.75]
    assert found["symmetry.rev"].value == 0 < found["symmetry.perm"].value
    assert found["columns@50"].value == near(1.008132)
    assert page("alibi", alpha0=25.0)["columns@200"].value == near(1.034686)
    assert found["limit.perplexity.most"].value > 1359.15  # keys on both sides


def test_the_page_of_rope():
    found = page("rope", causal=True)
    assert (found["turned"].value, found["turned"].inputs["channels"]) == (8, 32)
    assert column(found, "unseen.channels", (100, 200)) == [17, 22]
    assert column(found, "unseen.largest", (100, 200)) == near((1.739006, 1.944053))
    assert found["similarity@50"].value == near(0.453664, 2e-6)
    assert found["negative_from"].value == 725
    assert column(page("rope"), "unseen.channels", (100, 200)) == [12, 16]
    assert "turned" not in page("rope_2d")


@pytest.mark.full("takes seconds")
def test_constants_of_unit_maps():
    found, radius, product = page("shaw"), 1.0, 1.0
    keys, values = (found[f"rel_{name}.norm.most@50"].value for name in ("key", "value"))
    for _ in range(2):  # P5: Shaw's vectors beside unit maps of width 64
        attention = 1.0 + (radius + values) * (2.0 * radius + keys) / 8.0
        product, radius = product * (1.0 + attention) * 2.0, 2.0 * (2.0 * radius + values)
    assert found["lipschitz@50"].value == pytest.approx(product, rel=1e-12)


def test_the_page_of_no_encoding():
    found = page("nope", causal=True)
    assert column(found, "bias_drift", (100, 200)) == near((0.5, 0.75), 1e-12)
    assert found["attended@50"].value == near(0.541976082059)
    assert found["columns@50"].value == near(4.499205)
    assert found["limit.perplexity.most"].value == math.inf
    assert found["limit.perplexity.most"].to_dict()["value"] == "inf"
    assert not any(key.startswith("window.") for key in found)


def test_the_page_of_several_heads():
    found = page("alibi", heads=8, causal=True)
    assert found["perplexity.least@200"].value < found["perplexity.most@200"].value
    assert found["window.2^-24.0"].value == 4258  # of the slope 2^-8
    assert found["limit.perplexity.most"].value == near(695.880591)


# ---------------------------------------------------------------------------------------------------------------------
# Lengths and sizes


@pytest.mark.full("takes seconds")
def test_lengths_are_windows_of_tables():
    found = page("legendre", length=(150, 100))
    assert [key for key in found if key.startswith("nearest@")] == ["nearest@50", "nearest@100", "nearest@150"]
    assert found["norm.most@100"].value == near(2.549870)
    assert page("legendre", length=100)["nearest@100"].value == found["nearest@100"].value
    short = page("legendre", length=10)
    assert short["nearest@50"].inputs["rows"] == 40
    assert "drift@50" not in short


def test_rows_of_a_grid_are_those_of_its_own_length():
    found = page("sincos_2d_mae", length=64)
    short, long = (fastpe.build("sincos_2d_mae", n, train_length=50, dtype="float64")["table"] for n in (50, 64))
    assert not np.array_equal(short, long[:50])  # 5 x 10 and 8 x 8
    apart = np.linalg.norm(long[50:, None] - short[None], axis=-1).min(axis=1)
    assert found["drift@64"].value == pytest.approx(apart.max(), rel=1e-12)


@pytest.mark.full("takes seconds")
def test_where_an_encoding_is_undefined_there_is_nothing():
    what = collect.subject_of("learned")
    found = collect.records(what)
    assert "nearest@50" in found
    assert not any(record.column in (100, 200) for record in found.values())
    assert [remark.partition(":")[0] for remark in what.remarks] == [
        "parameters of the encoding", "not defined at 100 positions", "not defined at 200 positions",
    ]  # fmt: skip
    clipped = page("learned", beyond="clip")
    assert (clipped["drift@100"].value, clipped["nearest@100"].value) == (0.0, 0.0)


def test_encodings_for_causal_models_have_the_page_of_a_causal_model():
    for name in ("fire", "xpos"):
        what = collect.subject_of(name)
        assert what.causal
        assert what.remarks[0] == f"{name} is made for causal models only, so the page is that of a causal model"
    assert not collect.subject_of("fire", symmetric=True).causal


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"name": "sinusoida"}, "did you mean 'sinusoidal'"),
        ({"name": "rope*2,nope"}, "one encoding or a sum is expected"),
        ({"name": "alibi", "slope": math.nan}, "option 'slope' must be a finite number|slope must be a finite number"),
        ({"name": "alibi", "slop": 1.0}, "option 'slop' of encoding 'alibi' is unknown; did you mean 'slope'"),
        ({"name": "alibi", "length": 0}, "length must be at least 1, not 0"),
        ({"name": "alibi", "length": ()}, "length must name at least one length"),
        ({"name": "alibi", "length": 2**14 + 1}, "length must be at most 16384 on a page, not 16385"),
        ({"name": "alibi", "train_length": 2**15}, "train_length must be at most 16384 on a page, not 32768"),
        ({"name": "alibi", "dim": 4097}, "dim must be at most 4096 on a page, not 4097"),
        ({"name": "alibi", "heads": 0}, "heads must be at least 1, not 0"),
        ({"name": "fire", "causal": True, "length": 2**14}, "length must be smaller for 'fire'"),
        ({"name": None}, "name must be the key of an encoding if no run is given"),
    ],
)
def test_wrong_requests_are_refused(request_, words):
    with pytest.raises(ValueError, match=words):
        page(**request_)


@pytest.mark.parametrize("request_", [{"length": 1.5}, {"causal": "yes"}, {"dim": None}])
def test_sizes_of_other_types_are_refused(request_):
    with pytest.raises(TypeError, match=next(iter(request_))):
        page("alibi", **request_)


def test_lengths_beyond_the_limit_are_left_out_with_a_remark():
    what = collect.subject_of("alibi", train_length=2**14, causal=True)
    assert what.columns == (2**14,)
    assert [remark[:24] for remark in what.remarks] == ["length 32768 is left out", "length 65536 is left out"]


def test_an_encoding_of_ones_own(tmp_path):
    name = fastpe.register(write(tmp_path))
    found = page(name, causal=True)
    assert found["symmetry.const"].value == 0
    assert all(isinstance(record, Record) for record in found.values())


# ---------------------------------------------------------------------------------------------------------------------
# Models


@pytest.mark.full("takes seconds")
def test_the_page_of_a_model():
    config = fastpe.ModelConfig("kerple_log", width=16, heads=2, hidden=16, train_length=8, causal=True)
    model = fastpe.Transformer(config)
    found = page(run=model)
    assert [record.column for key, record in found.items() if key.startswith("run.lipschitz")] == [8, 16, 32]
    assert found["run.spectral"].inputs["matrix"] in model.parameters
    model.parameters["encoding.kerple_log.r1"][...] = 30.0
    after = page("kerple_log", run=model)
    assert after["perplexity.most@8"].value < found["perplexity.most@8"].value
    assert after["limit.perplexity.most"].value < math.inf
    with pytest.raises(ValueError, match="name must be that of the run, 'kerple_log'"):
        page("alibi", run=model)
    with pytest.raises(ValueError, match="run has its own options: leave out beta"):
        page(run=model, beta=1.0)


def test_the_page_of_a_pattern_over_layers_is_that_of_its_first():
    model = fastpe.Transformer(fastpe.ModelConfig("alibi,rope", width=8, hidden=8, train_length=8, causal=True))
    what = subject.of_run(model, 9)
    assert what.remarks == ["the slots are those of layer 0; each of the layers 0 .. 1 has its own"]
    found = collect.records(what)
    assert "perplexity.most@9" in found
    assert "turned" not in found


@pytest.mark.parametrize("encoding", ["nope", "alibi"])
def test_the_page_of_a_model_leaves_out_settings_of_scores(encoding):
    sizes = {"width": 8, "hidden": 8, "heads": 2, "train_length": 8, "causal": True, "layers": 1}
    plain_model = fastpe.Transformer(fastpe.ModelConfig(encoding, **sizes))
    expected = collect.records(subject.of_run(plain_model, 9))
    assert {"bias_size@9", "within.most@9"} <= expected.keys()
    settings = {"score_scale": 0.1, "score_softcap": 0.5, "sinks": True}
    for names in (["score_scale"], ["score_softcap"], ["sinks"], list(settings)):
        own = {name: settings[name] for name in names}
        what = subject.of_run(fastpe.Transformer(fastpe.ModelConfig(encoding, **sizes, **own)), 9)
        assert f"the quantities of scores are those without {' and '.join(names)}" in what.remarks
        found = collect.records(what)
        for key in expected:
            if not key.startswith(("run.", "parameters", "occam")):
                assert found[key] == expected[key], key


def test_any_value_of_a_page_can_be_stored_as_json():
    given = {"a": np.float64("nan"), "b": (np.int32(1), None), "c": {2: np.array([math.inf])}, "d": slice(1)}
    assert json.loads(json.dumps(plain(given), allow_nan=False)) == {
        "a": "nan", "b": [1, None], "c": {"2": ["inf"]}, "d": "slice(None, 1, None)",
    }  # fmt: skip
