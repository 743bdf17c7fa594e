"""A slow solution of each task for one sequence, independent of the task's file, that also checks the sequence."""

import re
from collections import Counter
from functools import cache
from itertools import accumulate, combinations, pairwise, permutations, product

import numpy as np


def majority(x, **options):
    (letter, most), *others = Counter(x).most_common()
    assert all(count < most for _, count in others)
    return [letter]


def number(digits, order, base, padded):
    digits = digits if order == "reversed" else digits[::-1]
    assert padded or len(digits) == 1 or digits[-1] > 0, "a leading zero"
    return sum(digit * base**place for place, digit in enumerate(digits))


def addition(x, digits, base, padded):
    plus = x.index(base)
    assert not padded or plus == len(x) // 2
    total = sum(number(part, digits, base, padded) for part in (x[:plus], x[plus + 1 :]))
    written = [int(digit) for digit in np.base_repr(total, base)]
    if padded:
        written = [0] * (plus + 1 - len(written)) + written
    return written if digits == "ordinary" else written[::-1]


def induction(x, **options):
    found = []
    for place, token in enumerate(x):
        before = [earlier for earlier in range(place) if x[earlier] == token]
        found.append(x[before[-1] + 1] if before else -1)
    return found


def flip_flop(x, **options):
    assert (x[0], x[-2]) == (2, 3)
    found, written = [], None
    for instruction, bit in zip(x[::2], x[1::2], strict=True):
        written = bit if instruction == 2 else written
        assert instruction in (2, 4) or bit == written
        found += [written if instruction == 3 else -1, -1]
    return found


def posgen(x, rule, near, far, modulus):
    start = {
        "recursive": lambda t: t - near - far,
        "cot": lambda t: 0,
        "semi_recursive": lambda t: (t - near - far) // 2,
    }

    def token(t, known):
        return (sum(known[start[rule](t) : start[rule](t) + far]) + sum(known[t - near : t])) % modulus

    for t in range(near + far, len(x)):
        assert x[t] == token(t, x)
    return [-1] * (near + far - 1) + [token(t, x) for t in range(near + far, len(x) + 1)]


def depth(x, blocks):
    number = [sum(a != b for a, b in pairwise(x[:end])) for end in range(1, len(x) + 1)]
    assert x[0] == 0
    assert number[-1] == blocks - 1
    return [int(n == blocks - 1) for n in number]


def different(x):
    assert len(set(x)) == len(x)
    return x


def value(text):
    """Of digits with +, - and *, products first."""
    total = 0
    for term in text.replace("-", "+-").split("+"):
        sign, product = (-1 if term.startswith("-") else 1), 1
        for digit in term.lstrip("-").split("*"):
            product *= int(digit)
        total += sign * product
    return total


def permutation_product(a, b):
    return tuple(a[i] for i in b)


def elements(group):
    """The elements in order, and how two of them are multiplied."""
    if group == "A4xZ5":
        (firsts, first), (seconds, second) = elements("A4"), elements("Z5")
        return [(a, b) for a in firsts for b in seconds], lambda x, y: (first(x[0], y[0]), second(x[1], y[1]))
    n = int(group[1:])
    if group[0] == "Z":
        return list(range(n)), lambda a, b: (a + b) % n
    even = [p for p in permutations(range(n)) if sum(a > b for a, b in combinations(p, 2)) % 2 == 0]
    return even if group[0] == "A" else list(permutations(range(n))), permutation_product


def word_problem(x, group, generators):
    known, times = elements(group)
    if generators == "transpositions":
        assert all(sum(i != each for i, each in enumerate(known[token])) == 2 for token in x)
    return [known.index(each) for each in accumulate((known[token] for token in x), times)]


def n_back_recall(x, back, keys, values):
    found, told = [], {}
    for key, value in zip(x[::2], x[1::2], strict=True):
        assert key < keys <= value < keys + values
        before = told.setdefault(key, [])
        found += [before[-back] if len(before) >= back else -1, -1]
        before.append(value)
    return found


def mqar(x, pairs, updates=0, **options):
    told = 2 * (pairs + updates)
    first, values = x[: 2 * pairs : 2], dict(zip(x[:told:2], x[1:told:2], strict=True))
    assert len(set(first)) == pairs == len(values)
    assert len(set(x[2 * pairs : told : 2])) == updates
    assert len(set(x[1:told:2])) == pairs + updates
    assert sorted(token for token in x[told:] if token) == sorted(values)
    return [-1] * told + [values.get(token, -1) for token in x[told:]]


def compositional_mqar(x, grid, vocabulary):
    third, pairs = vocabulary // 3, grid * grid
    triples = list(zip(x[::3], x[1::3], x[2::3], strict=True))
    values = {(first, second): value for first, second, value in triples[:pairs]}
    assert len(values) == len(set(values.values())) == pairs
    assert {0 < a < third <= b < 2 * third <= c < vocabulary for a, b, c in triples[:pairs]} == {True}
    assert sorted(t[:2] for t in triples[pairs:] if any(t)) == sorted(values)
    assert not any(t[2] for t in triples[pairs:])
    return [label for t in triples for label in (-1, -1 if t[2] else values.get(t[:2], -1), -1)]


def in_context_recall(x, vocabulary, noise, noise_symbols):
    values, found = {}, []
    for place in range(0, len(x), 2):
        key, value = x[place], x[place + 1] if place + 1 < len(x) else None
        found += [values.get(key, -1), -1]
        if key < vocabulary // 2:
            assert value in (None, values.setdefault(key, value))
        else:
            assert noise
            assert key >= vocabulary <= value
    assert found[-2] >= 0
    return found[:-1]


def fuzzy_recall(x, vocabulary, size, sizes, keys):
    """The text is cut where a key begins, that is, where a symbol of keys follows one of values or padding."""
    half, values, parts = vocabulary // 2, {}, []
    start = next(place for place, token in enumerate(x) if token != vocabulary)
    for place in range(start, len(x)):
        if x[place] < half and (place == start or x[place - 1] >= half):
            parts.append(place)
    found = [-1] * len(x)
    for begin, end in zip(parts, [*parts[1:], len(x)], strict=True):
        key = tuple(token for token in x[begin:end] if token < half)
        value = tuple(token for token in x[begin:end] if token >= half)
        assert x[begin:end] == [*key, *value]
        last = end == len(x)
        assert not last or key in values
        for word in (key, values[key] if last else value):
            assert len(set(word)) == len(word)
            assert len(word) == size if sizes == "largest" else 1 <= len(word) <= size
        if key in values:
            assert (values[key][: len(value)] if not last else values[key][:-1]) == value
            first = begin + len(key) - 1
            found[first : first + len(values[key])] = values[key]
        values.setdefault(key, value)
    assert len(values) <= keys
    return found


def needles(x, variant, needles, queries, keys, values, digits):
    """Read from the left, as a person does; the filler between needles must repeat."""
    first, filler, told, asked = 6, 0, [], []
    place = 0
    while x[place] != 1:
        if x[place] == 0:
            told.append((x[place + 1], x[place + 2 : place + 2 + digits]))
            place += 2 + digits
        else:
            assert x[place] == 2 + filler % 4
            filler, place = filler + 1, place + 1
    asked = x[place + 1 :]
    assert len(asked) == (queries if variant == "multiquery" else 1)
    assert len(told) == (1 if variant == "single" else needles or place // (2 + digits))
    assert all(first <= key < first + keys <= min(value) and max(value) < first + keys + values for key, value in told)
    assert len({key for key, _ in told}) == (1 if variant == "multivalue" else len(told))
    return [token for key in asked for own, value in told if own == key for token in value]


def variable_tracking(x, hops, chains, names, values):
    body, (question, asked) = x[:-2], x[-2:]
    assert question == 1
    statements = [(body[i - 1], body[i + 1]) for i, token in enumerate(body) if token == 0]
    filler = [token for i, token in enumerate(body) if 0 not in body[max(i - 1, 0) : i + 2]]
    assert filler == [2 + place % 4 for place in range(len(filler))]
    assert len(statements) == chains * (hops + 1) == len({name for name, _ in statements})
    known = [asked]
    for name, says in statements:
        if says == known[-1]:
            known.append(name)
    return known[1:]


def selective_copying(x, tokens, symbols):
    found = [token for token in x if token < symbols]
    assert len(found) == tokens
    return found


TOMITA = {
    1: lambda w: "0" not in w,
    2: lambda w: w == "10" * (len(w) // 2),
    3: lambda w: not re.search(r"(^|0)1(11)*0(00)*(1|$)", w),
    4: lambda w: "000" not in w,
    5: lambda w: w.count("0") % 2 == 0 == w.count("1") % 2,
    6: lambda w: (w.count("0") - w.count("1")) % 3 == 0,
    7: lambda w: re.fullmatch("0*1*0*1*", w) is not None,
}


@cache
def tomita_label(grammar, text):
    """A string of a language has a continuation of at most 4 symbols, if it has any."""
    inside = TOMITA[grammar]

    def lives(text):
        return any(inside(text + "".join(more)) for n in range(5) for more in product("01", repeat=n))

    return 1 + lives(text + "0") + 2 * lives(text + "1") + 4 * inside(text)


def tomita(x, grammar):
    text = "".join(map(str, x))
    assert TOMITA[grammar](text)
    return [tomita_label(grammar, text[: end + 1]) for end in range(len(text))]


def dyck(x, kinds, depth):
    found, stack = [], []
    for token in x:
        if token < kinds:
            stack.append(token)
        else:
            assert token - kinds == stack.pop()
        assert len(stack) <= depth
        found.append(stack[-1] + kinds if stack else -1)
    assert not stack
    return found


def stack_manipulation(x):
    stack = []
    for token in x:
        if token == 2:
            stack = stack[:-1]
        else:
            stack = [*stack, token % 3]
    return stack[::-1]


def path_star(x, arms, nodes, reversed):
    *edges, start, goal = x
    triples = list(zip(edges[::3], edges[1::3], edges[2::3], strict=True))
    assert [mark for *_, mark in triples] == [nodes] * (len(triples) - 1) + [nodes + 1]
    inner = {outer: inner for inner, outer, _ in triples}
    assert len(inner) == len(triples)
    assert Counter(inner.values())[start] == arms
    path = [goal]
    while path[-1] != start:
        path.append(inner[path[-1]])
    assert (len(path) - 1) * arms == len(triples)
    return path if reversed else path[::-1]


def counting(x, variables, passes):
    values = [0] * variables
    *steps, question = x
    for step in steps:
        variable, what = divmod(step - 12, 3)
        if step > 11:
            assert what < 2
            values[variable] = min(values[variable] + 1, 10) if what else 0
    variable, what = divmod(question - 12, 3)
    assert what == 2
    return [values[variable]]


SOLUTIONS = {
    "addition": addition,
    "bin_majority": majority,
    "compositional_mqar": compositional_mqar,
    "counting": counting,
    "cycle_navigation": lambda x: [(sum(x) - len(x)) % 5],
    "depth": depth,
    "duplicate": lambda x: x + x,
    "dyck": dyck,
    "even_pairs": lambda x: [sum(a != b for a, b in pairwise(x)) % 2],
    "first_quarter": lambda x: [float(place < len(x) / 4) for place in range(len(x))],
    "flip_flop": flip_flop,
    "fuzzy_recall": fuzzy_recall,
    "in_context_recall": in_context_recall,
    "induction": induction,
    "majority": majority,
    "missing_duplicate": lambda x: [(x[: len(x) // 2] if 2 not in x[: len(x) // 2] else x[len(x) // 2 :])[
        x.index(2) % (len(x) // 2)
    ]],
    "modular_arithmetic": lambda x: [value("".join("01234+-*"[token] for token in x)) % 5],
    "mqar": mqar,
    "n_back_recall": n_back_recall,
    "needles": needles,
    "odds_first": lambda x: x[1::2] + x[::2],
    "parity": lambda x: [sum(x) % 2],
    "path_star": path_star,
    "posgen": posgen,
    "repeat_copy": lambda x, symbols: x,
    "reverse": lambda x, symbols: x[::-1],
    "running_mean": lambda x: [sum(x[: place + 1]) / (place + 1) for place in range(len(x))],
    "running_sum": lambda x: [sum(x[: place + 1]) for place in range(len(x))],
    "selective_copying": selective_copying,
    "shift": lambda x: [0.0, *x[:-1]],
    "sort": lambda x, symbols: sorted(different(x)),
    "stack_manipulation": stack_manipulation,
    "tomita": tomita,
    "unique_copy": lambda x, symbols: different(x),
    "variable_tracking": variable_tracking,
    "word_problem": word_problem,
}  # fmt: skip
