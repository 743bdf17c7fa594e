"""Code shared by `rope` and the encodings that change only its frequencies: everything except the frequencies."""

from collections.abc import Callable
from typing import Any

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import Frequencies, exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    check,
    ladder,
    plain_pairs,
    printed_ladder,
    rotated_width,
    shapes,
    sharper_channels,
    sharper_scale,
    sharper_shapes,
)
from fastpe.encodings.slots import Spec


def rope_variant(
    frequencies: Callable[..., Frequencies],
    *,
    printed: Callable[..., Frequencies] | None = None,
    mscale: Callable[..., float] | None = None,
    **fields: Any,
) -> Encoding:
    """Make the record of an encoding whose angles are positions times frequencies.

    The encoding needs the options `base` and `pairs`, and may have `rotated`; see `rope_options`.

    Parameters
    ----------
    frequencies : callable
        (spec, theta, **options) -> the frequencies that `fill` uses. `theta` are the frequencies of `rope`. Both are
        tuples of R/2 `Decimal`, in radians per position. The function is called with the precision of `precise`.
    printed : callable, optional
        A function with the same arguments that computes the frequencies for `reference`, by the formula that the source
        prints. Only needed if `frequencies` computes them in another way; by default `frequencies` is used.
    mscale : callable, optional
        (spec, **options) -> the factor that multiplies the rotated channels of query and key. If given, the encoding
        also has the slots `scale` and `rotors`.
    **fields
        Fields of `Encoding`. The default `check` requires an even number of rotated channels, and the default `moves`
        says that a longer sequence changes earlier angles if there is an option `factor` and its value is None.

    Returns
    -------
    Encoding

    Examples
    --------
    >>> from fastpe.encodings.parts.rotary import rope_options
    >>> half = rope_variant(
    ...     lambda spec, theta, **options: tuple(each / 2 for each in theta),
    ...     slots=("angles", "pairs"), options=rope_options("half"),
    ... )
    >>> half.direction, half.moves()
    ('yes', False)
    """

    def rotors(spec: Spec, rotated: int | None = None, **options: Any) -> dict[str, Any]:
        return sharper_channels(spec, rotated, mscale(spec, **options)) if mscale else {}

    def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        with precise():
            plain_ones = printed_ladder(options["base"], rotated_width(spec, options.get("rotated")))
            theta = (printed or frequencies)(spec, plain_ones, **options)
        return {"angles": exact_angles(spec.points(), list(theta))[..., None, :, :], **rotors(spec, **options)}

    def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
        with precise():
            plain_ones = ladder(options["base"], rotated_width(spec, options.get("rotated")))
            theta = frequencies(spec, plain_ones, **options)
        fill_line(spec, theta, out["angles"])
        for slot, factors in rotors(spec, **options).items():
            out[slot][...] = factors

    def plain(spec: Spec, *, rotated: int | None = None, **options: Any) -> dict[str, Any]:
        found = plain_pairs(spec, **options)
        return found | {"scale": sharper_scale(spec, rotated, mscale(spec, **options))} if mscale else found

    usual = {
        "direction": "yes",
        "ulp": 2.0,
        "reference": reference,
        "fill": fill,
        "shapes": sharper_shapes if mscale else shapes,
        "plain": plain,
        "check": check,
        "moves": lambda **options: options.get("factor", 1.0) is None,
    }
    return Encoding(**{**usual, **fields})
