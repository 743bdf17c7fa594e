"""What encodings need and a plain sequence does not have: declared in their files, given by runs or refused."""

import pytest
from own_encodings import write

import fastpe
from fastpe.encodings import catalogue
from fastpe.encodings.needed import needed
from fastpe.encodings.registry import built_in, get, page
from fastpe.experiments.study import Study
from fastpe.training.config import TrainConfig
from fastpe.training.presets import preset

ADDITION = {"task": "addition", "causal": True, "train_length": 8}  # 17 positions
AXES = {name: catalogue.coordinates(get(name)) for name in built_in()}
GRIDS = {2: (1, 17), 3: (1, 1, 17)}


def kind(name):
    return get(name).needs.what if get(name).needs else ""


def test_a_file_declares_what_its_formula_reads():
    """The slots themselves are compared by the check `needs` of `fastpe check`, which runs on all of them."""
    assert {name for name in built_in() if kind(name) == "coordinates"} == {n for n, count in AXES.items() if count > 1}
    assert {name for name in built_in() if kind(name) == "graph"} == {n for n in AXES if "edges" in get(n).options}
    assert [name for name in built_in() if kind(name) == "digits"] == ["abacus"]
    for name in built_in():
        if kind(name) == "graph":
            assert "Default: the path" in page(name)
            assert get(name).needs.default


@pytest.mark.parametrize("name", [name for name in built_in() if kind(name)])
def test_a_run_gives_what_is_needed_or_is_refused(name):
    needs, options = get(name).needs, get(name).options
    if needs.default:
        config = TrainConfig(name, **ADDITION)
        assert config.positions == (needs.default if needs.what == "digits" else "usual")
        told = config.model.positions if needs.what == "digits" else needs.default
        assert len(config.met_needs()) == 1
        assert told in config.met_needs()[0]
        assert TrainConfig.from_dict(config.to_dict()) == config
        return
    how = "option grid=A,B" if "grid" in options else r"fastpe\.build\(\.\.\., positions=\.\.\.\)"
    with pytest.raises(ValueError, match=rf"^encoding '{name}' needs positions with several coordinates, .*{how}"):
        TrainConfig(name, **ADDITION)
    with pytest.raises(ValueError, match=f"^{name} on addition: encoding '{name}' needs "):
        Study(["nope", name], ["addition"])
    with pytest.raises(ValueError, match=f"^encoding '{name}' needs "):
        TrainConfig(f"rope*1,alibi+{name}", **ADDITION)
    if "grid" in options:
        assert TrainConfig(name, {"grid": GRIDS[AXES[name]]}, **ADDITION).met_needs() == []


def test_several_coordinates_by_an_option_are_needed_as_well():
    for name in ("comrope", "fourier", "liere", "string"):
        assert needed(name) == []
        with pytest.raises(ValueError, match=f"^encoding '{name}' needs positions with several coordinates"):
            TrainConfig(name, {"coordinates": 2}, **ADDITION)
        assert TrainConfig(name, {"coordinates": 2, "grid": (1, 17)}, **ADDITION).met_needs() == []


def test_places_of_digits_are_those_of_the_authors_unless_a_run_has_others():
    assert TrainConfig("abacus", **ADDITION) == TrainConfig("abacus", positions="digits:99", **ADDITION)
    assert TrainConfig("abacus", positions="digits:20", **ADDITION).positions == "digits:20"
    assert TrainConfig("abacus+rope", **ADDITION).positions == "digits:99"
    assert TrainConfig("rope", **ADDITION).positions == "usual"
    assert preset("lacoco", "abacus", task="addition").positions == "digits:99"
    for wrong in ("usual", "random:200", "offset:200"):
        with pytest.raises(ValueError, match=f"^encoding 'abacus' needs positions='digits:K', .*, not '{wrong}'$"):
            TrainConfig("abacus", positions=wrong, **ADDITION)
    with pytest.raises(ValueError, match=r"and task 'running_sum' has no tokens that are digits$"):
        TrainConfig("abacus")


def test_an_encoding_of_one_s_own_declares_its_need(tmp_path):
    def own(name, needs, *changes):
        direction = ('direction="no"', f'direction="no", needs={needs}')
        return fastpe.register(write(tmp_path, direction, *changes, name=f"{name}.py"))

    edges = ("options={", 'options={"edges": fastpe.Option(None, "of the graph", tuple, optional=True), ')
    taken = ("*, power", "*, power, edges=None")
    graph = own("graph", 'fastpe.Needs("graph")', edges, taken)
    with pytest.raises(ValueError, match=r"^encoding 'graph' needs a graph: set option edges=0,1,1,2"):
        TrainConfig(graph, **ADDITION)
    assert TrainConfig(graph, {"edges": (0, 1)}, **ADDITION).met_needs() == []
    default = own("default", 'fastpe.Needs("graph", "the graph is a ring")', edges, taken)
    assert TrainConfig(default, **ADDITION).met_needs() == ["default: the graph is a ring"]
    undeclared = own("undeclared", "None", ("ulp=4.0", "ulp=4.0, axes=lambda **options: 2"))
    with pytest.raises(ValueError, match=r"^encoding 'undeclared' needs positions with several coordinates"):
        TrainConfig(undeclared, **ADDITION)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ('"graph"', r"needs must be None or a fastpe\.Needs"),
        ('fastpe.Needs("grid")', "needs.what must be one of digits, coordinates, graph, not 'grid'"),
        ('fastpe.Needs("digits")', "needs.default must be a value of the setting positions"),
        ('fastpe.Needs("graph")', "needs.what is 'graph': define the option 'edges'"),
        ('fastpe.Needs("coordinates")', "needs.what is 'coordinates': define axes"),
    ],
)
def test_a_wrong_declaration_is_refused(tmp_path, needs, said):
    with pytest.raises(ValueError, match=rf"^mine\.py: {said}"):
        fastpe.register(write(tmp_path, ('direction="no"', f'direction="no", needs={needs}')))
