"""The command line: what it prints where, its exit status; a mistake costs one clear line and writes nothing."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner
from command_line import TINY, fastpe, refused

from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer
from fastpe.training import loop, run_folder  # numba is imported before any command could choose its threads
from fastpe.training.config import TrainConfig
from fastpe.training.settings import SETTINGS
from fastpe_cli import output
from fastpe_cli.main import main

pytestmark = pytest.mark.usefixtures("folder")


# Manners -------------------------------------------------------------------------------------------------------------


FILTERS = "encodings --beyond defined --learned no --reported holds --slot bias --use proposed"
LISTS = ("encodings", "encodings --by year", "encodings --by place", FILTERS)


@pytest.mark.parametrize("name", ["", "train", "evaluate", "show", "theory", "check", "doctor"])
def test_help_imports_nothing_heavy(name):
    assert printed_by(f"{name} --help").startswith("Usage: ")


@pytest.mark.full("starts processes")
@pytest.mark.parametrize("command", LISTS)
def test_a_list_imports_nothing_heavy(command):
    assert printed_by(command).startswith("  name ")


def printed_by(command):
    """What a command prints, in a process of its own that imports no heavy package."""
    code = (
        "import sys\nfrom fastpe_cli.main import main\nstatus = main(sys.argv[1:], standalone_mode=False)\n"
        "print([name for name in ('numpy', 'numba', 'scipy', 'pywt', 'rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    return done.stdout


def test_help_without_a_command_and_the_version():
    assert fastpe().exit_code == 0
    assert "train" in fastpe().stdout
    assert re.fullmatch(r"fastpe \d+\.\d+\.\d+\n", fastpe("--version").stdout)


def test_train_help_lists_options_in_groups():
    text = fastpe("train", "--help").stdout
    groups = re.findall(r"^(\w+) options:$", text, re.M)
    assert groups == ["Common", "Data", "Model", "Encoding", "Training", "Evaluation", "Output"]
    common = text[text.index("Common options:") : text.index("Data options:")]
    assert len(re.findall(r"^  --", common, re.M)) == 10
    assert text.splitlines()[-1].strip() == "`fastpe encodings` lists the encodings, `fastpe tasks` lists the tasks."


def test_every_setting_is_an_option_of_train_or_has_a_reason_not_to_be():
    without = {
        "options", "task_options",  # --option and --task-option
        "start_from", "start_digest", "encoding_length",  # --from
        "digest", "alphabet", "text_places", "tokenizer", "tokenizer_content",  # they follow from the task and its text
        "beta1", "beta2", "eps", "target_scale", "table_scale", "start",  # in Python and in studies only
        "qkv_bias", "score_scale", "embedding_scale",  # also
    }  # fmt: skip
    options = {each.name for each in main.commands["train"].params}
    listed = {name for group in SETTINGS.values() for name in group}
    assert listed == {field.name for field in dataclasses.fields(TrainConfig)} - without
    assert listed <= options
    assert not options & without - {"options", "task_options"}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("fastpe train --enco", {"--encoding"}),
        ("fastpe train --encoding wavelet_", {"wavelet_relative"}),
        ("fastpe train --encoding wavelet+alib", {"wavelet+alibi"}),
        ("fastpe train --encoding rope*3,nop", {"rope*3,nope"}),
        ("fastpe train --task addi", {"addition"}),
        ("fastpe compare rope t5", {"t5"}),
        ("fastpe train --encoding ./mine", {"./mine"}),  # the shell completes files
    ],
)
def test_the_shell_completes_commands_options_encodings_and_tasks(words, found):
    variables = {"_FASTPE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = CliRunner().invoke(main, [], prog_name="fastpe", env=variables)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == found
    assert "_FASTPE_COMPLETE=bash_source" in fastpe("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train --encoding nope --epochs \u0663", "--epochs': '\u0663' is not a valid integer"),
        ("compare nope --task sort --workers 0", "0 is not in the range x>=1"),
        ("compare nope --task sort --shard \u0661/\u0662", "--shard must be I/N"),
        ("compare nope --task sort --set epochs=\u0663", "epochs must be an integer, not"),
    ],
)
def test_digits_are_ascii(arguments, words):
    assert words in refused(2, *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("trian", "No such command 'trian'"),
        ("train", "--encoding is missing; 'fastpe encodings' lists all of them"),
        ("train --encoding alibi --option slop=1", "--option slop of encoding 'alibi' is unknown; did you mean"),
        ("train --encoding alibi --option slope", "--option must be NAME=VALUE, not 'slope'"),
        ("train --encoding nope --epochs 0", "error: --epochs must be at least 1, not 0"),
        ("train --encoding nope --samples none", "'none' is not a valid integer"),
        ("train --encoding nope --heads 3", "error: --width must be divisible by heads, but 64 is not divisible by 3"),
        ("train --encoding nope --norm batch", "'batch' is not one of 'none', 'layernorm'"),
        ("train --encoding nope --positions random:150", "error: --test-lengths must have at most 150"),
        ("train --encoding wavelet+xpos --bidirectional", "error: 'xpos' needs --causal: the score of a key after"),
        ("train --encoding fire --bidirectional", "set --causal, or --option symmetric=True"),
        ("train --encoding rope --width 9", "error: --width / --heads must be even"),
        ("train --encoding nope --task sort --task-option symbols=1", "error: --task-option symbols of task 'sort'"),
        ("tasks sort --length 151", "error: --length must be 1 to 150 for task 'sort', not 151"),
        ("tasks sort --length 5 --json", "error: --length cannot be combined with --json, which prints no sequences"),
        ("train --encoding nope --task sort --test-sequences 999999999999 --dry-run", "999999999999 test sequences"),
        ("show rope*2,nope", "error: 'rope*2,nope' is a pattern over the layers of a model"),
        ("encodings rope,nope", "NAME must be a single encoding, not 'rope,nope'"),
        ("show sandwich --option divisors=nan", "error: --option divisors must be a list of finite numbers or none"),
        ("train --encoding nope --lenght 3", "No such option '--lenght'"),
        ("train --resume", "--resume needs --out"),
        ("train --from none --resume --out run", "--from starts a new run with a trained model: leave out --resume"),
        ("train --from none --preset lacoco", "--from starts a new run with a trained model: leave out --preset"),
        ("train --from none", "there is no run folder or model file none"),
        ("train --resume --out nosuch", "--encoding is missing: run folder nosuch does not exist"),
        ("train --encoding nope --out file/run", "is not a folder"),
        ("train --encoding nope --out .", "run folder . exists already"),
        ("train --encoding nope --out file", "run folder file cannot be used: it is a file"),
        ("train --resume --out file", "run folder file cannot be used: it is a file"),
        ("train --encoding nope --out . --resume", "not a run folder"),
        ("evaluate nowhere", "nowhere"),
        ("evaluate .", "not a run folder"),
        ("encodings wavlet", "did you mean 'wavelet'?"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(folder, arguments, words):
    (folder / "file").write_text("")
    assert words in refused(2, *arguments.split())
    assert [entry.name for entry in folder.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("a\nb"), 2, "a b"),
        (FileNotFoundError(2, "No such file", "x"), 2, "x: No such file"),
        (PermissionError(13, "Permission denied", "x"), 1, "x: Permission denied"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (MemoryError(), 1, "not enough memory: the sizes are too large"),
        (loop.TrainingDiverged("the loss", 2, 7), 1, "the loss became infinite or NaN in epoch 2, step 7"),
        (RuntimeError("x"), 1, "internal: RuntimeError: x"),
    ],
)
def test_every_error_has_a_line_and_a_status(error, status, line):
    message, found = output.explain(error)
    assert (message.startswith(line), found) == (True, status)
    assert "\n" not in message


def test_a_group_without_a_command_shows_its_help_and_fails():
    done = fastpe("reproduce")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == fastpe("reproduce", "--help").stdout
    assert done.stderr.startswith("Usage: fastpe reproduce [OPTIONS] COMMAND [ARGS]...\n\n")


# Commands ------------------------------------------------------------------------------------------------------------


def test_train_leaves_a_run_and_prints_its_result(folder):
    for number in (0, 1):
        result = fastpe("train", "--encoding", "nope", *TINY)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == f"run folder runs/nope-{number}"
        assert len(re.findall(r"^epoch [12]/2  loss ", result.stderr, re.M)) == 2
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["length", "mse", "nmse", "last", "beyond", "sequences"] in rows
    stored = json.loads((folder / "runs" / "nope-1" / "result.json").read_text())
    mse = {row[0]: float(row[1]) for row in rows if len(row) == 6 and row[0] in ("6", "9")}
    assert mse == {length: float(f"{found['mse']:.6g}") for length, found in stored["test"].items()}
    assert [row[4] for row in rows if row[:1] == ["6"]] == ["-"]


def test_a_pattern_over_layers_is_trained_and_has_a_folder_that_any_system_can_make(folder):
    result = fastpe("train", "--encoding", "alibi, alibi,nope", "--causal", *TINY, "--layers", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "run folder runs/alibix2-nope-0"
    assert run_folder.read_config("runs/alibix2-nope-0").encoding == "alibi*2,nope"
    assert fastpe("evaluate", "runs/alibix2-nope-0", "--test-lengths", "4").exit_code == 0


def test_json_is_the_result_and_the_folder_and_nothing_else(folder):
    result = fastpe("train", "--encoding", "nope", "--out", "run", "--json", *TINY)
    assert json.loads(result.stdout) == {**json.loads((folder / "run" / "result.json").read_text()), "run": "run"}


def test_every_option_reaches_the_record(folder):
    arguments = (
        "train --encoding alibi+sinusoidal --option alibi.learned=true --out run --seed 7 --epochs 1 --batch 5 "
        "--samples 6 --train-length 4 --test-lengths 3 --lr 0.002 --threads 2 --dtype float32 --causal --layers 1 "
        "--heads 2 "
        "--width 8 --hidden 6 --activation gelu --norm layernorm --no-residual --paper"
    )
    result = fastpe(*arguments.split())
    assert result.exit_code == 0, result.output
    found = run_folder.read_config("run").to_dict()
    expected = {
        **{"encoding": "alibi+sinusoidal", "seed": 7, "epochs": 1, "batch": 5, "samples": 6, "train_length": 4},
        **{"test_lengths": [3], "lr": 0.002, "dtype": "float32", "causal": True, "layers": 1, "heads": 2, "width": 8},
        **{"hidden": 6, "activation": "gelu", "norm": "layernorm", "residual": False},
        "options": {"alibi.learned": True, "alibi.alpha0": 0.1},
    }
    assert {key: found[key] for key in expected} == expected


def test_the_paper_s_options_are_used_where_asked_for_said_and_recorded(folder):
    own = fastpe("train", "--encoding", "alibi", "--out", "own", *TINY)
    assert "Li (2025)" not in own.stderr
    assert json.loads((folder / "own" / "config.json").read_text())["config"]["options"] == {}
    result = fastpe("train", "--encoding", "alibi", "--paper", "--out", "run", *TINY)
    assert "alibi as in Li (2025): alpha0=0.1" in result.stderr
    record = json.loads((folder / "run" / "config.json").read_text())
    assert record["config"]["options"] == {"alpha0": 0.1}
    assert record["encoding_options"] == {
        "slope": None, "alpha0": 0.1, "learned": False, "form": "symmetric", "schedule": "constant", "factor": 1.0
    }  # fmt: skip


def test_what_is_made_for_causal_models_is_trained_so_unless_the_mask_is_given():
    for n, (arguments, causal) in enumerate(
        {
            "--encoding fire": True, "--encoding sinusoidal+fire": True, "--encoding fire --causal": True,
            "--encoding fire --option symmetric=true": False, "--encoding nope": False,
        }.items()
    ):  # fmt: skip
        result = fastpe("train", *arguments.split(), "--out", f"run{n}", *TINY)
        assert result.exit_code == 0, result.output
        assert run_folder.read_config(f"run{n}").causal == causal
        assert ("needs a causal model: using --causal" in result.stderr) == (causal and "--causal" not in arguments)
    assert fastpe("train", "--resume", "--out", "run0").exit_code == 0
    assert "causal was True, now False" in refused(2, "train", "--resume", "--out", "run0", "--bidirectional")


def test_a_run_starts_from_another_one_and_goes_on_without_it(folder):
    assert fastpe("train", "--encoding", "rope", "--heads", "2", *TINY, "--out", "short").exit_code == 0
    longer = ["--train-length", "12", "--test-lengths", "12", "--samples", "20", "--epochs", "1"]
    yarn = ["--encoding", "rope_yarn", "--option", "factor=2"]
    said = fastpe("train", "--from", "short", *longer, *yarn, "--dry-run")
    assert said.exit_code == 0, said.output
    result = fastpe("train", "--from", "short", *longer, *yarn, "--out", "long")
    assert result.exit_code == 0, result.output
    assert "weights of short: rope_yarn, pairs=interleaved, factor=2.0, task running_sum, encoding for 6 " in (
        result.stderr
    )
    config = run_folder.read_config("long")
    assert (config.width, config.heads, config.train_length, config.encoding_length) == (8, 2, 12, 6)
    shutil.rmtree(folder / "short")
    assert fastpe("train", "--resume", "--out", "long", "--epochs", "2").exit_code == 0
    assert json.loads((folder / "long" / "config.json").read_text())["config"]["start_from"] == "short"
    assert fastpe("evaluate", "long").exit_code == 0
    assert json.loads(fastpe("show", "--run", "long", "--json").stdout)["train_length"] == 6
    wide = refused(2, "train", "--from", "long", "--width", "16", "--out", "no")
    assert "error: --width must be 8, as in long, whose weights the run starts with, not 16" in wide
    assert sorted(path.name for path in folder.iterdir()) == ["long"]


def test_random_positions_are_recorded_and_resumed():
    arguments = ["--encoding", "learned", "--positions", "random:30", "--out", "run", *TINY]
    result = fastpe("train", *arguments)
    assert result.exit_code == 0, result.output
    assert "positions are drawn from 0 .. 29" in result.stderr
    assert run_folder.read_config("run").positions == "random:30"
    assert fastpe("train", "--resume", *arguments).stdout == result.stdout
    tested = json.loads(fastpe("evaluate", "run", "--json").stdout)["test"]
    assert tested == json.loads(fastpe("train", "--resume", "--out", "run", "--json").stdout)["test"]
    assert "--test-lengths must have at most 30" in refused(2, "evaluate", "run", "--test-lengths", 31)


def test_resume_takes_the_settings_of_the_run(folder):
    result = fastpe("train", "--encoding", "alibi", "--option", "slope=0.5", "--out", "run", *TINY)
    (folder / "run" / "result.json").unlink()
    again = fastpe("train", "--resume", "--out", "run")
    assert again.exit_code == 0, again.output
    assert again.stdout == result.stdout
    assert "run is finished: nothing to train" in again.stderr
    assert fastpe("train", "--resume", "--out", "run", "--encoding", "alibi", "--width", "8").exit_code == 0
    assert "width was 8, now 16" in refused(2, "train", "--resume", "--out", "run", "--width", 16)
    assert "exists already" in refused(2, "train", "--encoding", "alibi", "--out", "run")


def test_resume_of_what_is_not_there_starts_afresh_and_says_so():
    result = fastpe("train", "--resume", "--out", "run", "--encoding", "nope", *TINY)
    assert result.exit_code == 0
    assert "run does not exist: starting a new run" in result.stderr


def test_evaluate_repeats_the_run_s_own_test():
    trained = json.loads(fastpe("train", "--encoding", "learned", "--out", "run", "--json", *TINY).stdout)
    again = json.loads(fastpe("evaluate", "run", "--json").stdout)
    assert (again["test"], again["run"], again["encoding"]) == (trained["test"], "run", "learned")
    different = ["--test-lengths", "7", "--test-sequences", "3", "--seed", "5"]
    other = json.loads(fastpe("evaluate", "run", *different, "--json").stdout)
    assert list(other["test"]) == ["7"]
    assert (other["test"]["7"]["sequences"], other["seed"]) == (3, 5)
    text = fastpe("evaluate", "run", "--test-lengths", "7")
    assert text.stdout.splitlines()[1].split()[0] == "7"
    assert "length 7: learned" in text.stderr


def test_an_undefined_length_is_null_with_its_reason(folder):
    arguments = ["train", "--encoding", "learned", "--option", "beyond=error", "--out", "run", *TINY]
    result = fastpe(*arguments)
    assert result.exit_code == 0, result.output
    assert ["9", "-", "-", "-", "-", "1000"] in [line.split() for line in result.stdout.splitlines()]
    assert "length 9: 'learned'" in result.stdout
    assert json.loads((folder / "run" / "result.json").read_text())["test"]["9"]["mse"] is None


def test_a_model_of_random_positions_is_tested_as_far_as_they_reach(folder):
    config = ModelConfig("sinusoidal", width=8, hidden=8, train_length=8, positions="random:60")
    Transformer(config).save(folder / "model.safetensors")
    command = ["evaluate", "model.safetensors", "--sequences", "2", "--json"]
    assert list(json.loads(fastpe(*command).stdout)["test"]) == ["50"]
    assert list(json.loads(fastpe(*command, "--test-lengths", "20").stdout)["test"]) == ["20"]
    assert "must have at most 60" in refused(2, *command[:2], "--test-lengths", "61")


def test_a_run_goes_on_as_the_paper_has_it(folder):
    sizes = ["--encoding", "xpos+alibi", "--out", "run", "--causal", "--paper", *TINY]
    assert "alibi.alpha0=0.1" in fastpe("train", *sizes).stderr
    again = fastpe("train", "--resume", "--paper", "--out", "run")
    assert again.exit_code == 0, again.output
