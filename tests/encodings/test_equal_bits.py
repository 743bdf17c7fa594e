"""What a table of sines holds at a position does not depend on how it is asked for."""

import numpy as np
import pytest

import fastpe

N, LONGER, DIM, START = 224, 301, 24, 40.0
TABLES = ["sinusoidal", "sinusoidal_t2t", "fourier", "sincos_2d_mae", "flat_sincos"]


def sides(name: str) -> tuple[int, ...]:
    return {"sincos_2d_mae": (14, 16), "flat_sincos": (2, 7, 16)}.get(name, (N,))


def table(name: str, length: int = N, **request: object) -> np.ndarray:
    return fastpe.build(name, length, dim=DIM, **request)["table"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TABLES)
def test_a_value_is_one_of_its_position_alone(name: str, dtype: type) -> None:
    grid = {} if len(sides(name)) == 1 else {"grid": sides(name)}
    alone = table(name, dtype=dtype, **grid)
    wide = np.zeros((N, 2 * DIM + 3), dtype)
    table(name, dtype=dtype, out={"table": wide[:, 1 : 2 * DIM + 1 : 2]}, **grid)
    np.testing.assert_array_equal(wide[:, 1 : 2 * DIM + 1 : 2], alone)

    cells = np.indices(sides(name)).reshape(len(sides(name)), N).T.astype(np.float64)
    points = cells if grid else cells[:, 0]
    np.testing.assert_array_equal(table(name, dtype=dtype, positions=points, **grid), alone)
    backwards = table(name, dtype=dtype, positions=points[::-1], **grid)
    np.testing.assert_array_equal(backwards[::-1], alone)

    batch = np.zeros((2, DIM, N + 5), dtype)
    target = batch[..., 2 : N + 2].swapaxes(1, 2)
    table(name, dtype=dtype, positions=np.stack([points, points[::-1]]), out={"table": target}, **grid)
    np.testing.assert_array_equal(target, [alone, alone[::-1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in TABLES if len(sides(name)) == 1])
def test_a_longer_table_begins_as_a_shorter_one(name: str, dtype: type) -> None:
    longer = table(name, LONGER, dtype=dtype, train_length=N)
    for length in (1, 40, N):
        np.testing.assert_array_equal(longer[:length], table(name, length, dtype=dtype, train_length=N))
    later = table(name, LONGER - int(START), dtype=dtype, start=START, train_length=N)
    np.testing.assert_array_equal(later, longer[int(START) :])


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal_t2t"])
@pytest.mark.parametrize("start", [-8.1, -0.3])
def test_points_that_are_only_nearly_one_apart(name: str, start: float) -> None:
    request = {"dim": DIM, "start": start, "dtype": np.float64}
    right = fastpe.build(name, N, reference=True, **request)["table"]
    np.testing.assert_array_max_ulp(fastpe.build(name, N, **request)["table"], right, 2)
