"""A calculator as a tool: the policy writes a call, the environment appends its result.

    27 *6 +84 -9=?
    [27*6=162]
    [162+84=246]
    [246-9=237]
    #### 237

The policy writes `[27*6=`, the environment `162]`. What the environment wrote is part of the
state, is never trained on and gets no credit.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from transformers import PreTrainedTokenizerBase

from envs.generated import GeneratedEnv, check_operations, check_steps, split_of
from vineenv.env import RewardFunction
from vineenv.errors import UsageError
from vineenv.types import Problem, State

LONGEST_CALL = 64
LARGEST = 10**15
_CALL = re.compile(r"\[([^\[\]\n=]*)=\s*$")
_RESULT = re.compile(r"\[([^\[\]\n=]*)=(-?[0-9]+)\]")
_ALLOWED = re.compile(rf"[0-9+\-*/() ]{{1,{LONGEST_CALL}}}")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Calculator(GeneratedEnv):
    """Generated chains of operations, to be worked out call by call.

    Args:
        tokenizer: see `ReasoningEnv`.
        reward: see `ReasoningEnv`.
        min_steps: fewest operations.
        max_steps: most operations.
        digits: of the largest operand; a factor has one digit.
        operations: those used, of `+-*`.
        max_new_tokens: see `ReasoningEnv`, as are the further keywords, and `GeneratedEnv`.
        context: see `ReasoningEnv`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardFunction,
        *,
        min_steps: int = 2,
        max_steps: int = 4,
        digits: int = 2,
        operations: str = "+-*",
        max_new_tokens: int = 96,
        context: int = 256,
        **base: Any,
    ) -> None:
        super().__init__(tokenizer, reward, max_new_tokens=max_new_tokens, context=context, **base)
        check_steps(min_steps, max_steps, 20)
        if not 1 <= digits <= 9:
            raise UsageError(f"env.digits={digits} must lie between 1 and 9.")
        check_operations(operations)
        self.min_steps, self.max_steps = min_steps, max_steps
        self.digits, self.operations = digits, operations
        pieces = self.decode_many([[i] for i in range(self.vocab_size)])
        self._stop_ids = (self.eos_id, *(i for i, text in enumerate(pieces) if text.rstrip().endswith("=")))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end of sequence, and every token that may complete a call."""
        return self._stop_ids

    def respond(self, state: State) -> Sequence[int]:
        """The result of a call that the response ends with, or `error`; nothing after anything else."""
        call = _CALL.search(self.decode(state.response[-LONGEST_CALL:]))
        return self.encode(f"{calculate(call[1])}]") if call else ()

    def problem(self, split: str, index: int) -> Problem:
        """Draw problem `index` of a split; what it hashes to keeps the splits disjoint."""
        rng = random.Random(f"{self.data_seed}/calculator/{split}/{index}")
        while True:
            start, changes = self._draw(rng)
            prompt = " ".join([str(start), *changes]) + "=?\n"
            if split_of(prompt) == split:
                return _pose(f"{split}/{index}", prompt, start, changes)

    def oracle(self, state: State) -> tuple[bool, int]:
        """Whether every call so far was the next one of the chain, and how many steps are left."""
        totals = state.problem.meta.get("totals")
        if totals is None:
            return super().oracle(state)
        *lines, _ = self.decode(state.response).split("\n")
        left = len(totals) - len(lines) + 1
        for line, expected in zip(lines, state.problem.meta["calls"], strict=False):
            call = _RESULT.fullmatch(line)
            if not call or call[1].replace(" ", "") != expected:
                return False, max(left, 1)
        return len(lines) <= len(totals), max(left, 1)

    def _draw(self, rng: random.Random) -> tuple[int, list[str]]:
        largest = 10**self.digits - 1
        changes = []
        for _ in range(rng.randint(self.min_steps, self.max_steps)):
            sign = rng.choice(self.operations)
            changes.append(f"{sign}{rng.randint(2, 9) if sign == '*' else rng.randint(1, largest)}")
        return rng.randint(1, largest), changes


def _pose(name: str, prompt: str, start: int, changes: Sequence[str]) -> Problem:
    calls, totals, total = [], [], str(start)
    for change in changes:
        calls.append(f"{total}{change}")
        total = calculate(calls[-1])
        totals.append(total)
    lines = [f"[{call}={result}]\n" for call, result in zip(calls, totals, strict=True)]
    solution = "".join(lines) + f"#### {total}"
    return Problem(name, prompt, total, solution, {"calls": calls, "totals": totals})


def calculate(expression: str) -> str:
    """Work out an expression of integers, `+ - * /` and brackets, exactly.

    Returns:
        An integer, a reduced fraction as `7/3`, or `error` for anything else: another character,
        more than 64 of them, a division by zero, a number above 10^15.
    """
    if not _ALLOWED.fullmatch(expression):
        return "error"
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, ValueError):
        return "error"
    return str(value)


def _value(node: ast.expr) -> Fraction:
    """The value of a parsed expression; only the four operations and integers are known."""
    match node:
        case ast.Constant(value=int(number)):
            value = Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            value = _OPERATORS[type(op)](_value(left), _value(right))
        case _:
            raise ValueError("not an expression of the calculator")
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise ValueError("out of range")
    return value
