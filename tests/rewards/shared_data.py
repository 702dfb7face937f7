"""Where the shared data lie, and a mark that skips what needs them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CASES = SHARED / "grader_cases.jsonl"
GSM8K = SHARED / "gsm8k"

needs_cases = pytest.mark.skipif(not CASES.exists(), reason=f"no shared grader cases: {CASES} is missing")
needs_gsm8k = pytest.mark.skipif(not GSM8K.exists(), reason=f"no shared GSM8K: {GSM8K} is missing")
