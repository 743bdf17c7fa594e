"""Reference implementations in plain NumPy, not compiled: the specification that all kernels are checked against.

``op_vjp`` takes the arguments of ``op`` and returns its value and a pullback, a function that maps the gradient of the
value to the gradients of the arguments. Everything is computed in the dtype of the arguments, except `attention` and
`attention_vjp`, which compute in float64.

`cope`, `dape` and `path` are special cases of `attention`, with the formulas of their papers: `cope` of the slot
``counts``, `dape` of ``mlp_in``, ``mlp_bias`` and ``mlp_out``, `path` of ``reflectors`` and ``reflect``. Some forms of
attention with content-dependent positions cannot be expressed by slots. They exist only here, and are causal:

    wall                a separate decay for each channel
    row_gates           gates of query and key, summed along rows: per-row ALiBi, GRAPE-AP
    distance_bank       curves over distances, mixed by each query
    tape, tape_map      positions as a separate stream, which layers update

`model_forward`, `model_loss_and_grads` and `adam_step` make up a whole training step of the model.
`model_gradient_sizes` returns a scale for the rounding errors of its gradients. `bfloat16` rounds an array, and matrix
products of `Rounding` arrays round their operands. If the parameters are `Rounding` arrays, all functions above are a
reference for ``precision="bfloat16"``.

From outside: `_attention`.

`_attention.attention_vjp_in` computes in other dtypes than float64.
"""

from fastpe.reference._adam import adam_step
from fastpe.reference._attention import attention, attention_scores, attention_vjp
from fastpe.reference._cope import cope, cope_vjp
from fastpe.reference._dape import dape, dape_vjp
from fastpe.reference._distance_bank import distance_bank, distance_bank_vjp
from fastpe.reference._dropout import dropout_factors, philox4x32
from fastpe.reference._gate import gate, gate_vjp
from fastpe.reference._model import model_forward, model_gradient_sizes, model_loss_and_grads
from fastpe.reference._operations import (
    cross_entropy,
    cross_entropy_vjp,
    embedding,
    embedding_vjp,
    geglu,
    geglu_vjp,
    gelu,
    gelu_tanh,
    gelu_tanh_vjp,
    gelu_vjp,
    layer_norm,
    layer_norm_vjp,
    linear,
    linear_vjp,
    mean_squared_error,
    mean_squared_error_vjp,
    relu,
    relu2,
    relu2_vjp,
    relu_vjp,
    rms_norm,
    rms_norm_vjp,
    softcap,
    softcap_vjp,
    softmax,
    softmax_vjp,
    swiglu,
    swiglu_vjp,
)
from fastpe.reference._path import path, path_vjp
from fastpe.reference._reflections import reflections, reflections_vjp
from fastpe.reference._rotation import rotate, rotate_vjp
from fastpe.reference._rounding import Rounding, bfloat16
from fastpe.reference._row_gates import row_gates, row_gates_vjp
from fastpe.reference._tape import tape, tape_map, tape_map_vjp, tape_vjp
from fastpe.reference._wall import wall, wall_vjp

__all__ = [  # noqa: RUF022 - in the order of the model
    "attention", "attention_vjp", "attention_scores", "cope", "cope_vjp", "dape", "dape_vjp",
    "path", "path_vjp", "wall", "wall_vjp", "row_gates", "row_gates_vjp", "distance_bank", "distance_bank_vjp",
    "tape", "tape_vjp", "tape_map", "tape_map_vjp", "gate", "gate_vjp", "reflections",
    "reflections_vjp", "rotate", "rotate_vjp",
    "embedding", "embedding_vjp", "linear", "linear_vjp", "relu", "relu_vjp", "relu2", "relu2_vjp", "gelu", "gelu_vjp",
    "gelu_tanh", "gelu_tanh_vjp", "swiglu", "swiglu_vjp", "geglu", "geglu_vjp", "softcap", "softcap_vjp",
    "layer_norm", "layer_norm_vjp", "rms_norm", "rms_norm_vjp",
    "softmax", "softmax_vjp", "mean_squared_error", "mean_squared_error_vjp",
    "cross_entropy", "cross_entropy_vjp",
    "bfloat16", "Rounding", "philox4x32", "dropout_factors", "model_forward", "model_loss_and_grads",
    "model_gradient_sizes", "adam_step",
]  # fmt: skip
