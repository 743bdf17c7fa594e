"""What is computed in blocks does not depend on their size: small ones, where every test has but one."""

import numpy as np
import pytest

import fastpe
from fastpe.doctor import diagnosis
from fastpe.encodings import registry
from fastpe.encodings.bias import fire, graphormer, rbf_distance, rrwp, tupe
from fastpe.encodings.input import signnet
from fastpe.encodings.parts import offset_biases, offset_tables, offsets, row_blocks

SIZES = {
    (offset_biases, "_PIECE"): 4,
    (offset_biases, "_BLOCK"): 24,
    (offsets, "_BLOCK_ELEMENTS"): 24,
    (row_blocks, "_BLOCK_ELEMENTS"): 24,
    (fire, "_BLOCK"): 24,
    (graphormer, "_ROWS"): 3,
    (rbf_distance, "_PAIRS"): 24,
    (rrwp, "_BLOCK"): 300,
    (signnet, "_BLOCK"): 200,
    (offset_tables, "_BLOCK"): 4,
    (tupe, "_ROWS"): 3,
}
LENGTH = 10


def asked(name):
    """Sizes alone, without positions and with them; or with what the encoding is tested with."""
    sizes = {"dim": 24, "heads": 2, "train_length": LENGTH}
    requests = list(diagnosis.requests(name, "float64", length=LENGTH, small=True, **sizes))
    options = registry.get(name).options
    plain = [request for request in requests if not set(request) & set(options)]
    return plain or requests[:3]


def results(name, request):
    """The slots, and the gradients of what is learned."""
    options = {key: value for key, value in request.items() if key in registry.get(name).options}
    sizes = {key: request[key] for key in ("dim", "heads", "train_length", "causal", "dtype")}
    params = fastpe.init(name, **sizes, **options)
    params = {key: value + 0.1 * np.cos(np.arange(value.size)).reshape(value.shape) for key, value in params.items()}
    slots = fastpe.build(name, **request, params=params or None)
    found = {slot: array for slot, array in slots.items() if isinstance(array, np.ndarray)}
    if params:
        real = {slot: array for slot, array in found.items() if array.dtype.kind == "f"}
        dslots = {slot: np.sin(np.arange(1.0, array.size + 1)).reshape(array.shape) for slot, array in real.items()}
        found |= {f"d{key}": value for key, value in fastpe.pull(name, **request, dslots=dslots, params=params).items()}
    return found


@pytest.mark.parametrize("name", [name for name in fastpe.list_encodings() if registry.get(name).slots])
def test_results_do_not_depend_on_the_size_of_blocks(name, monkeypatch):
    requests = asked(name)
    assert requests
    expected = [results(name, request) for request in requests]
    for (module, constant), size in SIZES.items():
        assert getattr(module, constant) > 10 * size
        monkeypatch.setattr(module, constant, size)
    for request, right in zip(requests, expected, strict=True):
        for key, found in results(name, request).items():
            most = np.abs(right[key]).max(initial=0.0)
            np.testing.assert_allclose(found, right[key], rtol=1e-12, atol=1e-13 * most, err_msg=key)
