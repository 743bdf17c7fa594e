"""Arrays of other classes than NumPy's own, and every function that takes arrays."""

import numpy as np
from foreign_arrays import Convertible

import fastpe


class Liar(np.ndarray):
    """An array whose own methods say nothing that is true: whoever asks one is told zeros."""

    def min(self, *arguments, **keywords):
        return np.float64(0)

    max = sum = any = all = min

    def _nothing(self, *arguments, **keywords):
        return np.zeros(1)

    copy = astype = reshape = ravel = view = __getitem__ = _nothing

    def __array_function__(self, *arguments, **keywords):
        raise AssertionError("a subclass was asked")

    def __array_ufunc__(self, *arguments, **keywords):
        raise AssertionError("a subclass was asked")


def liar(values):
    return np.asarray(values).view(Liar)


def masked(values):
    """An array that hides its last entry."""
    hidden = np.zeros(np.shape(values), bool)
    hidden.flat[-1:] = True
    return np.ma.array(values, mask=hidden)


Handing = Convertible


TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
INDEX = np.array([[0, 1, 2], [2, 1, 0], [1, 1, 1]])


def attended(attention, **changed):
    """Attention of three rows, and all its gradients where it gives a pullback."""
    rows = TABLE[None].astype(np.float64)
    given = {"q": rows, "k": rows, "v": rows, "index": INDEX, "values": np.array([[1.0, 2.0, 3.0]])} | changed
    dout = given.pop("dout", rows)
    found = attention(**given)
    return np.concatenate([x.ravel() for x in found[1](dout).values()]) if isinstance(found, tuple) else found


def of_model(vocabulary=None):
    return fastpe.Transformer(
        fastpe.ModelConfig("nope", width=8, hidden=8, train_length=4, vocabulary=vocabulary, dtype="float64")
    )


def assigned(value):
    model = of_model()
    model.parameters["embed.weight"] = value
    return model.parameters["embed.weight"]


def filled(out):
    return fastpe.build("sinusoidal", 3, dim=4, out={"table": out})["table"]


def of_reference(scheme, own, name, rows):
    """A scheme of the reference as a function of one of its arrays; of several outputs the first."""

    def function(x):
        out = getattr(fastpe.reference, scheme)(rows, rows, rows, **{**own, name: x})
        return out[0] if isinstance(out, tuple) else out

    return function


def uses():
    """Argument -> (an array that it takes, the function of it), for every argument that is an array."""
    learned = {"name": "learned", "length": 3, "dim": 4}
    tokens, numbers = np.array([[2, 0, 1, 3]]), np.array([[2.0, 0.0, 1.0, 3.0]])
    rows, bias = TABLE[None].astype(np.float64), np.arange(5.0)[None]
    network = {
        "bias": bias, "w1": np.eye(2), "b1": np.ones(2), "w2": np.ones((1, 2)),
    }  # fmt: skip
    schemes = {
        "dape": network, "path": {"w": rows, "beta": np.ones((1, 3))}, "wall": {"logits": rows},
        "row_gates": {"gate_q": rows, "gate_k": rows}, "distance_bank": {"mixture": rows, "curves": np.ones((4, 2))},
        "tape": {"positions": rows, "weight": np.ones((1, 1))},
    }  # fmt: skip
    found = {
        "positions": (TABLE[0], lambda x: fastpe.build("sinusoidal", 4, positions=x)["table"]),
        "params['table']": (TABLE, lambda x: fastpe.build(**learned, params={"table": x})["table"]),
        "dslots['table']": (
            TABLE, lambda x: fastpe.pull(**learned, dslots={"table": x}, params={"table": TABLE})["table"]
        ),
        "out['table']": (np.zeros((3, 4), np.float32), filled),
        "params['table'] of resize": (TABLE, lambda x: fastpe.resize("learned", {"table": x}, length=5)["table"]),
        "x": (numbers, lambda x: of_model()(x)),
        "x of tokens": (tokens, lambda x: of_model(5)(x)),
        "y": (numbers, lambda y: np.float64(of_model().loss(numbers, y))),
        "y of tokens": (tokens, lambda y: np.float64(of_model(5).loss(tokens, y))),
        "weights": (numbers, lambda w: np.float64(of_model(5).loss_and_grads(tokens, tokens, weights=w)[0])),
        "parameters['embed.weight']": (np.ones((1, 8)), assigned),
        "table": (rows[0], lambda x: fastpe.reference.cope(rows, rows, rows, x)),
    }  # fmt: skip
    for scheme, own in schemes.items():
        for name, value in own.items():
            found[f"{name} of reference.{scheme}"] = value, of_reference(scheme, own, name, rows)
    sums = {"before": np.ones((1, 3)), "after": np.ones((1, 3))}
    for name, value in sums.items():
        found[f"{name} of two_sided"] = (
            value,
            lambda x, name=name: fastpe.columns.two_sided(rows, rows, rows, **{**sums, name: x}),
        )
    arguments = {"q": rows, "k": rows, "v": rows, "bias": bias, "index": INDEX, "dout": rows, "scale": np.array([0.5])}
    for name, value in arguments.items():
        found[name] = value, lambda x, name=name: attended(fastpe.attention_vjp, **{name: x})
        if name != "dout":
            found[f"{name} of reference"] = (
                value,
                lambda x, name=name: attended(fastpe.reference.attention, **{name: x}),
            )
    batched = {name: arguments[name][None] for name in "qkv"}
    for place, of in enumerate(("queries", "keys")):

        def call(x, place=place):
            return fastpe.attention(**batched, lengths=(x, [2]) if place == 0 else x)

        found[f"lengths of {of}"] = np.array([3]), call
    return found
