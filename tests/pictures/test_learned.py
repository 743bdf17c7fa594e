"""What a model or a run has learned: `fastpe show --run` and `fastpe.show`."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import TINY, fastpe, refused

import fastpe as library
from fastpe.model.transformer import Transformer
from fastpe.pictures import show as shown
from fastpe.pictures.look import look, look_at
from fastpe.training import config_file

N = 9


def changed(encoding, **settings):
    """A model in float64 whose parameters are no longer the initial ones."""
    config = library.ModelConfig(encoding, width=16, heads=2, hidden=8, train_length=6, dtype="float64", **settings)
    model, rng = Transformer(config), np.random.default_rng(5)
    for value in model.parameters.values():
        value += 0.1 * np.abs(rng.normal(size=value.shape))
    return model


@pytest.fixture
def run(folder):
    """A finished run of an encoding of which every layer has its own."""
    done = fastpe("train", "--encoding", "shaw", "--out", "run", *TINY, "--layers", "2", "--causal")
    assert done.exit_code == 0, done.output
    return Path("run")


# A model --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "settings"),
    [
        ("kerple_log", {}),
        ("shaw", {}),
        ("rope_mixed+kerple_log", {}),
        ("learned+alibi", {"options": {"alibi.learned": True, "learned.beyond": "interp"}}),
        ("learned", {"table_scale": "rms", "options": {"beyond": "clip"}}),
        ("sinusoidal", {"start": 2.5, "table_scale": "unit"}),
        ("rope", {"causal": True}),
    ],
)
@pytest.mark.parametrize("layer", [0, 1])
def test_a_model_is_shown_as_it_acts(encoding, settings, layer):
    model = changed(encoding, **settings)
    found, slots = look_at(model, N, layer=layer), model.slots(N)
    assert set(found.slots) == set(slots)
    for slot, value in slots.items():
        if isinstance(value, np.ndarray):
            own = value[layer] if slot in model._encoding.layered else value
            np.testing.assert_allclose(found.slots[slot], own, rtol=1e-12, atol=1e-14)
        else:
            assert found.slots[slot] == value
    assert found.spec.causal == model.config.causal
    several = any(name.startswith("layers.0.encoding.") for name in model.parameters)
    learns = several or any(name.startswith("encoding.") for name in model.parameters)
    which = f", layer {layer} of 0 .. 1" if several else ""
    assert found.parameters == (f"parameters of the model{which}" if learns else None)


@pytest.mark.parametrize("encoding", ["rope_mixed", "rope_mixed+kerple_log"])
def test_wavelengths_are_those_that_the_layer_has_learned(encoding):
    model = changed(encoding)
    wave = look_at(model, N, layer=1).views["angles"][0]
    for h in range(2):
        fx, fy = (model.parameters[f"layers.1.encoding.rope_mixed.{name}"][h] for name in ("fx", "fy"))
        np.testing.assert_allclose(wave.lines[f"head {h}"], 2 * np.pi / np.hypot(fx, fy), rtol=1e-12)


def test_random_positions_are_shown_in_their_order():
    model = changed("learned", positions="random:20")
    found = look_at(model)
    assert (found.spec.length, found.spec.train_length) == (20, 20)
    np.testing.assert_array_equal(found.slots["table"], model.parameters["encoding.learned.table"])


def test_an_untrained_model_is_shown_like_its_encoding():
    model = Transformer(library.ModelConfig("learned", {"beyond": "clip"}, dtype="float64"))
    named, modelled = look("learned", N, beyond="clip"), look_at(model, N)
    np.testing.assert_array_equal(named.slots["table"], modelled.slots["table"])
    assert (named.parameters, modelled.parameters) == ("initial values of seed 0", "parameters of the model")


@pytest.mark.parametrize("layer", [-1, 2, "first"])
def test_a_layer_that_is_not_there_is_named(layer):
    with pytest.raises((ValueError, TypeError), match="layer must be"):
        look_at(changed("shaw"), layer=layer)


# A run on the command line --------------------------------------------------------------------------------------------


def test_a_run_is_shown_with_its_own_sizes(run):
    done = fastpe("show", "--run", run, "--layer", "1", "--json")
    assert done.exit_code == 0, done.output
    found, model = json.loads(done.stdout), library.load(run)
    assert (found["encoding"], found["length"], found["train_length"], found["dim"]) == ("shaw", 12, 6, 8)
    assert (found["causal"], found["seed"]) == (True, None)
    assert found["parameters"] == "parameters of the run run, layer 1 of 0 .. 1"
    np.testing.assert_allclose(found["slots"]["rel_key"], model.slots(12)["rel_key"][1], rtol=1e-6)
    text = " ".join(fastpe("show", "--run", run).stdout.split())
    assert "parameters of the run run, layer 0 of 0 .. 1" in text


def test_a_model_s_file_is_shown_like_a_run(folder):
    changed("kerple_log").save("model.safetensors")
    done = fastpe("show", "--run", "model.safetensors", "--length", N)
    assert "parameters of the file model.safetensors" in " ".join(done.stdout.split()), done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alibi", "--run", "run"], "--run determines encoding, sizes and options: give either --run or NAME"),
        (["--run", "run", "--dim", "8"], "give either --run or --dim"),
        (["--run", "run", "--option", "reach=2"], "give either --run or --option"),
        (["--run", "run", "--bidirectional"], "give either --run or --causal"),
        (["--run", "run", "--seed", "0"], "give either --run or --seed"),
        (["alibi", "--layer", "0"], "--layer needs --run"),
        ([], "NAME is missing, or --run RUN"),
        (["--run", "nowhere"], "there is no run folder or model file nowhere"),
    ],
)
def test_wrong_combinations_of_run_and_name_are_refused(folder, arguments, words):
    assert words in refused(2, "show", *arguments)


def test_files_named_in_a_run_folder_are_not_imported(run):
    ran = "import pathlib\npathlib.Path('ran').touch()\n"
    Path("mine.py").write_text(ran)
    (run / "mine.py").write_text(ran)
    record = config_file.read(run)
    record["config"]["encoding"] = "./mine.py"
    config_file.write(run, record)
    assert "mine.py" in refused(2, "show", "--run", run)
    with pytest.raises(ValueError, match=r"mine\.py"):
        shown.show(run)
    assert not Path("ran").exists()


# A figure in Python ---------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
def test_the_examples_run():
    pytest.importorskip("matplotlib")
    assert doctest.testmod(shown) == (0, 6)


@pytest.mark.full("takes seconds")
def test_a_figure_of_a_name_a_model_and_a_run(run):
    pytest.importorskip("matplotlib")
    before = sorted(Path().rglob("*"))
    sizes = {"heads": 2, "train_length": 6}
    for what, request in (("alibi+learned", sizes), (changed("shaw"), {"layer": 1}), (run, {}), (str(run), {})):
        figure = library.show(what, 6, **request)
        data, size = figure._repr_png_()
        assert data.startswith(b"\x89PNG")
        assert size["width"] > 300
    assert (figure.get_suptitle(), "parameters of the run run" in figure.get_supxlabel()) == ("shaw", True)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.full("starts processes")
def test_a_figure_is_unknown_to_pyplot_and_keeps_its_fonts():
    pytest.importorskip("matplotlib")
    program = (
        "import sys, fastpe\nfigure = fastpe.show('alibi')\nassert 'matplotlib.pyplot' not in sys.modules\n"
        "import matplotlib\nassert matplotlib.rcParams['font.size'] == 10\n"
        "figure.draw_without_rendering()\n"
        "print({label.get_size() for label in figure.axes[0].get_xticklabels()})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{8.0}\n"


@pytest.mark.full("takes seconds")
def test_a_folder_does_not_hide_an_encoding(folder):
    pytest.importorskip("matplotlib")
    Path("alibi").mkdir()
    figure = library.show("alibi")
    assert (figure.get_suptitle(), figure.get_supxlabel()[:10]) == ("alibi", "length 100")
    with pytest.raises(ValueError, match="did you mean 'alibi'"):
        library.show("alibbi")


def test_wrong_requests_are_named(folder):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="a model or a run has its own sizes and options: leave out dim, slope"):
        library.show(changed("alibi"), dim=8, slope=0.5)
    with pytest.raises(ValueError, match="layer=0 needs a model or a run"):
        library.show("alibi", layer=0)
    with pytest.raises(TypeError, match="what must be the name of an encoding, a model or the path of a run, not 3"):
        library.show(3)


def test_missing_files_are_reported_as_missing(tmp_path):
    pytest.importorskip("matplotlib")
    for missing in (tmp_path / "none", f"{tmp_path}/none", f"{tmp_path}/none.safetensors"):
        with pytest.raises(FileNotFoundError, match="none"):
            shown.show(missing)
    with pytest.raises(ValueError, match=r"none\.py cannot be read"):
        shown.show(f"{tmp_path}/none.py")
