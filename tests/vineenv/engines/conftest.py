"""Fixtures of the engines' tests."""

from __future__ import annotations

import pytest
from engine_models import build
from torch import nn


@pytest.fixture(scope="session")
def llama() -> nn.Module:
    return build("llama")
