"""The one packing of unequal sequences and the one ordered thread map."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.packing import longest_first_by_sorting, packed_by_loop
from undertow.kernels.lanes import equal_runs, groups_of_lanes, longest_first, ordered_map, pack, with_buffers

LENGTHS = st.lists(st.integers(0, 6), max_size=12)


@given(LENGTHS)
def test_packing_equals_the_loops(lengths):
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    order = longest_first(np.array(lengths, dtype=np.int64))
    assert order.tolist() == longest_first_by_sorting(lengths)
    lanes = pack(offsets[order], np.diff(offsets)[order])
    expected = packed_by_loop(offsets[order].tolist(), np.diff(offsets)[order].tolist())
    assert [lanes.step(t).tolist() for t in range(len(lanes.n_alive))] == expected
    assert lanes.n_alive.tolist() == [len(step) for step in expected]
    assert sorted(lanes.token.tolist()) == list(range(sum(lengths)))  # every token once
    assert all(x.dtype == np.int64 for x in lanes)


@given(LENGTHS, st.integers(1, 5))
def test_groups_are_the_sorted_sequences_in_turn(lengths, n_lanes):
    groups = groups_of_lanes(np.array(lengths, dtype=np.int64), n_lanes)
    assert [i for group in groups for i in group.tolist()] == longest_first_by_sorting(lengths)
    assert all(len(group) == n_lanes for group in groups[:-1])


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 6))
def test_runs_cover_everything_and_cost_about_the_same(costs, n_runs):
    cumulative = np.concatenate(([0], np.cumsum(costs))).astype(np.int64)
    edges = equal_runs(cumulative, n_runs)
    assert edges[0] == 0 and edges[-1] == len(costs) and (np.diff(edges) > 0).all()
    assert len(edges) <= n_runs + 1
    assert np.diff(cumulative[edges]).max(initial=0) <= cumulative[-1] / n_runs + max(costs, default=0)


@pytest.mark.parametrize("n_threads", [0, 1, 2, 3])
@pytest.mark.parametrize("n_items", [0, 1, 2, 50])
def test_results_come_in_order(n_items, n_threads):
    assert list(ordered_map(lambda i: i * i, iter(range(n_items)), n_threads)) == [i * i for i in range(n_items)]


def test_results_come_in_order_when_later_ones_are_ready_first():
    second_done = threading.Event()

    def work(i):
        if i == 0:
            assert second_done.wait(60)
        if i == 1:
            second_done.set()
        return i

    assert list(ordered_map(work, range(4), 2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_exception_stands_where_its_result_would(n_threads):
    def work(i):
        if i == 3:
            raise KeyError("three")
        return i

    results = ordered_map(work, range(20), n_threads)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="three"):
        next(results)
    assert list(ordered_map(str, range(3), n_threads)) == ["0", "1", "2"]  # the kept pool is none the worse


def test_one_thread_starts_no_other():
    threads = set(ordered_map(lambda _: threading.get_ident(), range(5), 1))
    assert threads == {threading.get_ident()}


def test_a_bounded_number_is_in_flight_and_nothing_runs_on_after_an_early_stop():
    taken, finished = [], []

    def items():
        for i in range(100):
            taken.append(i)
            yield i

    results = ordered_map(finished.append, items(), 2, in_flight=3)
    next(results)
    assert len(taken) <= 4
    results.close()
    n = len(finished)
    assert list(ordered_map(str, range(2), 2)) == ["0", "1"]  # whatever was left would have run before these
    assert len(finished) == n <= 4


def test_a_map_within_a_map_does_not_wait_for_itself():
    def outer(i):
        return list(ordered_map(lambda j: 10 * i + j, range(3), 2))

    assert list(ordered_map(outer, range(4), 2)) == [[10 * i + j for j in range(3)] for i in range(4)]


def test_buffers_are_never_lent_twice_at_a_time_and_grow():
    both_in = threading.Barrier(2)

    def work(i, buffers):
        array = buffers.take("x", 2 + i, 3, np.float32)
        assert array.shape == (2 + i, 3) and array.dtype == np.float32
        array[:] = i
        if i < 2:
            both_in.wait(60)
        assert (array == i).all()
        return id(buffers)

    first, second, *_ = ordered_map(with_buffers(work), range(6), 2)
    assert first != second
    alone = with_buffers(lambda _, buffers: id(buffers))
    assert alone(0) == alone(1)  # kept
