from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from envs.math_problems import MathProblems
from rewards.answer import AnswerReward
from vineenv.errors import UsageError

ROWS = [
    {
        "problem": "Solve $2x=6$.",
        "solution": r"So $x=\boxed{3}$.",
        "answer": "3",
        "level": "Level 1",
        "subject": "Algebra",
    },
    {
        "problem": r"Find $\frac12+\frac13$.",
        "solution": r"It is $\boxed{\frac{5}{6}}$.",
        "answer": r"\frac56",
        "level": 2,
        "subject": "Prealgebra",
    },
    {
        "problem": "List the roots of $x^2=1$.",
        "solution": r"They are $\boxed{1,-1}$.",
        "answer": "-1,1",
        "level": "Level 5",
        "type": "Algebra",
    },
]


def make(tokenizer: PreTrainedTokenizerFast, path: Path, **settings: object) -> MathProblems:
    values: dict[str, object] = {"layout": "math", "prompt": "{problem}\n", "validation_size": 1, **settings}
    return MathProblems(tokenizer, AnswerReward(style="boxed"), path=str(path), **values)  # ty: ignore[invalid-argument-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train", "test", "math500"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


def test_gold_solutions_earn_the_reward(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    env = make(tokenizer, folder)
    assert [env.size(split) for split in ("train", "validation", "test")] == [2, 1, 3]
    for index in range(3):
        problem = env.problem("test", index)
        _, reward, *_ = env.transition(
            env.initial_state(problem), (*env.encode(problem.solution or ""), env.eos_id)
        )
        assert reward == 1 and env.defect(problem) is None


def test_an_answer_may_be_in_the_solution_alone(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "answer"} for row in ROWS]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    env = make(tokenizer, folder)
    assert [env.problem("test", i).answer for i in range(3)] == ["3", r"\frac{5}{6}", "1,-1"]


def test_levels_and_subjects_filter(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    assert make(tokenizer, folder, levels=[1, 5]).size("test") == 2
    assert make(tokenizer, folder, subjects=["Algebra"]).size("test") == 2
    assert make(tokenizer, folder, subjects=["Algebra"], levels=[5]).size("test") == 1


def test_a_set_for_testing_only_lends_its_rows_to_all_splits(
    tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    env = make(tokenizer, folder, layout="math500")
    assert env.problem("train", 1).prompt == env.problem("test", 1).prompt


OLYMPIAD = [
    {"question": "Roots of $x^2=5x-6$?", "final_answer": ["$2$", "$3$"], "is_multiple_answer": True},
    {"question": "How long is it?", "final_answer": ["5"], "unit": "cm", "error": None},
    {"question": "About how much?", "final_answer": ["3.14"], "unit": "", "error": "1e-2"},
    {"question": "Which points?", "final_answer": ["$(1,2)$", "$(3,4)$"]},
]


@pytest.mark.parametrize(
    ("index", "answer", "reward"),
    [
        (0, "3, 2", 1), (0, "2", 0), (0, "x=2, x=3", 1),
        (1, "5", 1), (1, "5 cm", 1), (1, "5 m", 0), (1, r"5\text{ cm}", 1),
        (2, "3.15", 1), (2, "3.13", 1), (2, "3.16", 0), (2, "22/7", 1), (2, r"\frac{22}{7}", 1),
        (3, "(3,4),(1,2)", 1), (3, "(1,2)", 0),
    ],
)  # fmt: skip
def test_several_answers_units_and_tolerances_are_honoured(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, index: int, answer: str, reward: int
) -> None:
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, OLYMPIAD)))
    env = make(tokenizer, tmp_path, layout="olympiadbench")
    problem = env.problem("test", index)
    text = f"It is $\\boxed{{{answer}}}$."
    assert env.reward(text, problem).value == reward  # ty: ignore
    _, batched, *_ = env.transition(env.initial_state(problem), (*env.encode(text), env.eos_id))
    assert batched == reward


def test_a_tolerance_must_be_a_number(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({**OLYMPIAD[0], "error": "a bit"}))
    with pytest.raises(UsageError, match="line 1: field 'error' must be a number from 0, not 'a bit'"):
        make(tokenizer, tmp_path, layout="olympiadbench")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "maths"}, "Did you mean 'math'"),
        ({"levels": [7]}, r"env.levels has \[7\]"),
        ({"subjects": ["Algebar"]}, "Did you mean 'Algebra'"),
        ({"prompt": "no place"}, "has no {problem}"),
        ({"validation_size": 3}, "between 1 and 2"),
    ],
)
def test_bad_settings(
    tokenizer: PreTrainedTokenizerFast, folder: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make(tokenizer, folder, **settings)
