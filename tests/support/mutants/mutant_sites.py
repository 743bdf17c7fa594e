"""Small mistakes that can be put into a source file: where, which, and the syntax tree that has one of them.

The numbering of a file's mistakes is fixed by its text, so a file and a number name a mutant. Left alone are: what
nobody can test or nobody reads (docstrings, annotations, strings and so messages, `__repr__`, `if TYPE_CHECKING`).
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
TWINS = {
    "min": "max", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "any": "all", "sin": "cos",
    "startswith": "endswith", "exp": "expm1", "log": "log1p",
}  # fmt: skip
TWINS = {name: other for pair in TWINS.items() for name, other in (pair, pair[::-1])}
PASSED_ON = {"abs", "sorted", "reversed", "sqrt", "ascontiguousarray", "copy", "round", "absolute", "relu"}
PROSE = {"__repr__", "__str__", "_repr_html_", "__all__", "__version__"}


@dataclass
class Site:
    """One mistake: its kind, where it stands, and the change of the syntax tree that makes it."""

    kind: str
    line: int
    function: str  # the qualified name of the innermost function or class, "" at the top of the file
    statement: ast.stmt
    change: Callable[[], None]


def sites(tree: ast.Module) -> list[Site]:
    """All mistakes that can be put into a file, in the order of its text."""
    return list(_Walk().block(tree.body, "", doc=True))


def mutate(source: str, number: int) -> tuple[ast.Module, Site, str, str]:
    """The tree with mistake `number`, the mistake, and its statement before and after."""
    tree = ast.parse(source)
    site = sites(tree)[number]
    before = _first_line(site.statement)
    old = copy.deepcopy(site.statement)
    site.change()
    ast.fix_missing_locations(tree)
    after = _first_line(site.statement)
    if before == after:  # what changed stands further below, as in the body of a lambda over several lines
        before, after = ast.unparse(old), ast.unparse(site.statement)
    return tree, site, before, after


def _first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).split("\n")[0] if hasattr(statement, "body") else ast.unparse(statement)


class _Walk:
    """Goes through a file. Each visit yields the mistakes that belong to a node, then those of what is inside."""

    def block(self, body: list[ast.stmt], function: str, doc: bool = False) -> Iterator[Site]:
        for place, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring, of a variable too
            yield from self.statement(body, place, function)

    def statement(self, body: list[ast.stmt], place: int, function: str) -> Iterator[Site]:
        node = body[place]

        def site(kind: str, change: Callable[[], None]) -> Site:
            return Site(kind, node.lineno, function, node, change)

        def to(fresh: ast.stmt) -> Callable[[], None]:
            return lambda: _become(node, fresh)

        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in PROSE:
                name = f"{function}.{node.name}" if function else node.name
                for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                    yield from self.expression(default, node, name)
                yield from self.block(node.body, name, doc=True)
            return
        if isinstance(node, ast.ClassDef):
            yield from self.block(node.body, f"{function}.{node.name}" if function else node.name, doc=True)
            return
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_prose(node):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield site("call removed", to(ast.Pass()))
        if isinstance(node, ast.Raise):
            yield site("raise removed", to(ast.Pass()))
            return  # what it says is prose
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            yield site("assignment removed", to(ast.Pass()))
        if isinstance(node, ast.AugAssign):
            yield site("assignment removed", to(ast.Pass()))
            if type(node.op) in OPERATORS:
                yield site("operator", lambda: setattr(node, "op", OPERATORS[type(node.op)]()))
        if isinstance(node, ast.Break):
            yield site("break", to(ast.Continue()))
        if isinstance(node, ast.Continue):
            yield site("continue", to(ast.Break()))
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield site("nothing returned", lambda: setattr(node, "value", ast.Constant(None)))
        if isinstance(node, ast.If):
            yield site("condition negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))
        for field, value in ast.iter_fields(node):
            if field == "annotation":
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr):
                    yield from self.expression(child, node, function)
                elif isinstance(child, ast.withitem):
                    yield from self.expression(child.context_expr, node, function)
                elif isinstance(child, ast.ExceptHandler | ast.match_case):
                    yield from self.block(child.body, function)
            if field in ("body", "orelse", "finalbody"):
                yield from self.block(value, function)

    def expression(self, node: ast.expr, statement: ast.stmt, function: str) -> Iterator[Site]:
        def site(kind: str, change: Callable[[], Any]) -> Site:
            return Site(kind, node.lineno, function, statement, change)

        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Lambda):
            yield from self.expression(node.body, statement, function)
            return
        for kind, change in _changes(node):
            yield site(kind, change)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                child = child.value
            if isinstance(child, ast.Slice):
                for bound in ("lower", "upper"):
                    if getattr(child, bound) is not None:
                        yield site("slice", lambda child=child, bound=bound: setattr(child, bound, None))
            if isinstance(child, ast.comprehension):
                for place, test in enumerate(child.ifs):
                    change = lambda c=child, p=place, t=test: c.ifs.__setitem__(p, ast.UnaryOp(ast.Not(), t))  # noqa: E731
                    yield site("condition negated", change)
                for part in (child.iter, *child.ifs):
                    yield from self.expression(part, statement, function)
            elif isinstance(child, ast.Slice):
                for part in filter(None, (child.lower, child.upper, child.step)):
                    yield from self.expression(part, statement, function)
            elif isinstance(child, ast.expr):
                yield from self.expression(child, statement, function)


def _changes(node: ast.expr) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The mistakes of one node of an expression."""
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            yield "comparison", lambda p=place, o=op: node.ops.__setitem__(p, COMPARISONS[type(o)]())
    elif isinstance(node, ast.BinOp):
        texts = (isinstance(side, ast.JoinedStr) or _is(side, str) for side in (node.left, node.right))
        if type(node.op) in OPERATORS and not any(texts):
            yield "operator", lambda: setattr(node, "op", OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "and, or", lambda: setattr(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield "sign or not removed", lambda: _become(node, node.operand)
    elif isinstance(node, ast.IfExp):
        yield "condition negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        if node.value is True or node.value is False:
            yield "constant", lambda: setattr(node, "value", not node.value)
        elif isinstance(node.value, int):
            yield "constant", lambda: setattr(node, "value", node.value + 1)
            yield "constant", lambda: setattr(node, "value", node.value - 1)
        elif isinstance(node.value, float):
            yield "constant", lambda: setattr(node, "value", node.value * 1.1 if node.value else 1.0)
    elif isinstance(node, ast.Call):
        yield from _changes_of_call(node)


def _changes_of_call(node: ast.Call) -> Iterator[tuple[str, Callable[[], Any]]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    plain = [not isinstance(argument, ast.Starred) for argument in node.args]
    if name in TWINS:
        field = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield "another function", lambda: setattr(node.func, field, TWINS[name])
    if name in PASSED_ON and len(node.args) == 1 and all(plain):
        yield "call left out", lambda: _become(node, node.args[0])
    if name == "range" and len(node.args) == 1:
        yield "one turn less", lambda: node.args.__setitem__(0, ast.BinOp(node.args[0], ast.Sub(), ast.Constant(1)))
    for place in range(len(node.args) - 1):
        if plain[place] and plain[place + 1]:
            yield "arguments swapped", lambda p=place: _swap(node.args, p)


def _swap(values: list[Any], place: int) -> None:
    values[place], values[place + 1] = values[place + 1], values[place]


def _become(node: ast.AST, other: ast.AST) -> None:
    """Put another node in the place of one, wherever that stands."""
    place = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    fields = dict(vars(other))
    node.__class__ = other.__class__
    vars(node).clear()
    vars(node).update(fields | place)


def _is(node: ast.AST | None, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)


def _is_prose(node: ast.stmt) -> bool:
    """Whether a statement is there for readers and type checkers alone."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Assign):
        if isinstance(node.value, ast.Subscript) and ast.unparse(node.value).startswith(("np.ndarray[", "Callable[")):
            return True
        return any(getattr(target, "id", "") in PROSE for target in node.targets) or "TypeVar(" in ast.unparse(node)
    return False
