"""Claims C78, C79, C83 to C86 and C108 to C121 of Li (2025), sections 5.4 and 6.2 to 8: Legendre, costs and others."""

import math

from fastpe.paper_claims import legendre_encoding as legendre
from fastpe.paper_claims import polynomial_values as of
from fastpe.paper_claims.expressiveness import NO_UNIVERSALITY
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Needs, Sentences, high, low
from fastpe.paper_claims.setting import TRAINED, WIDTH

CLAIMS = (
    Claim(
        "C78", "section 5.4", "P_l(x) ~ x^l for |x| > 1.",
        HoldsIf(
            lambda value, power: value.value <= 2.0 * power.value,
            lambda limit, coefficient: abs(limit.value - coefficient.value) < 1e-3 * coefficient.value,
            "x -> infinity, up to the coefficient binom(2l, l) / 2^l",
        ),
        "At l = 63 and x = 3, P_l is {value:.12g} and x^l is {power:.6g}. Their quotient approaches the coefficient "
        "{coefficient:.7g}: at x = 10^4 it is {limit:.6g}. At x = 3, P_l grows by a factor of {rate:.7g} per degree",
        of.growth,
        {
            "value": "1.22227902960e47", "power": "1.14456e30", "coefficient": "6.54309e17", "rate": "5.828427",
            "limit": "6.54309e17",
        },
        ("rate",),
    ),
    Claim(
        "C79", "section 5.4", "Logarithmic scaling keeps x bounded.",
        Holds(lambda at_200: at_200.value <= 1.0),
        "Unless it is clipped, ln(1 + p) / ln(1 + N) is {at_200:.6g} at p = 200 and {at_1000000:.6g} at p = 10^6",
        of.logarithm, {"at_200": "1.348815", "at_1000000": "3.513765"}, ("at_1000000",),
    ),
    Claim(
        "C83", "equation (10)", "For pos > N the row is [1, 1, ..., 1].", of.CONSTANT,
        "Entries from position 50 on differ from 1 by {ones:.2g}. From position 49 to 50 the row jumps by {jump:.7g}",
        of.clamped, {"ones": "0 .. 0", "jump": "8.034420", "information": "0 .. 0"}, ("jump", "information"),
    ),
    Claim(
        "C84", "section 5.4", "With the clamp, large positions cannot be distinguished at all.",
        Holds(lambda information: high(information) == 0.0),
        "Rows of [50, 100) contain {information:.2g} nats about the position. A causal model can find the position in "
        "other ways",
        of.clamped, {"ones": "0 .. 0", "jump": "8.034420", "information": "0 .. 0"}, ("ones", "jump"),
        "only the table is meant",
    ),
    Claim(
        "C85", "section 5.4", "tanh in place of the clamp preserves distinction.",
        HoldsIf(
            lambda float32_first: math.isinf(float32_first.value), lambda apart: low(apart) > 0.0,
            "numbers are real, without rounding"
        ),
        "The least distance of rows in [100, 200) is {apart:.6g}, and tanh is strictly increasing. But neighbouring "
        "rows are equal from {float32_first:.0f} on in float32 ({float32_distinct:.0f} different rows of 4096) "
        "and from {bfloat16_first:.0f} on in bfloat16 ({bfloat16_distinct:.0f} different rows). x rounds to 1 from "
        "{ones_float32:.0f} on in float32 and from {ones_float64:.0f} on in float64",
        of.rounding, of.ROUNDING,
        ("float32_distinct", "bfloat16_first", "bfloat16_distinct", "ones_float32", "ones_float64"),
    ),
    Claim(
        "C86", "section 5.4", "Rows converge again at large positions: extrapolation is limited to moderate ranges.",
        Holds(lambda close: close.value < math.inf),
        "|T[p] - 1| is below 4 from {within_4:.0f} on, below 0.8 from {within_0_8:.0f} on and below 0.001 from "
        "{close:.0f} on. The paper does not state the range",
        of.converging, of.CONVERGING, ("within_4", "within_0_8"),
    ),
    Claim(
        "C108", "section 6.2", "Legendre polynomials are orthogonal on [-1, 1] with weight 1.",
        Holds(lambda off: off.value < 1e-12),
        "The cosines between P_0 .. P_63 are below {off:.2g}", of.products, {"off": "0 .. 1e-12"},
    ),
    Claim(
        "C109", "section 6.2.1", "|P_l| <= 1 on (-1, 1), and rows tend to the vector of ones, as P_l(1) = 1.",
        Holds(lambda largest, end: largest.value <= 1.0 + 1e-12 and end.value <= 1e-12),
        "The largest entry of 4096 rows is {largest:.12g}, and the last row differs from the vector of ones by "
        "{end:.2g}. In float64 all rows from position 950 on equal this vector (C85)",
        of.entries, {"largest": "1.000000", "end": "0 .. 1e-12"},
    ),
    Claim(
        "C110", "section 6.2.2", "x(pos) maps [0, N] linearly through tanh.",
        Holds(lambda one: one.value < 1e-9),
        "max |tanh u - u tanh 1| is {one:.6g}. With tanh gamma = 0.99 the largest difference is {most:.6g}",
        of.bends,
        {"one": "0.0817415", "most": "0.389226"}, ("most",),
    ),
    Claim(
        "C111", "sections 6.2.2, 7", "x(pos) covers [0, 0.99] almost fully.",
        HoldsIf(
            lambda own: own.value >= 0.985, lambda chosen: chosen.value >= 0.985, "gamma = artanh 0.99 = 2.646652"
        ),
        "Section 7 uses gamma = 1, where x ends at {own:.9g}. With gamma = {gamma:.10g} it ends at {chosen:.6g}",
        of.covered, {"own": "0.761594156", "chosen": "0.9900000", "gamma": "2.646652412"}, ("gamma",),
    ),
    Claim(
        "C112", "section 6.2.2", "The polynomials form a nearly orthonormal basis on [0, 0.99].",
        Holds(lambda first_pair: abs(first_pair.value) < 0.1),
        "The cosine of P_0 and P_1 is {first_pair:.9g} = sqrt 3 / 2 on any interval [0, a]. The eigenvalues of the "
        "matrix of cosines range from {smallest:.2g} to {largest:.7g}",
        lambda: legendre.near_orthonormality(WIDTH),
        {"first_pair": "0.866025404", "largest": "2.268151", "smallest": "0 .. 1e-12"}, ("largest", "smallest"),
        "nearly orthonormal means cosines below 0.1",
    ),
    Claim(
        "C113", "section 6.2.2",
        "The encoding can approximate continuous functions and uniquely distinguishes positions.",
        of.TELLS_APART,
        "x itself is a channel, so polynomials in x can approximate any continuous function (Weierstrass). The least "
        "distance of two rows is {apart:.6g}. The rank is {rank:.0f}, and {rank_float32:.0f} at float32 tolerance",
        of.inside, {"apart": "0.410356", "rank": "37", "rank_float32": "27"}, ("rank", "rank_float32"),
    ),
    Claim(
        "C114", "section 6.2.3", "|PE| <= sqrt d, and complexity matches that of sinusoidal PEs.", of.BELOW_ROOT,
        "The norms are {at_0:.7g} at 0, {at_49:.7g} at 49, {at_100:.7g} at 100 and {at_199:.7g} at 199; the largest "
        "is {most:.7g}. They are smaller than for the sinusoidal encoding and not constant",
        of.row_norms, of.ROW_NORMS, ("at_0", "at_49", "at_100", "at_199"),
    ),
    Claim(
        "C115", "section 6.2.4", "P_l(x) = 1 - l(l + 1)/2 (1 - x) + O((1 - x)^2).",
        Holds(lambda actual, linear, remainder: abs(actual.value - linear.value) <= remainder.value * (1.0 + 1e-9)),
        "At l = 5 and x = 0.99 the value is {actual:.8g} and the linear approximation {linear:.8g}. They differ by at "
        "most {remainder:.6g}",
        lambda: legendre.taylor(5, 0.99), {"actual": "0.8551804", "linear": "0.8500000", "remainder": "0.005250000"},
    ),
    Claim(
        "C116", "section 6.2.4", "Delta x(N) = 2 e^(-2 gamma).",
        Holds(lambda actual, paper: abs(actual.value - paper.value) < 1e-9),
        "1 - tanh 1 = {actual:.9g}, but 2 e^-2 = {paper:.9g}", legendre.end_gap,
        {"actual": "0.238405844", "paper": "0.270670566"}, reading="equality as printed, at gamma = 1",
    ),
    Claim(
        "C117", "section 6.2.4", "|P_l(x(pos)) - P_l(x(N))| ~ 2 l(l + 1) gamma (dp / N) e^(-2 gamma).",
        Holds(lambda actual_63, paper_63: actual_63.value <= 2.0 * paper_63.value <= 4.0 * actual_63.value),
        "For one step at l = 63 the paper says {paper_63:.8g}, but the difference is {actual_63:.6g} and cannot "
        "exceed 2. The paper's value is {ratio_1:.5g} times the difference at l = 1, {ratio_3:.5g} times at l = 3 and "
        "{ratio_5:.4g} times at l = 5. The approximation needs l^2 Delta x << 1",
        of.degrees,
        {
            "paper_63": "21.826874", "actual_63": "0.0386549", "ratio_1": "1.3088", "ratio_3": "2.7101",
            "ratio_5": "926.6222",
        },
        ("ratio_1", "ratio_3", "ratio_5"),
        "~ means up to a factor of 2, at every degree of the encoding",
    ),
    Claim(
        "C118", "section 6.2.4", "|PE(N + dp) - PE(N)| <= 2 gamma e^(-2 gamma) (dp / N) sqrt(sum (l(l + "
        "1))^2).", of.STEP,
        "It holds for every dp >= 0 (P9), but the paper's argument does not prove it. For one step the distance is "
        "{actual:.9g}, the bound {paper:.8g} and a sharper bound {sharp:.8g}, but {trivial:.6g} = 2 sqrt d is a "
        "trivial bound. For 50 steps the distance is {actual_50:.10g} and the bound {paper_50:.10g}. For d = 8 and "
        "one step they are {narrow:.8g} and {narrow_paper:.9g}",
        of.steps, of.STEPS, ("sharp", "actual_50", "paper_50", "narrow", "narrow_paper"), "d = 64, dp = 1",
    ),
    Claim(
        "C119", "section 6.2.4", "Legendre encodings extrapolate well up to N + O(N / d^2.5).",
        Needs(("the constant of O", "well")),
        "With the constant 1 the range is {claimed:.3g} positions, which is below one if d > N^0.4 = {width:.5g}. The "
        "bound of C118 says nothing from {trivial:.5g} positions on",
        lambda: legendre.useful_step(WIDTH, TRAINED),
        {"trivial": "0.201731", "claimed": "0.001525879", "width": "4.781762"}, ("trivial", "claimed", "width"),
    ),
    Claim(
        "C120", "Table 4", "Costs are O(d) for tables, O(d^2) or O(d) for Legendre, and O(1) for ALiBi and Shaw.",
        Sentences({
            "wavelet O(d)": of.of_order("wavelet", 1), "Legendre, by recurrence, O(d)": of.of_order("legendre", 1),
            "Legendre, naive, O(d^2)": of.of_order("naive", 2), "ALiBi O(1) per pair": of.of_order("alibi", 0),
            "sinusoidal O(d)": of.of_order("sinusoidal", 1), "learned O(d)": of.of_order("learned", 1),
            "Shaw O(1)": of.of_order("shaw", 0),
        }),
        "The counts are for d = 64 and d = 128. A pair of ALiBi takes {alibi_64:.0f} and {alibi_128:.0f} numbers. A "
        "pair of Shaw takes {shaw_64:.0f} and {shaw_128:.0f}, each multiplied and added, so the cost is O(dk). A row "
        "of wavelets has {wavelet_64:.0f} and {wavelet_128:.0f} nonzero entries. A naive Legendre row takes "
        "{naive_64:.0f} and {naive_128:.0f} terms",
        of.costs, of.COSTS,
    ),
    Claim(
        "C121", "sections 7, 8", "The other statements of sections 7 and 8 hold.",
        Sentences({
            "x(pos) is about 1 for most pos > 100": Holds(lambda x: x.value > 0.95),
            "Legendre embeddings collapse at pos > 100": Holds(lambda legendre: low(legendre) <= 1e-6),
            "sinusoidal encodings degrade because of ambiguity": Holds(
                lambda sinusoidal_far, sinusoidal: high(sinusoidal_far) < low(sinusoidal) * (1.0 - 1e-9)
            ),
            "wavelets preserve distinctions beyond N": Holds(
                lambda wavelet_far, wavelet: low(wavelet_far) > 0.5 * wavelet.value
            ),
            "ALiBi extends universality": NO_UNIVERSALITY,
            "mutual information is a criterion": Needs(("the random variables", "the criterion")),
            "the recurrence of Bonnet holds": Holds(lambda bonnet: bonnet.value < 1e-12),
            "bidirectional ALiBi has the error 0.0023": Holds(lambda least: low(least) <= of.PAPER_ALIBI),
        }),
        "The median of x is {x:.5g}. The least distance of rows in [100, 200) is {legendre:.6g} for Legendre rows, "
        "{sinusoidal_far:.10g} for sinusoidal rows (as inside N) and {wavelet_far:.7g} for wavelets ({wavelet:.6g} "
        "inside N). Identical tokens cost ALiBi {error:.6g} for the target y_i = i (spread {spread:.2g}). The "
        "recurrence holds up to {bonnet:.2g}. A bidirectional model with an even bias has an error of at least "
        "{least:.6g} on running sums",
        of.rest, of.REST,
    ),
)  # fmt: skip
