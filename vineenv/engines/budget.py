"""How much memory the engine's keys and values may take."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power


def parse_bytes(size: str | int | float) -> int:
    """Return a size in bytes from a number or a text such as "1GiB", "800 MB" or "2e9".

    Raises:
        ValueError: if the text is no size, or the size is not positive.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"kv_budget: {size!r} is no size; write bytes or a text such as '1GiB'")
    value = int(float(match[1]) * _UNITS[match[2].upper()])
    if value <= 0:
        raise ValueError(f"kv_budget: {size!r} must be positive")
    return value


def available_bytes(device: torch.device) -> int:
    """Return the memory free for use now: of the CUDA device, or of the machine or its control group."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        free = int(found[1]) * 1024 if found else free
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return max(free, 0)


def kv_budget(size: str | int | float | None, device: torch.device) -> int:
    """Return the budget in bytes: what was asked, else 40 % of the free memory, at most 64 GiB."""
    if size is not None:
        return parse_bytes(size)
    return max(min(int(available_bytes(device) * 0.4), 64 * 1024**3), 64 * 1024**2)
