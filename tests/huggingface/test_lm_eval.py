"""lm-evaluation-harness on exported models, through its `hf` backend: batches, which it pads, and texts from their end
of text on."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
harness = pytest.importorskip("lm_eval.models.huggingface", reason="pip install lm_eval")

from hf_models import made  # noqa: E402 - only where the harness is
from lm_eval.api.instance import Instance  # noqa: E402

import fastpe  # noqa: E402
from fastpe.text.vocabulary import Vocabulary  # noqa: E402

# what its packages warn of on their way
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.full("lm_eval takes seconds to import")]

PAIRS = [("the cat", " sat"), ("a", " longer text, in é and ü"), ("the dog sat on", " the mat")]


@pytest.mark.parametrize(
    ("vocabulary", "eos"), [(Vocabulary(), None), (Vocabulary("characters", "\n ,acdeghilmnorstxéü"), "\n")],
    ids=["bytes", "characters"],
)  # fmt: skip
def test_likelihoods_are_those_of_the_model(vocabulary, eos, tmp_path):
    model = made("llama", vocabulary=vocabulary.size)
    model.vocabulary = vocabulary
    fastpe.to_hf(model, tmp_path / "model", eos=eos)
    backend = harness.HFLM(str(tmp_path / "model"), device="cpu", dtype="float32", batch_size=2)
    asked = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(PAIRS)]
    found = backend.loglikelihood(asked, disable_tqdm=True)
    expected = [likelihood(model, vocabulary.encode(before), vocabulary.encode(after)) for before, after in PAIRS]
    assert [each[0] for each in found] == pytest.approx(expected, rel=1e-5)
    (whole,) = backend.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("the cat sat",), 0)], True)
    end = vocabulary.encode(eos or "\0")
    assert whole == pytest.approx(likelihood(model, end, vocabulary.encode("the cat sat")), rel=1e-5)


def likelihood(model, before, after):
    """The logarithm of the probability of the tokens `after`."""
    tokens = np.concatenate([before, after]).astype(np.int64)
    counts = np.arange(len(tokens) - 1) >= len(before) - 1
    return -float(model.loss(tokens[:-1], tokens[1:], weights=counts)) * len(after)
