"""Which prefixes share one causal pass.

A causal pass over a token sequence (a trunk) holds the keys and values of every prefix of
it, so a prefix needs a pass of its own only if it is a prefix of no other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


@dataclass
class Row:
    """One continuation to decode: which request, which of its n, and its settings."""

    request: int
    index: int
    budget: int


@dataclass
class State:
    """A distinct prefix (the first `length` tokens of its trunk) and the rows that start from it."""

    length: int
    rows: list[Row] = field(default_factory=list)


@dataclass
class Trunk:
    """A token sequence to pass over once, and the states that are prefixes of it."""

    ids: tuple[int, ...]
    states: list[State] = field(default_factory=list)

    @property
    def work(self) -> int:
        """Tokens to compute at most: the pass and every row's budget."""
        return len(self.ids) + sum(row.budget for state in self.states for row in state.rows)

    @property
    def budget(self) -> int:
        """The largest budget of a row."""
        return max(row.budget for state in self.states for row in state.rows)


def find_trunks(prefixes: Iterable[Sequence[int]]) -> list[Trunk]:
    """Return the trunks that cover the distinct `prefixes`, each with its states.

    In lexicographic order a prefix stands directly before the sequences it begins, so one
    walk from the end that remembers the trunk last opened finds them all.
    """
    trunks: list[Trunk] = []
    for prefix in sorted({tuple(prefix) for prefix in prefixes}, reverse=True):
        if not trunks or trunks[-1].ids[: len(prefix)] != prefix:
            trunks.append(Trunk(prefix))
        trunks[-1].states.append(State(len(prefix)))
    return trunks


def computed_tokens(trunk: Trunk) -> dict[tuple[int, int], int]:
    """Share the trunk's pass out over its rows: (request, index) -> tokens computed for it.

    The first row of the shortest state is charged its whole prefix, the first of the next
    state what that one adds, every other row nothing; the sum is the length of the trunk.
    """
    charged: dict[tuple[int, int], int] = {}
    done = 0
    for state in sorted(trunk.states, key=lambda state: state.length):
        first = min((row.request, row.index) for row in state.rows)
        charged[first] = state.length - done
        done = state.length
    return charged


class Job(Protocol):
    """A share of the work: what it begins with, and how much it is at most."""

    @property
    def ids(self) -> tuple[int, ...]:
        """A token sequence, which settles ties."""
        ...

    @property
    def work(self) -> int:
        """Tokens to compute at most."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)


def deal(jobs: Sequence[AnyJob], count: int) -> list[list[AnyJob]]:
    """Deal trunks, or other jobs, to at most `count` workers, heaviest first to the least loaded."""
    shares: list[list[AnyJob]] = [[] for _ in range(count)]
    loads = [0] * count
    for job in sorted(jobs, key=lambda job: (-job.work, job.ids)):
        least = loads.index(min(loads))
        shares[least].append(job)
        loads[least] += job.work
    return [share for share in shares if share]
