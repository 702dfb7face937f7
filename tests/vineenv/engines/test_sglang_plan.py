"""What SGLang is asked for, in which order, and what keeps it away from those who do not use it."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from engine_models import random_requests
from torch import nn

from algorithms.config import RunConfig, compose
from vineenv.engines import sglang_local, sglang_portable
from vineenv.engines.checks import Limits
from vineenv.engines.sglang import SGLangEngine
from vineenv.engines.sglang_requests import completion, payload, plan, weight_tags
from vineenv.engines.sglang_server import flags
from vineenv.errors import RunStoppedError, UsageError
from vineenv.types import Completion, Request

LIMITS = Limits(context=64, vocabulary=100)


def test_a_trajectorys_states_go_to_one_branch_from_the_longest_down() -> None:
    whole = tuple(range(1, 31))
    lengths = [10, 30, 20, 10]
    requests = [Request(whole[:n], n=3, max_new_tokens=100) for n in lengths]
    requests.append(Request((1, 2, 99), max_new_tokens=5))
    first, second = plan(requests, LIMITS)
    assert (first.ids, first.requests, first.rows) == (whole, (1, 2, 0, 3), 12)
    assert first.work == 30 + 3 * (54 + 34 + 44 + 54)
    assert (second.ids, second.requests, second.rows, second.work) == ((1, 2, 99), (4,), 1, 8)


def test_every_request_is_planned_once_under_a_prefix_of_its_branch_and_neighbours_share_most() -> None:
    requests = random_requests(200)
    random.Random(0).shuffle(requests)
    branches = plan(requests, LIMITS)
    assert sorted(n for branch in branches for n in branch.requests) == list(range(200))
    for branch in branches:
        lengths = [len(requests[n].prefix) for n in branch.requests]
        assert lengths == sorted(lengths, reverse=True)
        assert all(branch.ids[: len(requests[n].prefix)] == requests[n].prefix for n in branch.requests)
    assert all(one.ids < other.ids for one, other in pairwise(branches))


def test_a_request_as_sglang_takes_it() -> None:
    request = Request((5, 6), 2, 90, 0.6, 0.9, (1, 2), top_k=7, min_p=0.1)
    asked = payload(request, LIMITS)
    assert asked["input_ids"] == [[5, 6], [5, 6]]
    assert asked["return_logprob"] is True and "logprob_start_len" not in asked
    assert asked["sampling_params"] == {
        "max_new_tokens": 62, "temperature": 0.6, "top_p": 0.9, "top_k": 7, "min_p": 0.1,
        "stop_token_ids": [1, 2], "ignore_eos": False,
    }  # fmt: skip
    free = payload(Request((5, 6)), LIMITS)["sampling_params"]
    assert (free["top_k"], free["ignore_eos"]) == (-1, True)


def reply(reason: dict | None, ids: list[int], scored: list[int] | None = None) -> dict:
    pairs = [(-0.5, token, None) for token in (ids if scored is None else scored)]
    meta = {
        "finish_reason": reason,
        "output_token_logprobs": pairs,
        "cached_tokens": 4,
        "weight_version": "w",
    }
    return {"output_ids": ids, "meta_info": meta}


def test_a_reply_is_read_and_a_bad_one_refused() -> None:
    expected = Completion((3, 1), (-0.5, -0.5), "stop", 4)
    assert completion(reply({"type": "stop", "matched": 1}, [3, 1])) == expected
    assert weight_tags(reply(None, [])) == {"w"}
    with pytest.raises(RunStoppedError, match="gave up a request: out of memory"):
        completion(reply({"type": "abort", "message": "out of memory"}, []))
    with pytest.raises(RunStoppedError, match="belong to other tokens"):
        completion(reply({"type": "length"}, [3, 1], scored=[3, 2]))


def test_two_weights_in_one_reply_are_both_told() -> None:
    mixed = reply({"type": "length"}, [3])
    mixed["meta_info"]["weight_versions"] = [{"version": "a"}, {"version": "b"}]
    assert weight_tags(mixed) == {"a", "b"}


def test_importing_vineenv_loads_neither_sglang_nor_its_stand_in() -> None:
    code = (
        "import sys, vineenv, vineenv.engines.sglang, algorithms.run; "
        "print([m for m in sys.modules if m.split('.')[0] in ('sglang', 'sgl_kernel')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_choosing_it_without_the_package_tells_how_to_install_it(
    llama: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang_local.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'vineenv\[sglang\]'"):
        SGLangEngine(llama)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"urls": ["localhost:30000"]}, "no URL; write http://host:port"),
        ({"router": "http://r:1"}, "needs engine.urls too"),
        ({"urls": ["http://a:1"], "arguments": {"tp_size": 2}}, "give them to the servers"),
        ({"deadline": 0.0}, r"engine\.deadline=0\.0 must be a positive number"),
        ({"patience": float("nan")}, r"engine\.patience=nan must be a positive number"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(llama: nn.Module, settings: dict, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SGLangEngine(llama, **settings)


def test_the_stand_in_goes_on_the_path_only_without_cuda_and_without_kernels(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path: list[str] = []
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    kernels = str(sglang_portable.KERNELS)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sglang_portable, "_kernels_load", lambda: False)
    assert sglang_portable.prepare() == {} and not path and not caplog.records

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sglang_portable, "_kernels_load", lambda: True)
    assert sglang_portable.prepare()["device"] == "cpu" and not path
    assert "slow, portable path" in caplog.text

    monkeypatch.setattr(sglang_portable, "_kernels_load", lambda: False)
    for _ in range(2):
        sglang_portable.prepare()
        assert path == [kernels]
        assert sglang_portable.os.environ["PYTHONPATH"] == f"{kernels}{sglang_portable.os.pathsep}mine"


def test_the_stand_in_imports_anything_and_calls_nothing() -> None:
    code = "from sgl_kernel import silu_and_mul, anything; silu_and_mul(1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(sglang_portable.KERNELS)},
        check=False,
    )
    assert "NotImplementedError: sgl_kernel.silu_and_mul was called" in done.stderr


def test_the_configuration_holds_every_setting() -> None:
    config = compose("config", RunConfig, ["engine=sglang", "engine.urls=[http://127.0.0.1:30000]"])
    assert config.engine.urls == ["http://127.0.0.1:30000"]
    assert compose("config", RunConfig, ["engine=sglang"]).engine.arguments == {}
    given = ["engine=sglang", "engine.arguments={mem_fraction_static: 0.4}"]
    assert compose("config", RunConfig, given).engine.arguments.mem_fraction_static == 0.4


def test_arguments_as_the_command_line_has_them() -> None:
    assert flags({"device": "cpu", "disable_cuda_graph": True, "max_total_tokens": 9}) == [
        "--device", "cpu", "--disable-cuda-graph", "--max-total-tokens", "9",
    ]  # fmt: skip
