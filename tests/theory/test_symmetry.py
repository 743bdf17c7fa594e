"""Symmetry classes of all encodings: const, rev, perm."""

import pytest
from encoding_variants import ENCODINGS, NAMES, is_causal

from fastpe.theory.symmetry import PROPERTIES, TOLERANCE, _breaking, _Network, _property, change_of_order, symmetry

# Q13 of the specification, bidirectional
PERM = {"nope", "dape"}
REV = {
    "alibi", "da", "geodesic", "huang1", "kerple_log", "kerple_power", "rbf_distance", "sandwich", "graphormer", "rrwp",
    "rwse", "signnet",
}  # fmt: skip
CONST = REV - {"graphormer", "rrwp", "rwse", "signnet"} | {
    "beit_bias", "clex", "comrope", "crossformer_bias", "deberta", "dynamic_bias", "fope", "grape_m", "hope", "huang2",
    "huang3", "huang4", "irpe", "learned_2d_detr", "li_eq5", "liere", "moirai", "mrope", "ms_poe", "pope", "rope",
    "rope_2d", "rope_clipped", "rope_dinov3", "rope_dynamic", "rope_linear", "rope_llama3", "rope_longrope",
    "rope_mixed", "rope_mixed_radix", "rope_ntk", "rope_ntk_mixed", "rope_proportional", "rope_resonance", "rope_yarn",
    "sincos_2d_detr", "spe", "string", "swin_bias", "swinv2_cpb", "t5", "tener", "transformer_xl", "tupe",
    "wavelet_relative",
}  # fmt: skip
# const alone
CAUSAL = CONST | PERM | {
    "cable", "cope", "fire", "fox", "grape_a", "hard_alibi", "log_n", "path", "selective_rope", "ssd_decay", "ssmax",
    "temperature", "xpos",
}  # fmt: skip
CASES = [(name, causal) for name in NAMES for causal in (False, True) if causal or not is_causal(name)]


def expected(name: str, causal: bool) -> tuple[str, ...]:
    if causal:
        return ("const",) if name in CAUSAL else ()
    held = {"const": CONST | PERM, "rev": REV | PERM, "perm": PERM}
    return tuple(key for key, names in held.items() if name in names)


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_every_encoding_has_the_class_of_the_specification_and_it_is_proved(name, causal):
    found = symmetry(name, causal=causal, draws=1)
    assert found.held == expected(name, causal)
    for key in PROPERTIES:
        own = getattr(found, key)
        measured = own.spread.inputs["measured"]
        assert own.proved, key
        assert measured < 1e-13 if own.holds else measured > 1e-4  # far from the tolerance on either side
        assert own.spread.kind == ("exact" if own.holds else "certified")
        assert own.spread.low == (0.0 if own.holds else measured - TOLERANCE)


def test_the_specification_names_encodings_that_are_there():
    assert set(NAMES) >= CAUSAL | REV
    assert len(NAMES) == len(ENCODINGS)


@pytest.mark.parametrize(
    ("name", "options", "held"),
    [
        ("shaw", {"use_values": False}, ("const",)),
        ("dape", {"reach": 1}, ("const",)),
        ("graphormer", {"centrality": False}, ("const", "rev")),
        ("graphormer", {"virtual_node": True}, ()),
        ("alibi", {"form": "one_sided"}, ("const",)),
        ("irpe", {"method": "euclidean"}, ("const", "rev")),
        ("conv", {"kernel": 1}, PROPERTIES),
        ("conv", {"kernel": 3}, ()),
        ("alibi+kerple_log", {}, ("const", "rev")),
        ("alibi+rope", {}, ("const",)),
        ("wavelet+alibi", {"wavelet.scale": 2.0}, ()),
        ("alibi+rwse", {}, ("rev",)),
        ("alibi,nope", {}, ("const", "rev")),
        ("alibi,nope*2,rope", {}, ("const",)),
    ],
)
def test_options_sums_and_patterns(name, options, held):
    found = symmetry(name, draws=1, **options)
    assert found.held == held
    assert found.rev.proved


def test_few_positions():
    for causal in (False, True):
        assert symmetry("alibi", length=1, causal=causal).held == PROPERTIES
        assert symmetry("sinusoidal", length=1, causal=causal).held == PROPERTIES
    assert symmetry("alibi", length=2).held == PROPERTIES  # the one other order is the reverse
    assert symmetry("rope", length=2).held == ("const",)
    assert symmetry("swin_bias", length=9, grid=(3, 3)).held == ("const",)


def test_a_table_of_size_1e_6_is_seen_as_an_asymmetry():
    """A table of size 1e-6 beside embeddings of size 1."""
    found = symmetry("sinusoidal", scale=1e-6, draws=1)
    assert found.held == ()
    assert 1e-10 < found.const.spread.low < 1e-4


def test_reasons_name_the_slots():
    assert "slot 'angles'" in symmetry("rope", draws=1).rev.why
    assert "P2" in symmetry("rope", draws=1).const.why
    assert "the causal mask" in symmetry("nope", causal=True, draws=1).perm.why
    assert "'rel_value'" in symmetry("shaw", draws=1).const.why
    assert "'rel_key'" not in symmetry("shaw", draws=1).const.why


@pytest.mark.parametrize("name", [name for name in NAMES if not is_causal(name)])
def test_the_form_of_the_slots_says_the_same_as_the_draws(name):
    """Neither is made from the other."""
    network = _Network(name, {}, 16, 24, 2, False, 1)
    broken = {key for key in PROPERTIES if _breaking(key, network.slots, 16)}
    assert broken == set(PROPERTIES) - set(expected(name, False))


def test_no_difference_is_no_proof_where_a_slot_or_the_mask_could_make_one():
    for name, causal in (("sinusoidal", False), ("nope", True)):
        found = _property("rev", 0.0, _Network(name, {}, 16, 24, 2, causal, 0))
        assert found.holds
        assert not found.proved
        assert found.spread.kind == "certified"
        assert "no proof" in found.why


def test_more_draws_never_lower_the_measured_spread():
    one, three = (symmetry("wavelet", draws=draws).rev.spread for draws in (1, 3))
    assert three.low >= one.low
    assert symmetry("wavelet", draws=3).rev.spread == three


def test_with_a_table_a_model_is_not_equivariant():
    """Without positions it is, and it is never invariant: claim C1."""
    moved = change_of_order("sinusoidal")
    assert moved["equivariance"].kind == "certified"
    assert moved["equivariance"].low > 0.01


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="length must be at most 512"):
        symmetry("nope", length=513)
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        symmetry("nope", length=0)
    with pytest.raises(ValueError, match="draws must be at least 1, not 0"):
        symmetry("nope", draws=0)
    with pytest.raises(ValueError, match="did you mean 'alibi'"):
        symmetry("alibbi")
    with pytest.raises(ValueError, match="slope"):
        symmetry("alibi", slopes=0.5)
    with pytest.raises(ValueError, match="length must be at least 2, not 1"):
        change_of_order("nope", length=1)
