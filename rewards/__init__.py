"""Rewards, one file each: (response text, problem) -> Reward.

`grade` is the plain function under all of them. Importing this package costs nothing: what a reward needs is
imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vineenv.types import Reward

__all__ = ["grade"]


def grade(response: str, reference: str, style: str = "boxed") -> Reward:
    """Grade one response against one reference answer.

    Safe from any thread, process or event loop; never raises on what a model or a data set may hold.

    Args:
        response: the whole text that the model wrote.
        reference: the right answer, as text; not wrapped in a box or a marker.
        style: `boxed` (MATH), `gsm8k`, `plain`, or `paper` (VinePPO's lenient rules).

    Raises:
        ValueError: there is no such style.
    """
    from rewards.grading import grade as grade_with_default_pool

    return grade_with_default_pool(response, reference, style)
