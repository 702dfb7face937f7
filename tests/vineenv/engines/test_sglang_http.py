"""SGLang by URL, against a server that speaks its protocol and misbehaves when told to."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import pytest
import torch
from engine_models import hf_logprobs, random_requests
from fake_sglang import Answer, FakeServer
from torch import nn

from vineenv.engines import sglang_pool
from vineenv.engines.base import Engine
from vineenv.engines.sglang import SGLangEngine
from vineenv.errors import RunStoppedError, UsageError
from vineenv.types import Request


@pytest.fixture
def server(llama: nn.Module) -> Iterator[FakeServer]:
    other = copy.deepcopy(llama)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)  # a server starts with weights of its own
    with FakeServer(other) as fake:
        yield fake


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_pool, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(sglang_pool, "_LONGEST_PAUSE_S", 0.05)


def connect(model: nn.Module, *servers: FakeServer, **settings: object) -> SGLangEngine:
    return SGLangEngine(model, urls=[s.url for s in servers], **settings)  # ty: ignore[invalid-argument-type]


def changed(model: nn.Module, factor: float = 0.8) -> nn.Module:
    """A copy with scaled weights; scaled up, three layers would amplify float32 rounding to about 1e-4."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(factor)
    return other


def largest_gap(model: nn.Module, engine: SGLangEngine, temperature: float = 1.0) -> float:
    requests = random_requests(12, max_new_tokens=6, n=2, temperature=temperature)
    gap = 0.0
    for request, rows in zip(requests, engine.generate(requests), strict=True):
        assert len(rows) == 2
        for row in rows:
            known = hf_logprobs(model, [request.prefix + row.ids], temperature)[0]
            at = torch.arange(len(row.ids)) + len(request.prefix) - 1
            gap = max(gap, float((known[at, list(row.ids)] - torch.tensor(row.logprobs)).abs().max()))
    return gap


def test_it_keeps_the_protocol_and_serves_the_trainers_weights(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    assert isinstance(engine, Engine)
    assert largest_gap(llama, engine) < 1e-4
    other = changed(llama)
    engine.load_weights(other, 1)
    assert largest_gap(other, engine, 0.7) < 1e-4
    assert largest_gap(llama, engine, 0.7) > 1e-2


def test_an_update_is_begun_and_ended_with_the_cache_dropped(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.calls.clear()
    engine.load_weights(llama, 1)
    assert server.calls == [
        "flush_cache", "begin_weight_update", "update_weights_from_tensor", "end_weight_update", "generate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call", ["flush_cache", "begin_weight_update", "update_weights_from_tensor", "end_weight_update"]
)
def test_a_false_flag_stops_the_run_with_its_reason(llama: nn.Module, server: FakeServer, call: str) -> None:
    engine = connect(llama, server)
    server.refuse = call
    with pytest.raises(RunStoppedError, match=f"did not do {call}: "):
        engine.load_weights(changed(llama), 1)


def test_weights_that_were_not_taken_are_noticed(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.deaf = True
    with pytest.raises(RunStoppedError, match=r"differ from the trainer's by \d"):
        engine.load_weights(changed(llama), 1)


def test_weights_that_are_no_numbers_are_noticed(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.deaf = True
    with pytest.raises(RunStoppedError, match="by nan nats"):
        engine.load_weights(changed(llama, float("nan")), 1)


def test_an_old_cached_prefix_is_noticed(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.stale_cache = 15
    with pytest.raises(RunStoppedError, match="15 tokens of the probe prompt came from the old cache"):
        engine.load_weights(changed(llama), 1)


def test_another_temperature_convention_is_noticed_at_the_start(llama: nn.Module, server: FakeServer) -> None:
    server.raw_logprobs = True
    with pytest.raises(RunStoppedError, match=r"at temperature 0\.5 differ from the trainer's"):
        connect(llama, server)


@pytest.mark.usefixtures("quick")
def test_a_lost_answer_is_asked_for_again(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.lose = 3
    assert largest_gap(llama, engine) < 1e-4
    assert not server.lose


@pytest.mark.usefixtures("quick")
def test_a_restarted_server_gets_the_weights_before_it_is_used(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    begun = len(server.asked)

    def restart(number: int) -> None:
        if number == begun + 5:
            server.restart()

    server.on_generate = restart
    assert largest_gap(llama, engine) < 1e-4
    assert server.tag == engine._pool.tag


@pytest.mark.usefixtures("quick")
def test_weights_that_have_changed_since_are_not_given_to_a_restarted_server(
    llama: nn.Module, server: FakeServer
) -> None:
    model = copy.deepcopy(llama)
    engine = connect(model, server)
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
    server.restart()
    with pytest.raises(RunStoppedError, match="weights have changed since"):
        engine.generate([Request((1, 2, 3), max_new_tokens=2)])


@pytest.mark.usefixtures("quick")
def test_the_run_stops_when_patience_is_at_its_end(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server, patience=0.3)
    server.lose = 10**6
    with pytest.raises(RunStoppedError, match=r"has not answered for engine\.patience=0\.3 s"):
        engine.generate([Request((1, 2, 3), max_new_tokens=2)])


def test_a_call_ends_at_its_deadline_and_says_how_far_it_came(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    engine._deadline, server.pause = 1.0, 0.3  # the server answers one at a time: 6 s for all
    requests = [Request((i + 1,), max_new_tokens=2) for i in range(20)]
    with pytest.raises(
        RunStoppedError, match=r"did not finish generate within engine\.deadline=1 s: \d of 20 continuations"
    ):
        engine.generate(requests)


@pytest.mark.usefixtures("quick")
def test_several_servers_share_the_work_and_stand_in_for_each_other(
    llama: nn.Module, server: FakeServer
) -> None:
    with FakeServer(llama) as second:
        engine = connect(llama, server, second, patience=20.0)
        assert largest_gap(llama, engine) < 1e-4
        halves = [len(s.asked) for s in (server, second)]
        assert min(halves) > 0.25 * sum(halves)
        server.lose = 10**6
        assert largest_gap(llama, engine) < 1e-4


def test_a_router_gets_the_requests_and_the_servers_the_weights(llama: nn.Module, server: FakeServer) -> None:
    passed: list[str] = []
    with FakeServer(llama) as router:

        def pass_on(name: str, body: Mapping) -> Answer | None:
            passed.append(name)
            return server.take(name, body)

        router.take = pass_on  # ty: ignore[invalid-assignment]
        engine = connect(llama, server, router=router.url)
        assert "update_weights_from_tensor" in server.calls and not passed
        assert largest_gap(llama, engine) < 1e-4
        assert set(passed) == {"generate"}


def test_other_weights_under_the_same_version_are_served_too(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    other = changed(llama)
    engine.load_weights(other, 0)
    assert largest_gap(other, engine) < 1e-4


@pytest.mark.usefixtures("quick")
def test_a_server_that_failed_its_proof_is_not_trusted_later(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.deaf = True
    with pytest.raises(RunStoppedError, match="differ from"):
        engine.load_weights(changed(llama), 1)
    with pytest.raises(RunStoppedError, match="differ from"):
        engine.generate([Request((1, 2, 3), max_new_tokens=2)])


def test_a_row_that_was_cut_short_or_ended_by_itself_is_noticed(llama: nn.Module, server: FakeServer) -> None:
    engine = connect(llama, server)
    server.cut = 2
    with pytest.raises(RunStoppedError, match="cut request 0 off after 2 of 5 tokens"):
        engine.generate([Request((1, 2, 3), max_new_tokens=5)])
    server.cut, server.end = 0, "stop"
    with pytest.raises(RunStoppedError, match="which request 0 does not stop at"):
        engine.generate([Request((1, 2, 3), max_new_tokens=5)])


def test_memory_is_released_and_resumed_around_training(llama: nn.Module, server: FakeServer) -> None:
    with pytest.raises(UsageError, match="without enable_memory_saver"):
        connect(llama, server, release_memory=True)
    server.facts["enable_memory_saver"] = True
    engine = connect(llama, server, release_memory=True)
    server.calls.clear()
    engine.release()
    engine.load_weights(changed(llama), 1)
    assert server.calls == [
        "flush_cache", "release_memory_occupation",
        "resume_memory_occupation", "begin_weight_update", "update_weights_from_tensor", "end_weight_update",
        "resume_memory_occupation", "flush_cache", "generate",
    ]  # fmt: skip


def test_data_parallel_replicas_are_refused(llama: nn.Module, server: FakeServer) -> None:
    server.facts["dp_size"] = 2
    with pytest.raises(UsageError, match="start a server for each"):
        connect(llama, server)


@pytest.mark.usefixtures("quick")
def test_a_url_where_nothing_is(llama: nn.Module) -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:9 has not answered"):
        SGLangEngine(llama, urls=["http://127.0.0.1:9"], patience=0.1)


def test_progress_tells_finished_rows(llama: nn.Module, server: FakeServer) -> None:
    heard: list[tuple[int, int]] = []
    engine = connect(llama, server)
    engine.generate(random_requests(6, max_new_tokens=3, n=3), lambda *told: heard.append(told))
    assert [done for done, _ in heard] == [3, 6, 9, 12, 15, 18]
    assert {total for _, total in heard} == {18}
