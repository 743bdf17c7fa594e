"""Every encoding's fill at N = 4,096, C = 64, beside NumPy's usual way of writing it where there is one."""

import numpy as np
import pytest
from peers import numpy_tables

import fastpe

LENGTH, DIM = 4096, 64


@pytest.mark.parametrize("name", fastpe.list_encodings())
@pytest.mark.benchmark(group="fill")
def test_fill_fastpe(measure, name):
    out = fastpe.build(name, LENGTH, dim=DIM, heads=8)
    expected = fastpe.build(name, LENGTH, dim=DIM, heads=8, reference=True)
    for slot, array in out.items():
        np.testing.assert_allclose(array, expected[slot], atol=1e-5)
    moved = sum(array.nbytes for array in out.values())
    measure(lambda: fastpe.build(name, LENGTH, dim=DIM, heads=8, out=out), bytes_moved=moved)


@pytest.mark.parametrize("name", numpy_tables())
@pytest.mark.benchmark(group="fill")
def test_fill_numpy(measure, name):
    write = numpy_tables()[name]
    np.testing.assert_allclose(write(LENGTH, DIM), fastpe.build(name, LENGTH, dim=DIM)["table"], atol=1e-5)
    measure(write, LENGTH, DIM, bytes_moved=LENGTH * DIM * 4)
