"""A run that all tests of training compare with, and run folders to be damaged."""

import shutil

import damage
import pytest
from small_run import CONFIG

from fastpe.training.loop import train


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run without any interruption: its folder and what `train` returned."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return path, train(CONFIG, out=path)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory):
    """Two run folders, of a finished run and one that two of three epochs were made of."""
    root = tmp_path_factory.mktemp("pristine")
    return damage.finished(root / "finished"), damage.finished(root / "half", 2)


@pytest.fixture
def finished(pristine, tmp_path):
    return shutil.copytree(pristine[0], tmp_path / "run")


@pytest.fixture
def half(pristine, tmp_path):
    return shutil.copytree(pristine[1], tmp_path / "run")
