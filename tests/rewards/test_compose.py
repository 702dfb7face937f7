import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rewards.answer import AnswerReward
from rewards.compose import Composed
from rewards.format import FormatReward
from rewards.length import LengthPenalty
from vineenv.types import Problem, Reward

PROBLEM = Problem(id="p", prompt="?", answer="5")
CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "reward"


def shout(response: str, problem: Problem) -> float:
    """A user's own plain function."""
    return float(response.isupper())


def test_values_are_weighted_and_the_first_status_stands() -> None:
    parts = [
        {"target": "rewards.answer.AnswerReward", "style": "gsm8k"},
        {"target": "rewards.format.FormatReward", "weight": 0.5},
        {"target": "rewards.length.LengthPenalty", "weight": 2, "free": 0, "limit": 100},
    ]
    reward = Composed(parts=parts)
    assert reward("#### 5", PROBLEM) == Reward(1 + 0.5 - 2 * 0.06, "correct", "5")
    assert reward("#### 6", PROBLEM) == Reward(0 + 0.5 - 2 * 0.06, "wrong", "6")
    assert reward("", PROBLEM) == Reward(0, "no_answer", None)
    responses = ["#### 5", "#### 6", ""]
    assert reward.grade_many(responses, [PROBLEM] * 3) == [
        reward(response, PROBLEM) for response in responses
    ]


def test_a_plain_function_is_a_part() -> None:
    named = Composed(parts=["tests.rewards.test_compose.shout", {"target": f"{__name__}.shout", "weight": 3}])
    assert named("YES", PROBLEM).value == 4
    assert Composed(parts=[AnswerReward(style="gsm8k"), shout])("#### 5", PROBLEM).value == 1


def test_a_bad_reference_is_worth_nothing_and_found_by_check() -> None:
    reward = Composed(parts=["rewards.format.FormatReward", "rewards.answer.AnswerReward"])
    bad = Problem(id="p", prompt="?", answer="")
    assert reward("#### 5", bad) == Reward(0.0, "gold_error", "5")
    assert reward.check(bad) == "the reference is empty"
    assert reward.check(PROBLEM) is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one part"),
        ([{"weight": 1}], "needs a target"),
        (["rewards.answer.Anser"], "No reward 'rewards.answer.Anser'"),
        ([{"target": f"{__name__}.shout", "style": "x"}], "takes no settings, got"),
    ],
)
def test_faults_in_the_parts_are_named(parts: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Composed(parts=parts)


def test_a_reward_is_a_finite_number() -> None:
    with pytest.raises(ValueError, match="finite"):
        Composed(parts=[lambda response, problem: float("nan")])("", PROBLEM)


def test_length_penalty_falls_in_a_straight_line() -> None:
    penalty = LengthPenalty(free=10, limit=20)
    assert [penalty("x" * n, PROBLEM).value for n in (0, 10, 15, 20, 99)] == [0, 0, -0.5, -1, -1]
    with pytest.raises(ValueError, match="free=5 and limit=5"):
        LengthPenalty(free=5, limit=5)


def test_format_reward_asks_only_for_an_answer() -> None:
    assert FormatReward(style="boxed")(r"\boxed{9}", PROBLEM) == Reward(1.0, "correct", "9")
    assert FormatReward(style="boxed")("9", PROBLEM).status == "no_answer"


# `leaf` pays for words of the tree, not for numbers: tests/vineenv/test_exact.py.
NUMBERS = sorted(path for path in CONFIGS.glob("*.yaml") if path.stem != "leaf")


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: path.stem)
def test_every_shipped_config_accepts_the_right_answer_and_refuses_a_wrong_one(path: Path) -> None:
    config = OmegaConf.to_container(OmegaConf.load(path))
    reward = Composed(parts=[config])
    right, wrong = (
        f"So #### {n}" if re.search("gsm8k|####", path.read_text()) else rf"Answer: \boxed{{{n}}}"
        for n in (5, 6)
    )
    assert reward(right, PROBLEM).status == "correct"
    assert reward(right, PROBLEM).value >= 1 > reward(wrong, PROBLEM).value
