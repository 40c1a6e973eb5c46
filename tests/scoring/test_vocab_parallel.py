"""The vocabulary split over ranks: merged states equal the whole head, on real processes."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st

from gear_rl.errors import GearError
from gear_rl.scoring import Head, token_divergence
from gear_rl.scoring.backends import chunked
from gear_rl.scoring.backends.problem import Problem
from gear_rl.scoring.backends.state import VocabState, merge
from gear_rl.scoring.vocab_parallel import vocab_parallel_divergence

EXTRA = ("forward_kl", "jensen_shannon")


def draw(n: int, width: int, vocab: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(n, width, generator=generator)
    teacher = student + 0.3 * torch.randn(n, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator)
    return student, teacher, weight, torch.randint(vocab, (n,), generator=generator)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(0, 7), min_size=2, max_size=5), st.integers(0, 1000))
def test_states_of_slices_merge_to_the_whole_in_any_grouping(n, sizes, seed):
    student, teacher, weight, ids = draw(n, 6, max(1, sum(sizes)), seed)
    weight, ids = weight[: sum(sizes)], ids.clamp_max(max(0, sum(sizes) - 1))
    if not sum(sizes):
        return

    def state(start, stop):
        head = Head(weight[start:stop])
        return chunked.vocab_state(Problem(student, teacher, head, head, ids - start, 1.0, 1 << 20, ("forward_kl",)))

    edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [state(a, b) for a, b in pairwise(edges)]
    whole = state(0, edges[-1]).finish().items()
    for grouped in (merge(parts), merge([parts[0], merge(parts[1:])]), merge([merge(parts[:-1]), parts[-1]])):
        for name, value in grouped.finish().items().items():
            torch.testing.assert_close(value, whole[name], atol=2e-5, rtol=1e-5)


def test_an_empty_slice_changes_nothing():
    student, teacher, weight, ids = draw(5, 4, 11)
    head = Head(weight)
    state = chunked.vocab_state(Problem(student, teacher, head, head, ids, 1.0, 1 << 20))
    both = merge([VocabState.empty(5, torch.device("cpu"), forward=False), state])
    for name, value in both.finish().items().items():
        assert torch.equal(value, state.finish().items()[name])


def _on_two_ranks(rank: int, store: str, results) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        student, teacher, weight, ids = draw(33, 16, 101)
        bias = torch.linspace(-1, 1, 101)
        cut = 40
        rows = slice(0, cut) if rank == 0 else slice(cut, 101)
        shard = Head(weight[rows], bias[rows], softcap=20.0)
        if rank == 1:  # padded to a round number, as tensor-parallel heads are
            padding = torch.full((3, 16), 9.0)
            shard = Head(torch.cat([shard.weight, padding]), torch.cat([shard.bias, torch.ones(3)]), 1.0, 20.0, 61)
        start = 0 if rank == 0 else cut
        split = vocab_parallel_divergence(student, teacher, shard, ids, start, temperature=0.7, extra=EXTRA)
        messages = []
        for bad_ids, bad_start in ((ids.index_fill(0, torch.tensor([7]), -100), start), (ids, rank * (cut - 1))):
            try:
                vocab_parallel_divergence(student, teacher, shard, bad_ids, bad_start)
            except GearError as error:
                messages.append(str(error))
        results[rank] = ({name: value.tolist() for name, value in split.items().items()}, messages)
    finally:
        dist.destroy_process_group()


def test_two_processes_give_the_numbers_of_one(tmp_path):
    with mp.get_context("fork").Manager() as manager:
        results = manager.dict()
        mp.start_processes(_on_two_ranks, args=(str(tmp_path / "store"), results), nprocs=2, start_method="fork")
        (first, errors_first), (second, errors_second) = results[0], results[1]
    assert first == second  # the same bits on both ranks
    student, teacher, weight, ids = draw(33, 16, 101)
    head = Head(weight, torch.linspace(-1, 1, 101), softcap=20.0)
    whole = token_divergence(student, teacher, head, ids, temperature=0.7, extra=EXTRA, backend="naive").items()
    for name, value in whole.items():
        torch.testing.assert_close(torch.tensor(first[name]), value, atol=2e-5, rtol=1e-5)
    assert errors_first == errors_second  # nobody is left waiting for a rank that refused
    assert "token_ids[7] = -100" in errors_first[0] and "overlap" in errors_first[1]


def test_the_naive_twin_has_no_partial_state():
    from gear_rl.scoring import backends

    head = Head(torch.randn(5, 4))
    hidden = torch.randn(2, 4)
    with pytest.raises(GearError, match="no partial states"):
        backends.choose_streaming(Problem(hidden, hidden, head, head, torch.tensor([0, 1]), 1.0, 1 << 20), "naive")
