"""The single checks of an environment; `vineenv.check` runs and reports them.

Each takes the environment, some walks and a random generator, and returns what is wrong or None.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from vineenv.env import SPLITS, ReasoningEnv, Transition
from vineenv.errors import UsageError
from vineenv.types import Problem, State

Check = Callable[[ReasoningEnv, "Sequence[Walk]", random.Random], "str | None"]


@dataclass(frozen=True)
class Walk:
    """A problem and tokens for the policy to write, the gold solution or an altered one."""

    problem: Problem
    action: tuple[int, ...]
    gold: bool


def sample_walks(env: ReasoningEnv, problems: int, rng: random.Random) -> list[Walk]:
    """Return gold walks where there are solutions, and walks with some tokens changed."""
    walks = []
    for split in SPLITS:
        for _ in range(problems):
            problem = env.problem(split, rng.randrange(env.size(split)))
            gold = gold_action(env, problem)
            if gold is not None:
                walks.append(Walk(problem, gold, gold=True))
            walks.append(Walk(problem, _alter(env, gold, rng), gold=False))
    return walks


def gold_action(env: ReasoningEnv, problem: Problem) -> tuple[int, ...] | None:
    """The tokens of a worked solution that the policy writes, or None where there is none that fits."""
    if problem.solution is None:
        return None
    try:
        state = env.solved(problem, problem.solution)
        return state.written if state.ended else (*state.written, env.eos_id)
    except UsageError:  # it is too long, or the task is decided before it ends
        action = (*env.encode(problem.solution), env.eos_id)
        return env.transition(env.initial_state(problem), action)[0].written


def _alter(env: ReasoningEnv, gold: tuple[int, ...] | None, rng: random.Random) -> tuple[int, ...]:
    length = rng.randint(1, min(24, env.max_new_tokens))
    altered = list(gold[:-1]) if gold else [rng.randrange(env.vocab_size) for _ in range(length)]
    for _ in range(3):
        altered.insert(rng.randrange(len(altered) + 1), rng.randrange(env.vocab_size))
    return (*(token for token in altered if token != env.eos_id), env.eos_id)


def _chunks(action: Sequence[int], rng: random.Random | None) -> Iterator[Sequence[int]]:
    """Cut an action at random places, or after every token."""
    start = 0
    while start < len(action):
        size = rng.randint(1, 8) if rng else 1
        yield action[start : start + size]
        start += size


def _walk(env: ReasoningEnv, walk: Walk, chunks: Iterator[Sequence[int]]) -> tuple[Transition, float]:
    state, total = env.initial_state(walk.problem), 0.0
    last: Transition = (state, 0.0, False, False, {})
    for chunk in chunks:
        last = env.transition(last[0], chunk)
        total += last[1]
        if last[2] or last[3]:
            break
    return last, total


def _states(env: ReasoningEnv, walk: Walk) -> list[State]:
    """Every state, but the last, of a walk token by token."""
    states = [env.initial_state(walk.problem)]
    for token in walk.action:
        state, *_ = env.transition(states[-1], [token])
        if state.ended:
            break
        states.append(state)
    return states


def check_gymnasium(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """Gymnasium's own checker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium_check(env)
    return None


def check_problems(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """The same index gives the same problem, and its id finds it."""
    ids: dict[str, int] = {}
    for split in SPLITS:
        if env.size(split) < 1:
            return f"the {split} split is empty"
        for index in {rng.randrange(env.size(split)) for _ in range(32)}:
            first, again = env.problem(split, index), env.problem(split, index)
            if first != again:
                return f"problem({split!r}, {index}) gave {first.prompt!r}, then {again.prompt!r}"
            if first.id in ids:
                return f"the id {first.id!r} belongs to two problems"
            ids[first.id] = index
            env.reset(options={"problem": first.id})
            if env.state.problem != first:
                return f"reset to the id {first.id!r} of problem({split!r}, {index}) gives another problem"
    return None


def check_purity(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """`transition` twice gives the same, whatever was asked in between, and changes nothing."""
    for first, other in zip(walks, reversed(walks), strict=True):
        start = env.initial_state(first.problem)
        kept = copy.deepcopy(start)
        once = env.transition(start, first.action)
        env.transition(env.initial_state(other.problem), other.action)
        again = env.transition(start, first.action)
        if start != kept:
            return f"transition changed the state it was given (problem {first.problem.id!r})"
        if once[:4] != again[:4] or once[4].get("reward") != again[4].get("reward"):
            return f"problem {first.problem.id!r}: two equal transitions gave {once[1:4]} and {again[1:4]}"
    return None


def check_batch(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """`transitions` of many states equals `transition` of each."""
    states = [env.initial_state(walk.problem) for walk in walks]
    together = env.transitions(states, [walk.action for walk in walks])
    for walk, state, result in zip(walks, states, together, strict=True):
        alone = env.transition(state, walk.action)
        if alone[:4] != result[:4]:
            return f"problem {walk.problem.id!r}: {alone[1:4]} alone, {result[1:4]} among {len(walks)}"
    return None


def check_chunks(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """A walk token by token, in chunks, and at once ends alike."""
    for walk in walks:
        ends = {
            "at once": _walk(env, walk, iter([walk.action])),
            "in chunks": _walk(env, walk, _chunks(walk.action, rng)),
            "token by token": _walk(env, walk, _chunks(walk.action, None)),
        }
        (once, total), *_ = ends.values()
        for how, (end, reward) in ends.items():
            if end[0] != once[0] or reward != total or end[2:4] != once[2:4]:
                return (
                    f"problem {walk.problem.id!r}: return {total}, {len(once[0].response)} tokens at once; "
                    f"{reward}, {len(end[0].response)} tokens {how}"
                )
    return None


def check_prefix(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """Reset to a prefix equals having walked there."""
    for walk in walks:
        walked = rng.choice(_states(env, walk))
        observation, info = env.reset(options={"problem": walk.problem, "prefix": walked.response})
        text = env.decode(walked.response)
        if env.state != walked:
            different = [k for k in vars(walked) if getattr(env.state, k) != getattr(walked, k)]
            return (
                f"problem {walk.problem.id!r}, prefix {text!r}: state differs in {', '.join(different)} "
                f"(walked: budget {walked.budget}; reset: {env.state.budget})"
            )
        if info["text"] != text or observation["length"] != len(walked.tokens):
            return f"problem {walk.problem.id!r}: reset to {text!r} reports {info['text']!r}"
    return None


def check_restore(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """`restore` comes back to a state, and the same action leads on the same way."""
    for walk in walks:
        cut = rng.randrange(len(walk.action))
        env.reset(options={"problem": walk.problem})
        for token in walk.action[:cut]:
            env.step([token])
            if env.state.ended:
                break
        if env.state.ended:
            continue
        kept, seen = env.state, env.observe(env.state)
        first = env.step(walk.action[cut:])
        back = env.restore(kept)
        if env.state != kept or not np.array_equal(back["tokens"], seen["tokens"]):
            return f"problem {walk.problem.id!r}: restore() gives another state than was kept"
        again = env.step(walk.action[cut:])
        if first[1:4] != again[1:4] or not np.array_equal(first[0]["tokens"], again[0]["tokens"]):
            return f"problem {walk.problem.id!r}: after restore() the same action gave another result"
    return None


def check_endings(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """The end of sequence terminates; a spent budget truncates, and no end is invented."""
    for walk in walks:
        start = env.initial_state(walk.problem)
        end, _, terminated, truncated, _ = env.transition(start, [env.eos_id])
        if not terminated or truncated or not end.ended:
            return f"the end of sequence gave {terminated=}, {truncated=}, ended={end.ended}"
        filler = next(i for i in range(env.vocab_size) if i not in env.stop_ids)
        end, reward, terminated, truncated, _ = env.transition(start, [filler] * (start.budget + 5))
        if terminated == truncated:
            return f"a spent budget gave {terminated=}, {truncated=}: exactly one must hold"
        if truncated and reward != env.truncated_reward:
            return f"a truncated response earned {reward}, env.truncated_reward is {env.truncated_reward}"
        if env.eos_id in end.response:
            return "a response that never ended holds an end of sequence"
    return None


def check_gold(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """The worked solution is accepted, and earns more than an empty response."""
    golds = [walk for walk in walks if walk.gold]
    fit = [walk for walk in golds if _can_be_written(env, walk)]
    if len(fit) < len(golds) / 2:
        return (
            f"of {len(golds)} worked solutions only {len(fit)} fit the budget of {env.max_new_tokens} tokens "
            "and come back whole from the tokenizer"
        )
    for walk in fit:
        start = env.initial_state(walk.problem)
        _, reward, _, truncated, info = env.transition(start, walk.action)
        _, nothing, *_ = env.transition(start, [env.eos_id])
        if truncated or reward <= nothing:
            status = info["reward"].status if "reward" in info else "none"
            return (
                f"the worked solution of {walk.problem.id!r} earns {reward} ({status}), "
                f"an empty response {nothing}"
            )
    return None


def _can_be_written(env: ReasoningEnv, walk: Walk) -> bool:
    solution = walk.problem.solution or ""
    fits = len(walk.action) <= env.initial_state(walk.problem).budget
    return fits and env.decode(env.encode(solution)) == solution


def check_references(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """The reward can read the reference answers."""
    for walk in walks:
        if (reason := env.defect(walk.problem)) is not None:
            return f"problem {walk.problem.id!r}, answer {walk.problem.answer!r}: {reason}"
    return None


def check_boundaries(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """Steps cover the response: they begin at 0, rise, and lie within it and off foreign tokens."""
    for walk in walks:
        end = env.transition(env.initial_state(walk.problem), walk.action)[0]
        raw = env.segmenter(end.response, [-1.0] * len(end.response))
        if not raw or raw[0] != 0 or sorted(set(raw)) != list(raw) or raw[-1] >= max(len(end.response), 1):
            return f"the segmenter gave {raw} for a response of {len(end.response)} tokens"
        for start in env.step_starts(end):
            if any(a <= start + end.prompt_length < b for a, b in end.foreign):
                return f"a step begins at {start}, within tokens that the environment wrote"
    return None


def check_foreign(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """What the policy wrote is what it was given to write; the rest is marked and costs no budget."""
    if env.eos_id not in env.stop_ids:
        return f"stop_ids {env.stop_ids} lack the end of sequence {env.eos_id}"
    for walk in walks:
        end = env.transition(env.initial_state(walk.problem), walk.action)[0]
        if end.written != walk.action[: len(end.written)]:
            return f"problem {walk.problem.id!r}: unmarked tokens of the response were not in the action"
        spans = [0, *(edge for span in end.foreign for edge in span), len(end.tokens)]
        if sorted(spans) != spans or any(a < end.prompt_length for a, _ in end.foreign):
            return f"problem {walk.problem.id!r}: foreign spans {end.foreign} overlap or leave the response"
        room = min(env.max_new_tokens - len(end.written), env.context - len(end.tokens))
        if end.budget not in (max(room, 0), env.initial_state(walk.problem).budget - len(end.written), 0):
            return f"problem {walk.problem.id!r}: budget {end.budget} after {len(end.written)} written tokens"
    return None


def check_oracle(env: ReasoningEnv, walks: Sequence[Walk], rng: random.Random) -> str | None:
    """An oracle, where there is one, calls every prefix of a worked solution right."""
    for walk in (walk for walk in walks if walk.gold):
        states = _states(env, walk)
        try:
            judged = [env.oracle(state) for state in states]
        except UsageError:
            return None
        for state, (right, left) in zip(states, judged, strict=True):
            if not right or left < 1:
                return f"oracle says {right, left} of {env.decode(state.response)!r}, part of a solution"
    return None


CHECKS: tuple[tuple[str, Check, str], ...] = (
    ("Gymnasium's checker", check_gymnasium, "an override of reset, step, observe or a space"),
    ("problems", check_problems, "problem() keeps drawing, or ids are not '<split>/<index>'"),
    ("purity", check_purity, "transition, respond, decided or the reward keep or draw something"),
    ("batches", check_batch, "the reward's grade_many differs from its __call__, or in order"),
    ("chunks", check_chunks, "what respond or decided react to is not among stop_ids"),
    ("reset to a prefix", check_prefix, "initial_state leaves out part of the prefix or its cost"),
    ("restore", check_restore, "something that matters lies on the environment, not in State"),
    ("endings", check_endings, "decided is true too early, or a spent budget counts as an end"),
    (
        "worked solutions",
        check_gold,
        "another answer style, a small budget, or signs unknown",
    ),
    ("reference answers", check_references, "the answer field holds more than the answer"),
    ("step boundaries", check_boundaries, "the segmenter drops a part or counts characters"),
    ("environment tokens", check_foreign, "tokens were appended without being marked foreign"),
    ("oracle", check_oracle, "solutions have steps that oracle does not know; a miscount"),
)
