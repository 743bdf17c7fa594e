"""What lists say of encodings: what is read in a file is what its record says, and who suits a plain sequence."""

import pytest

import fastpe
from fastpe.encodings import as_written, catalogue
from fastpe.encodings.encoding import BEYOND, OUTCOMES, USES, year_of
from fastpe.encodings.registry import get, list_encodings
from fastpe.encodings.slots import SLOTS

# of images, videos, the sphere, space and graphs
OTHERS = {
    "beit_bias", "cartesian3d", "crossformer_bias", "factorised_st", "flat_sincos", "geodesic", "graphormer", "irpe",
    "laplacian", "learned_2d", "learned_2d_detr", "lonlat_wrap", "magnetic", "moirai", "mrope", "rbf_distance",
    "rope_2d", "rope_dinov3", "rope_mixed", "rrwp", "rwse", "signnet", "sincos_2d_detr", "sincos_2d_mae", "sincos_3d",
    "sph_harm", "swin_bias", "swinv2_cpb",
}  # fmt: skip


@pytest.mark.parametrize("name", list_encodings())
def test_what_a_list_reads_is_what_the_record_says(name):
    listed, own = catalogue.entry(name), get(name)
    for field in as_written.FIELDS:
        assert getattr(listed, field) == getattr(own, field)
    assert listed.learned == catalogue.learned(own)
    assert listed.learned in catalogue.LEARNED
    assert listed.beyond in BEYOND
    assert listed.outcome in (*OUTCOMES, "none")
    assert listed.use in USES


@pytest.mark.parametrize("name", list_encodings())
def test_a_source_says_its_year_or_that_it_is_an_own_construction(name):
    listed = catalogue.entry(name)
    assert (listed.year is None) == ("own construction" in listed.source)
    assert listed.year is None or 2017 <= listed.year <= 2100
    assert listed.year is None or listed.source.count(str(listed.year)) >= 1


def test_the_year_of_a_source_is_no_number_of_arxiv_and_no_page():
    assert year_of("Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, method 1") == 2020
    assert year_of("arXiv:2009.13658") is year_of("released code") is year_of("") is None
    assert year_of("kexue.fm/archives/2023 and 12024") is None
    assert year_of("own construction, after Slepian 1978") is None
    assert year_of("Kazemi et al. 2019, arXiv:1907.05321; Shukla and Marlin 2021") == 2019


def test_which_encodings_suit_a_causal_model_of_a_plain_sequence():
    assert {each.key for each in catalogue.chosen(catalogue.entries()[0], causal=True)} == set(
        list_encodings()
    ) - OTHERS


@pytest.mark.parametrize("name", sorted(set(list_encodings()) - OTHERS))
def test_a_plain_sequence_needs_nothing_but_its_length(name):
    assert fastpe.build(name, 6, dim=16, heads=2, train_length=6, causal=True) or name == "nope" or get(name).gate


def test_every_slot_is_in_one_group():
    in_groups = [slot for _, own in catalogue.GROUPS.values() for slot in own]
    assert sorted(in_groups) == sorted(set(SLOTS) - {"scale", "pairs", "rectify"})  # which never come alone
