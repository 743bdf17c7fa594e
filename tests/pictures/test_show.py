"""`fastpe show`: the numbers of every slot, their text and their figure, and the command's manners."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from command_line import fastpe as run_command

import fastpe
from fastpe.encodings import registry
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.slots import SLOTS
from fastpe.pictures import canvas, figure, text, views
from fastpe.pictures.axes import logarithmic
from fastpe.pictures.look import look

N, HEADS, WIDTH, TRAINED = 12, 2, 8, 5
RNG = np.random.default_rng(3)
POSITIONS = np.arange(N)[:, None]
TURNS = 100.0 ** -np.linspace(0, 1, 3)  # radians a position
MADE_UP = {
    "table": RNG.normal(size=(N, WIDTH)),
    "qk_table": np.abs(RNG.normal(size=(N, WIDTH))),
    "taps": RNG.normal(size=(5, WIDTH)),
    "rotors": RNG.normal(size=(HEADS, N, 2, 2, 2)),
    "polar": -RNG.uniform(size=(HEADS, 4)),
    "angles": np.angle(np.exp(1j * POSITIONS * TURNS))[None],
    "growth": -0.01 * POSITIONS * np.arange(1, 4),
    "row_scale": 1 + 0.1 * RNG.normal(size=(HEADS, N)),
    "rel_gain": 1 + 0.1 * RNG.normal(size=(1, 7, 4)),
    "rel_key": RNG.normal(size=(HEADS, 7, 4)),
    "rel_query": RNG.normal(size=(1, 2 * N - 1, 4)),
    "key_bias": RNG.normal(size=(HEADS, 4)),
    "gain": np.exp(RNG.normal(size=(HEADS, 2 * N - 1))),
    "bias": RNG.normal(size=(HEADS, 7)),
    "index": RNG.integers(0, 3, (N, N)).astype(np.int32),
    "values": RNG.normal(size=(HEADS, 3)),
    "scores": RNG.normal(size=(HEADS, N, N)),
    "counts": RNG.normal(size=(1, N + 1, 4)),
    "mlp_in": RNG.normal(size=(5, 2 * HEADS, 3)),
    "mlp_bias": RNG.normal(size=5),
    "mlp_out": RNG.normal(size=(HEADS, 5, 1)),
    "rel_value": RNG.normal(size=(1, 7, 4)),
}
PLAIN = {"scale": 0.25, "rectify": True, "pairs": "half"}


@pytest.fixture
def made_up(monkeypatch):
    """Makes `nope` an encoding of these slots and facts."""

    def make(slots, plain=None, **facts):
        def fill(spec, params, out, **options):
            for slot, array in slots.items():
                out[slot][...] = array

        made = replace(
            registry.get("nope"),
            slots=(*slots, *(plain or {})),
            fill=fill,
            shapes=lambda spec, **options: {slot: array.shape for slot, array in slots.items()},
            plain=lambda spec, **options: plain or {},
            **facts,
        )
        monkeypatch.setattr(registry, "get", lambda scheme: made)

    return make


def everything(made_up, **sizes):
    made_up(MADE_UP, PLAIN)
    return look("nope", N, dim=WIDTH, heads=HEADS, train_length=TRAINED, **sizes)


def run(*arguments):
    return run_command("show", *arguments)


# Numbers -------------------------------------------------------------------------------------------------------------


def test_every_slot_is_shown():
    assert set(views.VIEWS) == set(SLOTS)
    assert set(MADE_UP) | set(PLAIN) == set(SLOTS)


def test_a_table_shows_its_values_dot_products_and_cosines():
    found = look("wavelet", 30, dim=16, train_length=20, scale=2.0)
    table, dots, cosines = found.views["table"]
    exact = fastpe.build("wavelet", 30, dim=16, train_length=20, scale=2.0, dtype=np.float64)["table"]
    np.testing.assert_array_equal(table.values, exact)
    np.testing.assert_allclose(dots.values, [[row @ other for other in exact] for row in exact], atol=1e-14)
    sizes = np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(cosines.values * np.outer(sizes, sizes), dots.values, atol=1e-14)
    assert table.rows.ends == dots.rows.ends == dots.columns.ends == (19.5,)
    assert table.columns.ends == ()
    assert found.options == {"scale": 2.0}


def test_a_row_of_zeros_has_no_cosine(made_up):
    made_up({"table": np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])})
    *_, cosines = look("nope", 3, dim=2).views["table"]
    nan, half = np.nan, np.sqrt(0.5)
    np.testing.assert_allclose(cosines.values, [[1, nan, half], [nan, nan, nan], [half, nan, 1]])
    stored = look("nope", 3, dim=2).as_dict()["views"]["table"][2]["values"]
    assert stored[1] == [None, None, None]


def test_products_that_leave_float64_are_absent():
    found = look("sinusoidal", 3, dim=4, scale=1e300)
    products = next(view for view in found.views["table"] if view.title.startswith("dot"))
    assert not np.isfinite(np.diag(products.values)).any()
    stored = [view["values"] for view in found.as_dict()["views"]["table"] if view["title"] == products.title]
    assert [stored[0][i][i] for i in range(3)] == [None] * 3


def test_wavelengths_come_back_from_reduced_angles(made_up):
    wave, *_ = everything(made_up).views["angles"]
    np.testing.assert_allclose(wave.lines[""], 2 * np.pi / TURNS, rtol=1e-12)
    assert (wave.log, wave.level) == (True, TRAINED)


def test_pairs_that_do_not_turn_have_no_wavelength():
    positions = np.arange(12.0)
    found = views.wavelengths(views.turns(np.stack([0.1 * positions, 0 * positions], axis=1)))
    np.testing.assert_allclose(found, [2 * np.pi / 0.1, np.inf], rtol=1e-12)


def test_decay_is_the_score_of_vectors_of_ones(made_up):
    _, decay, *_ = everything(made_up).views["angles"]
    distance = np.arange(N)
    np.testing.assert_allclose(decay.lines["rotation"], [np.cos(d * TURNS).mean() for d in distance], atol=1e-14)
    q = np.zeros((1, 1, N, N))
    q[..., :6] = 1.0  # the channels of the three pairs
    slots = {"angles": MADE_UP["angles"], "growth": MADE_UP["growth"], "pairs": "half", "scale": 1 / 6}
    share, lse = fastpe.reference.attention(q, q, np.eye(N)[None, None], causal=True, return_lse=True, **slots)
    np.testing.assert_allclose(decay.lines["with growth"], np.log(share[0, 0, :, 0]) + lse[0, 0], atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_curves_over_offsets_are_clipped_and_causal_ones_end_at_zero(made_up, causal):
    slots = everything(made_up, causal=causal).views
    (bias,) = slots["bias"]
    offsets = range(1 - N, 1 if causal else N)
    np.testing.assert_array_equal(bias.x.values, offsets)
    assert bias.x.ends == ((-4.5,) if causal else (-4.5, 4.5))
    for h in range(HEADS):
        expected = [MADE_UP["bias"][h, min(max(offset, -3), 3) + 3] for offset in offsets]
        np.testing.assert_array_equal(bias.lines[f"head {h}"], expected)
    key, *_, norm = slots["rel_key"]
    kept = MADE_UP["rel_key"][:, : 4 if causal else 7]
    np.testing.assert_array_equal(key.values, kept[0])
    np.testing.assert_allclose(norm.lines["head 1"], np.linalg.norm(kept[1], axis=1), rtol=1e-15)
    assert key.title == "rel_key, head 0 (clipped at 3)"
    *_, mean = slots["rel_gain"]
    np.testing.assert_allclose(mean.lines["rel_gain"], MADE_UP["rel_gain"][0, : 4 if causal else 7].mean(axis=1))


def test_scores_of_pairs_come_from_index_and_values_and_a_mask_hides_later_keys(made_up):
    slots = everything(made_up, causal=True).views
    later = np.triu(np.ones((N, N), bool), 1)
    *values, buckets = slots["index"]
    np.testing.assert_array_equal(buckets.values, np.where(later, np.nan, MADE_UP["index"]))
    assert (buckets.title, buckets.unit, len(values)) == ("index", "bucket", HEADS)
    for h, view in enumerate(values):
        expected = [[MADE_UP["values"][h, MADE_UP["index"][i, j]] for j in range(N)] for i in range(N)]
        np.testing.assert_array_equal(view.values, np.where(later, np.nan, expected))
    for h, view in enumerate(slots["scores"]):
        np.testing.assert_array_equal(view.values, np.where(later, np.nan, MADE_UP["scores"][h]))


def test_many_positions_are_shown_in_part():
    table, dots, _ = look("sinusoidal", 3000, dim=4).views["table"]
    assert dots.values.shape == (views.MOST_POSITIONS, views.MOST_POSITIONS)
    exact = fastpe.build("sinusoidal", 3000, dim=4, dtype=np.float64)["table"]
    np.testing.assert_array_equal(table.values, exact[table.rows.values])
    np.testing.assert_array_equal(table.rows.values[[0, -1]], [0, 2999])
    assert np.ptp(np.diff(table.rows.values)) <= 1


# What is asked for ---------------------------------------------------------------------------------------------------


def test_an_encoding_that_ends_is_shown_so_far_and_says_so():
    found = look("learned", dim=4, train_length=6)
    assert (found.spec.length, found.seed) == (6, 0)
    assert "shown up to the training length" in found.remarks[0]
    with pytest.raises(BeyondTrainingLength, match="position 6"):
        look("learned", 7, dim=4, train_length=6)
    assert look("learned", dim=4, train_length=6, beyond="clip").spec.length == 12


def test_json_has_every_number():
    sizes = "--length 7 --dim 4 --heads 2 --train-length 5 --option alibi.slope=0.5"
    done = run("wavelet+alibi", *sizes.split(), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    sizes = {"dim": 4, "heads": 2, "train_length": 5, "dtype": np.float64}
    built = fastpe.build("wavelet+alibi", 7, **sizes, **{"alibi.slope": 0.5})
    for slot, array in built.items():
        np.testing.assert_array_equal(found["slots"][slot], array)
    assert found["options"] == {"alibi.slope": 0.5}
    assert [view["kind"] for view in found["views"]["table"]] == ["map"] * 3
    np.testing.assert_array_equal(found["views"]["bias"][0]["lines"]["head 1"], built["bias"][1])


# Text ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 133])
@pytest.mark.parametrize("glyphs", [text.ASCII, text.SHADES, text.COLOURS])
def test_text_fits_its_width(made_up, width, glyphs):
    lines = text.render(everything(made_up), width, glyphs)
    assert max(line.cell_len for line in lines) <= width
    words = "\n".join(line.plain for line in lines)
    assert words.isascii() == (glyphs is text.ASCII)
    for slot in MADE_UP:
        assert slot in words
    for fact in ("scale: 0.25", "rectify: true", "pairs: half"):
        assert fact in " ".join(words.split())
    colours = {str(span.style) for line in lines for span in line.spans if "#" in str(span.style)}
    assert (len(colours) > 20) == glyphs.colour


def test_a_map_in_text_shows_the_training_length_and_its_values(made_up):
    made_up({"table": np.array([[0.0, 1, 2, 3], [3.0, 2, 1, 0], [0, 0, 0, 0]])})
    found = look("nope", 3, dim=4, train_length=2)
    lines = [line.plain for line in text.render(found, 60, text.ASCII)]
    at = lines.index("table: position down, channel across")
    rows = ["0 ....====####@@@@", "  @@@@####====....", "-" * 18, "2 " + "." * 16, "  0              3"]
    assert lines[at + 1 : at + 6] == rows
    assert lines[at + 6] == "value 0 .:-=+*#%@ 3"


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("length", [1, 2])
def test_few_positions_are_enough(made_up, length):
    table, angles = np.ones((length, 1)), MADE_UP["angles"][:, :length]
    made_up({"table": table, "angles": angles, "bias": np.zeros((1, 1)), "rel_key": np.zeros((1, 1, 1))})
    found = look("nope", length, dim=1, heads=1, train_length=1)
    for glyphs in (text.ASCII, text.COLOURS):
        assert any("0" in line.plain for line in text.render(found, 80, glyphs))
    assert json.dumps(found.as_dict(), allow_nan=False)
    pytest.importorskip("matplotlib")
    assert figure.draw(found, "png").startswith(b"\x89PNG")


def test_numbers_beside_a_chart(made_up):
    made_up({"bias": -np.abs(np.arange(-11.0, 12))[None]})
    lines = [line.plain.split() for line in text.render(look("nope", 12, train_length=5), 80, text.ASCII)]
    for offset in (-11, -8, -4, -2, -1, 0, 1, 2, 4, 8, 11):
        assert [str(offset), str(-abs(offset))] in lines


def test_the_command_prints_text():
    done = run("alibi", "--heads", 2, "--length", 9, "--train-length", 4, "--causal")
    assert done.exit_code == 0, done.output
    assert done.stdout.isascii()
    assert done.stdout.startswith("alibi\nlength 9, training length 4, width 64, 2 heads, causal\n")
    assert ["-8", "-0.5", "-0.0312"] in [line.split() for line in done.stdout.splitlines()]


# Figures -------------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg "), ("pdf", b"%PDF")])
def test_a_figure_is_written_whole(tmp_path, kind, begins):
    pytest.importorskip("matplotlib")
    out = tmp_path / f"a.{kind.upper()}"
    contents = []
    for _ in range(2):
        done = run("alibi", "--length", 9, "--train-length", 4, "--heads", 2, "--out", out)
        assert (done.exit_code, done.stdout) == (0, ""), done.output
        assert done.stderr == f"written: {out}\n"
        contents.append(out.read_bytes())
    assert contents[0].startswith(begins)
    assert contents[0] == contents[1]
    assert [entry.name for entry in tmp_path.iterdir()] == [out.name]


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("slots", [("table", "taps"), ("angles", "growth"), ("index", "values"), ("rel_key", "bias")])
def test_a_figure_has_a_panel_for_every_view_and_its_words(made_up, slots):
    made_up({slot: MADE_UP[slot] for slot in slots})
    found = look("nope", N, dim=WIDTH, heads=HEADS, train_length=TRAINED)
    drawn = figure.draw(found, "svg").decode()
    texts = {html.unescape(each) for each in re.findall("<text [^>]*>([^<]*)</text>", drawn)}
    for view in (view for shown in found.views.values() for view in shown):
        assert view.title in texts
        for axis in view.axes():
            assert {axis.label, logarithmic(axis.label)} & texts
    assert {"nope", f"length {N}, training length {TRAINED}, width {WIDTH}, {HEADS} heads"} <= texts


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alibi", "--out", "a.jpg"], "--out must end in one of .svg, .png, .pdf, not 'a.jpg'"),
        (["alibi", "--out", "a"], "--out must end in one of"),
        (["alibi", "--out", "nowhere/a.png"], "--out: folder nowhere does not exist"),
        (["alibi", "--out", "folder.png"], "--out: folder.png cannot be written: it is a folder"),
        (["alibbi"], "'alibbi' is unknown; did you mean 'alibi'?"),
        (["alibi", "--option", "slop=1"], "did you mean 'slope'?"),
        (["alibi", "--option", "slope"], "--option must be NAME=VALUE, not 'slope'"),
        (["alibi", "--length", "0"], "error: --length must be at least 1, not 0"),
        (["nope", "--out", "a.png"], "there is nothing to draw for 'nope'"),
        (["learned", "--length", "51"], "'learned' has no row for position 50"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.png"]


def test_without_matplotlib_figures_are_svg(monkeypatch, tmp_path):
    monkeypatch.setattr(canvas, "available", lambda: False)
    done = run("alibi", "--out", tmp_path / "a.png")
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "need matplotlib: pip install matplotlib" in done.stderr
    assert "--out figure.svg" in done.stderr
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        figure.draw(look("alibi", 4), "png")
    done = run("alibi", "--out", tmp_path / "a.svg")
    assert (done.exit_code, [each.name for each in tmp_path.iterdir()]) == (0, ["a.svg"]), done.output
