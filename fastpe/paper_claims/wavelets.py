"""Claims C77, C80 to C82 and C87 to C107 of Li (2025), sections 5.4 and 6.1: wavelets."""

import math

from fastpe.paper_claims import wavelet_values as of
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Agree, Holds, HoldsIf, Sentences, high, low
from fastpe.paper_claims.setting import TRAINED
from fastpe.paper_claims.wavelet_functions import support_length

CLAIMS = (
    Claim(
        "C77", "section 5.4", "Wavelets such as Daubechies' and Haar's extend beyond any finite interval, and decay.",
        Holds(lambda support: math.isinf(support.value)),
        "psi of db4 is 0 outside [0, {support:.0f}]. Section 6.1 of the paper calls wavelets compactly supported",
        lambda: {"support": support_length("db4")}, {"support": "7"},
    ),
    Claim(
        "C80", "sections 5.4, 6.1", "The wavelet encoding has the dimension d.",
        Agree(("section_5", "section_6")),
        "With J = 5 and ten shifts, section 5.4 gives {section_5:.0f} columns, the definition in section 6.1 gives "
        "{section_6:.0f}, and d = sum of K_j gives {sum:.0f}",
        of.columns, {"section_5": "66", "section_6": "70", "sum": "60"}, ("sum",),
    ),
    Claim(
        "C81", "section 5.4", "|psi_jk(pos)| <= C 2^(-j/2) exp(-beta |pos - k 2^-j| / 2^-j).", of.ONE_CONSTANT,
        "psi_jk has the amplitude 2^(+j/2), so beta = 1/2 needs C = {scale_0:.4g} at j = 0 and {scale_5:.4g} at j = "
        "5. Any beta is possible, whatever the vanishing moments: sup |psi| e^(beta u) is {beta_0_1:.5g} (beta = "
        "0.1), {beta_0_5:.4g} (0.5), {beta_1:.4g} (1) and {beta_2:.4g} (2)",
        of.envelopes, of.ENVELOPES, ("beta_0_1", "beta_0_5", "beta_1", "beta_2"),
    ),
    Claim(
        "C82", "section 5.4", "|PE(pos) - PE(N)| is bounded by a small constant for moderately larger pos.",
        of.STAYS_CLOSE,
        "Rows have norm {norm:.6g}. Their distances from row 50 are {at_51:.6g} (row 51), {at_53:.7g} (53), "
        "{at_60:.7g} (60), {at_100:.7g} (100) and {at_199:.7g} (199), at most {sup:.7g}",
        of.after_the_end, of.AFTER, ("sup", "at_51", "at_60", "at_100", "at_199"),
        "rows are divided by their norm, as in the paper, and small means below that norm",
    ),
    Claim(
        "C87", "section 6.1", "The wavelet is Daubechies-4.", Agree(("db4", "db2")),
        "If the number counts vanishing moments, the wavelet has {db4:.0f} taps (db4). If it counts taps, it has "
        "{db2:.0f} (D4, which is db2)",
        of.daubechies, {"db4": "8", "db2": "4"},
    ),
    Claim(
        "C88", "section 6.1", "j = 0 is the finest scale, J the coarsest, with psi(2^j x - k).",
        Holds(lambda width_5, width_0: width_5.value > width_0.value),
        "The order is reversed: the support has length {width_0:.6g} at j = 0 and {width_5:.6g} at j = 5. With the "
        "formula as printed and k = 0 .. 9, rows are nonzero from {first:.0f} to {last:.0f} and have rank {rank:.0f} "
        "({rank_phi:.0f} with phi)",
        of.literally,
        {"width_0": "7", "width_5": "0.21875", "first": "1", "last": "15", "rank": "14", "rank_phi": "15"},
        ("first", "last", "rank", "rank_phi"),
    ),
    Claim(
        "C89", "section 6.1", "The inner product of a Dirac delta with phi is <delta_pos, phi> = phi(pos).",
        HoldsIf(
            lambda haar: haar.value < 1e-3, lambda db4: db4.value < 1e-3, "phi is continuous, unlike that of Haar"
        ),
        "Near 0 phi changes by {haar:.6g} (Haar) or {db4:.2g} (db4) within 2^-39",
        of.jumps, {"haar": "1", "db4": "0 .. 1e-4"},
    ),
    Claim(
        "C90", "section 6.1", "J = floor(log2 N), so that 2^J approximately covers N.",
        Holds(lambda reach: reach.value <= TRAINED < 2.0 * reach.value),
        "2^J covers N within a factor of 2: J = {scales:.0f} and 2^J = {reach:.0f} <= 50 < 64",
        of.scales, {"scales": "5", "reach": "32"}, ("scales",),
    ),
    Claim(
        "C91", "sections 6.1, 7", "d = sum of K_j: 6 scales of 10 make 64.",
        Holds(lambda sum, width: sum.value == width.value),
        "They make {sum:.0f}, not {width:.0f}, and phi is omitted", of.dimension, {"sum": "60", "width": "64"},
    ),
    Claim(
        "C92", "section 6.1", "Beyond N coarse functions contribute, and rows go on smoothly.",
        Sentences({
            "coarse functions contribute beyond N": Holds(lambda db4: db4.value > TRAINED + 1),
            "rows change smoothly": Holds(lambda step_49: step_49.value < 1.0),
        }),
        "Rows are zero from position {db4:.0f} on (db2 {db2:.0f}, Haar {haar:.0f}). The distances between unit rows "
        "49, 50, 51 and 52 are {step_49:.7g}, {step_50:.6g} and {step_51:.7g}",
        of.beyond, of.BEYOND, ("db2", "haar", "step_50", "step_51"),
        "the layout is the coarse one, and smoothly means that a step is shorter than a row",
    ),
    Claim(
        "C93", "section 6.1.2", "Wavelets are an orthonormal basis of L^2([0, N]).",
        Holds(lambda cross: abs(cross.value) < 1e-9),
        "Wavelets that are cut by an end of the interval are not orthonormal: on [0, inf) the product of psi(x + 3) "
        "and psi(x + 4) is {cross:.9g}, and their squares have the integrals {norm_3:.9g} and {norm_4:.9g}",
        of.cut, {"cross": "0.213711469", "norm_3": "0.849731367", "norm_4": "0.163268656"}, ("norm_3", "norm_4"),
    ),
    Claim(
        "C94", "section 6.1.2", "The vectors PE(i) are orthonormal up to scaling.",
        HoldsIf(
            lambda coherence: coherence.value < 1e-9,
            lambda off, most, least: off.value < 1e-9 and most.value - least.value < 1e-9,
            "all shifts are used and J >= 2",
        ),
        "With all {columns:.0f} columns the norm is {most:.10g} and products are at most {off:.2g}. But two rows of "
        "the 64 columns have the cosine {coherence:.6g}",
        of.rows,
        {
            "coherence": "0.909351", "off": "0 .. 1e-13", "least": "8.068685654", "most": "8.068685654",
            "columns": "3249",
        },
        ("columns",),
    ),
    Claim(
        "C95", "section 6.1.2", "Each position is uniquely represented up to N.", of.DISTINCT,
        "The least distance of two rows is {apart:.6g}. The rank is {rank:.0f} for 50 rows",
        of.distinct, {"apart": "0.425790", "rank": "49"}, ("rank",),
    ),
    Claim(
        "C96", "section 6.1.3", "sup |phi_0k| <= C0 and sup |psi_jk| <= C 2^(j/2).",
        Holds(lambda phi, psi: high(phi) < math.inf and high(psi) < math.inf),
        "For db4, C0 = {phi:.6f} and C = {psi:.5f}. Section 5.4 has the factor 2^(-j/2) (C81)",
        of.suprema, of.SUPREMA, ("support",),
    ),
    Claim(
        "C97", "section 6.1.3", "Supports are O(2^-j) long, and sup |psi_jk| <= C sqrt N.",
        Holds(lambda support, psi: support.value < math.inf and high(psi) * 32.0**0.5 <= low(psi) * TRAINED**0.5),
        "The support has length {support:.0f} times 2^-j. The finest scale has the supremum {psi:.5f} sqrt 32",
        of.suprema, of.SUPREMA, ("phi",),
    ),
    Claim(
        "C98", "section 6.1.3", "|PE| <= sqrt(K_0 C0^2 + sum of K_j C^2 2^j, j = 1 .. J).",
        Holds(lambda actual, paper: actual.value <= high(paper)),
        "The largest norm is {actual:.10g}, and the bound is {paper:.6g}. The bound omits psi_0k and counts all K_j "
        "functions of a scale, although at most seven of them are nonzero at a position",
        of.fine_norms, of.NORMS, ("order", "raw_least", "raw_most"), "the layout is the fine one with all shifts",
    ),
    Claim(
        "C99", "section 6.1.3", "The sum of K_j 2^j is O(N J), as K_j = O(2^j).",
        Holds(of.in_proportion),
        "With K_j = 2^j the sum is {sum_50:.0f} and N J = {claimed_50:.0f} at N = 50; they are {sum_500:.0f} and "
        "{claimed_500:.0f} at N = 500. To cover N, the fine layout needs K_j of the order N 2^j",
        of.sums, {"sum_50": "1364", "claimed_50": "250", "sum_500": "87380", "claimed_500": "4000"},
    ),
    Claim(
        "C100", "section 6.1.3", "|PE| = O(N sqrt(log N)).",
        Holds(lambda actual, order: actual.value <= order.value),
        "The bound is far from tight: the norm is {actual:.7g} in the fine layout and {raw_least:.4g} to "
        "{raw_most:.4g} in the coarse one, while N sqrt(ln N) = {order:.3g}",
        of.fine_norms, of.NORMS, ("paper", "raw_least", "raw_most"),
    ),
    Claim(
        "C101", "section 6.1.3", "After normalisation |PE| = 1 for all pos.", of.UNIT_NORM,
        "All rows are 0 from position {zero_from:.0f} on, and normalisation does not change them. Norms range from "
        "{least:.2g} to {most:.6g}",
        of.unit, {"least": "0 .. 0", "most": "1.000000", "zero_from": "256"}, ("most", "zero_from"),
    ),
    Claim(
        "C102", "section 6.1.3", "The bound B_x + 1 matches other PEs and does not degrade generalisation bounds.",
        Holds(lambda wavelet, sinusoidal: wavelet.value <= sinusoidal.value),
        "With B_x = 1 the bound on token norms is {wavelet:.6g} for wavelets and {sinusoidal:.7g} for the sinusoidal "
        "encoding",
        of.nominal, {"wavelet": "2.000000", "sinusoidal": "6.656854"},
    ),
    Claim(
        "C103", "section 6.1.4", "psi_jk(pos) = 0 right of its support.", Holds(lambda outside: outside.value == 0.0),
        "The largest entry to the right of all supports is {outside:.2g}", of.outside, {"outside": "0 .. 0"},
    ),
    Claim(
        "C104", "section 6.1.4",
        "psi_jk(pos) may be nonzero but decays rapidly outside its support, due to compact support.",
        Holds(lambda outside: outside.value > 0.0), "It is {outside:.2g} there", of.outside, {"outside": "0 .. 0"},
    ),
    Claim(
        "C105", "section 6.1.4", "|psi_jk(pos)| <= C 2^(-j/2) exp(-beta (pos - N) 2^j) beyond N.", of.ONE_CONSTANT,
        "As in C81, C ranges from {scale_0:.4g} to {scale_5:.4g}. The bound is also vacuous: at p = 51 and j = 0 it "
        "is {bound:.4g}, but sup |psi| = {trivial:.5f} is known",
        of.tail, {"scale_0": "8.2402 .. 8.2422", "scale_5": "263.68 .. 263.75", "bound": "159.9 .. 160",
                  "trivial": "1.359177 .. 1.359219"}, ("bound", "trivial"),
    ),
    Claim(
        "C106", "section 6.1.4", "|PE(pos) - PE(N)| <= sum of O(2^(-j/2) exp(-beta 2^j (pos - N))).", of.WITHIN_SUM,
        "At 256 the left side is {left:.6g}, since rows are 0 from there on, and the right side is {right:.2g}, with "
        "the C of C105 and beta = 1/2. At 199 the left side is {left_199:.7g}. The argument in the paper bounds "
        "|psi(pos)|, not the difference",
        of.decay, {"left": "1.000000", "right": "0 .. 1e-40", "left_199": "1.410937"}, ("left_199",),
    ),
    Claim(
        "C107", "section 6.1.4", "Differences decay exponentially, and rows stay close for pos - N of the order log N.",
        Sentences({"differences decay": of.DECAYS, "rows stay close": of.STAYS_CLOSE}),
        "ln 50 = 3.9, but at 53 the difference is already {at_53:.7g}, after {at_51:.6g} at 51. Rows have norm "
        "{norm:.6g}",
        of.after_the_end, of.AFTER, ("sup", "at_60", "at_100", "at_199"),
    ),
)  # fmt: skip
