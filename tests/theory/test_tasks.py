"""What symmetries make impossible on the tasks of the library, against all sequences of small sizes."""

import itertools
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from fastpe.tasks import list_tasks, load_task, register
from fastpe.tasks.registry import choose
from fastpe.theory.symmetry import symmetry
from fastpe.theory.tasks import limit

NOPE, ALIBI, ROPE, SHAW = (symmetry(name, draws=1) for name in ("nope", "alibi", "rope", "shaw"))
CAUSAL_ALIBI = symmetry("alibi", causal=True, draws=1)
BITS = {
    "reverse": lambda x: x[::-1], "repeat_copy": lambda x: x, "duplicate": lambda x: x * 2,
    "odds_first": lambda x: x[1::2] + x[::2], "even_pairs": lambda x: (int(x[0] != x[-1]),),
    "bin_majority": lambda x: (int(2 * sum(x) > len(x)),), "parity": lambda x: (sum(x) % 2,),
}  # fmt: skip


def best_share(pairs):
    """The largest share of right tokens of one answer per multiset; pairs of (input, answer), equally likely."""
    asked, total = defaultdict(Counter), 0
    for inputs, answer in pairs:
        asked[tuple(sorted(inputs))].update(answer)
        total += len(answer)
    return sum(max(counts.values()) for counts in asked.values()) / total


def share(task, length, metric="token", **options):
    return limit(task, NOPE, length, metric=metric, task_options=options).value.value


def test_running_sums_of_alibi():
    assert limit("running_sum", ALIBI, 50).value.value == 12.25
    assert limit("running_sum", CAUSAL_ALIBI, 50).value is None
    assert limit("running_sum", CAUSAL_ALIBI, 50, metric="mse_constant").value.value == 208.25


def test_first_quarter_is_impossible_for_encodings_that_act_on_scores():
    """C25, C29."""
    assert limit("first_quarter", ALIBI, 50).value.value == 0.13
    assert limit("first_quarter", NOPE, 50).value.value == 0.1924
    for found in (ALIBI, ROPE, CAUSAL_ALIBI):
        assert limit("first_quarter", found, 50, metric="mse_constant").value.value == 0.1924
        assert limit("first_quarter", found, 52, metric="mse_constant").value.value == 0.1875
        assert limit("position_index", found, 50, metric="mse_constant").value.value == 208.25
    assert limit("first_quarter", SHAW, 50, metric="mse_constant").value is None


@pytest.mark.parametrize("name", ["reverse", "majority", "even_pairs"])
def test_no_answer_of_two_different_tokens_is_right_to_its_end(name):
    assert limit(name, NOPE, 5).value.value == 0.0


@pytest.mark.parametrize("task", BITS)
def test_bits_over_all_inputs(task):
    for n in range(1, 9):
        inputs = [x for x in itertools.product((0, 1), repeat=n) if task != "bin_majority" or 2 * sum(x) != n]
        assert share(task, n) == pytest.approx(best_share((x, BITS[task](x)) for x in inputs), rel=1e-14)


def test_missing_duplicate_over_all_inputs():
    for half in range(1, 5):
        pairs = []
        for word, place in itertools.product(itertools.product((0, 1), repeat=half), range(2 * half)):
            twice = [*word, *word]
            pairs.append(([*twice[:place], 2, *twice[place + 1 :]], [twice[place]]))
        assert share("missing_duplicate", 2 * half) == best_share(pairs) == 1.0


def test_symbols_that_are_all_different():
    sets = list(itertools.permutations(range(4), 3))
    assert share("unique_copy", 3, symbols=4) == pytest.approx(best_share((x, x) for x in sets))
    assert share("sort", 3, symbols=4) == pytest.approx(best_share((x, sorted(x)) for x in sets))


def test_labels_beside_equal_tokens():
    for n, blocks in ((4, 2), (6, 3), (7, 4), (8, 5)):
        right = whole = 0
        ways = defaultdict(Counter)  # (token, counts) -> labels
        for cuts in itertools.combinations(range(1, n), blocks - 1):
            number = np.searchsorted(cuts, np.arange(n), side="right")
            for block in number:
                ways[block % 2, sum(number % 2)].update([int(block == blocks - 1)])
        right = sum(max(labels.values()) for labels in ways.values())
        whole = sum(sum(labels.values()) for labels in ways.values())
        assert share("depth", n, blocks=blocks) == pytest.approx(right / whole)
        assert share("depth", n, "exact", blocks=blocks) == float(blocks == 2)


def test_recall_without_positions_is_a_guess_among_the_pairs():
    options = {"pairs": 3, "vocabulary": 20}
    assert share("mqar", 16, **options) == pytest.approx(1 / 3)
    assert share("mqar", 16, "exact", **options) == pytest.approx(1 / 6)


@pytest.mark.parametrize("name", list_tasks())
def test_every_task_has_a_limit_or_a_reason(name):
    length = 8 if load_task(name).kind == "text" else choose(name).lengths.next(8)
    for found in (NOPE, ALIBI, ROPE, SHAW, CAUSAL_ALIBI):
        got = limit(name, found, length)
        assert got.why
        assert got.task == name
        if got.value is None:
            continue
        assert got.value.low <= got.value.value <= got.value.high
        assert found is NOPE or load_task(name).kind == "numbers"


def test_factors_multiply_the_targets():
    found = limit("running_sum", ALIBI, 50, factors=np.full(50, 1 / 50))
    assert found.value.value == pytest.approx(12.25 / 2500, rel=1e-14)


def test_a_task_of_ones_own(tmp_path):
    path = tmp_path / "two_before.py"
    path.write_text(
        '"""The number two before."""\nimport numpy as np\nfrom fastpe.tasks import Task\n'
        "def sample(draws, length, count):\n    x = draws.normal((count, length))\n    return x, x\n"
        "def squares(length):\n    return np.ones(length)\n"
        "def reversal_bound(length, factors):\n    return 0.25 * float(np.mean(factors))\n"
        'TASK = Task(kind="numbers", summary="two before", source="own")\n'
    )
    name = register(path)
    assert limit(name, ALIBI, 9, factors=np.full(9, 2.0)).value.value == 0.5
    assert limit(name, NOPE, 9).value is None
    assert limit(name, ROPE, 9, metric="mse_constant").why.endswith("give identical tokens different outputs")


def test_a_symmetry_that_was_only_measured_has_no_limit():
    guessed = replace(NOPE, perm=replace(NOPE.perm, proved=False))
    for task in ("running_sum", "reverse"):
        assert limit(task, guessed, 9).value is None
        assert "not proved" in limit(task, guessed, 9).why


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="did you mean"):
        limit("running_summ", NOPE, 9)
    with pytest.raises(ValueError, match="metric must be mse or mse_constant, not 'exact'"):
        limit("shift", NOPE, 9, metric="exact")
    with pytest.raises(ValueError, match="metric must be exact or token, not 'mse'"):
        limit("reverse", NOPE, 9, metric="mse")
    with pytest.raises(ValueError, match="length must be every 2 from 2"):
        limit("missing_duplicate", NOPE, 3)
    with pytest.raises(ValueError, match="symmetry must be computed for at least 16 positions, not 2"):
        limit("shift", symmetry("alibi", length=2), 50)
    assert limit("shift", symmetry("alibi", length=2), 2).value.value == 0.25
