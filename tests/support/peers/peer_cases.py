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

SCIPY = "no package with this encoding was found; other tests compare the functions with SciPy"
NO_CODE = "its authors released no code, and no package on PyPI was found to have it"
NO_PACKAGE = "its authors' code is not a package, and no package on PyPI was found to have it"
WITHOUT = {
    "abacus": "it adds learned rows; tests of positions have the authors' numbers",
    "cable": "a gate, which fills no slot",
    "cartesian3d": NO_PACKAGE,
    "chebyshev": SCIPY,
    "clex": NO_PACKAGE,
    "comrope": NO_PACKAGE,
    "crossformer_bias": NO_PACKAGE,
    "da": NO_CODE,
    "dape": "a network without further formula; tests of attention have the authors' numbers",
    "fire": NO_CODE,
    "fope": NO_PACKAGE,
    "fox": "a gate, which fills no slot; test_gates has numbers of the authors' code",
    "geodesic": "designed for fastpe",
    "gegenbauer": SCIPY,
    "grape_a": "gated slopes, which fill no slot; test_gated_slopes has numbers of the authors' code",
    "grape_m": NO_PACKAGE,
    "hard_alibi": NO_PACKAGE,
    "hermite": SCIPY,
    "hope": NO_CODE,
    "huang1": NO_CODE,
    "huang2": NO_CODE,
    "huang3": NO_CODE,
    "irpe": NO_PACKAGE,
    "kerple_power": NO_PACKAGE,
    "legendre": SCIPY,
    "li_eq5": NO_CODE,
    "liere": NO_PACKAGE,
    "log_n": "Su's code is not a package; tests have its numbers",
    "lonlat_wrap": NO_PACKAGE,
    "magnetic": "no package with this encoding was found; tests have numbers of the authors' code",
    "moirai": "uni2ts has it inside a layer; tests have the numbers of its formula",
    "mope": NO_PACKAGE,
    "ms_poe": NO_PACKAGE,
    "nope": "there is nothing to compare",
    "path": "reflections that a layer computes from its input; it fills no slot",
    "pope": "x-transformers and PoPE-pytorch have it inside attention; tests have the numbers of its formula",
    "rope_clipped": NO_PACKAGE,
    "rope_mixed_radix": NO_CODE,
    "rope_ntk_mixed": NO_PACKAGE,
    "rope_resonance": NO_PACKAGE,
    "rrwp": NO_PACKAGE,
    "selective_rope": "angles that a layer computes from its input; test_angles has numbers of the authors' code",
    "signnet": NO_PACKAGE,
    "slepian": SCIPY,
    "sph_harm": SCIPY,
    "spe": NO_PACKAGE,
    "ssd_decay": "a gate, which fills no slot",
    "ssmax": NO_CODE,
    "string": NO_CODE,
    "temperature": "transformers has it inside a layer; tests have the numbers of its formula",
    "tener": NO_PACKAGE,
    "time2vec": NO_PACKAGE,
    "tupe": NO_PACKAGE,
    "wavelet": "no package with this encoding was found; other tests compare the functions with PyWavelets",
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
