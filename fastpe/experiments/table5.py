"""Table 5 of Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 7, run again.

The paper trains a small transformer "encoder" on the running sums of 50 numbers, with four position encodings, and
tests it at lengths 50, 100 and 200. It gives one number for each, no seed and no spread, and leaves much open. Here
every encoding is trained with several seeds, in both readings of "encoder" (bidirectional and causal), with `nope`,
`learned` and ALiBi's own slopes beside the paper's four; all encodings of a seed see the same data. Nothing is tuned to
match.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fastpe
from fastpe.base.validation import nearest
from fastpe.encodings.registry import get, option_values, parse, parse_option
from fastpe.experiments import claims, sweep
from fastpe.experiments.statistics import Estimate, estimate, paired_difference
from fastpe.kernels import _jit
from fastpe.model.config import DTYPES, INITS, TABLE_SCALES
from fastpe.tasks import targets
from fastpe.tasks.registry import choose
from fastpe.training import config_file
from fastpe.training.config import DATA, TrainConfig

SOURCE = "Li (2025), Table 5"
AUTHORS = "alibi-authors"
"""ALiBi with its authors' slopes, beside the paper's: 0.1 / 50 = 0.002 is nearly no bias."""
ENCODINGS = ("sinusoidal", "alibi", AUTHORS, "wavelet", "legendre", "nope", "learned")
READINGS = ("bidirectional", "causal")
LENGTHS = (50, 100, 200)
QUICK: Mapping[str, Any] = {"samples": 1000, "epochs": 4, "test_sequences": 200}
QUICK_SEEDS = 3

VARIABLE: Mapping[str, str] = {
    "batch": "sequences per update, e.g. 64, 128, 256, 10000",
    "residual": "yes or no",
    "init": " or ".join(INITS),
    "data": " or ".join(DATA),
    "target_scale": " or ".join(targets.SCALES),
    "table_scale": " or ".join(TABLE_SCALES),
    "start": "position of the first element, 0 or 1 (`learned`, whose rows have no base, stays at 0)",
    "dtype": " or ".join(DTYPES),
    "beta1": "a number",
    "beta2": "a number",
    "eps": "a number",
}
"""The settings that the paper leaves open and that can be varied, with what they may be; so can every option of an
encoding, as in ``wavelet.wavelet=db2``."""

Varied = dict[str, str]
METRICS = ("mse", "nmse", "mse_last", "mse_beyond")


# ---------------------------------------------------------------------------------------------------------------------
# What is run


def variants(requests: Sequence[str]) -> list[Varied]:
    """Every combination of the requested values, as text; `requests` are such as ``"batch=32,64"``.

    Raises
    ------
    ValueError
        If a request is malformed, names an unknown setting or repeats one, or an encoding refuses a combination.

    Examples
    --------
    >>> variants(["batch=32,64", "residual=no"])
    [{'batch': '32', 'residual': 'no'}, {'batch': '64', 'residual': 'no'}]
    """
    choices: dict[str, list[str]] = {}
    for request in requests:
        name, equals, text = request.partition("=")
        name = name.strip()
        values = list(dict.fromkeys(value.strip() for value in text.split(",")))
        if not equals or not all(values):
            raise ValueError(f"vary must be SETTING=VALUE,VALUE,..., not {request!r}")
        if name in choices:
            raise ValueError(f"vary names {name!r} twice: give all its values in one list")
        for value in values:
            _check_setting(name, value)
        choices[name] = values
    found = [dict(zip(choices, chosen, strict=True)) for chosen in itertools.product(*choices.values())]
    for varied in found:
        _check_combination(varied)
    return found


def _check_combination(varied: Varied) -> None:
    """Let every encoding look at its options together, as it does before it is filled."""
    for scheme, reading in itertools.product(ENCODINGS, READINGS):
        config = configuration(scheme, reading, 0, varied)
        for part in parse(config.encoding, config.options):
            try:
                part.encoding.check(config.spec(config.train_length), **part.options)
            except ValueError as error:
                raise ValueError(f"vary: {', '.join(f'{k}={v}' for k, v in varied.items())}: {error}") from error


def _check_setting(name: str, value: str) -> None:
    scheme, dot, _ = name.partition(".")
    if dot and scheme in ENCODINGS and scheme != AUTHORS:
        configuration(scheme, "causal", 0, {name: value})
    elif name in VARIABLE:
        configuration("nope", "causal", 0, {name: value})
    else:
        options = [f"{key}.{option}" for key in ENCODINGS if key != AUTHORS for option in get(key).options]
        raise ValueError(
            f"vary: {name!r} is no setting that the paper leaves open and that can be varied; "
            f"{nearest(name, [*VARIABLE, *options] if dot else VARIABLE)}"
        )


def configuration(scheme: str, reading: str, seed: int, varied: Varied, quick: bool = False) -> TrainConfig:
    """The settings of one run: the paper's, then what is `varied`."""
    fields: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, text in varied.items():
        owner, dot, option = name.partition(".")
        if dot:
            if owner == scheme:
                options[option] = parse_option(scheme, option, text)
        elif not (name == "start" and scheme == "learned"):
            fields[name] = _field(name, text)
    preset = TrainConfig if scheme == AUTHORS else TrainConfig.paper
    return preset(
        scheme.removesuffix("-authors"), options, causal=reading == "causal", seed=seed, test_lengths=LENGTHS,
        **{**fields, **_size(quick)},
    ).tested()  # fmt: skip


def label(scheme: str, varied: Varied) -> str:
    """What a row is called: ALiBi with its slope.

    >>> label("alibi", {}), label(AUTHORS, {}), label("nope", {})
    ('alibi, slope 0.002', "alibi, its authors' slope 0.0039", 'nope')
    """
    config = configuration(scheme, READINGS[0], 0, varied)
    if config.encoding != "alibi":
        return scheme
    bias = fastpe.build("alibi", 2, train_length=config.train_length, heads=1, reference=True, **config.options)["bias"]
    owner = "its authors' " if scheme == AUTHORS else ""
    return f"alibi, {owner}slope {-bias[0, -1]:.2g}"


def _size(quick: bool) -> dict[str, Any]:
    return dict(QUICK) if quick else {}


def _field(name: str, text: str) -> Any:
    """A setting's typed value."""
    default = getattr(TrainConfig, name)
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "no": False, "false": False}[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError):
        raise ValueError(f"vary: {name} must be {VARIABLE[name]}, not {text!r}") from None


def jobs(root: Path, seeds: int, varied: Varied, quick: bool) -> dict[tuple[str, str, int], sweep.Job]:
    """The runs of one table, seed by seed, by (encoding, reading, seed)."""
    found = {}
    for seed, reading, scheme in itertools.product(range(seeds), READINGS, ENCODINGS):
        config = configuration(scheme, reading, seed, varied, quick)
        found[scheme, reading, seed] = sweep.job(root, f"{scheme}-{reading}-seed{seed}", config)
    return found


def reproduce(
    out: Path,
    seeds: int = 5,
    workers: int = 1,
    quick: bool = False,
    vary: Sequence[str] = (),
    notify: sweep.Listener = lambda event: None,
) -> dict[str, Any]:
    """Do all runs, in folders below ``out/runs``, and judge the paper by them.

    Parameters
    ----------
    out : Path
        Folder; what is there already of the same configuration, sources, versions and CPU is reused.
    seeds : int
        Seeds 0 .. seeds - 1.
    workers : int
        Processes, of one thread each; they change nothing but the time.
    quick : bool
        A small version (`QUICK`) that shows how it goes and says nothing of the paper.
    vary : sequence of str
        As for `variants`.
    notify : callable
        Hears every `fastpe.experiments.sweep` event.

    Returns
    -------
    dict
        JSON values: ``variants``, each with ``settings``, ``reference``, ``rows``, ``differences`` and ``verdicts``.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    tables = [(varied, jobs(out / "runs", seeds, varied, quick)) for varied in variants(vary)]
    every = {one.path.name: one for _, table in tables for one in table.values()}
    outcomes = sweep.run(list(every.values()), workers, notify)
    return {
        "schema": 1,
        "source": SOURCE,
        "quick": quick,
        "seeds": list(range(seeds)),
        "environment": config_file.environment(),
        "sources": _jit.source_digest(),
        "fastpe": fastpe.__version__,
        "variants": [
            summary(varied, {cell: outcomes[one.path.name] for cell, one in table.items()}, seeds, quick)
            for varied, table in tables
        ],
    }


# ---------------------------------------------------------------------------------------------------------------------
# What comes of it


def summary(
    varied: Varied, outcomes: Mapping[tuple[str, str, int], Mapping[str, Any]], seeds: int, quick: bool = False
) -> dict[str, Any]:
    """One table out of the runs' results: rows, paired differences, reference points and verdicts."""
    config = configuration("wavelet", READINGS[0], 0, varied, quick)
    values = {
        (scheme, reading, length, metric): [
            _value(outcomes[scheme, reading, seed], length, metric) for seed in range(seeds)
        ]
        for scheme, reading, length, metric in itertools.product(ENCODINGS, READINGS, LENGTHS, METRICS)
    }
    rows = [
        _row(scheme, reading, length, values, [outcomes[scheme, reading, seed] for seed in range(seeds)])
        for reading, length, scheme in itertools.product(READINGS, LENGTHS, ENCODINGS)
    ]
    labels = {scheme: label(scheme, varied) for scheme in ENCODINGS}
    rows = [{**row, "label": labels[row["encoding"]]} for row in rows]
    differences = [
        {"reading": reading, "length": length, "first": first, "second": second, **asdict(found)}
        for reading, length, (first, second) in itertools.product(
            READINGS, LENGTHS, itertools.combinations(ENCODINGS, 2)
        )
        if (found := _difference(values[first, reading, length, "mse"], values[second, reading, length, "mse"]))
    ]
    reference = [reference_points(length, config) for length in LENGTHS]
    return {
        "varied": varied,
        "settings": settings(varied, quick),
        "reference": reference,
        "rows": rows,
        "differences": differences,
        "verdicts": claims.judge(rows, differences, reference),
    }


def _value(outcome: Mapping[str, Any], length: int, metric: str) -> float | None:
    if "failed" in outcome:
        return None
    value: float | None = outcome["test"][str(length)][metric]
    return value


def _row(
    scheme: str,
    reading: str,
    length: int,
    values: Mapping[tuple[str, str, int, str], list[float | None]],
    outcomes: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    row: dict[str, Any] = {"reading": reading, "length": length, "encoding": scheme}
    row["paper"] = claims.PAPER.get(scheme, {}).get(length)
    for metric in METRICS:
        found = values[scheme, reading, length, metric]
        known = [value for value in found if value is not None]
        row[metric] = {**asdict(estimate(known)), "values": known} if len(known) == len(found) else None
    if row["mse"] is None:
        lacking = [one for one in outcomes if _value(one, length, "mse") is None]
        reason = lacking[0].get("failed") or lacking[0]["test"][str(length)]["reason"]
        row["reason"] = f"{len(lacking)} of {len(outcomes)} seeds have no result: {reason}"
    return row


def _difference(first: Sequence[float | None], second: Sequence[float | None]) -> Estimate | None:
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < len(first):
        return None
    return paired_difference([a for a, _ in pairs], [b for _, b in pairs])


def reference_points(length: int, config: TrainConfig) -> dict[str, float]:
    """What an error at this length must be compared with, in the unit of the targets."""
    factors = targets.factors(length, config.target_scale, config.train_length)
    chosen = choose(config.task)
    assert chosen.task.reversal_bound is not None
    return {
        "length": length,
        "zero_predictor": targets.zero_error(chosen, length, factors),
        "reversal_bound": chosen.task.reversal_bound(length, factors),
    }


def settings(varied: Varied, quick: bool = False) -> list[dict[str, str]]:
    """Every setting that the paper leaves open: its name, the value used, and what else it may be here."""
    config = configuration("wavelet", READINGS[0], 0, varied, quick)
    found = [{"name": "mask", "value": "none (bidirectional) and causal", "may be": "both are run"}]
    for name, choice in VARIABLE.items():
        value = getattr(config, name)
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        found.append({"name": name, "value": text, "may be": choice})
    for scheme in ENCODINGS:
        own = configuration(scheme, READINGS[0], 0, varied, quick)
        for name, value in option_values(own.encoding, own.options).items():
            expected = get(own.encoding).options[name].expected()
            found.append({"name": f"{scheme}.{name}", "value": str(value), "may be": expected})
    found += [{"name": name, "value": value, "may be": "not offered"} for name, value in config_file.PROTOCOL.items()]
    return found
