"""`fastpe.angles`: numbers that the authors' program gives (fixture F), sums of NumPy, gradients by differences."""

import numpy as np
import pytest
from fixture_attention import K, Q, V, results
from pullbacks import assert_gradients

import fastpe
from fastpe import angles, reference

ROWS, CHANNELS = np.arange(4.0)[:, None], np.arange(4.0)
X = np.sin(0.8 * ROWS + 0.4 * CHANNELS)
MAPS = {
    "down": np.cos(0.5 * (4 * np.arange(2) + CHANNELS[:, None])),
    "up": np.sin(1 + 0.7 * (2 * np.arange(2) + np.arange(2)[:, None])),
    "taps": np.array([[0.1, 0.0], [-0.2, 0.2], [0.3, -0.1], [1.0, 0.8]]),
}  # fmt: skip
G = np.cos(0.5 * ROWS - CHANNELS)  # the gradient of the output
TAU = 500000.0 ** (-np.arange(0, 4, 2) / 4)
THETA = [[-0.976636863, 0.000418584], [-1.862315216, 0.001203223], [-2.018953986, 0.002218272],
         [-1.267105742, 0.003087213]]  # fmt: skip


def slots(theta):
    return {"angles": theta, "pairs": "half"}


def test_angles_and_what_they_do_are_the_authors():
    theta = angles.selective(X, **MAPS, frequencies=TAU)
    np.testing.assert_allclose(theta, [THETA], rtol=0, atol=1e-9)
    _, *found = results(slots(theta), causal=True)
    np.testing.assert_allclose(found, [-0.450383719, 0.130899985, 0.376443778, 0.706415681], rtol=0, atol=1e-9)


@pytest.mark.parametrize("attend", [fastpe.attention_vjp, reference.attention_vjp])
def test_the_gradient_of_angles_is_the_authors(attend):
    theta = angles.selective(X[None], **MAPS, frequencies=TAU)
    four = [x[None, None] for x in (Q, K, V)]
    found = attend(*four, causal=True, **slots(theta))[1](G[None, None])["angles"]
    expected = [-0.002649020, 0.043841832, -0.020637531, -0.020555281]
    np.testing.assert_allclose(found[0, 0, :, 0], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=-2), 0, atol=1e-15)


def drawn(heads=2, pairs=2, rank=3, n=6, batch=()):
    rng = np.random.default_rng(0)
    width = 2 * heads * pairs
    shapes = {"x": (*batch, n, width), "down": (width, rank), "up": (rank, width // 2), "taps": (4, width // 2)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}, rng.uniform(0.1, 1, pairs)


def test_angles_are_the_sums_of_the_formula():
    arguments, tau = drawn(batch=(2,))
    found = angles.selective(**arguments, frequencies=tau)
    x, down, up, taps = arguments.values()
    steps = np.zeros((2, 9, 4))  # three before the first
    for b in range(2):
        for t in range(6):
            parts = [part / np.sqrt(part @ part + 1e-6) for part in x[b, t].reshape(2, 4)]
            steps[b, t + 3] = np.concatenate(parts) @ down @ up
    for t in range(6):
        total = sum((taps * steps[:, s : s + 4]).sum(axis=1) for s in range(t + 1)).reshape(2, 2, 2) * tau
        np.testing.assert_allclose(np.exp(1j * found[:, :, t]), np.exp(1j * total), rtol=0, atol=1e-13)
    assert found.shape == (2, 2, 6, 2)
    assert np.abs(found).max() <= np.pi


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_gradients(batch, n):
    arguments, tau = drawn(batch=batch, n=n)
    assert_gradients(lambda **given: angles.selective_vjp(**given, frequencies=tau / 100), arguments, rtol=1e-6)
    before = arguments["x"][..., :1, :] + 1, np.ones((*batch, 2, 1, 2))
    assert_gradients(
        lambda **given: angles.selective_vjp(**given, frequencies=tau / 100, before=before), arguments, rtol=1e-6
    )


@pytest.mark.parametrize("done", [1, 3, 5])
def test_a_cache_goes_on_where_it_ended(done):
    arguments, tau = drawn(batch=(2,))
    x = arguments.pop("x")
    whole = angles.selective(x, **arguments, frequencies=tau)
    before = x[:, max(0, done - 3) : done], whole[:, :, done - 1 : done]
    rest = angles.selective(x[:, done:], **arguments, frequencies=tau, before=before)
    np.testing.assert_allclose(np.exp(1j * rest), np.exp(1j * whole[:, :, done:]), rtol=0, atol=1e-13)
    more = angles.selective(x[:, done:], **arguments, frequencies=tau, before=(x[:, :done], before[1]))
    np.testing.assert_array_equal(more, rest)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sums_are_made_in_float64(dtype):
    n = 65536
    x, taps = np.ones((n, 2), dtype), np.eye(4)[:, 3:].astype(dtype)
    found, pull = angles.selective_vjp(x, np.ones((2, 1), dtype), np.ones((1, 1), dtype), taps, frequencies=[1.0])
    assert found.dtype == np.float64
    step = 2 / np.sqrt(2 + 1e-6)
    far = (step * n + np.pi) % (2 * np.pi) - np.pi
    assert abs(np.exp(1j * found[0, -1, 0]) - np.exp(1j * far)) < 1e-6
    assert {each.dtype for each in pull(np.full(found.shape, 1e-8)).values()} == {np.dtype(dtype)}


GOOD, SPEEDS = drawn()
WRONG = {
    "x must be finite": {"x": GOOD["x"] * np.nan},
    r"x must have the shape \(B, N, C\) or \(N, C\), C a multiple of D=4, not \(6, 7\)": {"x": GOOD["x"][:, :7]},
    r"down must have the shape \(8, rank\) for x \(6, 8\), not \(7, 3\)": {"down": GOOD["down"][:7]},
    r"up must have the shape \(3, 4\) for x \(6, 8\), not \(2, 4\)": {"up": GOOD["up"][:2]},
    r"taps must have the shape \(4, 4\) for x \(6, 8\), not \(3, 4\)": {"taps": GOOD["taps"][:3]},
    r"frequencies must have the shape \(D/2,\), not \(\)": {"frequencies": 1.0},
    "before must be a pair, the last inputs and the last angles, not ndarray": {"before": np.ones(3)},
    r"before\[0\] must have the shape of x \(6, 8\), except": {"before": (np.ones((3, 4)), np.ones((2, 1, 2)))},
    r"before\[1\] must have the shape \(2, 1, 2\), not \(2, 2\)": {"before": (np.ones((3, 8)), np.ones((2, 2)))},
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_one_clear_error(text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        angles.selective(**{**GOOD, "frequencies": SPEEDS, **WRONG[text]})


def test_a_gradient_of_another_shape():
    with pytest.raises(ValueError, match=r"^dangles must have the shape of the angles, \(2, 6, 2\), not \(6, 2\)"):
        angles.selective_vjp(**GOOD, frequencies=SPEEDS)[1](np.ones((6, 2)))


# ---------------------------------------------------------------------------------------------------------------------
# RePo, CARoPE, contextual GRAPE-M: numbers of the authors' programs and of the paper's formula

WIDE = np.sin(0.8 * ROWS + 0.4 * np.arange(8.0))
_N = np.arange(16.0).reshape(2, 8)
REPO = {"gate": np.cos(0.5 * _N).T, "down": np.sin(1 + 0.3 * _N).T, "up": np.array([[1.0, 0.5], [-2.0, 3.0]])}
WEIGHT, FIRST = np.cos(0.5 * np.arange(8.0))[:, None], [1.0, 0.01]
OTHERS = {
    "repo": (lambda x, **given: angles.repo_vjp(x, **given, frequencies=FIRST), REPO,
             [0.0929022949, 0.0678808609, 0.2609945338, 0.3317827254, 0.6629315281]),
    "carope": (lambda x, **given: angles.carope_vjp(x, **given, pairs=2), {"weight": WEIGHT},
               [0.5854557363, 0.2609851118, 0.3082205199, 0.3086474398, 0.6352422371]),
    "grape_m": (angles.grape_m_vjp,
                {"weight": WEIGHT, "bias": np.log(np.expm1([0.001])), "log_freq": np.log(FIRST)},
                [-0.5270418084, -0.7259009478, 0.1353912389, 0.3776921623, 0.6750368658]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_the_attention_of_angles_is_the_authors(name):
    vjp, arguments, printed = OTHERS[name]
    found = results(slots(vjp(WIDE, **arguments)[0][:1]), causal=True)
    np.testing.assert_allclose(found, printed, rtol=0, atol=5.1e-11)


def test_positions_of_repo_and_their_gradients_are_the_authors():
    theta = angles.repo(WIDE, **REPO, frequencies=FIRST)[:1]
    z = 1e6 * angles.repo(WIDE, **REPO, frequencies=[1e-6])[0, :, 0]
    np.testing.assert_allclose(z, [26.1043023421, 11.9135152665, 8.8609411032, -3.5760546133], rtol=0, atol=1e-9)
    four = [x[None, None] for x in (Q, K, V)]
    found = fastpe.attention_vjp(*four, causal=True, **slots(theta))[1](G[None, None])["angles"].reshape(4, 2) @ FIRST
    np.testing.assert_allclose(found, [0.1271412090, -0.0297734039, -0.0349913045, -0.0623765007], rtol=0, atol=1e-9)


def test_numbers_that_sums_add_up_are_the_authors():
    powers = angles.carope(WIDE, WEIGHT, pairs=2)[0]
    np.testing.assert_array_equal(powers[:3, 0], [1, 2, 3])
    steps = np.diff(powers[:, 1], prepend=0)
    np.testing.assert_allclose(steps, [0.8101580167, 0.3142573613, 0.1915639060, 0.2074858982], rtol=0, atol=5.1e-11)
    _, arguments, _ = OTHERS["grape_m"]
    longer = np.concatenate([WIDE, WIDE[:1]])  # a sum has the gates of earlier tokens only
    steps = -np.diff(angles.grape_m(longer, **{**arguments, "log_freq": [0.0]})[0, :, 0])
    np.testing.assert_allclose(steps, [0.3740390861, 0.4248725457, 0.4578833160, 0.4515612822], rtol=0, atol=5.1e-11)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_the_others(name, batch):
    vjp, arguments, _ = OTHERS[name]
    x = 0.2 * np.random.default_rng(2).standard_normal((*batch, 4, 8))  # no angle passes a whole turn
    assert_gradients(vjp, {"x": x, **arguments}, rtol=1e-6)


WRONG_OTHERS = {
    r"x must have the shape \(B, N, C\) or \(N, C\), not \(3,\)": lambda: angles.carope(np.ones(3), WEIGHT, pairs=2),
    r"weight must have the shape \(C, H\) for x \(4, 8\), not \(7, 1\)":
        lambda: angles.carope(WIDE, WEIGHT[1:], pairs=2),
    "pairs must be at least 1, not 0": lambda: angles.carope(WIDE, WEIGHT, pairs=0),
    r"down must have the shape \(C, M\) for x \(4, 8\), not \(8, 3\)":
        lambda: angles.repo(WIDE, **{**REPO, "down": np.ones((8, 3))}, frequencies=[1.0]),
    r"up must have the shape \(M, H\) for x \(4, 8\), not \(2,\)":
        lambda: angles.repo(WIDE, **{**REPO, "up": np.ones(2)}, frequencies=[1.0]),
    r"frequencies must have the shape \(R/2,\), not \(\)": lambda: angles.repo(WIDE, **REPO, frequencies=1.0),
    r"bias must have the shape \(H,\) for x \(4, 8\), not \(2,\)":
        lambda: angles.grape_m(WIDE, WEIGHT, [0.0, 0.0], [0.0]),
    r"log_freq must have the shape \(R/2,\), not \(1, 1\)": lambda: angles.grape_m(WIDE, WEIGHT, [0.0], [[0.0]]),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG_OTHERS)
def test_what_is_wrong_with_the_others_is_one_clear_error(text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        WRONG_OTHERS[text]()
