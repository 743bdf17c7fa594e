"""Made-up outcomes of the runs of Table 5, and the paper's own."""

from fastpe.experiments import claims, results, table5


def summary(errors, seeds=8, jitter=0.01, failed=(), varied=None):
    """The study of Table 5 and its summary, where errors are `errors[encoding][length]`, a few percent apart."""
    study = table5.study(varied or {}, seeds)
    outcomes = {}
    for cell in study.cells():
        factor = 1 + jitter * (cell.seed - (seeds - 1) / 2)
        test = {str(length): {"mse": errors[cell.encoding][length] * factor} for length in claims.LENGTHS}
        outcomes[cell] = {"train": {"loss": factor, "steps": 8, "seconds": 1.0}, "test": test}
        if tuple(cell) in failed:
            outcomes[cell] = {"failed": "the loss became infinite"}
    return study, {**results.summary(study, outcomes), "cpus": ["one"]}


PAPER = {
    **claims.PAPER, "nope": claims.PAPER["alibi"], table5.AUTHORS: claims.PAPER["alibi"],
    "learned": claims.PAPER["legendre"],
}  # fmt: skip
