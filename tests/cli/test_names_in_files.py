"""Names that were read from a file are keys: no file makes fastpe run another one, however it spells its name."""

import json
import os
import shutil
import sys
from pathlib import Path

import damage
import own_encodings
import pytest
from command_line import TINY, fastpe, refused

import fastpe as library
from fastpe import ModelConfig, TrainConfig
from fastpe.encodings import registry
from fastpe.experiments.study import Study
from fastpe.tasks import template as task_template
from fastpe.tasks.registry import TASKS

PAYLOAD = "import pathlib\npathlib.Path({!r}).write_text('it ran')\n"
FORMS = (
    "./payload.py", "payload.py", "{}/payload.py", "~/payload.py", "../{name}/payload.py", "./payload.py ",
    " ./payload.py", "./payload.py*2", "./payload.py,nope", "nope,./payload.py", "rope, ./payload.py*3",
    "./payload.py@x", "./payload.py@x*2,nope", "./payload.py+alibi", "alibi+./payload.py", "alibi + ./payload.py@x",
    "./link", "link.py", "./PAYLOAD.PY", "./a+b/payload.py", "a,b/payload.py", "{}/a+b/payload.py", "payload.py\n",
    "./payload.py\nrope", "./payload", "payload", "payload:ENCODING", "link", "file://{}/payload.py", "alibi\nrope",
    "alibi,./payload.py\u2028", "", " ", "+", "@x", "*", 3, None, ["./payload.py"], {"./payload.py": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder whose model was not trained."""
    return damage.finished(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def place(run, folder, monkeypatch):
    """The working folder: a copy of the run, and files that say so when they run."""
    monkeypatch.setenv("HOME", str(folder))
    shutil.copytree(run, folder / "run")
    for path in ("payload.py", "PAYLOAD.PY", "a+b/payload.py", "a,b/payload.py"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(PAYLOAD.format(str(folder / "ran")))
    for link in ("link", "link.py"):
        (folder / link).symlink_to("payload.py")
    return folder


def forms(folder):
    return [each.format(folder, name=folder.name) if isinstance(each, str) else each for each in FORMS]


def study(folder, word, name, labelled=True):
    """A study in a folder that names an encoding or a task; without a table's key where the label is the name."""
    other = {"encoding": "task", "task": "encoding"}[word]
    known = {"encoding": "rope", "task": "reverse"}[other]
    value = json.dumps(name, ensure_ascii=False) if not isinstance(name, dict) else '{ "./payload.py" = 1 }'
    value = "[]" if name is None else value  # TOML has no null
    entry = f"[{word}.own]\n{word} = {value}\n" if labelled else f"[{word}.{value}]\n"
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(f"seeds = 1\n{entry}[{other}.{known}]\n", encoding="utf-8")


RUN_COMMANDS = (
    ("evaluate", "run"), ("evaluate", "run", "--length-curve"), ("evaluate", "run", "--receptive-field"),
    ("show", "--run", "run"), ("theory", "--run", "run"), ("theory", "--run", "run", "--probe"),
    ("generate", "run", "a"), ("report", "run"), ("train", "--resume", "--out", "run"),
)  # fmt: skip


def one_line(line, *said):
    assert "internal" not in line
    assert "Traceback" not in line
    for each in said:
        assert each in line


@pytest.mark.parametrize("command", RUN_COMMANDS, ids=" ".join)
def test_a_run_folder_runs_nothing(place, command):
    for setting in ("encoding", "task"):
        for name in forms(place):
            damage.with_record(place / "run", lambda record, s=setting, n=name: record["config"].update({s: n}))
            one_line(refused(2, *command), "config.json", setting)
            assert not (place / "ran").exists(), name
        damage.with_record(place / "run", lambda record: record["config"].update(encoding="learned"))


FILE_COMMANDS = (
    ("evaluate", "model.safetensors"), ("show", "--run", "model.safetensors"), ("theory", "--run", "model.safetensors"),
    ("generate", "model.safetensors", "a"), ("evaluate", "model.safetensors", "--length-curve", "--data", "payload.py"),
)  # fmt: skip


@pytest.mark.parametrize("command", FILE_COMMANDS, ids=" ".join)
def test_a_model_file_runs_nothing(place, command):
    for name in forms(place):
        shutil.copy(place / "run" / "model.safetensors", place)
        damage.with_header(
            place / "model.safetensors", lambda _, facts, data, n=name: facts["model"].update(encoding=n)
        )
        one_line(refused(2, *command), "model.safetensors", "encoding")
        assert not (place / "ran").exists(), name


STUDY_COMMANDS = (
    ("report", "study"), ("report", "study", "--runs", "."), ("merge", "study", "--out", "joined"),
    ("compare", "--study", "study/study.toml", "--out", "new"), ("compare", "--study", "study/study.toml", "--dry-run"),
    ("compare", "rope", "--task", "reverse", "--out", "study"),
)  # fmt: skip


@pytest.mark.parametrize("command", STUDY_COMMANDS, ids=" ".join)
def test_a_study_runs_nothing(place, command):
    for word in ("encoding", "task"):
        for name in forms(place):
            for labelled in (True, False) if isinstance(name, str) else (True,):
                study(place / "study", word, name, labelled)
                one_line(refused(2, *command), "study.toml", word)
                assert not (place / "ran").exists(), name
    assert not (place / "new").exists()
    assert not (place / "joined").exists()


def test_runs_in_a_study_run_nothing(place):
    """Their names are read where the runs are looked for: a run with other names is missing."""
    study(place / "study", "encoding", "rope")
    for name in forms(place):
        damage.with_record(place / "run", lambda record, n=name: record["config"].update(encoding=n))
        one_line(refused(2, "report", "study", "--runs", "."), "study lacks 1 of 1 runs")
        assert not (place / "ran").exists(), name


def test_python_readers_run_nothing(place):
    settings, model = TrainConfig("alibi").to_dict(), ModelConfig("alibi").to_dict()
    for name in forms(place):
        study(place / "study", "encoding", name)
        damage.with_record(place / "run", lambda record, n=name: record["config"].update(encoding=n))
        for read in (
            lambda: library.load("run"),
            lambda: library.show("run"),
            lambda: library.length_curve("run"),
            lambda: library.train(TrainConfig("alibi"), out="run", resume=True),
            lambda n=name: ModelConfig.from_dict({**model, "encoding": n}),
            lambda n=name: TrainConfig.from_dict({**settings, "encoding": n}),
            lambda n=name: TrainConfig.from_dict({**settings, "task": n}),
            lambda: Study.read("study/study.toml"),
        ):
            with pytest.raises((ValueError, TypeError)):
                read()
            assert not (place / "ran").exists(), name


def test_the_error_quotes_the_name(place):
    damage.with_record(place / "run", lambda record: record["config"].update(encoding="alibi+./payload.py@x"))
    line = refused(2, "evaluate", "run")
    assert line.endswith("encoding must be a key here, not the path of a file: './payload.py'")
    study(place / "study", "task", "./payload.py")
    line = refused(2, "report", "study")
    assert "study.toml: task must be a key here, not the path of a file: './payload.py'; name your own file by" in line


def test_what_the_user_names_is_run(place):
    """On the command line and as an argument of a call, in the same forms."""
    own_encodings.write(place)
    for name, keys in (
        ("./mine.py", "mine"), ("mine.py*2,nope", "mine*2,nope"), ("nope,./mine.py", "nope,mine"),
        ("./mine.py@x", "mine@x"), ("alibi + ~/mine.py@x", "alibi+mine@x"), (f"{place}/mine.py", "mine"),
    ):  # fmt: skip
        registry.ENCODINGS._registered.clear()
        assert ModelConfig(name, layers=6).encoding == keys
        registry.ENCODINGS._registered.clear()
        assert Study([name], ["reverse"], settings={"layers": 6}).config_of("reverse").encoding == keys
    registry.ENCODINGS._registered.clear()
    assert set(library.build("./mine.py", 4)) == {"bias"}
    registry.ENCODINGS._registered.clear()
    assert fastpe("show", "./mine.py").exit_code == 0


def test_an_installed_package_may_be_named_by_a_file(place, monkeypatch):
    """Whoever installs a package has its code anyway."""
    own_encodings.write(place, name="pkg_offered.py")
    about = place / "pkg_offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg-offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fastpe.encodings]\noffered = pkg_offered\npayload.py = payload\n")
    monkeypatch.syspath_prepend(place)
    vars(registry.ENCODINGS).pop("_offered", None)
    try:
        assert ModelConfig.from_dict({**ModelConfig("alibi").to_dict(), "encoding": "offered"}).encoding == "offered"
    finally:
        sys.modules.pop("pkg_offered", None)


@pytest.mark.usefixtures("no_pdf")
def test_a_study_of_own_files_is_reported_once_they_are_named_again(place):
    own_encodings.write(place)
    (place / "twice.py").write_text(Path(task_template.__file__).read_text())
    own = ("--encoding", "./mine.py", "--task", "./twice.py")
    trained = fastpe("train", *own, "--out", "runs/one", "--causal", *TINY[:-2], "--test-lengths", "6")
    assert trained.exit_code == 0, trained.output

    def in_a_new_process():
        for each in (registry.ENCODINGS, TASKS):
            each._registered.clear()

    in_a_new_process()
    assert "name that file, by --encoding on the command line" in refused(2, "report", "runs/one", "--out", "page")
    assert fastpe("report", "runs/one", "--out", "page", *own).exit_code == 0
    text = (place / "page" / "study.toml").read_text()
    assert 'encoding = "mine"' in text
    assert 'task = "twice"' in text
    in_a_new_process()
    assert "'mine' is unknown" in refused(2, "report", "page", "--runs", "runs")
    assert fastpe("report", "page", "--runs", "runs", *own).exit_code == 0
    in_a_new_process()
    assert "--study names a complete study" in refused(2, "compare", "--study", "page/study.toml", "--task", "reverse")
    planned = ("compare", "--study", "page/study.toml", "--dry-run", "--json")
    assert "name your own file by --encoding" in refused(2, *planned)
    assert fastpe(*planned, *own).exit_code == 0
    in_a_new_process()
    for command in (("show", "--run", "runs/one"), ("theory", "--run", "runs/one"), ("evaluate", "runs/one")):
        in_a_new_process()
        arguments = own if command[0] != "theory" else ("./mine.py", *own[2:])
        assert fastpe(*command, *arguments).exit_code == 0


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize(
    "name", ["runs/one/config.json", "runs/one/metrics.jsonl", "runs/one", "runs", "failed.json", "study.toml"]
)
def test_links_in_shards_are_not_followed(place, name):
    study(place / "shard", "encoding", "rope")
    shutil.copytree(place / "run", place / "shard" / "runs" / "one")
    (place / "shard" / "failed.json").write_text("{}")
    (place / "secret").write_text("private")
    linked = place / "shard" / name
    kept = linked.rename(place / "kept")
    linked.symlink_to(place / "secret" if kept.is_file() else kept)
    one_line(refused(2, "merge", "shard", "--out", "joined"), f"shard/{name}", "is a link")
    assert not (place / "joined").exists()


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_pipe_in_the_place_of_a_study_is_not_waited_for(place):
    (place / "study").mkdir()
    os.mkfifo(place / "study" / "study.toml")
    for command in ("report study", "merge study --out joined", "compare --study study/study.toml"):
        one_line(refused(2, *command.split()), "study.toml", "is a pipe or a device")


# Permissions ----------------------------------------------------------------------------------------------------------


@pytest.mark.full("starts processes")
@pytest.mark.skipif(os.name == "nt", reason="no permissions")
@pytest.mark.usefixtures("no_pdf")
def test_the_owner_can_read_what_is_written_whatever_the_umask_is(place, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # its files would have mode 000
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # in workers too
    small = {"width": 8, "hidden": 8, "layers": 1, "samples": 16, "epochs": 1, "batch": 8, "train_length": 4}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    study = ("compare", "nope", "--task", "running_sum", "--seeds", "1", "--workers", "1", *settings)
    before = os.umask(0o777)
    try:
        for command in (("train", "--encoding", "nope", *TINY, "--out", "new/one"), (*study, "--out", "new/study")):
            done = fastpe(*command)
            assert done.exit_code == 0, done.output
    finally:
        os.umask(before)
    found = {path: path.stat().st_mode & 0o777 for path in (place / "new", *(place / "new").rglob("*"))}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {"config.json", "model.safetensors", "study.toml", "report.html"} <= {path.name for path in found}
