"""A penalty for long responses."""

from __future__ import annotations

from vineenv.types import Problem, Reward


class LengthPenalty:
    """0 up to `free` characters, then falling in a straight line to -1 at `limit` and beyond."""

    def __init__(self, *, free: int, limit: int) -> None:
        if not 0 <= free < limit:
            raise ValueError(f"LengthPenalty needs 0 <= free < limit, got free={free} and limit={limit}.")
        self.free = free
        self.limit = limit

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Penalise one response; the answer in it does not matter."""
        length = len(response) if isinstance(response, str) else 0
        excess = min(max(length - self.free, 0) / (self.limit - self.free), 1.0)
        return Reward(-excess, "correct" if excess == 0 else "wrong")
