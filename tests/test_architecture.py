"""What the file tree promises: imports go one way, packages are all listed, nothing unsafe, nothing compiled twice."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fastpe
from fastpe.kernels.compile import sources
from fastpe.kernels.model import transformer as model
from fastpe.kernels.products import gemm
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

ROOT = Path(__file__).resolve().parent.parent

# The packages in layers, from the lowest: a package imports from itself and from lower layers.
LAYERS = (
    "base",
    "kernels",
    "angles encodings functional heads spans tasks temperatures text",
    "bands columns",
    "reference torch jax",
    "model",
    "huggingface",
    "training",
    "theory",
    "doctor paper_claims pictures",
    "benchmarks experiments",
)
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages.split()}
OUTSIDE = re.compile(r"From outside: (.*?)\.\n", re.DOTALL)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


@cache
def modules(folder: str) -> dict[str, Path]:
    """Dotted name -> file, for every module below a folder."""
    names = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names[dotted] = path
    return names


@cache
def imports(path: Path) -> set[str]:
    """Everything of fastpe that a file imports, at its top or inside a function."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("fastpe", "fastpe_cli", "cli")}


def package_of(dotted: str) -> str:
    """The package that contains a dotted name, or "" if it is in none."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "fastpe" and len(parts) > 1 and parts[1] in LAYER else ""  # cli/tasks.py is in none


@cache
def opened(package: str) -> set[str]:
    """The modules of a package that other packages may import, from its `__init__`; "" means its own names."""
    path = ROOT / "fastpe" / package / "__init__.py"
    found = OUTSIDE.search(ast.get_docstring(parsed(path)) + "\n") if path.exists() else None
    return {"", *re.findall(r"`(.*?)`", found[1])} if found else {""}


def crossings() -> Iterator[tuple[str, str, str]]:
    """(module, package, module of that package that it imports), for every import of another package."""
    known = {**modules("fastpe"), **modules("cli")}
    for name, path in known.items():
        for imported in imports(path):
            parts = imported.split(".")
            while parts and ".".join(parts) not in known:
                parts.pop()
            package = package_of(".".join(parts))
            if package and package != package_of(name):
                yield name, package, ".".join(parts[2:])


@pytest.mark.full("reads all sources several times")
def test_imports_go_down():
    for name, package, _ in crossings():
        here = package_of(name)
        assert name in ("fastpe",) or name.startswith(("cli", "fastpe.__main__")) or here, f"{name} is in no package"
        assert not here or LAYER[package] < LAYER[here], f"{name} imports from {package}"


READS_A_RUN = ("fastpe.training.config", "fastpe.training.starting_weights")
"""`TrainConfig.starting_from`, a public constructor, reads a run, which has a `TrainConfig`: it imports in its body."""


def imported_modules(name: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[str, bool]]:
    """(module, whether the import is in a function), for every import in a file that leads to a known module.

    An import counts for the module that it names, not for the packages above it, whose `__init__` Python runs first.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    functions = [each for each in nodes(path) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in nodes(path):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in named:
            parts = each.split(".")
            while parts and ".".join(parts) not in known:
                parts.pop()
            if parts and ".".join(parts) != name:
                yield ".".join(parts), id(node) in inside


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or through others: every set of them, sorted."""
    reached = {}
    for start in arrows:
        found, coming = set(), list(arrows[start])
        while coming:
            if (name := coming.pop()) not in found:
                found.add(name)
                coming += arrows.get(name, ())
        reached[start] = found
    sets = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in arrows if a in reached[a]}
    return sorted(map(sorted, sets))


@pytest.mark.full("reads all sources several times")
def test_no_modules_import_each_other():
    """Imports at the top of a module count, and those that only a type checker sees: both are circles to a reader.

    Imports in functions count between the modules of one package. Between packages `test_imports_go_down` forbids every
    import upwards, wherever it is.
    """
    known = {**modules("fastpe"), **modules("cli")}
    arrows: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for imported, in_function in imported_modules(name, path, known):
            same_package = name.split(".")[:2] == imported.split(".")[:2]
            if not in_function or (same_package and (name, imported) != READS_A_RUN):
                arrows[name].add(imported)
    assert circles(arrows) == []
    assert circles({**arrows, READS_A_RUN[0]: {*arrows[READS_A_RUN[0]], READS_A_RUN[1]}}) != []  # still an exception


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}, "e": {"a"}}) == [["b", "c"], ["d"]]


def test_only_what_a_package_opens_is_imported_from_outside():
    for name, package, module in crossings():
        assert module in opened(package), (
            f"{name} imports {package}.{module}, which fastpe/{package}/__init__.py does not open"
        )


def test_every_package_says_what_is_inside():
    packages = {path.parent.name for path in (ROOT / "fastpe").glob("*/__init__.py")}
    assert packages == set(LAYER) - {"angles", "bands", "columns", "heads", "jax", "spans", "temperatures"}
    assert len(packages) <= 17
    for package in packages:
        for module in opened(package) - {""}:
            assert f"fastpe.{package}.{module}" in modules("fastpe"), f"{package} opens {module}, which is not there"
    assert {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"} == {
        *packages, "cli", "data", "fuzz", "support",
    }  # fmt: skip


def length(node: ast.FunctionDef) -> int:
    """Lines of a function but for its docstring."""
    first = node.body[0]
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return node.end_lineno - node.lineno + 1 - is_doc * (first.end_lineno - first.lineno + 1)


@pytest.mark.full("reads all sources several times")
def test_functions_fit_a_screen():
    """No function over 60 lines, unless a comment "Long: ..." above it says why."""
    for folder in ("fastpe", "cli", "bench", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in nodes(path):
                if isinstance(node, ast.FunctionDef) and length(node) > 60:
                    above = path.read_text().splitlines()[
                        min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 2
                    ]
                    assert above.strip().startswith("# Long: "), f"{path.relative_to(ROOT)}: {node.name}"


def test_the_library_knows_no_command_line_and_the_command_line_imports_itself_relatively():
    for name, path in modules("fastpe").items():
        if name != "fastpe.__main__":
            assert not any(imported.startswith(("fastpe_cli", "cli")) for imported in imports(path)), name
    for name, path in modules("cli").items():
        assert not any(imported.split(".")[0] in ("fastpe_cli", "cli") for imported in imports(path)), name


def test_no_public_function_has_the_name_of_a_module():
    """Importing a module of the same name would put the module in its place."""
    functions = {name for name, home in fastpe._HOME.items() if home}
    assert not functions & {name.split(".")[1] for name in modules("fastpe") if "." in name}


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_adapter_without_its_framework_says_what_to_install(framework, tmp_path):
    program = f"import sys; sys.modules[{framework!r}] = None\nimport fastpe\nfastpe.{framework}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert f"ImportError: fastpe.{framework} needs " in done.stderr
    assert f"pip install -e '.[{framework}]' from a clone of fastpe" in done.stderr


def test_every_package_is_listed():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "fastpe").rglob("__init__.py")
    }  # fmt: skip
    assert listed == folders | {"fastpe_cli"}


def test_data_files_are_packaged():
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = [path for path in (ROOT / "fastpe").rglob("*.*") if path.suffix not in (".py", ".pyc", ".md")]
    assert len(files) >= 6
    for path in files:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert path.name in packed.get(package, []), f"{path.relative_to(ROOT)} is missing in a wheel"


def test_nothing_unsafe_is_called():
    for folder in ("fastpe", "cli"):
        for name, path in modules(folder).items():
            for node in nodes(path):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    assert "pickle" not in ast.unparse(node), name
                if isinstance(node, ast.Call):
                    assert ast.unparse(node.func) not in ("eval", "exec", "np.load", "os.system"), name


@pytest.mark.parametrize("statement", ["import fastpe; fastpe.list_encodings()", "import fastpe_cli.main"])
def test_importing_costs_neither_numpy_nor_numba(statement, tmp_path):
    heavy = {"numpy", "numba", "scipy", "pywt", "torch", "jax"}
    program = f"{statement}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


def test_the_cache_of_machine_code_knows_what_is_imported():
    """It reads sources without Python's parser (`sources.imports`)."""
    for name, path in modules("fastpe").items():
        parts = [imported.split(".") for imported in imports(path)]
        starts = {".".join(each[:count]) for each in parts for count in (len(each), len(each) - 1)}
        missing = (starts & modules("fastpe").keys()) - sources.imports(path.read_bytes()) - {"fastpe"}
        assert not missing, f"{name} imports {missing}"


def test_a_kernel_is_compiled_once_for_each_dtype():
    """Calls between compiled functions specialise on literal numbers unless they are kept from it."""
    for dtype in ("float32", "float64"):
        network = Transformer(ModelConfig("alibi", width=16, heads=2, hidden=24, train_length=9, dtype=dtype))
        network.loss_and_grads(np.ones((2, 9)), np.ones((2, 9)))
    for function in (gemm.float_gemm, model.layer_forward, model.pack_backward):
        kinds = {
            tuple(str(kind) for kind in each if "(" in str(kind) or "*" in str(kind)) for each in function.signatures
        }
        assert len(function.signatures) == len(kinds), function.py_func.__name__  # none differ in numbers alone
