"""CLEX: RoPE whose frequencies solve a learned ODE in tau, the ratio of length to original length.

    dz_t/dtau = -(4t/(R-2)) / (2 tau - 1) + [act((z + zeta(tau)) Wu) Wd]_t,    z(1) = ln theta, theta as for `rope`
    zeta_t(tau) = -(2t/R) ln base - (2t/(R-2)) ln(2 tau - 1),    theta'_t = exp(z_t(tau))
    tau = min(ceil(n / L0), max_factor),   n the largest position plus one

R is the number of rotated channels, and t = 0 .. R/2 - 1 numbers their pairs. Wu and Wd are the two maps of the
network, and act is its activation.

Source: Chen et al. 2023, "CLEX: Continuous Length Extrapolation for Large Language Models" (arXiv:2310.16450);
DAMO-NLP-SG/CLEX, CLEX/clex_layer.py, ODELinear and LlamaCLEXScalingRotaryEmbedding.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing by default; Wd is then zero. With `learned`, both maps of
the network are learned and shared by all layers: `up` (R/2, f R), which is Wu, and `down` (f R, R/2), which is Wd.

**Initial values.** Wu is uniform in +-1/sqrt(f R), Wd is zero. This gives theta'_t = theta_t (2 tau - 1)^(-2t/(R-2)):
the scaling of `rope_ntk` by 2 tau - 1, up to the error of the solver.

**Options**
- `original_length`: L0, the length up to which the frequencies are those of `rope`. Default: the training length; with
  `learned`, half of it, rounded up. Up to L0 nothing depends on the network, so it can only be learned if the training
  length exceeds L0. The authors' training corresponds to `--positions random:L` with L = 16 L0. The largest position of
  each training step then determines the step's frequencies.
- `learned`: whether the network is learned.
- `max_factor`: the largest tau. Longer sequences use the frequencies of this tau.
- `step`: step size of the ODE solver. The solver is Kutta's 3/8 rule, of fourth order.
- `act`: activation of the network: `tanh`, as in the code's configuration, or `silu`.
- `hidden`: f, the width of the network divided by R.
- `base`, `pairs`, `rotated`: as for `rope`. To extend a trained model, use its values.

**Past the training length**: defined; the encoding is designed for longer sequences. Up to L0 the angles are those of
`rope`.

**Accuracy.** The ODE is solved in float64. The error of an angle is its position times the rounding errors of the
solver's steps.

**Traps.** The authors draw a new tau in every training step, uniform in 1 .. max_factor; here the largest position
determines tau. When a text exceeds a multiple of L0, the frequencies of all its tokens change, so keys must be cached
before they are rotated. A learned network may change the fastest frequency, which is 1 for `rope`. All samples of a
batch share n, so the longest one determines the frequencies of all.
"""

import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts import frequency_flow
from fastpe.encodings.parts.angles import Array, Frequencies, exact_angles, fill_line, precise
from fastpe.encodings.parts.frequency_flow import Flow
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.parts.rotary import ladder, plain_pairs, printed_ladder, rope_options, rotated_width, shapes
from fastpe.encodings.parts.row_blocks import farthest_of
from fastpe.encodings.slots import Spec


def check(
    spec: Spec, *, learned: bool, original_length: int | None, rotated: int | None, **options: Any
) -> None:  # fmt: skip
    """Require an even number of rotated channels, and an original length at which a learned network has an effect."""
    rotated_width(spec, rotated)
    if learned and original_length is not None and original_length >= max(spec.train_length, 2):
        raise ValueError(
            f"option 'original_length' must be below the training length {spec.train_length} if the network is "
            f"learned, not {original_length}: up to this length nothing depends on the network"
        )


def parameters(
    spec: Spec, *, learned: bool, hidden: int, rotated: int | None, **options: Any
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """Both maps of the network, if it is learned."""
    width = rotated_width(spec, rotated)
    return {"up": (width // 2, hidden * width), "down": (hidden * width, width // 2)} if learned else {}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Kaiming-uniform `up`, as drawn by the authors' framework, and zeros for `down`."""
    shape = parameters(spec, **options)
    if not shape:
        return {}
    spread = 2 * stream_of(rng, "up").uniform(shape["up"]) - 1
    return {"up": spread * shape["up"][1] ** -0.5, "down": np.zeros(shape["down"])}


def stage(
    spec: Spec, *, original_length: int | None, learned: bool, max_factor: int, **options: Any
) -> int:  # fmt: skip
    """tau: the largest position plus one in multiples of the original length, rounded up, within 1 .. max_factor."""
    usual = (spec.train_length + 1) // 2 if learned else spec.train_length
    with precise():
        needed = math.ceil((Decimal(farthest_of(spec)) + 1) / (original_length or usual))
    return max(1, min(needed, max_factor))


def reference(
    spec: Spec, params: dict[str, Any], *, base: float, step: float, act: str, hidden: int, rotated: int | None,
    pairs: str, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """The ODE as printed, solved by the 3/8 rule."""
    width, tau = rotated_width(spec, rotated), stage(spec, **options)
    t = np.arange(width // 2)
    log_theta = -2 * t / width * math.log(base)
    share = 2 * t / max(width - 2, 1)
    up, down = params.get("up", np.zeros((width // 2, 1))), params.get("down", np.zeros((1, width // 2)))

    def slope(tau: float, z: Array) -> Array:
        h = (z + log_theta - share * math.log(2 * tau - 1)) @ up
        with np.errstate(over="ignore"):
            units = np.tanh(h) if act == "tanh" else h / (1 + np.exp(-h))
        found: Array = -2 * share / (2 * tau - 1) + units @ down
        return found

    z = log_theta
    for now, then in pairwise(frequency_flow.places(tau, step)):
        dt = then - now
        k1 = slope(now, z)
        k2 = slope(now + dt / 3, z + dt * k1 / 3)
        k3 = slope(now + 2 * dt / 3, z + dt * (k2 - k1 / 3))
        k4 = slope(then, z + dt * (k1 - k2 + k3))
        z = z + dt * (k1 + 3 * k2 + 3 * k3 + k4) / 8
    theta = list(printed_ladder(base, width)) if tau == 1 else [Decimal(each) for each in np.exp(z).tolist()]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def _flow(
    spec: Spec, params: dict[str, Any], *, base: float, act: str, rotated: int | None, **options: Any
) -> Flow:  # fmt: skip
    width = rotated_width(spec, rotated)
    logarithms = np.array([float(each.ln()) for each in ladder(base, width)])
    nothing = np.zeros((1, width // 2))
    return frequency_flow.flow(logarithms, params.get("up", nothing.T), params.get("down", nothing), act)


def _frequencies(spec: Spec, of: Flow, *, base: float, step: float, rotated: int | None, **options: Any) -> Frequencies:
    """theta', which are the frequencies of `rope` times exp(u), where u solves the ODE of `frequency_flow`.

    Raises
    ------
    OverflowError
        If a frequency is not finite.
    """
    theta, tau = ladder(base, rotated_width(spec, rotated)), stage(spec, **options)
    if tau == 1:
        return theta
    with np.errstate(over="ignore"):
        grown = np.exp(frequency_flow.solve(of, tau, step)[-1])
    if not np.isfinite(grown).all():
        raise OverflowError(
            f"the ODE of 'clex' gives frequencies that are not finite at tau={tau}: 'up' or 'down' is too large"
        )
    with precise():
        return tuple(each * Decimal(factor) for each, factor in zip(theta, grown.tolist(), strict=True))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `angles`."""
    fill_line(spec, _frequencies(spec, _flow(spec, params, **options), **options), out["angles"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any
) -> None:  # fmt: skip
    """dtheta'_t = sum of p times dangles, du = theta' dtheta', and the solver's steps in reverse."""
    tau = stage(spec, **options)
    if tau == 1:
        return
    of = _flow(spec, params, **options)
    theta = np.array([float(each) for each in _frequencies(spec, of, **options)])
    dangles = dslots["angles"].astype(np.float64)[..., 0, :, :].reshape(-1, len(theta))
    dtheta = (spec.points().reshape(-1, 1) * dangles).sum(axis=0)
    dup, ddown = np.zeros(of.up.shape), np.zeros(of.down.shape)
    frequency_flow.pull(of, tau, options["step"], theta * dtheta, dup, ddown)
    dparams["up"] += dup
    dparams["down"] += ddown


ENCODING = Encoding(
    summary="rotary, whose frequencies follow a learned ODE",
    formula=r"""
        \frac{dz_t}{d\tau} &= -\frac{4t / (R - 2)}{2 \tau - 1} + [\mathrm{act}((z + \zeta(\tau)) W_u) W_d]_t,
            \quad z(1) = \ln \theta \\
        \zeta_t(\tau) &= -\frac{2t}{R} \ln \mathrm{base} - \frac{2t}{R - 2} \ln(2 \tau - 1) \\
        \theta'_t &= \exp(z_t(\tau)), \quad \theta \text{ as for rope} \\
        \tau &= \min(\lceil n / L_0 \rceil, \mathrm{max\_factor}), \quad n \text{ the largest position plus one}
    """,
    use_when="a RoPE model is tuned once and then reads texts up to several times as long",
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "original_length": Option(
            None,
            "length up to which frequencies are those of rope; none: the training length, or half of it if learned",
            int,
            minimum=1,
            optional=True,
        ),
        "learned": Option(False, "whether the network of the ODE is learned", bool),
        "max_factor": Option(16, "largest ratio of the length to original_length", int, minimum=1, maximum=256),
        "step": Option(0.01, "step size of the solver", float, minimum=0.005, maximum=1.0, samples=(0.25,)),
        "act": Option("tanh", "activation of the network", str, ("tanh", "silu")),
        "hidden": Option(1, "width of the network, in multiples of the rotated channels", int, minimum=1, maximum=64),
        **rope_options("half"),
    },
    beyond="defined",
    moves=lambda *, max_factor, **options: max_factor > 1,
    direction="yes",
    source="Chen et al. 2023, arXiv:2310.16450, and released code",
    reported=Reported(
        "tuned",
        "Models trained and tuned on 4,096 tokens do as well at more than 4 or almost 8 times this length.",
        "Chen et al. 2023, arXiv:2310.16450, abstract",
    ),
    ulp=lambda spec, **options: 2.0 if stage(spec, **options) == 1 else 64.0 * (1.0 + spec.farthest),
    shapes=shapes,
    plain=plain_pairs,
)
