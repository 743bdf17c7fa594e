"""A study that takes seconds."""

from fastpe.experiments.study import Study

SMALL = {
    "width": 8, "hidden": 8, "layers": 1, "train_length": 4, "samples": 32, "epochs": 2, "batch": 8,
    "test_sequences": 20,
}  # fmt: skip
STUDY = Study(["alibi", "nope", "rope"], ["reverse", "running_sum"], seeds=2, settings=SMALL)
TUNED = Study(
    ["alibi", "nope"], ["majority", "running_sum"], seeds=2, choose={"lr": [1e-3, 3e-2, 1e30]}, choose_seeds=2,
    settings={**SMALL, "samples": 128, "test_sequences": 40},
)  # fmt: skip
FILES = ("results.csv", "results.json", "results.md", "report.html", "study.toml")


def done(scores):
    """A made-up result of a run, with these metrics by length."""
    return {"train": {"loss": 1.0, "steps": 8, "seconds": 1.0}, "test": scores}
