"""`fastpe show --theory`: what its curves are, beside sums written out here and numbers that others computed."""

import json
import math

import numpy as np
import pytest
from command_line import fastpe as run_command

import fastpe
from fastpe.pictures import figure, text
from fastpe.pictures.look import look, look_at
from fastpe.pictures.panels import Axis, Curves
from fastpe.theory.information import position_information

N = 50


def run(*arguments):
    return run_command("show", "--theory", *arguments)


def curves(name, slot, *arguments, **request):
    """Title -> curves, of one slot."""
    return {view.title: view for view in look(name, *arguments, theory=True, **request).views[slot]}


def line(view):
    (found,) = view.lines.values()
    return found


def build(name, length, **options):
    return fastpe.build(name, length, train_length=N, dtype="float64", **options)


# Tables --------------------------------------------------------------------------------------------------------------


def test_drift_is_the_distance_to_the_nearest_trained_row():
    table = build("wavelet", 4 * N)["table"]
    view = curves("wavelet", "table")["drift from the nearest trained row"]
    expected = [min(np.linalg.norm(row - other) for other in table[:N]) for row in table]
    np.testing.assert_allclose(line(view), expected, atol=1e-12)
    assert (line(view)[:N] == 0).all()
    assert (view.x.values.tolist(), view.x.ends) == (list(range(4 * N)), (N - 0.5,))


def test_drift_of_a_table_that_moves_with_the_length_is_from_the_rows_of_training():
    trained, longer = (build("learned", n, beyond="interp")["table"] for n in (N, 60))
    view = curves("learned", "table", 60, beyond="interp")["drift from the nearest trained row"]
    expected = [min(np.linalg.norm(row - other) for other in trained) for row in longer]
    np.testing.assert_allclose(line(view), expected, atol=1e-12)
    assert line(view)[1:N].min() > 0.001  # these rows have moved as well


def test_the_spectrum_ends_where_rounding_begins():
    view = curves("sinusoidal", "table")["spectrum"]
    first = view.lines[f"first {N}"]
    known = first[np.isfinite(first)]
    assert len(known) == 24  # the rank of 50 rows in float64
    np.testing.assert_allclose(np.square(known).sum(), N * 32)  # every row has the squared norm 32
    assert known[0] ** 2 == pytest.approx(N * 32 / 1.513625, rel=1e-6)  # over the stable rank
    assert (np.isnan(first[24:]).all(), view.x.values[0], view.log) == (True, 1, True)


def test_the_kernel_by_lag_of_sinusoidal_is_a_sum_of_cosines():
    view = curves("sinusoidal", "table")["kernel: mean product of two rows"]
    omega = 10000.0 ** -(np.arange(32) / 32)
    expected = np.cos(np.outer(np.arange(4 * N), omega)).sum(axis=1)
    np.testing.assert_allclose(view.lines[f"all {4 * N}"], expected, atol=1e-10)
    np.testing.assert_allclose(view.lines[f"first {N}"][:N], expected[:N], atol=1e-10)
    assert np.isnan(view.lines[f"first {N}"][N:]).all()


def test_information_lies_in_a_band_for_each_window():
    table = build("legendre", 4 * N)["table"]
    view = curves("legendre", "table")["information about the position"]
    assert list(view.bands) == ["0-49", "50-99", "100-199"]
    assert sorted(view.lines) == sorted(name for band in view.bands.values() for name in band)
    power = np.square(table[:N] - table[:N].mean(axis=0)).sum(axis=1).mean() / 64
    assert view.x.values[20] == pytest.approx(math.sqrt(power), rel=0.005)
    assert (view.log_x, view.x.ends) == (True, ())
    for name, window in (("0-49", (0, 50)), ("100-199", (100, 200))):
        low, high = (view.lines[end] for end in view.bands[name])
        found = position_information(table, sigma=view.x.values[17], window=window, draws=2)
        assert (low[17], high[17]) == pytest.approx((found.lower.low, found.upper.high))
        assert high[0] <= math.log(window[1] - window[0]) + 1e-12
        assert low[-1] < 0.2 < 2.0 < low[0]


def test_a_table_without_anything_in_it_has_neither_spectrum_nor_information():
    found = curves("sinusoidal", "table", scale=0.0)
    assert list(found) == ["drift from the nearest trained row", "kernel: mean product of two rows"]


# Rotations -----------------------------------------------------------------------------------------------------------


def test_rotations_show_turns_unseen_angles_and_similarity():
    found = curves("rope", "angles", causal=True)
    omega = 10000.0 ** -(np.arange(32) / 32)
    np.testing.assert_allclose(line(found["turns within training"]), omega * (N - 1) / (2 * math.pi), rtol=1e-9)
    assert found["turns within training"].log
    unseen = found["unseen angles"].lines
    counts = {name: int((chords > 0.1).sum()) for name, chords in unseen.items()}
    assert counts == {"to 100": 17, "to 200": 22}
    assert (unseen["to 100"].max(), unseen["to 200"].max()) == pytest.approx((1.739006, 1.944053), abs=1e-6)
    alike = line(found["equal query and key"])
    np.testing.assert_allclose(alike, np.cos(np.outer(np.arange(4 * N), omega)).mean(axis=1), atol=1e-12)
    assert found["equal query and key"].x.ends == (N - 0.5,)


def test_angles_that_move_with_the_length_are_those_of_each_length():
    unseen = curves("rope_dynamic", "angles", 4 * N, causal=True)["unseen angles"].lines
    short = curves("rope_dynamic", "angles", 2 * N, causal=True)["unseen angles"].lines
    np.testing.assert_array_equal(unseen["to 100"], short["to 100"])


def test_the_similarity_of_xpos_falls_with_its_growth():
    slots = build("xpos", 2 * N, causal=True)
    alike = line(curves("xpos", "angles", 2 * N)["equal query and key"])
    turned = np.cos(slots["angles"][0] - slots["angles"][0, 0]) * np.exp(slots["growth"] - slots["growth"][0])
    np.testing.assert_allclose(alike, turned.mean(axis=1), atol=1e-12)


# Biases --------------------------------------------------------------------------------------------------------------


def at(view, length):
    return {name: each[view.x.values.tolist().index(length)] for name, each in view.lines.items()}


def test_biases_show_reach_effect_and_what_moves():
    found = curves("alibi", "bias", slope=0.002, causal=True)
    used, within, effect, moved = found.values()
    assert list(found) == [
        "keys used at equal content", "99 % of the weight within", "effect on a row, at most", "moved by a longer text",
    ]  # fmt: skip
    assert at(used, 200) == pytest.approx({"bias": 198.676410, "no bias": 200.0}, abs=1e-6)
    assert at(within, 200) == {"": 198.0}
    assert at(effect, 200)[""] == pytest.approx(0.099173, abs=1e-6)
    assert at(moved, 200) == pytest.approx({"bias": 0.711348595, "no bias": 0.75}, abs=1e-9)
    assert all(math.isnan(value) for value in at(moved, 32).values())
    assert (used.level, within.level, effect.level) == (N, N, None)
    assert {view.x.ends for view in found.values()} == {(N - 0.5,)}


def test_heads_have_lines_of_their_own():
    found = curves("alibi", "bias", heads=4)
    assert list(found["99 % of the weight within"].lines) == ["head 0", "head 1", "head 2", "head 3"]
    slope = curves("alibi", "bias", heads=1, slope=2.0**-4)
    np.testing.assert_array_equal(
        found["effect on a row, at most"].lines["head 1"], line(slope["effect on a row, at most"])
    )


@pytest.mark.parametrize("name", ["t5", "fire"])
def test_scores_and_buckets_have_the_curves_of_biases(name):
    slot = {"t5": "bias", "fire": "scores"}[name]
    slots = build(name, 70, causal=True)
    row = slots["scores"][0, -1, ::-1] if slot == "scores" else slots["bias"][0, 69::-1]
    shares = np.exp(row) / np.exp(row).sum()
    used = curves(name, slot, 70, causal=True)["keys used at equal content"]
    assert at(used, 70)["bias"] == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))


# What has none -------------------------------------------------------------------------------------------------------


def test_positions_of_a_grid_have_no_distance():
    assert list(curves("rope_2d", "angles")) == ["unseen angles"]
    assert "kernel: mean product of two rows" not in curves("sincos_2d_mae", "table")
    with pytest.raises(ValueError, match="theory has no curve for 'swin_bias'"):
        look("swin_bias", theory=True)
    found = look("wavelet+alibi", theory=True).views
    assert {slot: len(views) for slot, views in found.items()} == {"table": 4, "bias": 4}


def test_tables_that_end_with_training_are_shown_up_to_there():
    found = look("learned", theory=True)
    assert [view.title for view in found.views["table"]] == [
        "spectrum", "kernel: mean product of two rows", "information about the position",
    ]  # fmt: skip
    assert (found.spec.length, {axis.ends for view in found.views["table"] for axis in view.axes()}) == (N, {()})


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "fire", "learned"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_few_positions_are_enough(name, length):
    found = look(name, length, theory=True, train_length=2 if name != "learned" else 7, dim=4)
    for glyphs in (text.ASCII, text.COLOURS):
        assert max(each.cell_len for each in text.render(found, 60, glyphs)) <= 60
    assert json.dumps(found.as_dict(), allow_nan=False)


# Pictures and the command --------------------------------------------------------------------------------------------


def test_a_logarithmic_axis_in_text_is_even_in_the_logarithm():
    found = look("sinusoidal", theory=True, train_length=4)

    def rows(x, log_x):
        view = Curves("squares", Axis("noise", x, (x[3],)), {"": np.arange(9.0) ** 2}, "nats", log_x=log_x)
        shown = type(found)(**{**vars(found), "views": {"table": [view]}})
        lines = [each.plain for each in text.render(shown, 80, text.ASCII)]
        return lines[lines.index("squares (nats), over noise") + 1 :]

    logarithmic, even = rows(10.0 ** np.arange(9), True), rows(np.arange(9.0), False)
    assert logarithmic[:11] == even[:11]
    assert "|" in logarithmic[0]
    assert [each.split() for each in logarithmic[-3:]] == [["1", "0"], ["10000", "16"], ["1e+08", "64"]]  # every fourth


def test_bands_are_filled_in_the_figure():
    pytest.importorskip("matplotlib")
    drawn = fastpe.show("wavelet", theory=True)
    panels = {axes.get_title("left"): axes for axes in drawn.axes}
    noise = panels["information about the position"]
    words = noise.get_xscale(), noise.get_xlabel(), noise.get_ylabel()
    assert words == ("log", "noise (standard deviation, log scale)", "nats")
    assert {each.get_text() for each in noise.texts} == {"0-49", "50-99", "100-199"}
    assert len(noise.collections) == 3
    colours = [tuple(each.get_facecolor()[0, :3]) for each in noise.collections]
    assert len(set(colours)) == 3
    assert panels["spectrum"].get_yscale() == "log"
    dashed = panels["drift from the nearest trained row"].lines[-1]
    assert list(dashed.get_xdata()) == [N - 0.5, N - 0.5]


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", ["sinusoidal", "alibi", "rope", "wavelet+alibi"])
def test_no_two_words_of_a_figure_overlap(name):
    pytest.importorskip("matplotlib")
    drawn = figure.drawn(look(name, theory=True, heads=4))
    drawn.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in drawn.axes]
    page = drawn.bbox
    for place, box in enumerate(boxes):
        assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1
        for other in boxes[:place]:
            overlap = np.minimum(box.max, other.max) - np.maximum(box.min, other.min)
            assert overlap.min() < 1


def test_a_run_shows_what_it_has_learned(tmp_path):
    model = fastpe.Transformer(fastpe.ModelConfig("learned", width=16, train_length=8))
    table = model.parameters["encoding.learned.table"]
    table[...] = np.eye(8, 16)
    found = look_at(model, theory=True)
    np.testing.assert_allclose(line(found.views["table"][0]), np.ones(8))  # singular values
    model.save(tmp_path / "model.safetensors")
    done = run("--run", tmp_path / "model.safetensors")
    assert done.exit_code == 0, done.output
    assert "spectrum (size), over singular value" in done.stdout
    assert done.stdout.isascii()


def test_the_command_prints_text_json_and_one_line_of_error(tmp_path):
    done = run("alibi", "--json", "--option", "slope=0.5")
    found = json.loads(done.stdout)
    assert found["views"]["bias"][0]["title"] == "keys used at equal content"
    assert found["views"]["bias"][0]["lines"]["bias"][-1] == pytest.approx(5.493135, abs=1e-6)
    assert run("alibi").stdout.startswith("alibi\nlength 200, training length 50,")
    done = run("nope", "--out", tmp_path / "a.svg")
    assert (done.exit_code, done.stdout) == (2, "")
    reason = "which fills no table, no angles and no bias of positions on a line"
    assert done.stderr == f"fastpe: error: theory has no curve for 'nope', {reason}\n"
    assert list(tmp_path.iterdir()) == []
