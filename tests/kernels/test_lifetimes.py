"""Arrays that compiled code makes live as long as pointers to them are used."""

import ast

import pytest

from fastpe.kernels.compile.sources import PACKAGE

POINTS = {"pointer", "row", "rounding"}  # what makes a pointer of an array, which Numba does not count as a use


def lost(source: str) -> list[tuple[str, str]]:
    """Functions that make arrays, and those of them whose last use is to make a pointer."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and _makes_arrays(function):
            found += [(function.name, name) for name in sorted(_made(function)) if _is_lost(function, name)]
    return found


def _makes_arrays(function: ast.FunctionDef) -> bool:
    return any("entry" in ast.unparse(each) for each in function.decorator_list)


def _made(function: ast.FunctionDef) -> set[str]:
    """Names of arrays that were made here."""
    made = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            made |= {name.id for name, own in pairs if isinstance(name, ast.Name) and _makes(own)}
    return made


def _makes(value: ast.expr) -> bool:
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return False
    return ast.unparse(value.func.value) == "np" or value.func.attr in ("copy", "astype")


def _is_lost(function: ast.FunctionDef, name: str) -> bool:
    """Whether the last use of an array is to make a pointer, outside of loops, which use it again."""
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    last = max((node for node in uses if isinstance(node.ctx, ast.Load)), key=_place, default=None)
    in_loops = {
        id(node) for loop in ast.walk(function) if isinstance(loop, ast.For | ast.While) for node in ast.walk(loop)
    }
    pointed = {
        id(node.args[0])
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in POINTS and node.args
    }
    return last is not None and id(last) in pointed and id(last) not in in_loops


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x = np.zeros(3)\n    use(pointer(x))", ["x"]),
        ("x, y = np.zeros(3), np.empty((2, 3))\n    p = row(y, 0)\n    use(p, x)", ["y"]),
        ("x = y.copy()\n    p = pointer(x)\n    use(p, x)", []),
        ("x = np.zeros(3)\n    for i in range(3):\n        use(pointer(x), i)", []),
        ("use(pointer(x))", []),
    ],
)
def test_arrays_whose_last_use_makes_a_pointer_are_found(body, names):
    assert [name for _, name in lost(f"@entry\ndef f(y):\n    {body}\n")] == names


@pytest.mark.full("takes seconds")
def test_no_array_is_given_back_before_its_pointer_is_used():
    found = {path.relative_to(PACKAGE).as_posix(): lost(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
