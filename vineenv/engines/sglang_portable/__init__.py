"""The slow, portable way to run SGLang: on a CPU, without its compiled kernel package.

PyPI has no CPU build of that package, and the CUDA build cannot be loaded without a driver. SGLang
itself has plain torch code for attention and sampling, so an empty stand-in is enough.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch

KERNELS = Path(__file__).parent / "kernels"

ARGUMENTS: dict[str, Any] = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_overlap_schedule": True,
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 40_000,
    # Its native attention loops over requests in Python, so wide batches gain little and cost memory.
    "max_running_requests": 256,
}

_log = logging.getLogger(__name__)


def on_portable_path() -> bool:
    """Whether SGLang has to run on the CPU here: there is no CUDA device."""
    return not torch.cuda.is_available()


def prepare() -> dict[str, Any]:
    """Make SGLang importable and startable on this machine; return the arguments it needs here.

    With a CUDA device nothing is done. Without one, the stand-in goes on the path of this process
    and of the processes it starts, unless a working kernel package is there. Call it before
    `import sglang`.
    """
    if not on_portable_path():
        return {}
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    if not _kernels_load():
        paths = [str(KERNELS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        if str(KERNELS) not in sys.path:
            sys.path.insert(0, str(KERNELS))
        importlib.invalidate_caches()
    _log.warning(
        "SGLang runs on its slow, portable path: no CUDA device was found, so attention and sampling are "
        "plain torch on the CPU. It is right, not fast; engine=native is faster here."
    )
    return dict(ARGUMENTS)


def _kernels_load() -> bool:
    """Whether the compiled kernel package, or the stand-in already in its place, can be imported."""
    try:
        module = importlib.import_module("sgl_kernel")
    except Exception:  # OSError, RuntimeError and ImportError have all been seen
        for name in [n for n in sys.modules if n == "sgl_kernel" or n.startswith("sgl_kernel.")]:
            del sys.modules[name]
        return False
    return KERNELS not in Path(module.__file__ or "").parents
