"""The quantities of a page: the label of each one, and what it decides for a user."""

from fastpe.theory.pages.record import Quantity

PLACES = {"table": "", "qk_table": " (query and key)"}
TOLERANCES = {"2^-24": 2.0**-24, "2^-8": 2.0**-8, "1 %": 0.01}
CONTENTS = (0.0, 5.0)

_TABLE = (
    ("Q1", "norm.least", "row norm", "how large rows are compared with the content, and whether this changes at test"),
    ("Q1", "norm.most", "row norm", "how large rows are compared with the content, and whether this changes at test"),
    ("Q1", "zero_from", "rows are zero from", "the position from which on the encoding carries no information"),
    ("Q2", "nearest", "nearest two positions", "whether positions can be told apart at all"),
    ("Q3", "noise", "noise for 1 % confusion", "how much noise positions tolerate before they are confused"),
    ("Q9", "drift", "farthest from any trained row", "how far longer texts lead a model from the rows of training"),
    ("Q9", "drift.relative", "farthest from any trained row, over the rms norm",
     "the same, comparable between tables of any scale"),
    ("Q9", "outside", "share of a row outside the trained span",
     "how much of a row meets weights that training never changed"),
    ("I1", "information", "position information at signal-to-noise ratio 1 (nats)",
     "how much a noisy row reveals about its position"),
    ("I1", "information.lower", "position information, lower bound (nats)",
     "a certified lower bound on what a noisy row reveals"),
    ("I1", "information.upper", "position information, upper bound (nats)",
     "a certified upper bound on what a noisy row reveals"),
    ("I1", "information.raw", "position information in noise of deviation 1 (nats)",
     "the same, including the scale of the table"),
    ("I6", "mistaken", "least share of wrong guesses", "the smallest error rate of any guess from noisy rows"),
    ("Q4", "rank.float64", "rank", "how many independent features a readout of the position can have"),
    ("Q4", "rank.float32", "rank in float32", "the same after rounding to float32"),
    ("Q4", "rank.bfloat16", "rank in bfloat16", "the same after rounding to bfloat16"),
    ("Q4", "rank.effective", "effective rank", "the same, weighted by the singular values"),
    ("Q4", "rank.stable", "stable rank", "the same, relative to the strongest direction"),
    ("Q4", "condition", "condition number", "how unevenly gradients reach the directions of the table"),
    ("Q5", "coherence", "largest |cosine| of two rows", "how similar two positions can be after normalisation"),
    ("Q11", "toeplitz", "share of the kernel that depends on more than the distance",
     "whether adding the table also provides relative positions"),
    ("Q14", "readout", "complexity of linear readouts", "how easily a linear readout of positions fits noise"),
    ("Q14", "readout.bounds", "complexity of linear readouts, certified", "certified bounds on this complexity"),
    ("Q17", "equal_from.float32", "neighbouring rows equal in float32 from",
     "where rounding makes positions indistinguishable"),
    ("Q17", "equal_from.bfloat16", "neighbouring rows equal in bfloat16 from",
     "where rounding makes positions indistinguishable"),
    ("Q17", "distinct.float32", "different rows in float32", "how many positions still differ after rounding"),
    ("Q17", "distinct.bfloat16", "different rows in bfloat16", "how many positions still differ after rounding"),
    ("I2", "rounded.float32", "information left in float32 (nats)",
     "how much information about the position rounding leaves"),
    ("I2", "rounded.bfloat16", "information left in bfloat16 (nats)",
     "how much information about the position rounding leaves"),
    ("Q20", "collision", "smallest norm of embeddings that collide",
     "up to which norm of embeddings no two tokens become equal"),
)  # fmt: skip
_BIAS = (
    ("Q7", "perplexity.least", "keys used at zero content", "whether more keys than this are used at all"),
    ("Q7", "perplexity.most", "keys used at zero content", "whether more keys than this are used at all"),
    ("Q7", "within.least", "99 % of the weight within", "how many keys a cache has to keep"),
    ("Q7", "within.most", "99 % of the weight within", "how many keys a cache has to keep"),
    ("Q7", "beyond", "weight beyond the training length",
     "how much attention goes to distances that training never saw"),
    ("Q10", "bias_drift", "change of attention in the longer text (TV)",
     "how much the bias alone changes attention in longer texts"),
    ("C53", "bias_size", "largest |bias|", "how the bias grows with the text"),
    ("P6", "effect", "largest effect on any row, any content (TV)", "whether the bias has a noticeable effect"),
    ("Q6", "columns", "largest total weight of one key", "how a change of one token spreads (kappa of P5)"),
    ("I3", "attended", "information in the attended position (nats)", "whether attention alone reveals the position"),
    ("I4", "distance", "information on the distance, content of deviation 1 (nats)",
     "whether the bias is noticeable above the content"),
    ("Q7", "limit.perplexity.least", "keys used in an endless text", "whether the reach is finite"),
    ("Q7", "limit.perplexity.most", "keys used in an endless text", "whether the reach is finite"),
    ("Q7", "limit.within.most", "99 % of the weight within, in an endless text",
     "how large a cache has to be for texts of any length"),
    *(("Q8", f"window.{tolerance}.{content:g}", f"certified window at {tolerance}, content up to {content:g}",
       "which keys a cache may drop: it must keep keys up to this distance")
      for tolerance in TOLERANCES for content in CONTENTS),
)  # fmt: skip
_ROTATION = (
    ("Q12", "turned", "channels that turned at least once", "for how many channels training has seen all angles"),
    ("Q12", "critical", "channel that turns exactly once",
     "the channel from which on NTK by parts changes all frequencies"),
    ("Q12", "unseen.channels", "channels with unseen angles (chord > 0.1)",
     "whether to change the base of the frequencies"),
    ("Q12", "unseen.largest", "largest unseen chord",
     "how far the newest angle is from all trained angles; 2 means opposite"),
    ("Q12", "unseen.rms", "unseen chord, rms over channels", "the same, averaged over all channels"),
    ("Q12", "similarity", "least similarity of equal query and key",
     "how much the attraction of equal tokens decreases with the distance"),
    ("Q12", "negative_from", "first lag of negative similarity", "a heuristic for the usable length, not a theorem"),
    ("Q12", "alias_scale", "positions alias from a scale of", "how much positions may be stretched"),
    ("Q12", "growth", "largest factor of growth", "how much a score can grow by the distance alone"),
)  # fmt: skip
_RELATIVE = (
    ("Q1", "norm.least", "norm of a vector", "how large relative positions are compared with the content"),
    ("Q1", "norm.most", "norm of a vector", "how large relative positions are compared with the content"),
    ("Q2", "nearest", "nearest two offsets", "whether offsets can be told apart at all"),
    ("Q2", "clipped", "largest offset with its own vector",
     "the offset beyond which one layer cannot distinguish offsets on the same side"),
    ("Q9", "drift", "farthest from any trained offset", "how far the vectors of longer texts are from trained ones"),
)  # fmt: skip
_MODEL = (
    ("Q6", "token_norm", "largest norm of a token, content of norm 1", "the norm that all Lipschitz bounds use"),
    ("Q6", "lipschitz", "Lipschitz constant of two layers of unit maps",
     "how much an error of the input can grow, measured by the largest token"),
    ("Q6", "lipschitz.frobenius", "two layers of unit maps, Frobenius norm", "the same, measured over all tokens"),
    ("Q13", "symmetry.const", "equal tokens: largest difference of outputs",
     "whether models can learn to count positions; at 0 they cannot"),
    ("Q13", "symmetry.rev", "reversal: largest difference of outputs",
     "whether models can tell left from right; at 0 they cannot"),
    ("Q13", "symmetry.perm", "reordering: largest difference of outputs",
     "whether models can notice any order; at 0 they cannot"),
    ("Q15", "parameters", "learned parameters", "how many parameters the encoding adds"),
    ("Q15", "occam", "gap of losses in [0, 1] by counting parameters",
     "whether a capacity bound is useful; above 1 it is vacuous, and only a test helps"),
    ("Q19", "temperature", "score gap for 90 % on one key", "how much sharper queries must be in longer texts"),
)  # fmt: skip
_RUN = (
    ("Q6", "run.spectral", "largest spectral norm of a map", "which map dominates the Lipschitz constants"),
    ("Q6", "run.lipschitz", "Lipschitz constant of the trained model", "how much an error of one input can grow"),
    ("Q6", "run.frobenius", "trained model, Frobenius norm", "how much an error of all inputs can grow"),
)  # fmt: skip
VECTORS = {
    "rel_key": "key vectors", "rel_query": "query vectors", "rel_value": "value vectors", "rel_gain": "channel gains",
    "gain": "gains of the score",
}  # fmt: skip

QUANTITIES = {
    **{(slot, key): Quantity(id_, key if slot == "table" else f"{slot}.{key}", f"{label}{more}", decides)
       for slot, more in PLACES.items() for id_, key, label, decides in _TABLE},
    **{(slot, key): Quantity(id_, f"{slot}.{key}", f"{what}: {label}", decides)
       for slot, what in VECTORS.items() for id_, key, label, decides in _RELATIVE},
    **{("", key): Quantity(id_, key, label, decides)
       for id_, key, label, decides in (*_BIAS, *_ROTATION, *_MODEL, *_RUN)},
    ("taps", "reach"): Quantity("Q7", "taps.reach", "positions that a tap reaches",
                                "the distance from which on taps have no effect"),
    ("taps", "factor"): Quantity("Q6", "taps.factor", "largest factor of taps on tokens",
                                 "how much taps can amplify an error"),
    ("key_bias", "norm"): Quantity("Q6", "key_bias.norm", "norm of the key bias",
                                   "how strongly some keys are preferred for any query"),
}  # fmt: skip
"""All quantities by (slot, key). The slot is "" for quantities that belong to no single slot."""


IN_WINDOWS = frozenset(each.key for (slot, _), each in QUANTITIES.items() if slot in PLACES)
"""The keys of the quantities of tables. At a length they hold for the window of positions that ends there."""


def quantity(key: str, slot: str = "") -> Quantity:
    """Return the quantity with this key. Quantities of a slot need the slot as well.

    >>> quantity("turned").id, quantity("nearest", "qk_table").key, quantity("nearest", "table").key
    ('Q12', 'qk_table.nearest', 'nearest')
    """
    return QUANTITIES[slot, key]
