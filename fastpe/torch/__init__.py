"""fastpe for PyTorch: attention and encodings on tensors, with gradients. Needs the extra `torch`.

>>> import torch
>>> q = k = v = torch.ones(1, 3, 4, requires_grad=True)
>>> bias = torch.zeros(1, 5, requires_grad=True)
>>> attention(q, k, v, causal=True, bias=bias).sum().backward()
>>> tuple(bias.grad.shape)
(1, 5)
"""

try:
    import torch as _torch  # noqa: F401 - raises one clear error if PyTorch is missing
except ImportError as error:
    raise ImportError("fastpe.torch needs PyTorch: pip install -e '.[torch]' from a clone of fastpe") from error

from fastpe.torch.call import attention, two_sided
from fastpe.torch.encoding import Encoding
from fastpe.torch.heads import frequency_use, head_scores
from fastpe.torch.mods.attention import FlexReport, flex, flex_attention, flex_report
from fastpe.torch.mods.block_mask import create_block_mask
from fastpe.torch.patches import patch
from fastpe.torch.rotary import rotated
from fastpe.torch.transformers import register_transformers

__all__ = [
    "Encoding", "FlexReport", "attention", "create_block_mask", "flex", "flex_attention", "flex_report",
    "frequency_use", "head_scores", "patch", "register_transformers", "rotated", "two_sided",
]  # fmt: skip
