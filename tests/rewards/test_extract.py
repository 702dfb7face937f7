import pytest

from rewards import extract


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{7} then \boxed{9}", "9"),
        (r"\boxed{\boxed{21}}", "21"),
        (r"\fbox{3}", "3"),
        (r"\boxed {15} in all", "15"),
        (r"\boxed 6$", "6"),
        (r"\boxed\frac12$", r"\frac12"),
        (r"\boxed{\{2,5\}}", r"\{2,5\}"),
        (r"\boxed{(0,\}} or so}", r"(0,\}"),
        (r"\boxed{\frac{1}{2}} and more", r"\frac{1}{2}"),
        ("\\boxed{\n 8\n}", "8"),
        (r"<think>\boxed{3}</think> \boxed{4}", "4"),
        (r"<think>\boxed{3}</think> so 4", None),
        (r"\boxed{7}, no: \boxed{12", None),
        (r"\boxed{18} as \boxed{} says", None),
        ("the answer is 12", None),
        (r"\boxedx", None),
    ],
)
def test_boxed_takes_the_last_closed_box(response: str, answer: str | None) -> None:
    assert extract.boxed(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("a\n#### 5\nb", "5"),
        ("#### 1\n#### 2", "2"),
        ("5", None),
        ("####\n5", None),
        ("<think>#### 3</think>4", None),
    ],
)
def test_gsm8k_takes_the_line_of_the_last_mark(response: str, answer: str | None) -> None:
    assert extract.gsm8k(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("x\nAnswer: 816\ny", "816"),
        ("The answer is: 5", "5"),
        ("answer is 3. Final ANSWER: 4", "4"),
        (" 816 ", "816"),
        ("Answer:\n816", None),
        ("", None),
    ],
)
def test_plain_takes_the_line_of_the_last_mark_or_everything(response: str, answer: str | None) -> None:
    assert extract.plain(response) == answer
