"""Table 5 of Li (2025): the printed errors, the training that they come from, and the settings that it leaves open."""

from collections.abc import Mapping

from fastpe.model.config import DTYPES, INITS, TABLE_SCALES
from fastpe.tasks import targets
from fastpe.training.config import DATA

NAMES = ("table5",)
SOURCE = "Li (2025), Table 5"
PAPER: Mapping[str, Mapping[int, float]] = {
    "sinusoidal": {50: 0.0021, 100: 0.0158, 200: 0.0423},
    "alibi": {50: 0.0023, 100: 0.0055, 200: 0.0127},
    "wavelet": {50: 0.0024, 100: 0.0049, 200: 0.0108},
    "legendre": {50: 0.0022, 100: 0.0078, 200: 0.0215},
}
"""Mean squared errors as printed, by encoding and length."""
READINGS = ("bidirectional", "causal")
"""The possible meanings of "encoder" in the paper. A study has one task for each, with this name."""
LENGTHS = (50, 100, 200)
WHOLE = {"samples": 10_000, "epochs": 20}
"""The size of the paper's training; smaller runs are not judged."""

LEFT_OPEN: Mapping[str, str] = {
    "batch": "sequences per update, e.g. 64, 128, 256, 10000",
    "residual": "yes or no",
    "init": " or ".join(INITS),
    "data": " or ".join(DATA),
    "target_scale": " or ".join(targets.SCALES),
    "table_scale": " or ".join(TABLE_SCALES),
    "start": "position of the first element, 0 or 1 (`learned`, whose rows have no base, stays at 0)",
    "dtype": " or ".join(DTYPES),
    "beta1": "a number",
    "beta2": "a number",
    "eps": "a number",
}
"""The settings that the paper leaves open, with their possible values. `fastpe reproduce` can vary these settings and
every option of an encoding, as in ``wavelet.wavelet=db2``."""
