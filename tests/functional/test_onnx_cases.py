"""The test cases of the ONNX standard's own package, made by its generators: Attention (opsets 23 to 25),
FlexAttention, RotaryEmbedding. Each is one call of `fastpe.attention` or `fastpe.rotate`, with nothing but a map of
names.

What cannot be said in such a call:

- `softmax_precision`: half precision is computed in float32 throughout, float32 and float64 in themselves.
- Graphs as attributes (`score_mod`, `prob_mod`): each that a case has is said by the slot that it stands for.
"""

import importlib
import warnings

import numpy as np
import pytest

import fastpe

onnx = pytest.importorskip("onnx")

INPUTS = {
    "Attention": ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"),
    "FlexAttention": ("Q", "K", "V"),
    "RotaryEmbedding": ("X", "cos_cache", "sin_cache", "position_ids"),
}
# the expected values of half precision were computed in it, operation by operation
TOLERANCE = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
STAGES = ("products", "capped", "masked", "weights")  # by the mode of `qk_matmul_output`


def cases():
    """(name, node, inputs and attributes by name, outputs by name) of every case, but for those of expanded graphs."""
    state = np.random.get_state()  # noqa: NPY002 - the generators draw from it
    np.random.seed(0)  # noqa: NPY002 - see above
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the generators
            package = importlib.import_module("onnx.backend.test.case.node")
            for name in ("attention", "flexattention", "rotaryembedding"):
                importlib.import_module(f"onnx.backend.test.case.node.{name}")
    finally:
        np.random.set_state(state)  # noqa: NPY002 - see above
    for case in package._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in INPUTS:
            continue
        (node,), ((inputs, outputs),) = nodes, case.data_sets
        arrays, given = iter(inputs), {}
        for name, place in zip(INPUTS[node.op_type], node.input, strict=False):
            if place:
                given[name] = np.asarray(next(arrays))
        given |= {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        results = dict(zip((name for name in node.output if name), outputs, strict=True))
        yield case.name, node, given, results


CASES = list(cases())


# ---------------------------------------------------------------------------------------------------------------------
# The maps


def with_heads(x, heads):
    """(B, N, H D) as (B, H, N, D)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def attention_arguments(given):
    """Arguments of `fastpe.attention`, and what is no part of attention: keys and values with those of the past."""
    q = with_heads(given["Q"], given.get("q_num_heads"))
    k, v = (with_heads(given[name], given.get("kv_num_heads")) for name in "KV")
    start = 0
    if "past_key" in given:
        start = given["past_key"].shape[2]
        k, v = np.concatenate([given["past_key"], k], axis=2), np.concatenate([given["past_value"], v], axis=2)
    (b, _, n, _), m = q.shape, k.shape[2]
    arguments = {"scale": given.get("scale"), "softcap": given.get("softcap") or None}
    lengths = given.get("nonpad_kv_seqlen")
    if lengths is not None:
        arguments["lengths"], start = lengths, lengths.reshape(-1) - n
    mask = given.get("attn_mask")
    if mask is not None:
        beyond = [(0, 0)] * (mask.ndim - 1) + [(0, m - mask.shape[-1])]
        arguments["mask"] = np.pad(mask, beyond, constant_values=False if mask.dtype == bool else -np.inf)
    left, right, causal = given.get("left_window_size", -1), given.get("right_window_size", -1), given.get("is_causal")
    if left < 0 and right < 0 and np.min(start) >= 0:
        arguments |= {"causal": bool(causal), "query_start": start}
    else:  # one interval of keys, which may be another one before and after the query, or begin before the first key
        places = np.broadcast_to(start, (b,))[:, None] + np.arange(n)
        first = places - left if left >= 0 else np.zeros_like(places)
        last = np.minimum(places + right + 1 if right >= 0 else m, places + 1 if causal else m)
        arguments["spans"] = np.stack(np.broadcast_arrays(first, last), axis=-1)
    return {"q": q, "k": k, "v": v, **arguments}


def attention_outputs(given, names):
    """By the names of the outputs."""
    arguments = attention_arguments(given)
    y = fastpe.attention(**arguments)
    outputs = [y if given["Q"].ndim == 4 else y.swapaxes(1, 2).reshape(*given["Q"].shape[:2], -1)]
    outputs += [arguments["k"], arguments["v"]]
    if "qk_matmul_output" in names:
        del arguments["v"]
        stage = STAGES[given.get("qk_matmul_output_mode", 0)]
        outputs.append(fastpe.attention_scores(**arguments, stage=stage))
    standard = ("Y", "present_key", "present_value", "qk_matmul_output")
    found = dict(zip(standard, outputs, strict=False))
    return {name: found[name] for name in names if name in found}


def flex_outputs(given, names):
    """The graphs by what they are called, their constants by theirs."""
    q, k, v = (given[name] for name in "QKV")
    arguments = {"scale": given.get("scale"), "query_start": 0}
    if (graph := given.get("score_mod")) is not None:
        constant = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        if graph.name == "score_mod_bias":
            arguments["bias"] = np.full((q.shape[1], 1), constant["bias"], q.dtype)
        elif graph.name == "score_mod_causal_mask":
            arguments["causal"] = True
        elif graph.name == "score_mod_soft_cap":
            arguments["softcap"] = float(constant["cap"])
        else:
            assert graph.name == "score_mod_relative_positional"
            reach = max(q.shape[2], k.shape[2])
            arguments["bias"] = np.tile(-np.arange(-reach, reach + 1.0), (q.shape[1], 1)).astype(q.dtype)
    if (graph := given.get("prob_mod")) is not None:
        assert graph.name == "prob_mod_scale"
        v = v * onnx.numpy_helper.to_array(graph.initializer[0])
    return {names[0]: fastpe.attention(q, k, v, **arguments)}


def rotary_outputs(given, names):
    x, places = given["X"], given.get("position_ids")
    x = with_heads(x, given.get("num_heads"))
    cos, sin = (given[name] if places is None else given[name][places] for name in ("cos_cache", "sin_cache"))
    pairs = "interleaved" if given.get("interleaved") else "half"
    y = fastpe.rotate(x, pairs=pairs, cos_sin=(cos[:, None], sin[:, None]))
    return {names[0]: y if given["X"].ndim == 4 else y.swapaxes(1, 2).reshape(given["X"].shape)}


MAPS = {"Attention": attention_outputs, "FlexAttention": flex_outputs, "RotaryEmbedding": rotary_outputs}


# ---------------------------------------------------------------------------------------------------------------------
# The cases


@pytest.mark.parametrize(("name", "node", "given", "expected"), CASES, ids=[case[0] for case in CASES])
def test_case(name, node, given, expected):
    found = MAPS[node.op_type](given, list(expected))
    assert set(expected) == set(found)
    for output, value in found.items():
        exact = np.asarray(expected[output])
        assert value.shape == exact.shape
        assert value.dtype == exact.dtype
        tolerance = TOLERANCE[exact.dtype.name]
        value, exact = value.astype(np.float64), exact.astype(np.float64)
        size = np.max(np.abs(exact), initial=1.0, where=np.isfinite(exact))
        np.testing.assert_allclose(value, exact, rtol=0, atol=tolerance * size)


def test_there_are_cases_of_each():
    counts = {kind: sum(case[1].op_type == kind for case in CASES) for kind in INPUTS}
    assert counts["Attention"] >= 60
    assert counts["RotaryEmbedding"] >= 8
