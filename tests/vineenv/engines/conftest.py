"""Fixtures of the engines' tests."""

from __future__ import annotations

import importlib.util
import signal
import threading

import pytest
from engine_models import build
from torch import nn


@pytest.fixture(scope="session")
def llama() -> nn.Module:
    return build("llama")


def pytest_configure() -> None:
    """Let SIGTERM end the tests as Ctrl-C does: engines are then closed, and no server outlives them."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("sglang") is None:
        missing = pytest.mark.skip(reason="SGLang is not installed (pip install 'vineenv[sglang]')")
        for item in items:
            if item.get_closest_marker("sglang"):
                item.add_marker(missing)
