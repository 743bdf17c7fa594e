"""Sums of cosines on every channel's product: printed values, gradients, what random features come to."""

import numpy as np
import pytest

import fastpe

PARAMS = {
    "frequency": np.array([[[-3.0, -2.0], [-1.0, 0.0]]]),
    "offset": np.array([[[0.1, 0.2], [0.3, -0.4]]]),
    "gain": np.array([[[0.5, -0.5], [1.0, 0.0]]]),
}
REQUEST = {"dim": 2, "sines": 2, "dtype": np.float64}


@pytest.mark.parametrize("reference", [False, True])
def test_printed_template(reference: bool) -> None:
    gain = fastpe.build("spe", 4, params=PARAMS, reference=reference, **REQUEST)["rel_gain"][0]
    r = 4 * gain[::-1]  # 2K times the factor, by i - j
    np.testing.assert_allclose(r[3:, 0], [1.164354764, 1.108235537, 1.005589313, 0.865415592], rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(r[2, 0], 1.169023805, rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(r[3:, 1], [2.090153587, 0.899609981, -1.144217664, -1.831179045], rtol=0, atol=5.1e-10)


def test_random_features_have_these_scores_in_the_mean() -> None:
    """The authors' draws: qbar and kbar share Gaussian noise on the cosine and sine of every frequency."""
    rng = np.random.default_rng(7)
    n, draws = 4, 200_000
    q, k = rng.normal(size=(2, n, 2))
    sigmoid, soft = 1 / (1 + np.exp(-PARAMS["frequency"][0])), np.log1p(np.exp(PARAMS["gain"][0]))
    turn = 2 * np.pi * np.arange(n)[:, None, None] * sigmoid / 2
    noise = rng.normal(size=(2, 2, 2, draws)) / np.sqrt(4)  # cosine and sine, D, K; over the root of 2K
    waves_q = [f(turn + PARAMS["offset"][0]) * soft for f in (np.cos, np.sin)]
    waves_k = [f(turn) * soft for f in (np.cos, np.sin)]
    qbar, kbar = (np.einsum("fnck,fckr->ncr", np.array(each), noise) for each in (waves_q, waves_k))
    mean = np.einsum("ic,icr,jc,jcr->ij", q, qbar, k, kbar) / draws
    gain = fastpe.build("spe", n, params=PARAMS, **REQUEST)["rel_gain"][0]
    offsets = np.arange(n) - np.arange(n)[:, None] + n - 1
    np.testing.assert_allclose(np.einsum("ic,jc,ijc->ij", q, k, gain[offsets]), mean, rtol=0, atol=0.03)


def test_initial_values_are_the_authors() -> None:
    params = fastpe.init("spe", dim=512, heads=4, sines=5, dtype=np.float64, train_length=9)
    frequency, offset, gain = params["frequency"], params["offset"], params["gain"]
    assert abs(frequency.mean() + 4) < 0.1
    assert abs(frequency.std() - 1) < 0.05
    assert abs(offset.mean()) < 0.1
    norms = np.linalg.norm(gain, axis=-1)  # 2 sqrt of the norm of five normal numbers
    assert abs(np.mean((norms / 2) ** 4) - 5) < 0.4
