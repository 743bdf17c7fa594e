"""All comparisons with other packages, and the encodings that none of them has."""

from importlib import metadata

from packaging.requirements import Requirement
from peer_biases import CASES as BIASES
from peer_case import Case
from peer_graphs import CASES as GRAPHS
from peer_grids import CASES as GRIDS
from peer_rotations import CASES as ROTATIONS
from peer_rotations_grids import CASES as GRID_ROTATIONS
from peer_scores import CASES as SCORES
from peer_tables import CASES as TABLES
from peer_windows import CASES as WINDOWS

CASES: tuple[Case, ...] = tuple(
    sorted(
        TABLES + GRIDS + ROTATIONS + GRID_ROTATIONS + BIASES + WINDOWS + SCORES + GRAPHS,
        key=lambda case: (case.scheme, case.peer, case.note),
    )
)

SCIPY = "no package was found that has it as an encoding; the functions are compared with SciPy's elsewhere"
NO_CODE = "its authors released no package, and none was found on PyPI that has it"
NO_PACKAGE = "its authors' code is no package, and none was found on PyPI that has it"
WITHOUT = {
    "abacus": "what it adds is a learned row; tests of positions have the authors' numbers",
    "cable": "a gate, which fills nothing",
    "cartesian3d": NO_PACKAGE,
    "chebyshev": SCIPY,
    "clex": NO_PACKAGE,
    "comrope": NO_PACKAGE,
    "crossformer_bias": NO_PACKAGE,
    "da": NO_CODE,
    "dape": "a network as it is; tests of attention have the authors' numbers",
    "fire": NO_CODE,
    "fope": NO_PACKAGE,
    "fox": "a gate, which fills nothing: test_gates has numbers of the authors' code",
    "geodesic": "an own construction",
    "gegenbauer": SCIPY,
    "grape_a": "gated slopes, which fill nothing: test_gated_slopes has numbers of the authors' code",
    "grape_m": NO_PACKAGE,
    "hard_alibi": NO_PACKAGE,
    "hermite": SCIPY,
    "huang1": NO_CODE,
    "huang2": NO_CODE,
    "huang3": NO_CODE,
    "irpe": NO_PACKAGE,
    "kerple_power": NO_PACKAGE,
    "legendre": SCIPY,
    "li_eq5": NO_CODE,
    "liere": NO_PACKAGE,
    "log_n": "Su's code is no package; tests have its numbers",
    "lonlat_wrap": NO_PACKAGE,
    "magnetic": "no package was found that has it as an encoding; tests have numbers of the authors' code",
    "mope": NO_PACKAGE,
    "nope": "there is nothing to compare",
    "path": "reflections that a layer makes of its input, which fill nothing",
    "pope": "x-transformers and PoPE-pytorch have it within attention; tests have the numbers of its formula",
    "rope_ntk_mixed": NO_PACKAGE,
    "rope_resonance": NO_PACKAGE,
    "rrwp": NO_PACKAGE,
    "selective_rope": "angles of a layer's input, not filled: test_angles has numbers of the authors' code",
    "signnet": NO_PACKAGE,
    "slepian": SCIPY,
    "sph_harm": SCIPY,
    "spe": NO_PACKAGE,
    "ssd_decay": "a gate, which fills nothing",
    "ssmax": NO_CODE,
    "string": NO_CODE,
    "temperature": "transformers has it within a layer; tests have the numbers of its formula",
    "tener": NO_PACKAGE,
    "time2vec": NO_PACKAGE,
    "tupe": NO_PACKAGE,
    "wavelet": "no package was found that has it; the functions are compared with PyWavelets' elsewhere",
    "wavelet_relative": NO_CODE,
}


def missing(case: Case) -> str:
    """Why the peer of a case cannot be asked here: it is not installed, or not in that version; else nothing."""
    requirement = Requirement(case.peer)
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        way = "pip install -e '.[peers]' from a clone of fastpe, or itself where it is not in there"
        return f"{requirement.name} is a peer: {way}"
    return "" if requirement.specifier.contains(version) else f"{case.peer} is needed, not {version}"
