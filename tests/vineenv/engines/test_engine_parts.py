"""Trunks, memory budget, attention: the native engine's parts on their own."""

from __future__ import annotations

import pytest
import torch

from vineenv.engines.attention import OwnAttention, _by_matmul, join, prefix_attention
from vineenv.engines.budget import kv_budget, parse_bytes
from vineenv.engines.native import deal
from vineenv.engines.trunks import Row, State, Trunk, find_trunks


def test_every_prefix_joins_a_trunk_and_no_trunk_is_redundant() -> None:
    generator = torch.Generator().manual_seed(0)
    prefixes = []
    for _ in range(300):
        length = int(torch.randint(1, 9, (1,), generator=generator))
        prefixes.append(tuple(torch.randint(0, 3, (length,), generator=generator).tolist()))
    trunks = find_trunks(prefixes)
    states = [trunk.ids[: state.length] for trunk in trunks for state in trunk.states]
    assert sorted(states) == sorted(set(prefixes))
    for trunk in trunks:
        longer = [p for p in prefixes if len(p) > len(trunk.ids) and p[: len(trunk.ids)] == trunk.ids]
        assert not longer


def test_deal_balances_and_keeps_everything() -> None:
    trunks = [Trunk((n,) * n, [State(n, [Row(n, 0, 10 * n)])]) for n in range(1, 20)]
    shares = deal(trunks, 3)
    assert sorted(trunk.ids for share in shares for trunk in share) == sorted(t.ids for t in trunks)
    loads = [sum(trunk.work for trunk in share) for share in shares]
    assert max(loads) < 1.1 * min(loads)
    assert len(deal(trunks[:2], 4)) == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("1GiB", 1 << 30), ("2 MB", 2_000_000), ("1.5kib", 1536), ("2e9", 2_000_000_000)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size
    assert kv_budget(text, torch.device("cpu")) == size


@pytest.mark.parametrize("text", ["much", "-1", 0, "1 furlong", "1.2.3.4GB"])
def test_bad_sizes(text: str | int) -> None:
    with pytest.raises(ValueError, match="kv_budget"):
        parse_bytes(text)


def test_default_budget_is_within_the_machine() -> None:
    import os

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 64 << 20 <= kv_budget(None, torch.device("cpu")) <= 0.41 * total


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_joined_attention_equals_one_softmax(kv_heads: int) -> None:
    torch.manual_seed(0)
    blocks, width, heads, dim, length, time = 3, 2, 4, 8, 7, 5
    rows = blocks * width
    q = torch.randn(rows, heads, dim) * 3
    keys, values = torch.randn(2, blocks, kv_heads, length, dim)
    own_keys, own_values = torch.randn(2, time, rows + 1, kv_heads, dim)[:, :, :rows]
    lengths = torch.tensor([7, 5, 6, 7, 7, 6])
    mask = torch.zeros(blocks, 1, width, 1, 2)
    mask.view(rows, 2)[torch.arange(5, 7) >= lengths[:, None]] = -torch.inf
    flat_keys, flat_values = keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1)
    shared = prefix_attention(q, flat_keys, flat_values, blocks, mask)
    expected = torch.empty(rows, heads, dim)
    for row in range(rows):
        for head in range(heads):
            kv = head * kv_heads // heads
            k = torch.cat((keys[row // width, kv, : lengths[row]], own_keys[:, row, kv]))
            v = torch.cat((values[row // width, kv, : lengths[row]], own_values[:, row, kv]))
            expected[row, head] = torch.softmax(k @ q[row, head], 0) @ v
    for own in (OwnAttention()._streamed, _by_matmul):
        assert torch.allclose(join(shared, own(q, own_keys, own_values, None)), expected, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_masked_first_positions_do_not_count(kv_heads: int) -> None:
    q, keys, values = torch.randn(6, 4, 8), *torch.randn(2, 7, 6, kv_heads, 8)
    empty = torch.tensor([0, 1, 2, 3, 3, 0])
    mask = torch.zeros(3, 6).masked_fill_(torch.arange(3)[:, None] < empty, -torch.inf)
    for own in (OwnAttention()._streamed, _by_matmul):
        out, lse = own(q, keys, values, mask)
        for row in range(6):
            part = slice(row, row + 1)
            alone = _by_matmul(q[part], keys[empty[row] :, part], values[empty[row] :, part], None)
            assert torch.allclose(out[part], alone[0], atol=1e-5)
            assert torch.allclose(lse[part], alone[1], atol=1e-5)


def test_streamed_attention_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vineenv.engines.attention._CHUNK_NUMBERS", 1)
    q, keys, values = torch.randn(50, 4, 8), *torch.randn(2, 6, 50, 2, 8)
    for got, expected in zip(OwnAttention()(q, keys, values), _by_matmul(q, keys, values, None)):
        assert torch.allclose(got, expected, atol=1e-5)
