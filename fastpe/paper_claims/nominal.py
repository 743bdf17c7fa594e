"""The nominal numbers of Table 2 of Li (2025), and bounds on norms of tokens, logits and norms of random rows."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import at_least_zero, positive, whole
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]


def token_norms(name: str, slots: Mapping[str, Any], *, content: float = 1.0) -> dict[str, Value]:
    """Return two bounds of the norms of tokens with an encoding: that of Table 2 (Li 2025), and the exact one.

    For every encoding, the paper adds a norm to B_x. But only tables are added to tokens. Biases and vectors of offsets
    do not change tokens (claims C55, C56).

    Parameters
    ----------
    name : str
        Key of the encoding.
    slots : mapping
        The slots that `fastpe.build` returns for the encoding.
    content : float
        B_x, a bound of the norms of tokens to which no encoding was added.

    Returns
    -------
    dict of str to Value
        - "exact": B_x plus the largest norm of a row of the table.
        - "paper": B_x plus a norm: sqrt(d) for sinusoidal and Legendre tables, 1 for wavelets, the largest row norm for
          other tables, the largest norm of a vector for vectors of offsets, the largest absolute bias for biases. For
          other encodings "paper" is missing.

    Raises
    ------
    ValueError, TypeError
        If `content` is not a number of at least 0.

    Examples
    --------
    >>> from fastpe import build
    >>> found = token_norms("sinusoidal", build("sinusoidal", 50, dtype="float64"))
    >>> {kind: round(each.value, 6) for kind, each in found.items()}
    {'exact': 6.656854, 'paper': 9.0}
    >>> found = token_norms("alibi", build("alibi", 200, slope=0.002, dtype="float64"))
    >>> {kind: round(each.value, 6) for kind, each in found.items()}
    {'exact': 1.0, 'paper': 1.398}
    """
    content, table = at_least_zero("content", content), slots.get("table")
    largest = _largest_row(table)
    found = {"exact": exact(content + largest, "B_x plus the largest norm of a row of the table", content=content)}
    if table is not None and name in ("sinusoidal", "legendre", "wavelet"):
        added = 1.0 if name == "wavelet" else math.sqrt(table.shape[-1])
    else:
        offsets = max(_largest_row(slots.get(slot)) for slot in ("rel_key", "rel_value"))
        bias = float(np.abs(slots["bias"]).max()) if "bias" in slots else 0.0
        added = largest or offsets or bias
    if added:
        found["paper"] = exact(content + added, "Table 2", content=content)
    return found


def nominal_complexity(token_norm: float, samples: int = 10000, lipschitz: float = 1.0) -> Value:
    """Return the Rademacher complexity that Table 2 of Li (2025) states: `L * B / sqrt(m)`, without constants.

    This number is not a bound for the class that the paper describes (`capacity.nuclear_complexity`, claim C43).

    Parameters
    ----------
    token_norm : float
        B, a bound of the norms of tokens.
    samples : int
        m, the number of training samples.
    lipschitz : float
        L, the Lipschitz constant of the model.

    Examples
    --------
    >>> nominal_complexity(9.0).value
    0.09
    """
    token_norm, lipschitz = at_least_zero("token_norm", token_norm), at_least_zero("lipschitz", lipschitz)
    samples = whole("samples", samples, 1)
    number = lipschitz * token_norm / math.sqrt(samples)
    return exact(
        number,
        "L B / sqrt m, a nominal number and not a bound",
        token_norm=token_norm,
        samples=samples,
        lipschitz=lipschitz,
    )


def logit_bounds(
    content: float, vector: float, *, weight: float = 1.0, head_width: int = 64, direction: float = 1.0
) -> dict[str, Value]:
    """Bound the size of a logit with vectors of offsets. It is quadratic in the token norm, not linear as in C48.

    Parameters
    ----------
    content : float
        B_0, a bound of the norms of tokens.
    vector : float
        B_r, a bound of the norms of the vectors of offsets.
    weight : float
        C_W, a bound of the spectral norms of the query and key projections.
    head_width : int
        dk.
    direction : float
        |a|, the norm of the vector by which eq. (5) of Li (2025) multiplies the vectors of offsets.

    Returns
    -------
    dict of str to Value
        - "claimed": C_W B_0 + B_r;
        - "attained": C_W^2 B_0^2, which a logit attains if z_i = z_j and both maps are C_W times the identity. As in
          eq. (5), logits are not divided by sqrt dk;
        - "attained_scaled": "attained" divided by sqrt dk;
        - "bound": C_W^2 B_0^2 / sqrt dk + |a| B_r, certified;
        - "bound_unscaled": C_W^2 B_0^2 + |a| B_r, certified.

    Examples
    --------
    >>> {name: each.value for name, each in logit_bounds(9.0, 1.0).items()}
    {'claimed': 10.0, 'attained': 81.0, 'attained_scaled': 10.125, 'bound': 11.125, 'bound_unscaled': 82.0}
    """
    content, vector = at_least_zero("content", content), at_least_zero("vector", vector)
    weight, direction = at_least_zero("weight", weight), at_least_zero("direction", direction)
    square, root = (weight * content) ** 2, math.sqrt(whole("head_width", head_width, 1))
    facts = {"content": content, "vector": vector, "weight": weight, "head_width": head_width, "direction": direction}
    return {
        "claimed": exact(weight * content + vector, "C_W B_0 + B_r, section 4.3", **facts),
        "attained": exact(square, "attained by z_i = z_j, W = C_W I and no relative vector, eq. (5)", **facts),
        "attained_scaled": exact(square / root, "the same with 1/sqrt dk", **facts),
        "bound": certified("Cauchy-Schwarz, with 1/sqrt dk", high=square / root + direction * vector, **facts),
        "bound_unscaled": certified("Cauchy-Schwarz, eq. (5)", high=square + direction * vector, **facts),
    }


def random_rows_norm(rows: int, width: int, deviation: float = 0.02) -> Value:
    """Bound the expectation of the largest norm of independent normal rows: `s * (sqrt(d) + sqrt(2 ln n))`.

    So B_p and B_r of random tables grow with the width, and only slightly with the number of rows (C47, C50).

    Parameters
    ----------
    rows : int
        Number n of rows, for example 2K + 1 offsets.
    width : int
        Width d.
    deviation : float
        Standard deviation s.

    Returns
    -------
    Value
        Certified from above.

    Examples
    --------
    >>> [round(random_rows_norm(2 * k + 1, 64).value, 6) for k in (16, 64)]
    [0.212889, 0.222353]
    """
    rows, width, deviation = whole("rows", rows, 1), whole("width", width, 1), positive("deviation", deviation)
    high = deviation * (math.sqrt(width) + math.sqrt(2.0 * math.log(rows)))
    return certified(
        "s (sqrt d + sqrt(2 ln n)): norms are 1-Lipschitz functions of normal numbers, so sub-Gaussian",
        high=high,
        rows=rows,
        width=width,
    )


def smallest_slope(slots: Mapping[str, Any]) -> Value:
    """Return the smallest slope of the heads of a linear bias.

    The smallest slope is 2^-8 for 8 heads of the released ALiBi, and 0.002 in the setting of Li (2025), although the
    text of that paper says [0.01, 1].

    Parameters
    ----------
    slots : mapping
        The slots that `fastpe.build` returns for at least two positions, with a `bias`.

    Raises
    ------
    ValueError
        If the slots have no bias of at least two positions.

    Examples
    --------
    >>> from fastpe import build
    >>> smallest_slope(build("alibi", 2, heads=8)).value
    0.00390625
    """
    if "bias" not in slots or slots["bias"].shape[-1] < 3:
        raise ValueError(f"slots must have a bias of at least two positions, not {sorted(slots)} alone")
    bias = slots["bias"].astype(np.float64)
    middle = bias.shape[-1] // 2
    return exact(
        float((bias[:, middle] - bias[:, middle - 1]).min()),
        "the bias of the query's own key minus the bias of the key before it (C51)",
    )


def _largest_row(rows: Array | None) -> float:
    return 0.0 if rows is None else math.sqrt(float(np.einsum("...c,...c->...", rows, rows, dtype=np.float64).max()))
