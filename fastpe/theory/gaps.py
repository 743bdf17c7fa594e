"""Bounds on the gap between training loss and loss on new data, from parameter counts or from held-out data."""

import math
from typing import Any

import numpy as np

from fastpe.base.validation import array, at_least_zero, finite, positive, real, whole
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.parameters import parameter_shapes
from fastpe.theory.value import Value, certified, estimate, exact


def slack(samples: int, delta: float = 0.05) -> dict[str, Value]:
    """Return the last term of eq. (8) of Li (2025) as printed, and a smaller term that is valid.

    The printed term, 3 sqrt(ln(2/delta) / 2m), is needed only if the bound has the empirical complexity. With the
    expected complexity, the term sqrt(ln(1/delta) / 2m) is valid.

    Parameters
    ----------
    samples : int
        m, the number of samples, at least 1.
    delta : float
        Probability, in (0, 1), with which the bound may fail.

    Returns
    -------
    dict of str to Value
        "printed" and "valid", for losses in [0, 1].

    Examples
    --------
    >>> {name: round(each.value, 10) for name, each in slack(10000).items()}
    {'printed': 0.0407430455, 'valid': 0.0122387342}
    """
    samples, delta = whole("samples", samples, 1), _delta(delta)
    printed, valid = (math.sqrt(math.log(top / delta) / (2.0 * samples)) for top in (2.0, 1.0))
    return {
        "printed": exact(3.0 * printed, "3 sqrt(ln(2/delta) / 2m), eq. (8)", samples=samples, delta=delta),
        "valid": exact(valid, "sqrt(ln(1/delta) / 2m)", samples=samples, delta=delta),
    }


def parameter_counts(config: ModelConfig) -> dict[str, Value]:
    """Count the parameters of a model ("model") and the parameters that its encoding adds ("slot").

    Parameters
    ----------
    config : ModelConfig
        The model and its encoding.

    Examples
    --------
    >>> {name: each.value for name, each in parameter_counts(ModelConfig("learned")).items()}
    {'slot': 3200.0, 'model': 69825.0}
    """
    slot = sum(each.size for each in ModelEncoding(config).initial.values())
    model = slot + sum(math.prod(shape) for shape in parameter_shapes(config).values())
    why = f"parameters of {config.encoding}"
    return {"slot": exact(float(slot), why), "model": exact(float(model), f"{why} and of the model")}


def occam_gap(parameters: int, samples: int, *, bits: int = 32, delta: float = 0.05) -> Value:
    """Bound the gap between expected and training loss, for losses in [0, 1] and any model that can be stored.

    P parameters of `bits` bits can store 2^(bits * P) models. With probability 1 - delta, the gap of each of these
    models is at most sqrt((bits * P * ln 2 + ln(1/delta)) / 2m).

    Parameters
    ----------
    parameters : int
        P, the number of parameters of the model.
    samples : int
        m, the number of samples, at least 1.
    bits : int
        Number of bits in which a parameter is stored.
    delta : float
        Probability, in (0, 1), with which the bound may fail.

    Returns
    -------
    Value
        Certified from above. If the bound is vacuous (at least 1), `why` says so.

    Examples
    --------
    >>> gap = occam_gap(66625, 10000)
    >>> round(gap.value, 4), "vacuous" in gap.why
    (8.5959, True)
    """
    parameters, samples, bits = whole("parameters", parameters, 0), whole("samples", samples, 1), whole("bits", bits, 1)
    high = math.sqrt((parameters * bits * math.log(2.0) - math.log(_delta(delta))) / (2.0 * samples))
    return _capped("Occam bound", high, parameters=parameters, samples=samples, bits=bits, delta=delta)


def covering_bound(parameters: int, samples: int, *, reach: float = 1.0, width: float = 0.1) -> Value:
    """Bound the Rademacher complexity of losses in [0, 1] by covering the parameters with a net.

    The bound is eps + sqrt(2 P ln(1 + 2 r Lambda/eps) / m).

    Parameters
    ----------
    parameters, samples : int
        P and m.
    reach : float
        r Lambda: the radius of the ball that holds all parameters, times the Lipschitz constant of the loss with
        respect to the parameters.
    width : float
        eps, the largest difference between the loss of a model and the loss of the nearest member of the net.

    Returns
    -------
    Value
        Certified from above. If the bound is vacuous (at least 1), `why` says so.

    Examples
    --------
    >>> round(covering_bound(66625, 10000).value, 4)
    6.4693
    """
    parameters, samples = whole("parameters", parameters, 0), whole("samples", samples, 1)
    reach, width = at_least_zero("reach", reach), positive("width", width)
    high = width + math.sqrt(2.0 * parameters * math.log1p(2.0 * reach / width) / samples)
    why = "a net of the parameters and Massart's lemma"
    return _capped(why, high, parameters=parameters, samples=samples, reach=reach, width=width)


def held_out_width(sequences: int, largest: float = 1.0, delta: float = 0.05) -> Value:
    """Bound how far the mean loss over held-out sequences is from its expectation, for losses clipped to [0, largest].

    With probability 1 - delta, the mean and its expectation differ by at most `largest` * sqrt(ln(2/delta) / 2n)
    (Hoeffding's inequality).

    Parameters
    ----------
    sequences : int
        Number n of independent held-out sequences.
    largest : float
        Largest value of a loss; larger losses are clipped to it.
    delta : float
        Probability, in (0, 1), with which the bound may fail.

    Returns
    -------
    Value
        Certified from above.

    Examples
    --------
    >>> round(held_out_width(1000).value, 7)
    0.0429469
    """
    sequences, largest = whole("sequences", sequences, 1), at_least_zero("largest", largest)
    high = largest * math.sqrt(math.log(2.0 / _delta(delta)) / (2.0 * sequences))
    return certified("Hoeffding's inequality", high=high, sequences=sequences, largest=largest, delta=delta)


def held_out_loss(losses: Any, largest: float, delta: float = 0.05) -> Value:
    """Estimate the expected loss from the losses of held-out sequences, with Hoeffding's interval.

    Losses are clipped to [0, largest].

    Parameters
    ----------
    losses : (n,) numbers
        The loss of each held-out sequence, at least 0.
    largest : float
        Largest value of a loss; larger losses are clipped to it.
    delta : float
        Probability, in (0, 1), with which the bound may fail.

    Examples
    --------
    >>> found = held_out_loss(np.full(1000, 0.5), 1.0)
    >>> found.value, round(found.high, 7)
    (0.5, 0.5429469)
    """
    numbers = finite("losses", array("losses", losses), np.float64)
    if numbers.ndim != 1 or numbers.size == 0 or numbers.min() < 0:
        raise ValueError(f"losses must be numbers of at least 0, one for each sequence, not of shape {numbers.shape}")
    width = held_out_width(len(numbers), largest, delta)
    mean = float(np.minimum(numbers, largest).mean())
    low, high = max(0.0, mean - width.value), min(float(largest), mean + width.value)
    return estimate(mean, low, high, "mean over held-out sequences, with Hoeffding's interval", **width.inputs)


def zero_predictor_loss(length: int) -> Value:
    """Return the mean squared error of always answering 0 for running sums of standard normal numbers: (N + 1) / 2.

    The error grows with N without bound (C36).

    Parameters
    ----------
    length : int
        Number of positions N.

    Examples
    --------
    >>> zero_predictor_loss(50).value
    25.5
    """
    length = whole("length", length, 1)
    return exact((length + 1) / 2.0, "the mean of the variances 1, ..., N of the running sums", length=length)


def _capped(name: str, high: float, **inputs: Any) -> Value:
    vacuous = high >= 1.0
    remark = ": vacuous, since losses in [0, 1] differ by at most 1" if vacuous else ""
    return certified(f"{name}{remark}", high=high, vacuous=vacuous, **inputs)


def _delta(delta: float) -> float:
    if not 0.0 < real("delta", delta) < 1.0:
        raise ValueError(f"delta must lie in (0, 1), not {delta}")
    return float(delta)
