"""Model classes of transformers that attend through fastpe, compared with eager attention; with --full, all of them."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

import sweep_transformers  # noqa: E402 - only where the peers are

from fastpe.torch import register_transformers  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")
FEW = {  # those whose kind was wrong once, or refused; the tests beside this one compare common models more closely
    "align.AlignTextModel": "right",  # without support for sdpa
    "bigbird_pegasus.BigBirdPegasusDecoder": "right",
    "blt.BltGlobalTransformer": "right",  # its sdpa and eager attention differ
    "phi4_multimodal.Phi4MultimodalVisionModel": "right",
    "colpali.ColPaliForRetrieval": "right",  # causal masks for layers that say they are not causal
    "nllb_moe.NllbMoeModel": "right",
    "pegasus_x.PegasusXModel": "right",
    "speech_to_text.Speech2TextModel": "right",
    "splinter.SplinterModel": "right",
    "gpt_oss.GptOssModel": "right",
    "data2vec.Data2VecVisionModel": "refused",  # tables of attention classes
    "git.GitModel": "refused",
    "sam.SamVisionModel": "refused",
    "sam_hq.SamHQVisionModel": "refused",
    "deepseek_v32.DeepseekV32Model": "refused",  # sparse indices
    "mpt.MptModel": "right",
}


@pytest.fixture(scope="module")
def calls():
    yield sweep_transformers.Calls()
    register_transformers()  # without counting


@pytest.mark.parametrize("name", FEW)
def test_a_class(name, calls):
    package, kind = name.split(".")
    found, _ = sweep_transformers.classes(package)
    kind = next(each for each in found if each.__name__ == kind)
    verdict, checks, why = sweep_transformers.row(kind, calls)
    assert verdict == FEW[name], f"{checks}: {why}"
    if verdict == "refused" and name != "deepseek_v32.DeepseekV32Model":
        assert "cannot attend through fastpe" in why
    if verdict == "right":
        assert "plain" in checks


def test_all_classes(request, tmp_path):
    if not request.config.getoption("--full"):
        pytest.skip("minutes; python -m pytest tests/torch/test_transformers_sweep.py --full")
    rows = sweep_transformers.sweep(tmp_path / "rows.jsonl")
    register_transformers()
    assert len(rows) > 400
    assert [(each["class"], each["why"]) for each in rows if each["verdict"] == "wrong"] == []
