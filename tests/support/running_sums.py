"""Running sums as `train` and `evaluate` see them: numbers of the model's dtype, of one length."""

import numpy as np

from fastpe.base.random import Stream
from fastpe.tasks import frame
from fastpe.tasks.registry import choose

RUNNING_SUM = choose("running_sum")


def sample(seed, stream, count, length, dtype=np.float32, step=0):
    x, y, _ = frame.draw(RUNNING_SUM, Stream(seed, stream, step), count, length, dtype)
    return x.astype(dtype), y.astype(dtype)
