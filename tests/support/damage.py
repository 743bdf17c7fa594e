"""Run folders that are damaged on purpose, with the right checksums where the files have some."""

import copy
import hashlib
import json
import math

from fastpe.model.adam import Adam
from fastpe.model.transformer import Transformer
from fastpe.training import config_file, result_file
from fastpe.training.config import TrainConfig
from fastpe.training.run_folder import Progress, Run, load

CONFIG = TrainConfig(
    "learned", {"beyond": "clip"}, width=8, hidden=4, layers=1, train_length=4, samples=8, batch=8, epochs=3,
    test_lengths=(4,), test_sequences=5,
)  # fmt: skip
FILES = ("config.json", "metrics.jsonl", "checkpoint.safetensors", "model.safetensors", "result.json", "seal.json")


def finished(path, epochs=CONFIG.epochs):
    """A run folder as training leaves it after so many epochs, of a model that was not trained."""
    model = Transformer(CONFIG.model)
    history = [{"epoch": n, "step": n, "loss": 0.5, "seconds": 0.25} for n in range(1, epochs + 1)]
    with Run.create(path, CONFIG, {"beyond": "clip"}) as run:
        run.save_metrics(history)
        run.save_checkpoint(Adam(model), Progress(epochs, epochs, 0.5, 0.25 * epochs))
        if epochs == CONFIG.epochs:
            run.save_model(model)
            metrics = {"mse": 1.5, "nmse": 0.5, "mse_last": 2.0, "mse_beyond": None, "sequences": 5}
            train = {"steps": 3, "loss": 0.5, "seconds": 0.75}
            facts = {"schema": 2, "task": "running_sum", "encoding": "learned", "seed": 0}
            run.save_result({**facts, "train": train, "test": {"4": metrics}})
    return path


def read_all(path):
    """Read a run folder as `fastpe.train(resume=True)`, `load` and `evaluate` do; returns what was noted."""
    load(path)
    model = Transformer(CONFIG.model)
    with Run.resume(path, CONFIG, {"beyond": "clip"}) as run:
        adam = Adam(model)
        progress = run.restore_finished(model) or run.restore(model, adam)
        run.cut_metrics(progress.epoch)
        run.read_result()
        return run.notes


def with_record(path, change):
    """Change the content of config.json, which keeps a right checksum."""
    record = json.loads((path / "config.json").read_text())
    del record["sha256"]
    change(record)
    digest = hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (path / "config.json").write_text(json.dumps({**record, "sha256": digest}))


def with_header(path, change):
    """Change the header and the facts of a safetensors file, which keeps right checksums."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    entries, data = json.loads(content[8:end]), content[end:]
    facts = json.loads(entries["__metadata__"]["fastpe"])
    data = change(entries, facts, data) or data
    facts["sha256"] = hashlib.sha256(data).hexdigest()
    seal_header(path, entries, facts, data)


def seal_header(path, entries, facts, data):
    facts["header_sha256"] = "0" * 64
    entries["__metadata__"]["fastpe"] = json.dumps(facts)
    header = json.dumps(entries).encode()
    sealed = header.replace(b"0" * 64, hashlib.sha256(header).hexdigest().encode(), 1)
    path.write_bytes(len(header).to_bytes(8, "little") + sealed + data)


def with_facts(path, **changed):
    """Change facts of a safetensors file; `...` deletes one."""

    def change(entries, facts, data):
        facts.update(changed)
        for name in [name for name, value in changed.items() if value is ...]:
            del facts[name]

    with_header(path, change)


def with_result(path, content):
    """Put a text into result.json, and seal it."""
    (path / "result.json").write_text(content)
    result_file.seal(path)


WRONG = (
    None, True, False, -3, 0, 1.5, 2**70, 10**30, 1e308, -0.0, "", "x", "1", "\ud800", "\x1b[2J", [], {}, [[]],
    [1] * 40, {"a": None}, math.nan, math.inf, "a" * 5000,
)  # fmt: skip


def header_replaced(entries, facts, draw):
    """One of the values in a header another."""
    metadata, chosen = entries.pop("__metadata__"), draw.choice([entries, facts])
    changed = replaced(chosen, draw)
    chosen.clear()
    chosen.update(changed)
    entries["__metadata__"] = metadata


def somewhere(run, draw):
    """Damage one file of a run, its checksums right in half of the cases; returns its name."""
    name = draw.choice([name for name in FILES if (run / name).exists()])
    path = run / name
    if name == "seal.json" or draw.random() < 0.5:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
        return name
    match name:
        case "config.json":
            with_record(run, lambda record: record.update(replaced(record, draw)))
        case "result.json":
            with_result(run, json.dumps(replaced(json.loads(path.read_text()), draw)))
        case "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("\n".join(json.dumps(replaced(line, draw)) for line in lines))
        case _:
            with_header(path, lambda entries, facts, data: header_replaced(entries, facts, draw))
    return name


def places(value, here=()):
    """The way to every value within a JSON value."""
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [place for name, item in items for place in places(item, (*here, name))]


def replaced(value, draw):
    """The JSON value with one of its values another, wrapped, lost, or doubled under another name."""
    value = copy.deepcopy(value)
    place = draw.choice(places(value))
    owner = value
    for name in place[:-1]:
        owner = owner[name]
    match draw.randrange(8):
        case 0:
            del owner[place[-1]]
        case 1:
            owner[place[-1]] = [owner[place[-1]]]
        case 2 if isinstance(owner, dict):
            owner["x" + place[-1]] = owner[place[-1]]
        case _:
            owner[place[-1]] = draw.choice(WRONG)
    return value


def damaged_bytes(content, draw):
    """Bytes cut, flipped, doubled, or put in."""
    place = draw.randrange(len(content))
    match draw.randrange(5):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]
        case 2:
            return content[:place] + content[place // 2 :]
        case 3:
            return content[:place] + draw.randbytes(draw.randrange(1, 40)) + content[place:]
    filler = draw.choice([b"[" * 200_000, b"9" * 4000, b"\0" * 100, b"NaN", b'"' * 3, b"\xff\xfe"])
    return content[:place] + filler + content[place:]


def reseal_config_of(path, name):
    """Let a safetensors file belong to the config.json beside it."""
    with_facts(path / name, config=config_file.digest(json.loads((path / "config.json").read_text())["config"]))
