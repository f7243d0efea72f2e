"""The fold is the same for every engine: order, bits, bounds, exceptions."""

from __future__ import annotations

import itertools
import operator
import threading

import pytest

import engine_jobs as jobs
from undertow.engine import (
    DaskCluster,
    Processes,
    Serial,
    Threads,
    count_workers,
    map_reduce,
    open_engine,
)
from undertow.engine.base import available_cores, label
from undertow.errors import EngineError, FormatError, InputError, UndertowError

# Sums of these depend on the order.
FLOATS = [0.1, 1e16, 1.0, -1e16, 1e-3, 0.7, 3e7, 7.0, -3e7, 0.2, 1e3, 3.1, 0.3]


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text.endswith(".") and "\n" not in text
    return text


def test_the_floats_are_adversarial():
    orders = [FLOATS, FLOATS[::-1], FLOATS[1::2] + FLOATS[::2], sorted(FLOATS)]
    assert len({list(itertools.accumulate(order))[-1] for order in orders}) == 4


def test_every_engine_folds_the_same_bits_in_shard_order(engine):
    running = list(itertools.accumulate(FLOATS))
    shards = list(enumerate(FLOATS))
    seen: list[float] = []

    def combine(total: float, value: float) -> float:
        seen.append(total + value)
        return seen[-1]

    total = map_reduce(jobs.late_first, shards, combine, engine=engine)
    assert [x.hex() for x in seen] == [x.hex() for x in running[1:]]
    assert total.hex() == running[-1].hex()


@pytest.mark.parametrize("n", [1, 3])
def test_the_number_of_workers_changes_nothing(n, no_new_children):
    with Processes(n) as engine:
        results = list(engine.imap(jobs.late_first, enumerate(FLOATS)))
    assert results == FLOATS


def test_lazy_shards_are_not_drawn_far_ahead_of_the_fold(engine):
    workers = {"Serial": 1, "Threads": 3, "Processes": 2, "DaskCluster": 2}[type(engine).__name__]
    lock = threading.Lock()
    drawn = folded = worst = 0

    def shards():
        nonlocal drawn, worst
        for i in range(40):
            with lock:
                drawn += 1
                worst = max(worst, drawn - folded)
            yield (i, float(i))

    def combine(total, value):
        nonlocal folded
        folded += 1
        return total + value

    # Shard 0 is the slowest: the greedy would race through the rest while it runs.
    total = map_reduce(jobs.late_first, shards(), combine, initial=0.0, engine=engine)
    assert (total, drawn, folded) == (780.0, 40, 40)
    assert worst <= 2 * workers + 1
    if workers > 1:
        assert worst > workers  # and yet nobody idles


def test_shards_may_be_endless_when_the_consumer_stops(engine):
    results = engine.imap(jobs.identity, itertools.count())
    assert list(itertools.islice(results, 5)) == [0, 1, 2, 3, 4]
    results.close()


def test_initial_and_empty(engine):
    assert map_reduce(jobs.identity, [1, 2], operator.add, initial=10, engine=engine) == 13
    assert map_reduce(jobs.identity, iter([]), operator.add, initial=10, engine=engine) == 10
    with pytest.raises(InputError, match="no shards") as caught:
        map_reduce(jobs.identity, iter([]), operator.add, engine=engine)
    one_sentence(caught.value)


def test_serial_is_the_default():
    assert map_reduce(lambda x: x * x, range(4), operator.add) == 14


def test_none_is_a_result_like_any_other(engine):
    assert list(engine.imap(jobs.identity, [None, 0, None])) == [None, 0, None]


def test_exceptions_keep_their_type(engine):
    with pytest.raises(ValueError, match="bad value 7"):
        list(engine.imap(jobs.fail, ["fine", "value", "fine"]))
    with pytest.raises(FormatError) as caught:
        list(engine.imap(jobs.fail, ["fine", "undertow"]))
    assert isinstance(caught.value, UndertowError)
    assert one_sentence(caught.value) == "the file x is damaged: build it again."
    assert list(engine.imap(jobs.fail, ["fine"])) == ["fine"]  # and the engine is still good


def test_a_result_before_the_failing_shard_is_not_lost(engine):
    results = engine.imap(jobs.fail, ["a", "b", "value", "c"])
    assert [next(results), next(results)] == ["a", "b"]
    with pytest.raises(ValueError, match="bad value 7"):
        next(results)


def test_the_remote_traceback_is_a_note(mortal):
    with pytest.raises(ValueError, match="bad value 7") as caught:
        list(mortal.imap(jobs.fail, ["fine", "value"]))
    (note,) = caught.value.__notes__
    assert "shard 1 ('value')" in note
    assert "engine_jobs.py" in note


def test_what_cannot_be_sent_back_is_told(mortal):
    with pytest.raises(EngineError, match="Unsendable: 1 and 2"):
        list(mortal.imap(jobs.fail, ["unsendable"]))
    with pytest.raises(InputError, match="result of fail cannot be sent back") as caught:
        list(mortal.imap(jobs.fail, ["result"]))
    one_sentence(caught.value)
    with pytest.raises(SystemExit):
        list(mortal.imap(jobs.fail, ["exit"]))


def test_what_cannot_be_sent_is_refused_in_one_sentence(mortal):
    with pytest.raises(InputError, match=r"lambda.*top level of a module") as caught:
        list(mortal.imap(lambda x: x, [1]))
    one_sentence(caught.value)
    with pytest.raises(InputError, match=r"shard 1 \(<generator") as caught:
        list(mortal.imap(jobs.identity, [1, (x for x in "ab")]))
    one_sentence(caught.value)


def test_an_error_of_the_shard_iterator_is_raised_as_it_is(engine):
    def shards():
        yield 1
        raise FormatError("line 7 is damaged.")

    with pytest.raises(FormatError, match="line 7"):
        list(engine.imap(jobs.identity, shards()))


def test_large_shards_and_results_pass(mortal):
    big = bytes(12_000_000)
    assert all(result == big for result in mortal.imap(jobs.identity, [big] * 3))


def test_labels_are_short_and_cheap():
    class Huge(bytes):
        def __repr__(self) -> str:
            raise AssertionError("the whole shard was written out")

    assert label(Huge(b"a" * 200)) == label(b"a" * 200)
    for shard in ("x" * 1000, b"\0" * 1000, list(range(1000)), {"a": "b" * 1000}, object()):
        assert len(label(shard)) <= 80
    assert label((1, "a")) == "(1, 'a')"


def test_n_jobs():
    assert isinstance(open_engine(), Serial)
    assert isinstance(open_engine(n_jobs=1), Serial)
    two = open_engine(n_jobs=2)
    assert isinstance(two, Processes) and two.n_workers == 2
    threads = open_engine("threads", 3)
    assert isinstance(threads, Threads) and threads.n_workers == 3
    assert count_workers(-1) == available_cores() >= 1
    assert isinstance(open_engine("dask", 2), DaskCluster)
    far = open_engine("tls://host:8786", tls_ca="ca.pem")
    assert isinstance(far, DaskCluster) and far.address == "tls://host:8786"
    for bad in (0, -2, 1.5, "two"):
        with pytest.raises(InputError, match="n_jobs must be") as caught:
            open_engine(n_jobs=bad)
        one_sentence(caught.value)
    with pytest.raises(InputError, match="no engine is called 'ray'"):
        open_engine("ray")
    with pytest.raises(InputError, match="at least 1"):
        Processes(0)
