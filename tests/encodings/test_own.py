"""Encodings of one's own: how they become known, what they are held to, and what each mistake is called."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from own_encodings import without, write

import fastpe
from fastpe.doctor import encoding_checks
from fastpe.doctor.diagnosis import judge
from fastpe.encodings import catalogue, registry

SIZES = {"dim": 8, "heads": 2}

# What it is good for -------------------------------------------------------------------------------------------------


def test_a_registered_encoding_is_one_like_any_other(tmp_path):
    assert fastpe.register(write(tmp_path)) == "mine"
    assert "mine" in fastpe.list_encodings()
    assert registry.page("mine").startswith("Root penalty: a penalty by")
    for by, title in (("place", "Biases and factors of the score"), ("use", "No use stated")):
        assert "mine" in {each.key for each in catalogue.grouped(catalogue.entries()[0], by)[title]}
    assert catalogue.needs("mine") == ("training",)
    assert catalogue.learned(registry.get("mine")) == "yes"
    params = fastpe.init("mine", train_length=5, **SIZES)
    exact = -params["slope"][:, None] * np.abs(np.arange(-4.0, 5)) ** 0.5
    np.testing.assert_allclose(fastpe.build("mine", 5, params=params, **SIZES)["bias"], exact, rtol=1e-6)
    alone = fastpe.build("alibi", 5, **SIZES)["bias"]
    both = fastpe.build("mine+alibi", 5, params={"mine.slope": params["slope"]}, **SIZES)
    np.testing.assert_allclose(both["bias"], exact + alone, rtol=1e-6)
    with pytest.raises(ValueError, match="option 'power' must be a finite number > 0 and <= 4"):
        fastpe.build("mine", 5, power=5.0)


def test_a_name_may_hold_a_path_wherever_one_is_taken(tmp_path):
    path = write(tmp_path)
    config = fastpe.ModelConfig(f"{path}+alibi", {"mine.power": 1.0})
    assert config.encoding == "mine+alibi"
    assert fastpe.ModelConfig.from_dict(config.to_dict()) == config
    assert set(fastpe.init(str(path), train_length=4)) == {"slope"}
    assert registry.page(str(path)) == registry.page("mine")


def test_the_same_file_again_is_fine_and_another_is_not(tmp_path):
    path = write(tmp_path)
    assert fastpe.register(path) == fastpe.register(str(path)) == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["mine.py"]  # no temporary file is left
    write(tmp_path, ("power", "might"))
    with pytest.raises(ValueError, match=r"mine\.py: encoding 'mine' was registered from .* with different content"):
        fastpe.register(path)


def test_a_module_is_registered_by_its_name(tmp_path, monkeypatch):
    write(tmp_path, name="of_a_module.py")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("of_a_module")
    assert fastpe.register(module) == "of_a_module"
    assert registry.ENCODINGS.ways()["of_a_module"]["way"] == "of_a_module"
    monkeypatch.delitem(sys.modules, "of_a_module")
    with pytest.raises(ValueError, match="module 'nowhere' has no source file"):
        fastpe.register(ModuleType("nowhere"))


def test_the_shortest_file(tmp_path):
    """A page, a formula and `ENCODING`: the formula fills, which is remarked."""
    text = (
        '"""Root."""\nimport numpy as np\nimport fastpe\n\n\ndef reference(spec, params):\n'
        '    root = -np.sqrt(abs(np.arange(1 - spec.length, spec.length)))\n'
        '    return {"bias": np.tile(root, (spec.heads, 1))}\n\n\nENCODING = fastpe.Encoding(slots=("bias",))\n'
    )  # fmt: skip
    key = fastpe.register(write(tmp_path, text=text))
    for dtype in ("float32", "float64"):
        found = fastpe.build(key, 4, dtype=dtype, **SIZES)["bias"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, fastpe.build(key, 4, reference=True, **SIZES)["bias"].astype(dtype))
    events = []
    config = fastpe.TrainConfig(
        key, width=8, hidden=8, train_length=5, samples=8, epochs=2, test_lengths=(5, 9), test_sequences=4
    )
    fastpe.train(config, progress=events.append)
    said = [event.message for event in events if "no fill" in getattr(event, "message", "")]
    assert said == ["mine: mine.py defines no fill, so its NumPy formula is used, which may be slower"]


def test_without_a_pull_nothing_is_trained(tmp_path):
    key = fastpe.register(write(tmp_path, without("pull")))
    slots = fastpe.build(key, 4, **SIZES)
    message = r"^'mine' learns 'slope', but mine\.py does not define pull"
    with pytest.raises(ValueError, match=message):
        fastpe.pull(key, 4, slots, params=fastpe.init(key, train_length=4, **SIZES), **SIZES)
    with pytest.raises(ValueError, match=message):
        fastpe.Transformer(fastpe.ModelConfig(key, width=8))


def test_a_stored_name_never_runs_a_file(tmp_path):
    path = write(tmp_path, ("import fastpe\n", "import fastpe\n\nraise SystemExit('it ran')\n"))
    settings = {**fastpe.ModelConfig("alibi").to_dict(), "encoding": f"alibi+ {path}"}
    with pytest.raises(ValueError, match="encoding must be a key here, not the path of a file: "):
        fastpe.ModelConfig.from_dict(settings)
    with pytest.raises(ValueError, match="it ran"):
        fastpe.register(path)


# Files that are none -------------------------------------------------------------------------------------------------

HEAD = "import fastpe\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", r"line 1: this is not Python: '\(' was never closed"),
        ("x = '\x00'", "this is not Python"),
        ("import fastpe\n", r" must define ENCODING, a fastpe\.Encoding: there is none"),
        ("ENCODING = 3", r" must define ENCODING, a fastpe\.Encoding: not int"),
        ("\n\nraise KeyError('x')", ", line 3: KeyError: 'x'"),
        ("import nothing_of_this_name", ", line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (
            HEAD + "ENCODING = fastpe.Encoding(slot=1)",
            ", line 2: TypeError: Encoding has no argument 'slot'; did you mean 'slots'",
        ),
        (HEAD + "ENCODING = fastpe.Encoding(('bias',))", ": the formula is missing: define reference"),
        (HEAD + "ENCODING = fastpe.Encoding(('bais',))", ": slot 'bais' is unknown; did you mean 'bias'"),
        (HEAD + "ENCODING = fastpe.Encoding('bias')", ": slots must be a tuple of names, .*, not 'bias'"),
        (HEAD + "ENCODING = fastpe.Encoding(('bias',), beyond='no')", ": beyond must be one of defined, .*, not 'no'"),
        (HEAD + "ENCODING = fastpe.Encoding(('bias',), options={'a': 1})", ": options must be a dict of names to "),
        (
            HEAD + "reference = print\nENCODING = fastpe.Encoding(('bias',), reference=3)",
            "reference must be a function",
        ),
    ],
)
def test_files_that_define_no_encoding_are_refused(tmp_path, text, message):
    path = write(tmp_path, text=text)
    sys.modules.pop("fastpe_own_encoding_mine", None)  # another test's
    with pytest.raises(ValueError, match=r"^mine\.py" + message if message[0] in " ,:" else message) as caught:
        fastpe.register(path)
    assert "mine.py" in str(caught.value)
    assert registry.ENCODINGS._registered == {}
    assert "fastpe_own_encoding_mine" not in sys.modules


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.py cannot be read: No such file"):
        fastpe.register(tmp_path / "gone.py")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ValueError, match=r"folder\.py cannot be read: Is a directory"):
        fastpe.register(tmp_path / "folder.py")
    with pytest.raises(ValueError, match=r"mine\.txt: the file of an encoding must end in \.py"):
        fastpe.register(write(tmp_path, name="mine.txt"))
    with pytest.raises(ValueError, match=r"My-own\.py: an encoding's key is the name of its file, .*, not 'My-own'"):
        fastpe.register(write(tmp_path, name="My-own.py"))
    with pytest.raises(ValueError, match=r"alibi\.py: an encoding 'alibi' comes with fastpe: give the file another"):
        fastpe.register(write(tmp_path, name="alibi.py"))
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(ValueError, match=r"bytes\.py.*: this is not Python"):
        fastpe.register(tmp_path / "bytes.py")
    with pytest.raises(TypeError, match="module_or_path must be a module or the path"):
        fastpe.register(3)


# What it is held to --------------------------------------------------------------------------------------------------


def test_gradients_are_added_in_place(tmp_path):
    key = fastpe.register(write(tmp_path, ('dparams["slope"] -= ', 'dparams["slope"] = -')))
    params, dslots = fastpe.init(key, train_length=5, **SIZES), {"bias": np.ones((2, 9))}
    with pytest.raises(ValueError, match=r"^mine\.py: pull replaces dparams\['slope'\], of shape \(2,\), by an array"):
        fastpe.pull(key, 5, dslots, params=params, **SIZES)


def test_offsets_take_no_positions(tmp_path):
    key = fastpe.register(write(tmp_path))
    with pytest.raises(ValueError, match=r"positions cannot be given: mine\.py fills 'bias'"):
        fastpe.build(key, 5, positions=[0, 2, 4, 6, 8], **SIZES)


# Packages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that installs a package with an entry point."""

    def install(name: str, text: str, value: str | None = None) -> None:
        (tmp_path / f"pkg_{name}.py").write_text(text)
        about = tmp_path / f"pkg_{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pkg-{name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[fastpe.encodings]\n{name} = {value or f'pkg_{name}'}\n")
        vars(registry.ENCODINGS).pop("_offered", None)

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    for name in [name for name in sys.modules if name.startswith("pkg_")]:
        del sys.modules[name]


def test_a_package_offers_an_encoding(package):
    package("offered", write_text())
    assert "offered" in fastpe.list_encodings()
    assert "pkg_offered" not in sys.modules
    assert fastpe.build("offered", 3)["bias"].shape == (1, 5)
    assert registry.own_files("offered+alibi")["offered"]["file"] == "pkg_offered.py"
    assert registry.page("offered").startswith("Root penalty")


def test_a_broken_package_costs_a_line_where_it_is_used(package):
    package("broken", "raise RuntimeError('no luck')")
    package("attribute", write_text(), value="pkg_attribute:ENCODING")
    package("alibi", "raise RuntimeError('shadowed')")
    assert {"broken", "attribute"} <= set(fastpe.list_encodings())
    assert "broken" not in {each.key for each in catalogue.entries()[0]}
    assert registry.ENCODINGS.load_all()[1].keys() == catalogue.entries()[1].keys() == {"broken", "attribute"}
    with pytest.raises(ValueError, match=r"encoding 'broken' of pkg-broken \(pkg_broken\) cannot be used: .*no luck"):
        fastpe.build("broken", 3)
    with pytest.raises(ValueError, match="the entry point must be a module"):
        fastpe.build("attribute", 3)
    assert fastpe.build("alibi", 3)["bias"].shape == (1, 5)


def write_text() -> str:
    from fastpe.encodings.own import template

    return template()


def test_known_keys_cost_no_look_at_packages():
    code = (
        "import sys, fastpe, fastpe_cli.main\nfrom fastpe.encodings.registry import split\nsplit('alibi+rope')\n"
        "print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Other processes -----------------------------------------------------------------------------------------------------


def test_another_process_registers_what_this_one_has(tmp_path, monkeypatch):
    path = write(tmp_path)
    fastpe.register(path)
    ways = registry.ENCODINGS.ways()
    registry.ENCODINGS.register_ways(ways)
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    registry.ENCODINGS.register_ways(ways)
    assert registry.ENCODINGS.ways() == ways
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    path.write_text(path.read_text() + "\nraise AssertionError('what has changed is not run')\n")
    with pytest.raises(ValueError, match=r"encoding 'mine': .*mine\.py has changed since it was registered"):
        registry.ENCODINGS.register_ways(ways)
    assert Path(ways["mine"]["way"]) == path


SCALED = """import numpy as np
import fastpe


def plain(spec):
    return {"scale": np.full(spec.heads, 0.5)}


def reference(spec, params):
    return {}


ENCODING = fastpe.Encoding(slots=("scale",), summary="a scale for each head")
"""


def test_a_scale_for_each_head_is_handed_over_as_it_is(tmp_path):
    for name in ("mine.py", "other.py"):
        key = fastpe.register(write(tmp_path, text=SCALED, name=name))
    verdicts = [judge(check) for check in encoding_checks.checks(key) if check.name != "model"]
    assert [verdict.note for verdict in verdicts if not verdict.passed] == []
    np.testing.assert_array_equal(fastpe.build("mine+other", 4, heads=2)["scale"], [0.5, 0.5])
