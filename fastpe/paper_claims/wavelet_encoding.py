"""Computations on the wavelet encoding of Li (2025), section 6.1, for the claims C77 to C107."""

import math
from typing import Any

import numpy as np

import fastpe
from fastpe.base.validation import choice, whole
from fastpe.encodings.input import wavelet as encoding
from fastpe.encodings.parts.daubechies import scaling_filter
from fastpe.encodings.slots import make_spec
from fastpe.paper_claims.wavelet_functions import supremum
from fastpe.theory.kernel import ranks
from fastpe.theory.pairs import BLOCK, Array, checked
from fastpe.theory.value import Value, certified, exact


def steps(table: Any) -> Array:
    """Return |T[p + 1] - T[p]| for every p (C83, C92).

    Parameters
    ----------
    table : (positions, channels)

    Examples
    --------
    >>> steps([[0.0], [1.0], [4.0]]).tolist()
    [1.0, 3.0]
    """
    rows = checked(table)
    parts = [np.linalg.norm(np.diff(rows[i : i + BLOCK + 1], axis=0), axis=1) for i in range(0, len(rows) - 1, BLOCK)]
    return np.concatenate([*parts, np.empty(0)])


def end_differences(table: Any, train_length: int) -> Array:
    """Return |T[p] - T[N]| for p = N, N + 1, .... The claims C82, C86 and C106 say that these are small or decay.

    Parameters
    ----------
    table : (positions, channels)
        A table with more than N positions.
    train_length : int
        The training length N.

    Returns
    -------
    (positions - N,) float64

    Raises
    ------
    ValueError, TypeError
        If the table is not two-dimensional or not finite, or has no row N.

    Examples
    --------
    >>> end_differences([[9.0], [1.0], [4.0]], 1).tolist()
    [0.0, 3.0]
    """
    rows, n = checked(table), whole("train_length", train_length, 1)
    if n >= len(rows):
        raise ValueError(f"train_length must be below the {len(rows)} rows of table, not {n}")
    return np.concatenate([np.linalg.norm(rows[i : i + BLOCK] - rows[n], axis=1) for i in range(n, len(rows), BLOCK)])


def end_difference(table: Any, train_length: int) -> dict[str, Value]:
    """Return the largest difference of a later row from row N, also divided by 2^(-J/2), with J = floor(log2 N).

    C82 says that the difference is small, and Table 3 that it is O(2^(-J/2)). This order is right for raw wavelet rows,
    because all of them are so small (P14), but not for rows that are divided by their norm. From some position on all
    rows are zero, and the difference is |T[N]|. So a table that reaches the first of these rows has the largest
    difference over all p.

    Parameters
    ----------
    table, train_length
        The same as for `end_differences`.

    Returns
    -------
    dict
        - "sup": the largest difference. The inputs of this value name the position.
        - "scaled": "sup" times 2^(J/2).
        - "norm": |T[N]|.

    Examples
    --------
    >>> found = end_difference([[0.0], [0.0], [1.0], [4.0], [0.0]], 2)
    >>> found["sup"].value, found["sup"].inputs["position"], round(found["scaled"].value, 6), found["norm"].value
    (3.0, 3, 4.242641, 1.0)
    """
    train_length = whole("train_length", train_length, 1)
    differences = end_differences(table, train_length)
    place, scale = int(differences.argmax()), 2.0 ** ((train_length.bit_length() - 1) / 2)
    largest = float(differences[place])
    about = {"train_length": train_length, "rows": len(table), "position": train_length + place}
    norm = float(np.linalg.norm(checked(table, (train_length, train_length + 1))))
    return {
        "sup": exact(largest, "the largest |T[p] - T[N]| over the table's p >= N", **about),
        "scaled": exact(scale * largest, "the same times 2^(J/2) (P14)", **about),
        "norm": exact(norm, "|T[N]|", train_length=train_length),
    }


def zero_from(train_length: int, dim: int = 64, **options: Any) -> Value | None:
    """Return the position from which on every row of the wavelet encoding is zero (C92, C101, C103).

    It is the position at which the support of the last function ends.

    Parameters
    ----------
    train_length, dim : int
    **options
        Options of the encoding `wavelet`.

    Returns
    -------
    Value, or None if every column is zero

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `fastpe.build`.

    Examples
    --------
    >>> [zero_from(50, wavelet=name).value for name in ("db4", "db2", "haar")]
    [256.0, 128.0, 64.0]
    """
    dim, train_length = whole("dim", dim, 1), whole("train_length", train_length, 1)
    fastpe.build("wavelet", 1, dim=dim, train_length=train_length, reference=True, **options)  # checks the arguments
    settings = {name: option.default for name, option in encoding.ENCODING.options.items()} | options
    chosen = encoding.columns(make_spec(1, dim=dim, train_length=train_length), **settings)
    used = chosen.kind != 0
    if not used.any():
        return None
    largest = train_length.bit_length() - 1 if settings["scales"] is None else settings["scales"]
    unit = 2.0 ** (chosen.level[used] - (0 if settings["layout"] == "coarse" else largest))
    end = float(np.max(unit * (chosen.shift[used] + len(scaling_filter(settings["wavelet"])) - 1)))
    return exact(
        float(max(0, math.ceil(end))), "the last support ends there", train_length=train_length, dim=dim, **options
    )


def literal_reading(train_length: int, functions: str = "psi", wavelet: str = "db4") -> dict[str, Value]:
    """Return the nonzero rows and the rank of the encoding that the paper prints (C88).

    The functions are psi(2^j x - k) for j = 0 .. J and k = 0 .. 9.

    Parameters
    ----------
    train_length : int
        N, at least 2; J = floor(log2 N).
    functions : "psi" or "phi+psi"
    wavelet : str

    Returns
    -------
    dict
        - "first", "last": the first and the last nonzero row in [0, N);
        - "rank": the rank at float64 tolerance.

    Examples
    --------
    >>> found = literal_reading(50)
    >>> found["first"].value, found["last"].value, found["rank"].value
    (1.0, 15.0, 14.0)
    """
    n = whole("train_length", train_length, 2)
    choice("functions", functions, ("psi", "phi+psi"))
    dim = 10 * (n.bit_length() + (functions == "phi+psi"))
    options = {"layout": "fine", "select": "listed", "shifts": tuple(range(10)), "normalise": "none"}
    table = _table(n, dim, functions=functions, wavelet=wavelet, **options)
    alive, rank = np.flatnonzero(table.any(axis=1)), ranks(table)["float64"]
    assert rank is not None
    about = {"train_length": n, "functions": functions, "wavelet": wavelet}
    return {
        "first": exact(float(alive[0]), "the first row that is not zero", **about),
        "last": exact(float(alive[-1]), "the last row that is not zero", **about),
        "rank": exact(rank.value, rank.why, **about),
    }


def scale_counts(train_length: int, wavelet: str = "db4") -> list[int]:
    """Return, for each scale j = 0 .. J, the number of shifts with a support that meets [0, N] (C91, C99).

    In the fine layout this number is K_j = N * 2^j + L - 1.

    Parameters
    ----------
    train_length : int
        N, at least 1.
    wavelet : str
        Name of the wavelet.

    Examples
    --------
    >>> scale_counts(50)
    [57, 107, 207, 407, 807, 1607]
    """
    n = whole("train_length", train_length, 1)
    return [n * 2**j + len(scaling_filter(wavelet)) - 1 for j in range(n.bit_length())]


def fine_basis(train_length: int, wavelet: str = "db4") -> dict[str, Value]:
    """Return norms and products of rows of the fine layout with all shifts, scales and scaling functions (C94, C100).

    These rows are orthogonal.

    Parameters
    ----------
    train_length : int
        N, at most 256, since the table has N rows and about 2 N^2 columns.
    wavelet : str

    Returns
    -------
    dict
        - "columns": the number of columns;
        - "least" and "most": the smallest and the largest norm of the rows p < N;
        - "off_diagonal": the largest |<T[p], T[q]>| of two different rows.

    Examples
    --------
    >>> found = fine_basis(4)
    >>> found["columns"].value, found["off_diagonal"].value < 1e-12
    (60.0, True)
    """
    n = whole("train_length", train_length, 1)
    if n > 256:
        raise ValueError(f"train_length must be at most 256, as the table has about 2 N^2 columns, not {n}")
    counts = scale_counts(n, wavelet)
    dim = sum(counts) + counts[0]
    table = _table(n, dim, layout="fine", functions="phi+psi", normalise="none", wavelet=wavelet)
    products = table @ table.T
    norms = np.sqrt(np.diagonal(products))
    off = float(np.abs(products - np.diag(np.diagonal(products))).max())
    about = {"train_length": n, "wavelet": wavelet}
    return {
        "columns": exact(float(dim), "shifts that meet [0, N], of all scales and of phi", **about),
        "least": exact(float(norms.min()), "the least norm of a row", **about),
        "most": exact(float(norms.max()), "the largest norm of a row", **about),
        "off_diagonal": exact(off, "the largest product of two rows", **about),
    }


def norm_bounds(train_length: int, wavelet: str = "db4") -> dict[str, Value]:
    """Return the paper's bounds on the norm of a raw row (C98 to C100), to compare with `fine_basis` and `norms`.

    Parameters
    ----------
    train_length : int
        N, at least 2; J = floor(log2 N).
    wavelet : str

    Returns
    -------
    dict
        - "paper": sqrt(K_0 C0^2 + sum_{j >= 1} K_j C^2 2^j), with C0 and C at least sup |phi| and sup |psi|;
        - "sum": the sum of K_j 2^j over j = 1 .. J with K_j = 2^j, which is the sum of 4^j;
        - "claimed": `N * J`. The paper says that the sum is O(N J);
        - "order": N sqrt(ln N).

    Examples
    --------
    >>> found = norm_bounds(50)
    >>> found["sum"].value, found["claimed"].value, round(found["order"].value, 1)
    (1364.0, 250.0, 98.9)
    """
    n = whole("train_length", train_length, 2)
    scales = n.bit_length() - 1
    about: dict[str, Any] = {"train_length": n, "wavelet": wavelet}
    c0, c = (supremum(wavelet, psi=psi).high or math.inf for psi in (False, True))
    counts = scale_counts(n, wavelet)
    square = counts[0] * c0**2 + sum(count * c**2 * 2**j for j, count in enumerate(counts) if j)
    return {
        "paper": certified("at least the paper's bound, from suprema of phi and psi", high=math.sqrt(square), **about),
        "sum": exact(float(sum(4**j for j in range(1, scales + 1))), "sum of 4^j, j = 1 .. J", **about),
        "claimed": exact(float(n * scales), "N J", **about),
        "order": exact(n * math.sqrt(math.log(n)), "N sqrt(ln N)", **about),
    }


def _table(length: int, dim: int, **options: Any) -> Array:
    slots = fastpe.build("wavelet", length, dim=dim, train_length=length, dtype="float64", reference=True, **options)
    found: Array = slots["table"]
    return found
