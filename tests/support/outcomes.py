"""Made-up outcomes of the runs of Table 5, and the paper's own."""

from fastpe.experiments import results, table5, table5_facts


def summary(errors, seeds=8, jitter=0.01, failed=(), varied=None):
    """The study of Table 5 and its summary, where errors are `errors[encoding][length]`, a few percent apart."""
    study = table5.study(varied or {}, seeds)
    outcomes = {}
    for key in study.run_keys():
        factor = 1 + jitter * (key.seed - (seeds - 1) / 2)
        test = {str(length): {"mse": errors[key.encoding][length] * factor} for length in table5_facts.LENGTHS}
        outcomes[key] = {"train": {"loss": factor, "steps": 8, "seconds": 1.0}, "test": test}
        if tuple(key) in failed:
            outcomes[key] = {"failed": "the loss became infinite"}
    return study, {**results.summary(study, outcomes), "cpus": ["one"]}


PAPER = {
    **table5_facts.PAPER, "nope": table5_facts.PAPER["alibi"], table5.AUTHORS: table5_facts.PAPER["alibi"],
    "learned": table5_facts.PAPER["legendre"],
}  # fmt: skip
