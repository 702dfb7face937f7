"""The native engine against Hugging Face, exact probabilities and itself."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Iterator

import pytest
import torch
from engine_models import VOCABULARY, build, hf_logprobs, random_requests
from torch import nn

from vineenv.engines.base import Engine
from vineenv.engines.native import NativeEngine
from vineenv.types import Completion, Request


def _largest_gap(
    model: nn.Module, requests: list[Request], out: list[list[Completion]], temperature: float = 1.0
) -> float:
    pairs = [(request.prefix, c) for request, row in zip(requests, out) for c in row]
    reference = hf_logprobs(model, [prefix + c.ids for prefix, c in pairs], temperature)
    gap = 0.0
    for row, (prefix, c) in enumerate(pairs):
        at = torch.arange(len(prefix) - 1, len(prefix) - 1 + len(c.ids))
        gap = max(gap, float((reference[row, at, list(c.ids)] - torch.tensor(c.logprobs)).abs().max()))
    return gap


@pytest.mark.parametrize(
    ("name", "count"),
    [("llama", 250), ("qwen2", 250), ("gpt2", 250), ("qwen3", 100), ("llama_gqa_yarn", 100), ("llama3", 50)],
)
def test_logprobs_equal_hugging_face_on_random_prefixes(name: str, count: int) -> None:
    model = build(name)
    requests = random_requests(count, max_new_tokens=9, n=2)
    requests = [dataclasses.replace(r, max_new_tokens=3 + r.seed % 9) for r in requests]
    out = NativeEngine(model, max_rows=64).generate(requests)
    assert _largest_gap(model, requests, out) < 1e-4


def test_logprobs_are_at_the_sampling_temperature_and_raw_when_greedy(llama: nn.Module) -> None:
    hot = random_requests(20, max_new_tokens=8, temperature=1.7)
    assert _largest_gap(llama, hot, NativeEngine(llama).generate(hot), 1.7) < 1e-4
    greedy = random_requests(20, max_new_tokens=8, temperature=0.0)
    out = NativeEngine(llama).generate(greedy)
    assert _largest_gap(llama, greedy, out) < 1e-4
    for request, (completion,) in zip(greedy, out):
        reference = hf_logprobs(llama, [request.prefix + completion.ids])[0]
        first = len(request.prefix) - 1
        assert reference[first:-1].argmax(-1).tolist() == list(completion.ids)


def test_filtered_logprobs_are_those_before_the_filter(llama: nn.Module) -> None:
    requests = random_requests(30, max_new_tokens=8, top_k=3, top_p=0.8, min_p=0.05, n=2)
    assert _largest_gap(llama, requests, NativeEngine(llama).generate(requests)) < 1e-4


def test_next_tokens_follow_the_exact_probabilities(llama: nn.Module) -> None:
    """Chi-square on second tokens, so that the first one's own keys take part; alarm at p = 1e-4."""
    draws = 20_000
    prefix = (5, 9, 33, 2)
    engine = NativeEngine(llama)
    (out,) = engine.generate([Request(prefix, n=draws, max_new_tokens=2, temperature=1.3, seed=3)])
    first = hf_logprobs(llama, [prefix], 1.3)[0, -1].exp()
    rest = hf_logprobs(llama, [(*prefix, token) for token in range(VOCABULARY)], 1.3)[:, -1].exp()
    expected = draws * (first[:, None] * rest).double().flatten()
    counts = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64)
    for completion in out:
        counts[completion.ids] += 1
    counts = counts.flatten()
    common = expected >= 10
    expected = torch.cat((expected[common], expected[~common].sum()[None]))
    counts = torch.cat((counts[common], counts[~common].sum()[None]))
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    assert freedom > 100
    # Wilson-Hilferty: the cube root of chi-square over its freedom is nearly normal.
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    assert abs(z) < 3.9


def test_samples_do_not_depend_on_the_batch(llama: nn.Module) -> None:
    requests = random_requests(500, max_new_tokens=12, stop_ids=(7,))
    together = NativeEngine(llama).generate(requests)
    for number in (0, 17, 250, 499):
        (alone,) = NativeEngine(llama).generate([requests[number]])
        assert alone[0].ids == together[number][0].ids
        assert alone[0].logprobs == pytest.approx(together[number][0].logprobs, abs=1e-4)
    waves = NativeEngine(llama, max_rows=40, kv_budget="2MB").generate(requests)
    assert [row[0].ids for row in waves] == [row[0].ids for row in together]
    reordered = NativeEngine(llama, workers=1).generate(requests[::-1])[::-1]
    assert [row[0].ids for row in reordered] == [row[0].ids for row in together]


def test_continuations_and_seeds_differ_and_repeat(llama: nn.Module) -> None:
    request = Request((1, 2, 3), n=4, max_new_tokens=20, seed=11)
    first, other = NativeEngine(llama).generate([request, dataclasses.replace(request, seed=12)])
    assert len({completion.ids for completion in first + other}) == 8
    (alone,) = NativeEngine(llama).generate([request])
    assert [c.ids for c in alone] == [c.ids for c in first]
    assert NativeEngine(llama).generate([request]) == [alone]


def test_no_token_comes_from_old_weights(llama: nn.Module) -> None:
    model = copy.deepcopy(llama)
    engine = NativeEngine(model)
    requests = random_requests(10, max_new_tokens=10, temperature=0.0)
    before = engine.generate(requests)
    with torch.no_grad():
        model.model.norm.weight.neg_()  # the logits change sign: the likeliest token becomes the unlikeliest
    assert engine.generate(requests) == before, "the engine must hold a copy until load_weights"
    engine.load_weights(model, 1)
    after = engine.generate(requests)
    assert engine.version == 1
    assert all(a[0].ids[0] != b[0].ids[0] for a, b in zip(after, before))
    assert _largest_gap(model, requests, after) < 1e-4


def test_ten_thousand_requests_in_one_gibibyte(llama: nn.Module) -> None:
    requests = random_requests(10_000, longest=30, max_new_tokens=6)
    out = NativeEngine(llama, kv_budget="1GiB").generate(requests)
    assert all(len(row) == 1 and len(row[0].ids) == 6 for row in out)


def test_the_budget_is_kept(llama: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values in memory at once, counted where they are allocated, stay within the budget."""
    from vineenv.engines.worker import Worker

    peak = 0
    step = Worker._step

    def watched(self: Worker) -> None:
        nonlocal peak
        peak = max(peak, self.held + sum(cohort.bytes for cohort in self.cohorts))
        step(self)

    monkeypatch.setattr(Worker, "_step", watched)
    budget = 3_000_000
    requests = random_requests(60, n=6, max_new_tokens=30)
    out = NativeEngine(llama, kv_budget=budget, workers=1).generate(requests)
    assert sum(len(row) for row in out) == 360
    assert 0.3 * budget < peak <= budget


def test_prefixes_are_computed_once_and_accounted(llama: nn.Module) -> None:
    whole = tuple(range(40))
    requests = [Request(whole[:length], n=3, max_new_tokens=4) for length in (40, 10, 25)]
    engine = NativeEngine(llama)
    out = engine.generate(requests)
    assert engine.stats.prefill_tokens == 40
    assert engine.stats.prompt_tokens == 3 * 75
    assert engine.stats.decoded_tokens == 36
    assert engine.stats.hit_rate == pytest.approx(1 - 40 / 225)
    assert [[c.cached_tokens for c in row] for row in out] == [[25, 40, 40], [0, 10, 10], [10, 25, 25]]


def test_rows_end_at_stop_ids_budget_and_context(llama: nn.Module) -> None:
    engine = NativeEngine(llama)
    stops = (3, 4, 5, 6, 7, 8)
    (out,) = engine.generate([Request((1, 2), n=60, max_new_tokens=15, stop_ids=stops)])
    assert {completion.finish_reason for completion in out} == {"stop", "length"}
    for completion in out:
        ended = completion.ids[-1] in stops
        assert completion.finish_reason == ("stop" if ended else "length")
        assert not set(completion.ids[:-1]) & set(stops)
        assert ended or len(completion.ids) == 15
    (near,) = engine.generate([Request(tuple([1] * 250), max_new_tokens=50)])
    assert (len(near[0].ids), near[0].finish_reason) == (6, "length")


def test_rows_end_with_the_token_that_completes_a_stop_string(llama: nn.Module) -> None:
    def decode(ids: list[int]) -> str:
        return "".join(chr(ord("0") + token % 10) for token in ids)

    engine = NativeEngine(llama, decode=decode)
    (out,) = engine.generate([Request((1, 2), n=40, max_new_tokens=30, stop=("77", "12"))])
    stopped = [completion for completion in out if completion.finish_reason == "stop"]
    assert 5 < len(stopped) < 40
    for completion in out:
        text = decode(list(completion.ids))
        assert ("77" in text or "12" in text) == (completion.finish_reason == "stop")
        assert "77" not in text[:-1] and "12" not in text[:-1]


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


def test_the_model_and_the_threads_are_left_alone(llama: nn.Module, threads: int) -> None:
    model = copy.deepcopy(llama)
    NativeEngine(model).generate(random_requests(10, max_new_tokens=3))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, llama.state_dict()[name])
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.get_num_threads() == threads
    # A new thread starts from torch's process-wide count, which the workers' own setting overwrites.
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [threads]


def test_bfloat16_stays_near_float32(llama: nn.Module) -> None:
    requests = random_requests(30, n=2, max_new_tokens=8)
    out = NativeEngine(llama, dtype="bfloat16").generate(requests)
    assert 1e-4 < _largest_gap(llama, requests, out) < 0.5
    assert NativeEngine(llama, dtype="bfloat16").generate(requests) == out


def test_an_unknown_architecture_falls_back_and_says_so() -> None:
    model = build("gpt_neox")
    with pytest.warns(UserWarning, match="'gpt_neox' is not supported by the fused decoder"):
        engine = NativeEngine(model)
    requests = random_requests(40, max_new_tokens=8, n=2, stop_ids=(9,))
    out = engine.generate(requests)
    assert _largest_gap(model, requests, out) < 1e-4
    assert any(c.finish_reason == "stop" for row in out for c in row)
    assert engine.stats.prefill_tokens < engine.stats.prompt_tokens
    with torch.no_grad():
        model.get_parameter("gpt_neox.final_layer_norm.weight").neg_()
    with pytest.warns(UserWarning):
        engine.load_weights(model, 1)
    assert _largest_gap(model, requests, engine.generate(requests)) < 1e-4


def test_the_fallback_agrees_with_the_fused_decoder(
    llama: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = random_requests(60, max_new_tokens=10, n=2, stop_ids=(9,))
    fused = NativeEngine(llama).generate(requests)
    monkeypatch.setattr(llama.config, "model_type", "llama_of_another_kind")
    with pytest.warns(UserWarning):
        slow = NativeEngine(llama).generate(requests)
    assert [[c.ids for c in row] for row in slow] == [[c.ids for c in row] for row in fused]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefix": ()}, "request 1: the prefix is empty"),
        ({"prefix": (1,) * 256}, "request 1: the prefix has 256 tokens.*context of 256"),
        ({"prefix": (1, 64)}, "request 1: a prefix token is outside the vocabulary of 64"),
        ({"n": 0}, "request 1: n is 0"),
        ({"max_new_tokens": 0}, "request 1: max_new_tokens is 0"),
        ({"temperature": -0.1}, "request 1: temperature is -0.1"),
        ({"temperature": float("nan")}, "request 1: temperature is nan"),
        ({"top_p": 0.0}, "request 1: top_p is 0.0"),
        ({"top_k": -1}, "request 1: top_k is -1"),
        ({"min_p": 2.0}, "request 1: min_p is 2.0"),
        ({"stop": ("x",)}, "request 1: stop strings need an engine built with `decode`"),
    ],
)
def test_bad_requests_are_named(llama: nn.Module, change: dict, message: str) -> None:
    good = Request((1, 2, 3), max_new_tokens=2)
    with pytest.raises(ValueError, match=message):
        NativeEngine(llama).generate([good, dataclasses.replace(good, **change)])


def test_nan_weights_are_reported_for_the_request(llama: nn.Module) -> None:
    model = copy.deepcopy(llama)
    with torch.no_grad():
        model.model.embed_tokens.weight[13] = float("nan")
        model.lm_head.weight = nn.Parameter(llama.lm_head.weight.clone())
    engine = NativeEngine(model, workers=1)
    with pytest.raises(ValueError, match="request 1: the model's logits are not finite"):
        engine.generate([Request((1, 2), max_new_tokens=1), Request((1, 13), max_new_tokens=1)])
    engine.load_weights(llama, 1)
    assert len(engine.generate([Request((1, 13), max_new_tokens=3)])[0][0].ids) == 3


def test_a_budget_too_small_for_one_row_names_the_request(llama: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"request 1: its keys and values may take [\d,]+ bytes, more than"):
        NativeEngine(llama, kv_budget=20_000).generate(
            [Request((1, 2), max_new_tokens=2), Request((1,) * 50, max_new_tokens=50)]
        )


def test_progress_and_protocol(llama: nn.Module) -> None:
    told: list[tuple[int, int]] = []
    engine = NativeEngine(llama)
    assert isinstance(engine, Engine)
    engine.generate(random_requests(12, n=2, max_new_tokens=5), progress=lambda *now: told.append(now))
    assert told[-1] == (24, 24)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert engine.generate([]) == []


def test_unknown_dtype_is_refused(llama: nn.Module) -> None:
    with pytest.raises(ValueError, match="'float16' is unknown"):
        NativeEngine(llama, dtype="float16")
