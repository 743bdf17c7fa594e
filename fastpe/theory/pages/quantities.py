"""The quantities of a page: what each is called, and what it decides."""

from fastpe.theory.pages.record import Quantity

PLACES = {"table": "", "qk_table": " (query and key)"}
TOLERANCES = {"2^-24": 2.0**-24, "2^-8": 2.0**-8, "1 %": 0.01}
CONTENTS = (0.0, 5.0)

_TABLE = (
    ("Q1", "norm.least", "row norm", "how loud positions are beside content, and whether that changes at test"),
    ("Q1", "norm.most", "row norm", "how loud positions are beside content, and whether that changes at test"),
    ("Q1", "zero_from", "rows are zero from", "where the encoding ends: from there on it says nothing"),
    ("Q2", "nearest", "nearest two positions", "whether positions can be told apart at all"),
    ("Q3", "noise", "noise for 1 % confusion", "how loud content may be before positions are mistaken"),
    ("Q9", "drift", "farthest from any trained row", "how far a model is led from what it was trained on"),
    ("Q9", "drift.relative", "farthest from them, over the rms norm", "the same among tables of any size"),
    ("Q9", "outside", "share of a row outside the trained span", "how much meets weights that no gradient has shaped"),
    ("I1", "information", "position information at equal loudness (nats)", "how much a noisy row says of its position"),
    ("I1", "information.lower", "position information, lower bound (nats)", "what is certain of it"),
    ("I1", "information.upper", "position information, upper bound (nats)", "what is certain of it"),
    ("I1", "information.raw", "position information in noise of deviation 1 (nats)", "the same, loudness included"),
    ("I6", "mistaken", "least share of wrong guesses", "what no reader of noisy rows can do better than"),
    ("Q4", "rank.float64", "rank", "how many independent features a readout of the position can have"),
    ("Q4", "rank.float32", "rank in float32", "the same after rounding"),
    ("Q4", "rank.bfloat16", "rank in bfloat16", "the same after rounding"),
    ("Q4", "rank.effective", "effective rank", "the same, weighted by size"),
    ("Q4", "rank.stable", "stable rank", "the same, beside the strongest direction"),
    ("Q4", "condition", "condition number", "how unevenly gradients reach the directions of the table"),
    ("Q5", "coherence", "largest |cosine| of two rows", "how alike two positions can look after normalisation"),
    ("Q11", "toeplitz", "share of the kernel that is not of the distance alone",
     "whether addition brings relative position along by itself"),
    ("Q14", "readout", "complexity of linear readouts", "how readily a linear readout of positions fits noise"),
    ("Q14", "readout.bounds", "complexity of linear readouts, certified", "what is certain of it"),
    ("Q17", "equal_from.float32", "neighbouring rows equal in float32 from", "where rounding ends the encoding"),
    ("Q17", "equal_from.bfloat16", "neighbouring rows equal in bfloat16 from", "where rounding ends the encoding"),
    ("Q17", "distinct.float32", "different rows in float32", "how many positions are left after rounding"),
    ("Q17", "distinct.bfloat16", "different rows in bfloat16", "how many positions are left after rounding"),
    ("I2", "rounded.float32", "information left in float32 (nats)", "what rounding leaves of the position"),
    ("I2", "rounded.bfloat16", "information left in bfloat16 (nats)", "what rounding leaves of the position"),
    ("Q20", "collision", "embeddings collide from norm", "up to which size of embeddings no two tokens become equal"),
)  # fmt: skip
_BIAS = (
    ("Q7", "perplexity.least", "keys used at zero content", "whether context beyond so many keys is used at all"),
    ("Q7", "perplexity.most", "keys used at zero content", "whether context beyond so many keys is used at all"),
    ("Q7", "within.least", "99 % of the weight within", "how many keys a cache has to keep"),
    ("Q7", "within.most", "99 % of the weight within", "how many keys a cache has to keep"),
    ("Q7", "beyond", "weight beyond the training length", "how much attention goes where training never saw keys"),
    ("Q10", "bias_drift", "attention moved by the longer text (TV)", "what the bias itself changes at test"),
    ("C53", "bias_size", "largest |bias|", "how the bias grows with the text"),
    ("P6", "effect", "largest effect on any row, any content (TV)", "whether the bias can be told from none"),
    ("Q6", "columns", "most that one key gets from all queries", "how a change of one token spreads (kappa of P5)"),
    ("I3", "attended", "information in where attention goes (nats)", "whether attention alone tells the position"),
    ("I4", "distance", "distance heard above content of deviation 1 (nats)", "whether the bias is heard above content"),
    ("Q7", "limit.perplexity.least", "keys used, in a text without end", "whether the reach is finite"),
    ("Q7", "limit.perplexity.most", "keys used, in a text without end", "whether the reach is finite"),
    ("Q7", "limit.within.most", "99 % of the weight within, in a text without end", "how large a cache is enough"),
    *(("Q8", f"window.{tolerance}.{content:g}", f"certified window at {tolerance}, content up to {content:g}",
       "which keys a cache may drop: the largest distance that must be kept")
      for tolerance in TOLERANCES for content in CONTENTS),
)  # fmt: skip
_ROTATION = (
    ("Q12", "turned", "channels that turned at least once", "how many channels training has seen all angles of"),
    ("Q12", "critical", "channel that turns once", "from where on NTK by parts leaves nothing alone"),
    ("Q12", "unseen.channels", "channels with unseen angles (chord > 0.1)", "whether to change the base"),
    ("Q12", "unseen.largest", "largest unseen chord", "how new the newest angle is; 2 is the opposite one"),
    ("Q12", "unseen.rms", "unseen chord, rms over channels", "the same of all channels"),
    ("Q12", "similarity", "similarity of equal query and key, least", "how far apart equal tokens still attract"),
    ("Q12", "negative_from", "similarity negative first at lag", "a heuristic of a usable length, no theorem"),
    ("Q12", "alias_scale", "positions alias from a scale of", "how far positions may be stretched"),
    ("Q12", "growth", "largest factor of growth", "how much a score can grow by distance alone"),
)  # fmt: skip
_RELATIVE = (
    ("Q1", "norm.least", "norm of a vector", "how loud relative positions are beside content"),
    ("Q1", "norm.most", "norm of a vector", "how loud relative positions are beside content"),
    ("Q2", "nearest", "nearest two offsets", "whether offsets can be told apart at all"),
    ("Q2", "clipped", "offsets are told apart up to", "beyond it all offsets of a side look alike to one layer"),
    ("Q9", "drift", "farthest from any trained offset", "how far longer texts lead from what was trained"),
)  # fmt: skip
_MODEL = (
    ("Q6", "token_norm", "largest token, of content 1", "what enters all bounds of the model"),
    ("Q6", "lipschitz", "Lipschitz constant of two layers of unit maps",
     "how much an error of the input can grow (largest token)"),
    ("Q6", "lipschitz.frobenius", "two layers of unit maps, Frobenius norm", "the same for errors of all tokens"),
    ("Q13", "symmetry.const", "equal tokens: largest difference of outputs", "0: counting positions cannot be learned"),
    ("Q13", "symmetry.rev", "reversal: largest difference of outputs", "0: left and right are never told apart"),
    ("Q13", "symmetry.perm", "reordering: largest difference of outputs", "0: no order is ever told from another"),
    ("Q15", "parameters", "parameters that it adds", "what it costs to learn"),
    ("Q15", "occam", "gap of losses in [0, 1] by counting parameters",
     "above 1 it is vacuous: test, and do not trust capacity"),
    ("Q19", "temperature", "score gap for 90 % on one key", "how much sharper queries must get in longer texts"),
)  # fmt: skip
_RUN = (
    ("Q6", "run.spectral", "largest spectral norm of a map", "which map drives the constants"),
    ("Q6", "run.lipschitz", "Lipschitz constant of the trained model", "how far an error can grow"),
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
    ("taps", "reach"): Quantity("Q7", "taps.reach", "positions that a tap reaches", "from where on taps say nothing"),
    ("taps", "factor"): Quantity("Q6", "taps.factor", "factor of taps on tokens",
                                 "how much taps can magnify an error"),
    ("key_bias", "norm"): Quantity("Q6", "key_bias.norm", "vector that meets every key, norm",
                                   "how far keys are preferred whatever is asked"),
}  # fmt: skip
"""By (slot, key); the slot is "" for quantities that do not belong to one."""


IN_WINDOWS = frozenset(each.key for (slot, _), each in QUANTITIES.items() if slot in PLACES)
"""The keys of the quantities of tables. At a length they hold for the window of positions that ends there."""


def quantity(key: str, slot: str = "") -> Quantity:
    """Return the quantity with this key. Quantities of a slot need the slot as well.

    >>> quantity("turned").id, quantity("nearest", "qk_table").key, quantity("nearest", "table").key
    ('Q12', 'qk_table.nearest', 'nearest')
    """
    return QUANTITIES[slot, key]
