"""The real SGLang on a CPU against the native engine, the model and itself."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import pytest
import torch
from engine_models import VOCABULARY, build, hf_logprobs, random_requests
from torch import nn

from vineenv.engines.native import NativeEngine
from vineenv.engines.sglang import SGLangEngine
from vineenv.errors import RunStoppedError
from vineenv.types import Completion, Request

pytestmark = pytest.mark.sglang


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return build("qwen2")


@pytest.fixture(scope="module")
def engine(model: nn.Module) -> Iterator[SGLangEngine]:
    engine = SGLangEngine(model, arguments={"random_seed": 0})
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def uncached(model: nn.Module) -> Iterator[SGLangEngine]:
    engine = SGLangEngine(model, arguments={"disable_radix_cache": True})
    yield engine
    engine.close()


@pytest.fixture
def clean(engine: SGLangEngine, model: nn.Module) -> SGLangEngine:
    """The engine with the module's weights and an empty cache, whatever another test left."""
    engine.load_weights(model, 0)
    return engine


def vines(model: nn.Module, k: int = 9, every: int = 16) -> list[Request]:
    """K continuations at several states of four sampled trajectories."""
    asked = [dataclasses.replace(r, max_new_tokens=120) for r in random_requests(4, seed=5)]
    requests = []
    for request, (answer,) in zip(asked, NativeEngine(model).generate(asked), strict=True):
        requests += [
            Request(request.prefix + answer.ids[:at], n=k, max_new_tokens=24)
            for at in range(0, len(answer.ids), every)
        ]
    return requests


def largest_gap(
    model: nn.Module, requests: list[Request], out: list[list[Completion]], temperature: float = 1.0
) -> float:
    gap = 0.0
    for request, rows in zip(requests, out, strict=True):
        known = hf_logprobs(model, [request.prefix + row.ids for row in rows], temperature)
        for row, scores in zip(rows, known, strict=True):
            at = torch.arange(len(row.ids)) + len(request.prefix) - 1
            gap = max(gap, float((scores[at, list(row.ids)] - torch.tensor(row.logprobs)).abs().max()))
    return gap


def test_greedy_tokens_and_logprobs_equal_the_native_engines(model: nn.Module, clean: SGLangEngine) -> None:
    requests = random_requests(50, max_new_tokens=20, temperature=0.0, stop_ids=(7, 9))
    native, ours = NativeEngine(model).generate(requests), clean.generate(requests)
    assert {c.finish_reason for (c,) in native} == {"stop", "length"}
    for (theirs,), (mine,) in zip(native, ours, strict=True):
        assert mine.ids == theirs.ids
        assert mine.finish_reason == theirs.finish_reason
        assert torch.allclose(torch.tensor(mine.logprobs), torch.tensor(theirs.logprobs), atol=1e-3)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_logprobs_are_at_the_sampling_temperature(
    model: nn.Module, clean: SGLangEngine, temperature: float
) -> None:
    requests = random_requests(20, max_new_tokens=8, n=2, temperature=temperature)
    assert largest_gap(model, requests, clean.generate(requests), temperature) < 1e-3


def test_a_row_may_use_the_whole_context(model: nn.Module, clean: SGLangEngine) -> None:
    request = Request(tuple(i % VOCABULARY for i in range(250)), max_new_tokens=50)
    ((row,),) = clean.generate([request])
    assert (len(row.ids), row.finish_reason) == (6, "length")


def test_sampled_distributions_agree(model: nn.Module, clean: SGLangEngine) -> None:
    """First tokens at T = 0.6, top-p 0.9: chi-square against the exact nucleus, and the native engine's."""
    prompt, draws = (3, 1, 4, 1, 5, 9, 2, 6), 4000
    request = Request(prompt, n=draws, max_new_tokens=1, temperature=0.6, top_p=0.9)
    exact = hf_logprobs(model, [prompt], 0.6)[0, -1].double().exp()
    order = exact.argsort(descending=True)
    kept = order[exact[order].cumsum(0) - exact[order] < 0.9]
    expected = torch.zeros(VOCABULARY, dtype=torch.float64)
    expected[kept] = exact[kept] / exact[kept].sum()
    assert len(kept) >= 4
    for engine in (clean, NativeEngine(model)):
        drawn = torch.tensor([row.ids[0] for row in engine.generate([request])[0]])
        counts = torch.bincount(drawn, minlength=VOCABULARY).double()
        assert not counts[expected == 0].any()
        mean = expected[kept] * draws
        rare = mean < 5
        seen, mean = [torch.cat([v[~rare], v[rare].sum()[None]]) for v in (counts[kept], mean)]
        statistic = ((seen - mean).square() / mean.clamp(min=1e-9)).sum()
        freedom = torch.tensor((len(mean) - 1 - (0 if rare.any() else 1)) / 2, dtype=torch.float64)
        assert float(torch.special.gammaincc(freedom, statistic / 2)) > 1e-5  # a false alarm in 100,000 runs


def test_a_vine_workload_comes_from_the_cache(model: nn.Module, clean: SGLangEngine) -> None:
    requests = vines(model)
    before = dataclasses.replace(clean.stats)
    out = clean.generate(requests)
    asked = clean.stats.prompt_tokens - before.prompt_tokens
    computed = clean.stats.prefill_tokens - before.prefill_tokens
    assert asked == sum(len(request.prefix) * request.n for request in requests)
    assert 1 - computed / asked >= 0.95
    told = sum(row.cached_tokens for rows in out for row in rows)
    trunks = 4 * max(len(request.prefix) for request in requests)
    assert asked - told <= computed <= asked - told + trunks


def test_cache_on_and_off_give_the_same_greedy_tokens(
    model: nn.Module, clean: SGLangEngine, uncached: SGLangEngine
) -> None:
    requests = [dataclasses.replace(r, n=1, temperature=0.0) for r in vines(model)]
    cached = clean.generate(requests)
    again = clean.generate(requests)
    assert sum(rows[0].cached_tokens for rows in again) > 0.9 * sum(len(r.prefix) for r in requests)
    without = uncached.generate(requests)
    assert not any(rows[0].cached_tokens for rows in without)
    for kind in (again, without):
        assert [rows[0].ids for rows in kind] == [rows[0].ids for rows in cached]


def test_after_a_sync_nothing_of_the_old_weights_is_left(model: nn.Module, clean: SGLangEngine) -> None:
    requests = random_requests(12, max_new_tokens=8, n=2)
    clean.generate(requests)
    other = build("qwen2", seed=1)
    clean.load_weights(other, 1)
    longest = [max(requests, key=lambda request: len(request.prefix))]
    ((first, *_),) = clean.generate([dataclasses.replace(longest[0], n=1)])
    assert first.cached_tokens == 0
    out = clean.generate(requests)
    assert largest_gap(other, requests, out) < 1e-3
    assert largest_gap(model, requests, out) > 0.1


def test_a_small_step_of_the_trainer_is_followed(model: nn.Module, clean: SGLangEngine) -> None:
    stepped = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in stepped.parameters():
            parameter.add_(torch.randn_like(parameter) * 3e-3)
    requests = random_requests(12, max_new_tokens=8)
    clean.load_weights(stepped, 2)
    out = clean.generate(requests)
    assert largest_gap(stepped, requests, out) < 1e-3 < largest_gap(model, requests, out)


def test_a_sabotaged_update_stops_the_run(
    model: nn.Module, clean: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `begin_weight_update` SGLang answers with a false flag and goes on with the old weights."""
    server = clean._pool.servers[0]
    call = server.call

    async def without_begin(name: str, body: dict) -> tuple[bool, str]:
        return (True, "") if name == "begin_weight_update" else await call(name, body)

    monkeypatch.setattr(server, "call", without_begin)
    with pytest.raises(RunStoppedError, match=r"did not do update_weights_from_tensor: .*must run between"):
        clean.load_weights(build("qwen2", seed=1), 3)
    monkeypatch.undo()
    clean.load_weights(model, 4)


def test_weights_that_never_arrive_stop_the_run_with_the_difference(
    clean: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = clean._pool.servers[0]
    pack = server.pack
    monkeypatch.setattr(server, "pack", lambda tensors, ranks: pack(tensors[:1], ranks))
    with pytest.raises(RunStoppedError, match=r"differ from the trainer's by \d"):
        clean.load_weights(build("qwen2", seed=1), 5)


def test_when_a_process_of_sglang_dies_the_caller_is_told_and_lives(
    clean: SGLangEngine, uncached: SGLangEngine
) -> None:
    """The last test: it leaves `uncached` dead, and the other engine must not notice."""
    import psutil  # ty: ignore[import-not-found]

    for number in uncached._pool.servers[0]._engine.get_all_child_pids():  # ty: ignore
        psutil.Process(number).kill()
    with pytest.raises(RunStoppedError, match="SGLang is gone"):
        uncached.generate([Request((1, 2, 3), n=64, max_new_tokens=200)])
    assert len(clean.generate([Request((1, 2, 3), n=2, max_new_tokens=4)])[0]) == 2
