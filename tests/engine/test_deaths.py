"""Workers that die: the result stays, the shard at fault is named, nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest

import engine_jobs as jobs
from engine_jobs import workers_alive
from undertow.engine import Processes, map_reduce
from undertow.errors import EngineError
from waiting import HANGS, wait_for

TESTS = Path(__file__).parents[1]


def tries(folder: Path) -> Counter[int]:
    return Counter(int(path.name.split(".")[0]) for path in folder.iterdir())


def test_a_worker_that_dies_once_changes_nothing(mortal, tmp_path):
    shards = [(str(tmp_path), i, 3, 1) for i in range(8)]
    results = list(mortal.imap(jobs.die_on, shards))
    assert results == [i * i for i in range(8)]
    assert tries(tmp_path)[3] == 2


def test_a_worker_killed_from_outside_changes_nothing(mortal, tmp_path):
    def kill_one():
        wait_for(lambda: any(tmp_path.iterdir()))  # the job waits for three: two workers and the one that takes over
        pid = int(next(tmp_path.iterdir()).name.split(".")[1])
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    killed: list[int] = []
    killer = threading.Thread(target=kill_one)
    killer.start()
    total = map_reduce(jobs.meet, [(str(tmp_path), 3)] * 4, jobs.add, engine=mortal)
    killer.join()
    assert total == 4
    (pid,) = killed
    wait_for(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("guilty", [0, 5])
def test_a_shard_that_always_kills_is_named_after_three_tries(mortal, tmp_path, guilty):
    shards = [(str(tmp_path), i, guilty, 99) for i in range(8)]
    with pytest.raises(EngineError, match=rf"^shard {guilty} \(") as caught:
        list(mortal.imap(jobs.die_on, shards))
    text = str(caught.value)
    assert str(tmp_path)[:20] in text and "memory" in text and "smaller" in text and "\n" not in text
    counted = tries(tmp_path)
    assert counted[guilty] == 3
    assert all(n == 1 for index, n in counted.items() if index != guilty)


def test_results_before_the_killing_shard_are_delivered(mortal, tmp_path):
    got = []
    with pytest.raises(EngineError, match=r"^shard 5 \("):
        for result in mortal.imap(jobs.die_on, [(str(tmp_path), i, 5, 99) for i in range(6)]):
            got.append(result)
    assert got == [0, 1, 4, 9, 16]


def test_an_idle_worker_killed_between_two_maps_is_replaced(no_new_children):
    with Processes(1) as engine:
        (pid,) = engine.imap(jobs.worker_pid, [0])
        os.kill(pid, signal.SIGKILL)
        psutil.Process(pid).wait(HANGS)
        (other,) = engine.imap(jobs.worker_pid, [0])
        assert other != pid
        assert list(engine.imap(jobs.worker_pid, [0])) == [other]  # workers stay between calls


def test_nobody_is_left_after_close_error_and_walking_away(no_new_children):
    before = set(workers_alive())
    engine = Processes(2)
    assert list(engine.imap(jobs.identity, range(4))) == [0, 1, 2, 3]
    assert len(set(workers_alive()) - before) == 2
    engine.close()
    assert set(workers_alive()) == before
    with pytest.raises(ValueError):
        list(engine.imap(jobs.fail, ["a", "value"]))
    assert set(workers_alive()) == before
    results = engine.imap(jobs.worker_pid, range(100))
    next(results)
    results.close()
    assert set(workers_alive()) == before

    def combine(a, b):
        raise RuntimeError("the fold fails")

    with pytest.raises(RuntimeError, match="the fold fails"):
        map_reduce(jobs.worker_pid, range(100), combine, engine=engine)
    assert set(workers_alive()) == before


def test_two_maps_at_once_are_refused():
    with Processes(1) as engine:
        results = engine.imap(jobs.identity, range(10))
        next(results)
        with pytest.raises(EngineError, match="already running"):
            list(engine.imap(jobs.identity, range(10)))
        assert list(results) == list(range(1, 10))


PARENT = """
import sys
sys.path.insert(0, {tests!r})
import engine_jobs as jobs
from undertow.engine import Processes
with Processes(2) as engine:
    list(engine.imap(jobs.announce_and_sleep, [({folder!r}, {seconds})] * 4))
print("finished")
"""  # no `if __name__ == "__main__":` on purpose: spawned workers must not run the script again


def start_parent(folder: Path, seconds: float) -> subprocess.Popen[str]:
    script = folder.parent / "parent.py"
    script.write_text(PARENT.format(tests=str(TESTS), folder=str(folder), seconds=seconds))
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, to send Ctrl-C to the whole group as a terminal does
    )


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "pids"
    path.mkdir()
    return path


def started(folder: Path) -> list[psutil.Process]:
    wait_for(lambda: len(list(folder.iterdir())) == 2)
    return [psutil.Process(int(path.name.split(".")[1])) for path in folder.iterdir()]


def test_an_unguarded_script_works(folder):
    with start_parent(folder, 0.01) as parent:
        out, err = parent.communicate(timeout=HANGS)
    assert (out, err, parent.returncode) == ("finished\n", "", 0)


def test_ctrl_c_ends_parent_and_workers_at_once(folder):
    with start_parent(folder, 600) as parent:
        workers = started(folder)
        os.killpg(parent.pid, signal.SIGINT)
        _, err = parent.communicate(timeout=HANGS)  # the jobs would sleep for twice as long
    assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")
    assert parent.returncode == -signal.SIGINT
    assert not any(worker.is_running() for worker in workers)


def test_workers_ignore_sigint_of_their_own(folder):
    with start_parent(folder, 1.0) as parent:
        for worker in started(folder):
            worker.send_signal(signal.SIGINT)
        out, err = parent.communicate(timeout=HANGS)
    assert (out, err) == ("finished\n", "")


def test_workers_follow_a_killed_parent(folder):
    with start_parent(folder, 600) as parent:
        workers = started(folder)
        parent.kill()
        parent.wait(HANGS)
        _, alive = psutil.wait_procs(workers, timeout=HANGS)
        assert not alive
        assert parent.communicate(timeout=HANGS)[1] == ""


def test_a_worker_that_cannot_start_is_not_blamed_on_a_shard(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent("""
        import os, multiprocessing
        if multiprocessing.parent_process() is not None:
            os._exit(1)  # what a script that cannot be run twice comes to
        from undertow.engine import Processes
        def here(x):
            return x
        with Processes(2) as engine:
            list(engine.imap(here, range(3)))
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=HANGS, check=False)
    assert "EngineError: worker processes end while they start" in done.stderr
    assert "shard" not in done.stderr.splitlines()[-1]


def test_a_function_of_a_guarded_script_works(tmp_path):
    script = tmp_path / "guarded.py"
    script.write_text(
        textwrap.dedent("""
        from undertow.engine import Processes
        def here(x):
            return x + 1
        if __name__ == "__main__":
            with Processes(2) as engine:
                print(list(engine.imap(len, ["ab"])), list(engine.imap(here, range(3))))
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=HANGS, check=False)
    assert (done.stdout, done.stderr) == ("[2] [1, 2, 3]\n", "")


def test_a_tokenizer_of_a_guarded_script_runs_in_processes(tmp_path):
    """docs/text.md: from Python, any callable `line -> tokens` will do."""
    (tmp_path / "a.txt").write_text("a-b c-d\n" * 300)
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        from undertow import Corpus
        from undertow.text import corpus_build
        corpus_build.SMALL_INPUT = 0  # more than one process even for a small text
        def split(line):
            return line.replace("-", " ").split()
        if __name__ == "__main__":
            print(Corpus.build(["a.txt"], "c", tokenizer=split, n_jobs=2).n_tokens)
        """)
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert (done.stdout, done.stderr) == ("1200\n", "")
