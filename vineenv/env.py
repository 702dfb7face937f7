"""Reasoning as a Gymnasium environment that can be reset to any prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from vineenv.errors import UsageError, unknown
from vineenv.segment import Newline, Segmenter
from vineenv.spaces import NO_TOKEN, TokenChunk
from vineenv.types import Problem, Reward, State

RewardFunction = Callable[[str, Problem], Reward | float]
Transition = tuple[State, float, bool, bool, dict[str, Any]]
SPLITS = ("train", "validation", "test")


class ReasoningEnv(gymnasium.Env[dict[str, Any], np.ndarray]):
    """A language task whose state is a prefix of token ids.

    A subclass provides the problems (`size`, `problem`) and may override `respond` (tokens
    that the environment appends after an action), `decided` (the task is over although the
    policy has not ended) and `oracle` (which prefixes are still right).

    `transition` is pure; `reset` and `step` are a stateful shell around it. An action is a
    chunk of tokens of any length: one token, a reasoning step, or all the rest. In the
    Gymnasium spaces a chunk is a fixed-length array filled up with -1; `step` also takes a
    shorter sequence of ids, or text.

    Args:
        tokenizer: turns prompts into ids and ids into the text that people and graders see.
        reward: `(response text, problem) -> Reward` or a number.
        split: where `reset` draws problems from.
        max_new_tokens: policy tokens an episode may use.
        context: longest prompt plus response, in tokens.
        segmenter: where reasoning steps begin; newline by default.
        truncated_reward: what a response that ran out of budget earns.
        render_mode: None or "ansi".
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        split: str = "train",
        max_new_tokens: int = 256,
        context: int = 1024,
        segmenter: Segmenter | None = None,
        truncated_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        if not 0 < max_new_tokens < context:
            raise UsageError(f"env.max_new_tokens={max_new_tokens} must be at least 1 and below {context=}.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown("render_mode", str(render_mode), self.metadata["render_modes"])
        self.tokenizer, self.reward, self.split = tokenizer, reward, split
        self.max_new_tokens, self.context = max_new_tokens, context
        self.truncated_reward, self.render_mode = truncated_reward, render_mode
        self.segmenter = segmenter or Newline(tokenizer)
        self.vocab_size = len(tokenizer)
        eos = tokenizer.eos_token_id
        if not isinstance(eos, int):
            raise UsageError("The tokenizer has no end-of-sequence token; an episode could never end.")
        self.eos_id = eos
        highest = self.vocab_size - 1
        self.action_space = TokenChunk(self.vocab_size, max_new_tokens)
        tokens = spaces.Box(NO_TOKEN, highest, (context,), dtype=np.int64)
        length = spaces.Discrete(context + 1)
        self.observation_space: spaces.Space[Any] = spaces.Dict({"tokens": tokens, "length": length})
        self._state: State | None = None

    # What a subclass provides.

    def size(self, split: str) -> int:
        """How many problems the split has."""
        raise NotImplementedError

    def problem(self, split: str, index: int) -> Problem:
        """Return problem `index` of a split; the same one every time."""
        raise NotImplementedError

    def demonstration(self, index: int) -> tuple[Problem, str]:
        """Return a training problem and a response to imitate; `index` runs without end.

        Raises:
            UsageError: the problem has no worked solution.
        """
        problem = self.problem("train", index % self.size("train"))
        if problem.solution is None:
            raise UsageError(f"Problem {problem.id!r} has no worked solution to train on.")
        return problem, problem.solution

    def respond(self, state: State) -> Sequence[int]:
        """Tokens that the environment appends after one of `stop_ids`; none by default.

        They must depend on the state alone, so that a prefix can be recognised.
        """
        return ()

    def decided(self, state: State) -> bool:
        """Whether the task is over although the policy has not ended."""
        return False

    def oracle(self, state: State) -> tuple[bool, int]:
        """Say of a prefix whether all its steps are right, and how many steps are left.

        Raises:
            UsageError: this environment cannot tell.
        """
        raise UsageError(
            f"{type(self).__name__} cannot say whether a step is right, so it has no oracle credit. "
            "Implement oracle(state), or choose another algo."
        )

    def defect(self, problem: Problem) -> str | None:
        """Why a problem cannot be used (as a reference answer that cannot be read), or None."""
        check = getattr(self.reward, "check", None)
        return check(problem) if check is not None else None

    # The functional core.

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens at which the policy hands over to the environment, the end of sequence among them."""
        return (self.eos_id,)

    def initial_state(self, problem: Problem, prefix: Sequence[int] | str = ()) -> State:
        """Return the state after `prefix` (response token ids, or text) of a problem.

        The tokens that the environment appends are part of a prefix, and recognised as such.

        Raises:
            UsageError: a prompt or prefix that does not fit or is not made of known tokens, or a
                prefix that no walk leads to.
        """
        prompt = self.encode(problem.prompt)
        response = self.encode(prefix) if isinstance(prefix, str) else tuple(int(i) for i in prefix)
        self._check_ids(response, "prefix")
        if not prompt:
            raise UsageError(f"Problem {problem.id!r} has an empty prompt.")
        if len(prompt) >= self.context:
            raise UsageError(
                f"Problem {problem.id!r}: its prompt has {len(prompt)} tokens, the context {self.context}."
            )
        if self.eos_id in response:
            raise UsageError("The prefix contains the end-of-sequence token: nothing can follow it.")
        budget = min(self.max_new_tokens, self.context - len(prompt))
        state = State(problem, prompt, len(prompt), budget)
        return self._replay(state, response) if response else state

    def solved(self, problem: Problem, solution: str) -> State:
        """Return the state after a worked solution; it has ended where the solution decides the task.

        Raises:
            UsageError: the solution does not fit, or goes on after the task is decided.
        """
        try:
            return self.initial_state(problem, solution)
        except UsageError:
            ids = self.encode(solution)
            state, terminated, _ = self._advance(self.initial_state(problem), ids)
            if terminated and state.response == ids:
                return state
            raise

    def transition(self, state: State, action: Sequence[int]) -> Transition:
        """Apply a chunk of tokens to a state, without side effects.

        Returns:
            The next state, the reward, terminated, truncated, and info with the response
            `text` and, at the end, the `reward` in full.

        Raises:
            UsageError: an action after the end, or with tokens outside the vocabulary.
        """
        return self.transitions([state], [action])[0]

    def transitions(self, states: Sequence[State], actions: Sequence[Sequence[int]]) -> list[Transition]:
        """`transition` for many states at once: one call of the detokeniser and of the grader."""
        moved = [self._advance(state, action) for state, action in zip(states, actions, strict=True)]
        texts = self.decode_many([state.response for state, _, _ in moved])
        done = [i for i, (_, terminated, truncated) in enumerate(moved) if terminated or truncated]
        rewards = dict(zip(done, self._grade([(moved[i], texts[i]) for i in done]), strict=True))
        out: list[Transition] = []
        for i, (state, terminated, truncated) in enumerate(moved):
            info: dict[str, Any] = {"text": texts[i]}
            if i in rewards:
                info["reward"] = rewards[i]
            value = rewards[i].value if i in rewards else 0.0
            out.append((state, value, terminated, truncated, info))
        return out

    def step_starts(
        self, state: State, logprobs: Sequence[float] | None = None, segmenter: Segmenter | None = None
    ) -> list[int]:
        """Response token indices at which the reasoning steps of a state begin; the first is 0.

        Steps are the environment's own, or a segmenter's that is given. A step that would begin in
        what the environment appended begins after it: no policy decides there.
        """
        starts = (segmenter or self.segmenter)(state.response, logprobs)
        for left, right in state.foreign:
            first, after = left - state.prompt_length, right - state.prompt_length
            starts = [after if first <= start < after and start else start for start in starts]
        return sorted({start for start in starts if start < max(len(state.response), 1)})

    def _advance(self, state: State, action: Sequence[int]) -> tuple[State, bool, bool]:
        if state.ended:
            raise UsageError("The episode has ended; call reset() before the next step().")
        rest = tuple(int(i) for i in action)
        self._check_ids(rest, "action")
        while True:
            piece = self._up_to_handover(rest[: state.budget])
            rest = rest[len(piece) :]
            state = replace(state, tokens=state.tokens + piece, budget=state.budget - len(piece))
            terminated = (bool(piece) and piece[-1] == self.eos_id) or self.decided(state)
            if not terminated and state.budget > 0 and piece and piece[-1] in self.stop_ids:
                state = self._append(state, tuple(self.respond(state)))
                terminated = self.decided(state)
            truncated = not terminated and state.budget <= 0
            if terminated or truncated or not rest:
                return replace(state, ended=terminated or truncated), terminated, truncated

    def _up_to_handover(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        stops = self.stop_ids
        return ids[: next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids))]

    def _replay(self, state: State, response: tuple[int, ...]) -> State:
        """Walk a prefix in which what the environment appended stands where it appends it."""
        rest = response
        while rest:
            piece = self._up_to_handover(rest)
            rest = rest[len(piece) :]
            if len(piece) >= state.budget:
                fit = len(response) - len(rest) - len(piece) + state.budget - 1
                raise UsageError(f"The prefix has {len(response)} tokens; at most {fit} leave room to go on.")
            state = replace(state, tokens=state.tokens + piece, budget=state.budget - len(piece))
            appended = tuple(self.respond(state)) if piece[-1] in self.stop_ids else ()
            if rest and rest[: len(appended)] != appended:
                before, given = self.decode(state.response)[-40:], self.decode(rest[: len(appended)])
                raise UsageError(
                    f"No walk leads to this prefix: after {before!r} the environment appends "
                    f"{self.decode(appended)!r}, the prefix has {given!r}."
                )
            state, rest = self._append(state, appended), rest[len(appended) :]
            if self.decided(state):
                raise UsageError("The prefix decides the task: nothing can follow it.")
        return state

    def _append(self, state: State, ids: tuple[int, ...]) -> State:
        if not ids:
            return state
        start, end = len(state.tokens), len(state.tokens) + len(ids)
        if end > self.context:
            return replace(state, budget=0)
        return replace(
            state,
            tokens=state.tokens + ids,
            foreign=(*state.foreign, (start, end)),
            budget=max(0, min(state.budget, self.context - end)),
        )

    def _grade(self, ended: Sequence[tuple[tuple[State, bool, bool], str]]) -> list[Reward]:
        grade_many = getattr(self.reward, "grade_many", None)
        whole = [(text, state.problem) for (state, _, truncated), text in ended if not truncated]
        if grade_many is not None:
            graded = iter(grade_many([text for text, _ in whole], [problem for _, problem in whole]))
        else:
            graded = iter([self.reward(text, problem) for text, problem in whole])
        cut = Reward(self.truncated_reward, "no_answer")
        return [cut if truncated else as_reward(next(graded)) for (_, _, truncated), _ in ended]

    def _check_ids(self, ids: Sequence[int], what: str) -> None:
        bad = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if bad is not None:
            raise UsageError(
                f"Token id {bad} in the {what} is outside the vocabulary (0 to {self.vocab_size - 1})."
            )

    # Text, the view.

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, without special tokens added."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; the end-of-sequence token is not shown."""
        return self.decode_many([ids])[0]

    def decode_many(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Texts of many sequences of token ids."""
        rows = [[i for i in ids if i != self.eos_id] for ids in sequences]
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return backend.decode_batch(rows, skip_special_tokens=False)
        return self.tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False)

    # The Gymnasium shell.

    @property
    def state(self) -> State:
        """The current state; give it to `restore` to come back to it."""
        if self._state is None:
            raise UsageError("There is no state yet: call reset() first.")
        return self._state

    def restore(self, state: State) -> dict[str, Any]:
        """Make `state` the current one and return its observation."""
        self._state = state
        return self.observe(state)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode, at the prompt or at any prefix of a response.

        Args:
            seed: of the draw of the problem.
            options: `problem` (an id as "train/17", a `Problem`, or the text of a question,
                which is then not rewarded) and `prefix` (response token ids or text).

        Raises:
            UsageError: an unknown option, problem id or token, or a prefix that does not fit.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        for key in options:
            if key not in ("problem", "prefix"):
                raise unknown("reset option", key, ("problem", "prefix"))
        problem = self._find(options.get("problem"))
        self._state = self.initial_state(problem, options.get("prefix", ()))
        return self.observe(self._state), {"problem": problem.id, "text": self.decode(self._state.response)}

    def step(
        self, action: np.ndarray | Sequence[int] | str
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Append a chunk of tokens (or text) to the state. See `transition`."""
        ids = self.encode(action) if isinstance(action, str) else [int(i) for i in action]
        if NO_TOKEN in ids:
            ids = ids[: list(ids).index(NO_TOKEN)]
        self._state, reward, terminated, truncated, info = self.transition(self.state, ids)
        return self.observe(self._state), reward, terminated, truncated, info

    def observe(self, state: State) -> dict[str, Any]:
        """The observation of a state: token ids filled up with -1, and how many there are."""
        tokens = np.full(self.context, NO_TOKEN, dtype=np.int64)
        tokens[: len(state.tokens)] = state.tokens
        return {"tokens": tokens, "length": np.int64(len(state.tokens))}

    def render(self) -> str | None:
        """Return prompt and response so far as text, in render mode "ansi"."""
        return self.decode(self.state.tokens) if self.render_mode == "ansi" else None

    def _find(self, given: Any) -> Problem:
        if given is None:
            return self.problem(self.split, int(self.np_random.integers(self.size(self.split))))
        if isinstance(given, Problem):
            return given
        if not isinstance(given, str):
            raise UsageError(
                f"options['problem'] must be an id, a Problem or a text, not {type(given).__name__}."
            )
        split, _, index = given.partition("/")
        if split in SPLITS and index.isdigit():
            if int(index) >= self.size(split):
                raise UsageError(f"No problem {given!r}: split {split!r} has {self.size(split)} problems.")
            return self.problem(split, int(index))
        if any(c.isspace() for c in given):
            return Problem(id=given, prompt=given, answer="")
        raise UsageError(
            f"Unknown problem {given!r}. An id is '<split>/<index>' with a split of {', '.join(SPLITS)}; "
            "a question given as text contains a space or a line end."
        )


def as_reward(given: Reward | float) -> Reward:
    """Turn what a user's reward function returned into a `Reward`.

    Raises:
        TypeError: it returned neither a Reward nor a number.
    """
    if isinstance(given, Reward):
        return given
    if isinstance(given, (bool, int, float, np.floating)):
        return Reward(float(given), "correct" if given > 0 else "wrong")
    raise TypeError(f"A reward function must return a number or a Reward, not {type(given).__name__}.")
