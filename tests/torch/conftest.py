"""What tests of calls from PyTorch begin with."""

import pytest


@pytest.fixture
def no_tensors_kept(nothing_kept):
    """As `nothing_kept`, of tensors."""
    from fastpe.torch import straight

    straight._forget()
