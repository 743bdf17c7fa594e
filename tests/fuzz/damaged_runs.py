"""Run folders damaged at random, with right checksums or wrong ones."""

import atexit
import random
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import damage
import numpy as np
from hypothesis import strategies as st

from fastpe.base.stored import DamagedFileError
from fastpe.model.transformer import Transformer
from fastpe.training.run_folder import RunError, load


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """How far the run was, which file is lost beside the damaged one, and a seed of the damage."""
    return {
        "epochs": draw(st.sampled_from([1, damage.CONFIG.epochs])),
        "lost": draw(st.sampled_from([None] * 4 + list(damage.FILES))),
        "seed": draw(st.integers(0, 2**32)),
    }


def judge(case: dict[str, Any]) -> None:
    """What is read is what was written, or one error names the file, or a note says what is made again."""
    folder, draw = _folder() / "damaged", random.Random(case["seed"])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_whole(case["epochs"]), folder)
    touched = {damage.somewhere(folder, draw)}
    if case["lost"] is not None:
        (folder / case["lost"]).unlink(missing_ok=True)
        touched.add(case["lost"])
    for read in (load, damage.read_all):
        try:
            found = read(folder)
        except (DamagedFileError, RunError, FileNotFoundError) as error:
            if str(folder) not in str(error) or re.search(r"[\x00-\x1f\x7f]", str(error)):
                raise AssertionError(f"the message names no file, or has control characters: {error!r}") from error
            continue
        if read is load and touched.isdisjoint({"model.safetensors", "config.json"}):
            model = Transformer(damage.CONFIG.model)
            for name, tensor in found.parameters.items():
                np.testing.assert_array_equal(tensor, model.parameters[name], err_msg=name)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fastpe-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _whole(epochs: int) -> Path:
    return damage.finished(_folder() / f"whole-{epochs}", epochs)


DAMAGE = (cases(), judge)
