"""Puts a mutant into a process: as fastpe is imported, one of its modules comes with one mistake.

Nothing on disk changes, so the digest of the sources stays what it was and the cache of compiled code serves. What may
contain the mistake must not come from there: the compiled functions named in `FASTPE_MUTANT_STALE`
(``module:name,...``) are compiled anew, and not kept.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

import mutant_sites


def install() -> None:
    """Take part in all imports from now on, for the mutant ``module:number`` that `FASTPE_MUTANT` names."""
    module, number = os.environ["FASTPE_MUTANT"].split(":")
    sys.meta_path.insert(0, _Finder(module, int(number), int(os.environ["FASTPE_MUTANT_SIZE"])))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, number: int, size: int) -> None:
        self._module, self._number, self._size = module, number, size
        self._asked = False

    def find_spec(self, name, path=None, target=None):
        if self._asked or name not in (self._module, "fastpe.kernels.compile.cache"):
            return None
        self._asked = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asked = False
        # a test may have written a package of its own, of the same name
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        number = None
        if name == self._module and Path(spec.origin).stat().st_size == self._size:
            number = self._number
        spec.loader = _Loader(spec.loader.name, spec.loader.path, number)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, number: int | None) -> None:
        super().__init__(name, path)
        self._number = number

    def get_code(self, fullname):
        if self._number is None:
            return super().get_code(fullname)
        tree = mutant_sites.mutate(Path(self.path).read_text(), self._number)[0]
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module) -> None:
        super().exec_module(module)
        if module.__name__ == "fastpe.kernels.compile.cache":
            _keep_stale_code_out(module)


def _keep_stale_code_out(cache) -> None:
    stale = set(os.environ["FASTPE_MUTANT_STALE"].split(","))
    whole = cache.Cache

    def unless_stale(function, label):
        return whole(function, label, kept=f"{function.__module__}:{function.__qualname__}" not in stale)

    cache.Cache = unless_stale


def same_code(source: str, tree: ast.Module) -> bool:
    """Whether a mutant comes to the same bytecode as its original."""
    return _codes(compile(source, "", "exec", dont_inherit=True)) == _codes(compile(tree, "", "exec"))


def _codes(code) -> tuple:
    constants = tuple(_codes(each) if hasattr(each, "co_code") else (type(each), repr(each)) for each in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames
