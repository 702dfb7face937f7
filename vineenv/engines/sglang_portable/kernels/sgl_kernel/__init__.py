"""Stand-in for SGLang's compiled kernel package, for machines that cannot load it.

SGLang imports names from here when it starts, and calls none of them on the portable path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"sgl_kernel.{name} was called, but this machine runs SGLang without its compiled kernels; "
            "the portable path needs the arguments of vineenv.engines.sglang_portable."
        )

    return missing
