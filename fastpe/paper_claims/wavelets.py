"""Claims of sections 5.4 and 6.1 of Li (2025) on wavelets: C77, C80 to C82, C87 to C107."""

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
        "psi of db4 is 0 outside [0, {support:.0f}]; section 6.1 calls them compactly supported",
        lambda: {"support": support_length("db4")}, {"support": "7"},
    ),
    Claim(
        "C80", "sections 5.4, 6.1", "The wavelet encoding and its dimension d.",
        Agree(("section_5", "section_6")),
        "J = 5 and ten shifts have {section_5:.0f} columns by section 5.4, {section_6:.0f} by the definition of 6.1, "
        "and {sum:.0f} by d = sum of K_j",
        of.columns, {"section_5": "66", "section_6": "70", "sum": "60"}, ("sum",),
    ),
    Claim(
        "C81", "section 5.4", "|psi_jk(pos)| <= C 2^(-j/2) exp(-beta |pos - k 2^-j| / 2^-j).", of.ONE_CONSTANT,
        "psi_jk has the amplitude 2^(+j/2): beta = 1/2 needs C = {scale_0:.4g} at j = 0, {scale_5:.4g} at j = 5; "
        "every beta will do, whatever the vanishing moments: sup |psi| e^(beta u) is {beta_0_1:.5g} (0.1), "
        "{beta_0_5:.4g} (0.5), {beta_1:.4g} (1), {beta_2:.4g} (2)",
        of.envelopes, of.ENVELOPES, ("beta_0_1", "beta_0_5", "beta_1", "beta_2"),
    ),
    Claim(
        "C82", "section 5.4", "|PE(pos) - PE(N)| is bounded by a small constant for moderately larger pos.",
        of.STAYS_CLOSE,
        "rows of norm {norm:.6g} are {at_51:.6g} (51), {at_53:.7g} (53), {at_60:.7g} (60), {at_100:.7g} (100), "
        "{at_199:.7g} (199) from that at 50; at most {sup:.7g}",
        of.after_the_end, of.AFTER, ("sup", "at_51", "at_60", "at_100", "at_199"),
        "the paper's rows, divided by their norm; small: below that norm",
    ),
    Claim(
        "C87", "section 6.1", "Daubechies-4.", Agree(("db4", "db2")),
        "by its vanishing moments it has {db4:.0f} taps (db4), by its taps {db2:.0f} (D4, which is db2)",
        of.daubechies, {"db4": "8", "db2": "4"},
    ),
    Claim(
        "C88", "section 6.1", "j = 0 is the finest scale, J the coarsest, with psi(2^j x - k).",
        Holds(lambda width_5, width_0: width_5.value > width_0.value),
        "reversed: the support is {width_0:.6g} long at j = 0, {width_5:.6g} at 5; read literally, k = 0 .. 9, rows "
        "are not zero from {first:.0f} to {last:.0f}, of rank {rank:.0f} (with phi {rank_phi:.0f})",
        of.literally,
        {"width_0": "7", "width_5": "0.21875", "first": "1", "last": "15", "rank": "14", "rank_phi": "15"},
        ("first", "last", "rank", "rank_phi"),
    ),
    Claim(
        "C89", "section 6.1", "<delta_pos, phi> = phi(pos).",
        HoldsIf(
            lambda haar: haar.value < 1e-3, lambda db4: db4.value < 1e-3, "phi is continuous, as Haar's is not"
        ),
        "next to 0 phi changes by {haar:.6g} (Haar), {db4:.2g} (db4) within 2^-39",
        of.jumps, {"haar": "1", "db4": "0 .. 1e-4"},
    ),
    Claim(
        "C90", "section 6.1", "J = floor(log2 N), so that 2^J approximately covers N.",
        Holds(lambda reach: reach.value <= TRAINED < 2.0 * reach.value),
        "within a factor of 2: J = {scales:.0f}, 2^J = {reach:.0f} <= 50 < 64",
        of.scales, {"scales": "5", "reach": "32"}, ("scales",),
    ),
    Claim(
        "C91", "sections 6.1, 7", "d = sum of K_j: 6 scales of 10 make 64.",
        Holds(lambda sum, width: sum.value == width.value),
        "they make {sum:.0f}, not {width:.0f}, and phi is left out", of.dimension, {"sum": "60", "width": "64"},
    ),
    Claim(
        "C92", "section 6.1", "Beyond N coarse functions contribute, and rows go on smoothly.",
        Sentences({
            "coarse functions contribute beyond N": Holds(lambda db4: db4.value > TRAINED + 1),
            "rows change smoothly": Holds(lambda step_49: step_49.value < 1.0),
        }),
        "rows are zero from {db4:.0f} on (db2 {db2:.0f}, Haar {haar:.0f}); from 49 to 52 unit rows step by "
        "{step_49:.7g}, {step_50:.6g}, {step_51:.7g}",
        of.beyond, of.BEYOND, ("db2", "haar", "step_50", "step_51"),
        "the coarse layout; smoothly: a step is shorter than a row",
    ),
    Claim(
        "C93", "section 6.1.2", "Wavelets are an orthonormal basis of L^2([0, N]).",
        Holds(lambda cross: abs(cross.value) < 1e-9),
        "not those that an end cuts: on [0, inf) psi(x + 3) and psi(x + 4) have the product {cross:.9g}, squares "
        "{norm_3:.9g} and {norm_4:.9g}",
        of.cut, {"cross": "0.213711469", "norm_3": "0.849731367", "norm_4": "0.163268656"}, ("norm_3", "norm_4"),
    ),
    Claim(
        "C94", "section 6.1.2", "The vectors PE(i) are orthonormal up to scaling.",
        HoldsIf(
            lambda coherence: coherence.value < 1e-9,
            lambda off, most, least: off.value < 1e-9 and most.value - least.value < 1e-9,
            "all shifts are taken and J >= 2",
        ),
        "all {columns:.0f} columns: norm {most:.10g}, products up to {off:.2g}; but two rows of the 64 columns have "
        "the cosine {coherence:.6g}",
        of.rows,
        {
            "coherence": "0.909351", "off": "0 .. 1e-13", "least": "8.068685654", "most": "8.068685654",
            "columns": "3249",
        },
        ("columns",),
    ),
    Claim(
        "C95", "section 6.1.2", "Each position is uniquely represented up to N.", of.DISTINCT,
        "the nearest two rows are {apart:.6g} apart; the rank is {rank:.0f}, of 50 rows",
        of.distinct, {"apart": "0.425790", "rank": "49"}, ("rank",),
    ),
    Claim(
        "C96", "section 6.1.3", "sup |phi_0k| <= C0 and sup |psi_jk| <= C 2^(j/2).",
        Holds(lambda phi, psi: high(phi) < math.inf and high(psi) < math.inf),
        "C0 = {phi:.6f}, C = {psi:.5f} of db4; section 5.4 has 2^(-j/2) (C81)",
        of.suprema, of.SUPREMA, ("support",),
    ),
    Claim(
        "C97", "section 6.1.3", "Supports are O(2^-j) long, and sup |psi_jk| <= C sqrt N.",
        Holds(lambda support, psi: support.value < math.inf and high(psi) * 32.0**0.5 <= low(psi) * TRAINED**0.5),
        "{support:.0f} times 2^-j; the finest scale has {psi:.5f} sqrt 32", of.suprema, of.SUPREMA, ("phi",),
    ),
    Claim(
        "C98", "section 6.1.3", "|PE| <= sqrt(K_0 C0^2 + sum of K_j C^2 2^j, j = 1 .. J).",
        Holds(lambda actual, paper: actual.value <= high(paper)),
        "{actual:.10g} beside {paper:.6g}, which leaves psi_0k out and counts all K_j functions where at most seven "
        "of a scale are alive",
        of.fine_norms, of.NORMS, ("order", "raw_least", "raw_most"), "the fine layout with all shifts",
    ),
    Claim(
        "C99", "section 6.1.3", "Sum of K_j 2^j = O(N J), as K_j = O(2^j).",
        Holds(of.in_proportion),
        "K_j = 2^j gives {sum_50:.0f} where N J = {claimed_50:.0f} (N = 50), {sum_500:.0f} where it is "
        "{claimed_500:.0f} (500); to cover N the fine layout needs K_j of the order N 2^j",
        of.sums, {"sum_50": "1364", "claimed_50": "250", "sum_500": "87380", "claimed_500": "4000"},
    ),
    Claim(
        "C100", "section 6.1.3", "|PE| = O(N sqrt(log N)).",
        Holds(lambda actual, order: actual.value <= order.value),
        "far from tight: {actual:.7g} in the fine layout, {raw_least:.4g} to {raw_most:.4g} in the coarse one, where N "
        "sqrt(ln N) = {order:.3g}",
        of.fine_norms, of.NORMS, ("paper", "raw_least", "raw_most"),
    ),
    Claim(
        "C101", "section 6.1.3", "After normalisation |PE| = 1 for all pos.", of.UNIT_NORM,
        "rows are 0 from {zero_from:.0f} on, and stay so: norms go from {least:.2g} to {most:.6g}",
        of.unit, {"least": "0 .. 0", "most": "1.000000", "zero_from": "256"}, ("most", "zero_from"),
    ),
    Claim(
        "C102", "section 6.1.3", "The bound B_x + 1 matches other PEs and does not degrade generalisation bounds.",
        Holds(lambda wavelet, sinusoidal: wavelet.value <= sinusoidal.value),
        "of nominal bounds: {wavelet:.6g} beside {sinusoidal:.7g} of sinusoidal, B_x = 1",
        of.nominal, {"wavelet": "2.000000", "sinusoidal": "6.656854"},
    ),
    Claim(
        "C103", "section 6.1.4", "psi_jk(pos) = 0 right of its support.", Holds(lambda outside: outside.value == 0.0),
        "the largest entry right of all supports is {outside:.2g}", of.outside, {"outside": "0 .. 0"},
    ),
    Claim(
        "C104", "section 6.1.4", "It may be nonzero but decays rapidly outside its support, due to compact support.",
        Holds(lambda outside: outside.value > 0.0), "it is {outside:.2g} there", of.outside, {"outside": "0 .. 0"},
    ),
    Claim(
        "C105", "section 6.1.4", "|psi_jk(pos)| <= C 2^(-j/2) exp(-beta (pos - N) 2^j) beyond N.", of.ONE_CONSTANT,
        "as C81: C from {scale_0:.4g} to {scale_5:.4g}; and vacuous: at p = 51, j = 0 it says {bound:.4g}, where sup "
        "|psi| = {trivial:.5f} is known",
        of.tail, {"scale_0": "8.2402 .. 8.2422", "scale_5": "263.68 .. 263.75", "bound": "159.9 .. 160",
                  "trivial": "1.359177 .. 1.359219"}, ("bound", "trivial"),
    ),
    Claim(
        "C106", "section 6.1.4", "|PE(pos) - PE(N)| <= sum of O(2^(-j/2) exp(-beta 2^j (pos - N))).", of.WITHIN_SUM,
        "at 256 the left side is {left:.6g}, as rows are 0 from there on, and the right one {right:.2g}, with C as in "
        "C105 and beta = 1/2; at 199 the left is {left_199:.7g}: the step before bounds |psi(pos)|, not the difference",
        of.decay, {"left": "1.000000", "right": "0 .. 1e-40", "left_199": "1.410937"}, ("left_199",),
    ),
    Claim(
        "C107", "section 6.1.4", "Differences decay exponentially, and rows stay close for pos - N of the order log N.",
        Sentences({"differences decay": of.DECAYS, "rows stay close": of.STAYS_CLOSE}),
        "ln 50 = 3.9, and already at 53 the difference is {at_53:.7g}, after {at_51:.6g} at 51; rows have norm "
        "{norm:.6g}",
        of.after_the_end, of.AFTER, ("sup", "at_60", "at_100", "at_199"),
    ),
)  # fmt: skip
