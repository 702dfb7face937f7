"""The reward for a right final answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rewards import grading
from vineenv.types import Problem, Reward


class AnswerReward:
    """1 for the right final answer, else 0, with the reason as status.

    Safe from any thread and after a fork; pickles as its settings. Rewards with equal settings share their
    workers.
    """

    def __init__(
        self,
        *,
        style: str = "gsm8k",
        timeout_s: float = grading.TIMEOUT_S,
        workers: int = grading.WORKERS,
    ) -> None:
        """Start the workers' warm process, in the background.

        Args:
            style: `boxed`, `gsm8k`, `plain`, or `paper`.
            timeout_s: wall seconds that one comparison may take.
            workers: how many comparisons at a time.
        """
        self._settings: dict[str, Any] = {"style": style, "timeout_s": timeout_s, "workers": workers}
        self._grader = grading.Grader(style, grading.shared_pool(workers, timeout_s))
        self._executor: tuple[int, ThreadPoolExecutor] | None = None

    def __call__(self, response: str, problem: Problem) -> Reward:
        """Grade one response; numerals may be `problem.meta["tolerance"]` apart where a set has that."""
        return self._grader.grade(response, problem.answer, problem.meta.get("tolerance", 0))

    def submit(self, response: str, problem: Problem) -> Future[Reward]:
        """Queue one response and return at once, so that grading overlaps generation."""
        settled = self._grader.settle(response, problem.answer, problem.meta.get("tolerance", 0))
        if settled is None:
            return self._threads().submit(self._grader.ask, response, problem.answer)
        future: Future[Reward] = Future()
        future.set_result(settled)
        return future

    def grade_many(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Reward]:
        """Grade responses in order, several at a time."""
        futures = [
            self.submit(response, problem) for response, problem in zip(responses, problems, strict=True)
        ]
        return [future.result() for future in futures]

    def check(self, problem: Problem) -> str | None:
        """Return why the reference of a problem cannot be graded against, or None."""
        return self._grader.fault(problem.answer)

    def close(self) -> None:
        """End the queue's threads; the workers, which others may share, end with the process."""
        if self._executor is not None and self._executor[0] == os.getpid():
            self._executor[1].shutdown()
        self._executor = None

    def _threads(self) -> ThreadPoolExecutor:
        """Return this process's threads; each waits for one worker, whose deadline bounds the wait."""
        if self._executor is None or self._executor[0] != os.getpid():
            self._executor = os.getpid(), ThreadPoolExecutor(self._settings["workers"], "grading")
        return self._executor[1]

    def __getstate__(self) -> dict[str, Any]:
        return self._settings

    def __setstate__(self, settings: dict[str, Any]) -> None:
        self.__init__(**settings)
