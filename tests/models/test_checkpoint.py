"""Checkpoints: a fit that was stopped anywhere goes on to the same bits, and never from another fit's state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.cases import CASES, EVENTS, OTHER_SENTENCES, SENTENCES
from contract.checks import saved_bytes
from undertow import HMM, LDS, Corpus, DynamicEmbedding, FactorialHMM
from undertow.errors import BusyError, InputError
from undertow.kernels.chain.operators import Dense
from undertow.models.checkpoint import Checkpoint, CheckpointWarning, OpenCheckpoint, fit_key, pack, unpack
from undertow.models.dynamic import fit as dynamic_fit
from undertow.models.dynamic.filter import Path as DynamicPath
from undertow.models.factorial.model import passes as factorial_passes
from undertow.models.fitting import InterruptedFitWarning, Iteration, TrainingEvent, part_of, run_iterations
from undertow.models.lds.params import LDSParams
from undertow.results import WordClusters
from undertow.results.tagging import LocalTagger

MODELS = {case.name: (case.make, case.data) for case in CASES if case.name != "deleted-interpolation"} | {
    "hmm-band": (lambda **k: HMM(5, rank=2, band=2, n_iter=4, n_chunks=3, random_state=0, **k), SENTENCES),
    "hmm-early-stopping": (lambda **k: HMM(4, n_iter=9, validation=0.3, random_state=0, **k), SENTENCES),
    "hmm-without-smoothing": (lambda **k: HMM(3, n_iter=5, smoothing=0.0, random_state=0, **k), SENTENCES),
    "fhmm-early-stopping": (
        lambda **k: FactorialHMM(2, n_states=2, n_iter=4, validation=0.2, random_state=0, **k),
        SENTENCES * 4,
    ),
    "lds-full": (
        lambda **k: LDS(3, n_iter=2, n_full=3, lags=3, ssid_lags=2, kappa=1.0, random_state=0, **k),
        SENTENCES,
    ),
    "dynamic-predict": (lambda **k: DynamicEmbedding(2, purpose="predict", random_state=0, **k), EVENTS),
    "dynamic-two-stages": (
        lambda **k: DynamicEmbedding(2, n_iter=3, covariance="full", random_state=0, **k),
        [(t, f"r{i}", f"c{(i * j) % 80}", 1 + (i + t) % 3) for t in range(2) for i in range(60) for j in (1, 2, 5)],
    ),
}
models = pytest.mark.parametrize("name", MODELS)


class Stopped(Exception):
    """What the callback of a fit raises that is to stop."""


@dataclass
class StopAfter:
    n: int
    seen: int = 0

    def __call__(self, event: TrainingEvent) -> None:
        self.seen = event.iteration
        if event.iteration == self.n:
            raise Stopped


def stopped(make: Any, data: Any, place: Path, n: int) -> None:
    with pytest.raises(Stopped):
        make(callbacks=[StopAfter(n)]).fit(data, checkpoint=Checkpoint(place, every_seconds=0))


@models
def test_every_stop_leads_to_the_same_bits(name: str, tmp_path: Path) -> None:
    make, data = MODELS[name]
    whole = make().fit(data)
    expected = saved_bytes(whole)
    n = len(whole.history_)
    for k in range(1, n + 1):
        stopped(make, data, tmp_path / "c", k)
        events: list[TrainingEvent] = []
        again = make(callbacks=[events.append]).fit(data, checkpoint=tmp_path / "c")
        assert [e.iteration for e in events] == list(range(k + 1, n + 1)), "finished iterations were repeated"
        assert again.history_ == whole.history_
        assert saved_bytes(again) == expected
        assert not (tmp_path / "c").exists(), "the checkpoint of a finished fit was left behind"


def test_the_batches_of_a_factorial_hmm_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(factorial_passes.__globals__, "SHARD_TOKENS", 20)  # else the text is one batch

    def make(**k: Any) -> FactorialHMM:
        return FactorialHMM(2, n_states=2, n_iter=3, batch_size=40, random_state=0, **k)

    whole = make().fit(SENTENCES * 4)
    for k in (1, 2):
        stopped(make, SENTENCES * 4, tmp_path / "c", k)
        again = make().fit(SENTENCES * 4, checkpoint=tmp_path / "c")
        assert again.history_ == whole.history_ and saved_bytes(again) == saved_bytes(whole)


@models
def test_a_fit_may_be_stopped_more_than_once(name: str, tmp_path: Path) -> None:
    make, data = MODELS[name]
    whole = make().fit(data)
    for k in range(1, len(whole.history_)):
        stopped(make, data, tmp_path / "c", k)
    assert saved_bytes(make().fit(data, checkpoint=tmp_path / "c")) == saved_bytes(whole)


def test_writing_checkpoints_changes_no_bit(tmp_path: Path) -> None:
    make, data = MODELS["hmm-blocks"]
    assert saved_bytes(make().fit(data, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0))) == saved_bytes(
        make().fit(data)
    )


def test_a_neural_hmm_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    def make(**k: Any) -> HMM:
        return HMM(4, parameterization="neural", n_iter=4, validation=0.3, random_state=0, **k)

    whole = make().fit(SENTENCES)
    for k in (1, 2, 4):
        stopped(make, SENTENCES, tmp_path / "c", k)
        again = make().fit(SENTENCES, checkpoint=tmp_path / "c")
        assert again.history_ == whole.history_ and saved_bytes(again) == saved_bytes(whole)


@pytest.mark.parametrize("name", ["hmm-blocks", "fhmm-exact", "lds", "clusters", "pmi", "context", "dynamic"])
def test_without_a_seed_the_same_fit_goes_on(name: str, tmp_path: Path) -> None:
    make, data = MODELS[name]
    first = StopAfter(2)
    histories: list[float] = []

    def remember(event: TrainingEvent) -> None:
        histories.append(event.objective)

    with pytest.raises(Stopped):
        make(random_state=None, callbacks=[remember, first]).fit(
            data, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0)
        )
    assert make(random_state=None).fit(data, checkpoint=tmp_path / "c").history_[:2] == histories


@pytest.mark.parametrize(
    "name", ["hmm-blocks", "hmm-dense", "fhmm-exact", "lds", "clusters", "pmi", "context", "dynamic"]
)
def test_a_generator_is_left_as_an_undisturbed_fit_leaves_it(name: str, tmp_path: Path) -> None:
    make, data = MODELS[name]
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    expected = saved_bytes(make(random_state=one).fit(data))
    with pytest.raises(Stopped):
        make(random_state=np.random.default_rng(3), callbacks=[StopAfter(2)]).fit(
            data, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0)
        )
    again = make(random_state=two).fit(data, checkpoint=tmp_path / "c")
    assert saved_bytes(again)["model.safetensors"] == expected["model.safetensors"]
    assert one.random() == two.random()


def test_no_other_fit_takes_a_checkpoint_over(tmp_path: Path) -> None:
    make, data = MODELS["hmm-blocks"]
    stopped(make, data, tmp_path / "c", 2)
    (held,) = list((tmp_path / "c").iterdir())

    def first_iteration(model: Any, text: Any, **more: Any) -> int:
        events: list[TrainingEvent] = []
        model.set_params(callbacks=[events.append]).fit(text, checkpoint=tmp_path / "c", **more)
        return events[0].iteration

    assert first_iteration(make(random_state=1), data) == 1
    assert first_iteration(make(n_iter=6), data) == 1
    assert first_iteration(make(), OTHER_SENTENCES + data) == 1
    assert first_iteration(make(), data, validation=OTHER_SENTENCES + SENTENCES) == 1
    assert held.exists(), "another fit removed it"
    assert first_iteration(make(n_jobs=2, verbose=True), data) == 3  # neither changes a bit


def test_a_damaged_checkpoint_is_not_used(tmp_path: Path) -> None:
    make, data = MODELS["hmm-dense"]
    expected = saved_bytes(make().fit(data))
    for position in (4, 200, -9):
        stopped(make, data, tmp_path / "c", 2)
        (file,) = (tmp_path / "c").glob("*/state.safetensors")
        content = bytearray(file.read_bytes())
        content[position] ^= 1
        file.write_bytes(bytes(content))
        with pytest.warns(CheckpointWarning, match="the fit begins anew"):
            assert saved_bytes(make().fit(data, checkpoint=tmp_path / "c")) == expected


def test_a_disk_that_cannot_be_written_costs_only_the_checkpoint(tmp_path: Path, monkeypatch: Any) -> None:
    make, data = MODELS["hmm-dense"]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("undertow.models.checkpoint._write", full)
    with pytest.warns(CheckpointWarning, match="No space left") as caught:
        model = make().fit(data, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0))
    assert len(caught) == 1 and saved_bytes(model) == saved_bytes(make().fit(data))


def test_ctrl_c_keeps_the_result_and_the_checkpoint(tmp_path: Path) -> None:
    make, data = MODELS["hmm-blocks"]

    def interrupt(event: TrainingEvent) -> None:
        if event.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning):
        half = make(callbacks=[interrupt]).fit(data, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0))
    assert len(half.history_) == 2
    assert saved_bytes(make().fit(data, checkpoint=tmp_path / "c")) == saved_bytes(make().fit(data))


def test_two_fits_of_the_same_do_not_meet(tmp_path: Path) -> None:
    make, data = MODELS["hmm-dense"]

    def another(event: TrainingEvent) -> None:
        with pytest.raises(BusyError, match="another process is fitting there"):
            make().fit(data, checkpoint=tmp_path / "c")

    make(callbacks=[another]).fit(data, checkpoint=tmp_path / "c")


def test_writes_are_not_more_frequent_than_asked(tmp_path: Path, monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr("undertow.models.checkpoint.time.monotonic", lambda: now[0])
    written: list[float] = []
    monkeypatch.setattr("undertow.models.checkpoint._write", lambda path, tree: written.append(now[0]))

    def steps() -> Any:
        for i in range(10):
            now[0] += 25
            yield Iteration(float(i), i, state=lambda: 0)

    opened = OpenCheckpoint(tmp_path, 60.0, None)
    run_iterations(steps(), n_iter=10, checkpoint=opened)
    assert written == [75.0, 150.0, 225.0]


def test_what_a_checkpoint_is_given_must_be_a_place() -> None:
    with pytest.raises(InputError, match="must be a directory"):
        HMM(3, n_iter=1).fit(SENTENCES, checkpoint=3)  # type: ignore[arg-type]


def test_a_tree_comes_back_as_it_was() -> None:
    shared = np.arange(6.0).reshape(2, 3)
    tree = {
        "a": [shared, shared.T, np.asfortranarray(np.eye(3)[:, :2]), np.float32(0.1), np.array(2.5)],
        2: (float("inf"), -0.0, None, True, "ü", 2**100),
        "records": LDSParams(*(np.full(2, i) for i in range(5))),
        "operator": Dense(np.eye(2, dtype=np.float32)),
        "empty": np.empty((0, 3), dtype=np.int32),
    }
    arrays: dict[str, Any] = {}
    out = unpack(pack(tree, arrays), arrays)
    assert list(out) == list(tree) and out[2] == tree[2] and str(out[2][1]) == "-0.0"
    for a, b in zip(out["a"], tree["a"], strict=True):
        assert type(a) is type(b) and np.array_equal(a, b) and a.dtype == b.dtype and a.shape == b.shape
        if isinstance(b, np.ndarray):
            assert a.flags.c_contiguous == b.flags.c_contiguous and a.flags.writeable
    assert type(out["records"]) is LDSParams and np.array_equal(out["records"].M, tree["records"].M)  # type: ignore[attr-defined]
    assert isinstance(out["operator"], Dense) and np.array_equal(out["operator"].TT, np.eye(2))
    assert out["empty"].shape == (0, 3)
    with pytest.raises(TypeError, match="cannot hold"):
        pack([object()], {})
    for name in ("os:system", "undertow.models.checkpoint:Checkpoint"):
        with pytest.raises(ValueError, match="it names"):
            unpack({"type": name, "values": []}, {})


def test_the_key_covers_the_order_of_a_part_of_a_text(tmp_path: Path) -> None:
    """Text for early stopping keeps the manifest of the corpus whose words it has."""
    (tmp_path / "text.txt").write_text("".join(" ".join(s) + "\n" for s in SENTENCES))
    corpus = Corpus.build([tmp_path / "text.txt"], tmp_path / "corpus")
    parts = [part_of(corpus, list(corpus.sentences())[::step]) for step in (1, -1)]
    assert fit_key(HMM(3), parts[0]) != fit_key(HMM(3), parts[1])


def test_the_key_covers_the_data() -> None:
    model = HMM(3, random_state=0)
    keys = {fit_key(model, data) for data in ("a", "b", ("a",), ("a", "b"), np.arange(3), np.arange(3.0), None)}
    assert len(keys) == 7
    assert fit_key(model, "a") == fit_key(HMM(3, random_state=0, n_jobs=2), "a") != fit_key(WordClusters(3), "a")


KILLED = """
import os, signal, sys
from contract.cases import SENTENCES
from undertow import HMM
from undertow.models.checkpoint import Checkpoint

def die(event):
    if event.iteration == 2:
        os.kill(os.getpid(), signal.SIGKILL)

HMM(8, n_blocks=4, n_iter=4, n_chunks=2, random_state=0, callbacks=[die]).fit(
    SENTENCES, checkpoint=Checkpoint(sys.argv[1], every_seconds=0))
"""


def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "c")], env=paths, check=False)
    assert done.returncode == -signal.SIGKILL
    make, data = MODELS["hmm-blocks"]
    events: list[TrainingEvent] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = make(callbacks=[events.append]).fit(data, checkpoint=tmp_path / "c")
    assert [e.iteration for e in events] == [3, 4] and saved_bytes(again) == saved_bytes(make().fit(data))


def test_a_local_tagger_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((6, 4)).astype(np.float32) for _ in range(30)]
    y = [["A" if v[0] > 0 else "B" for v in s] for s in X]

    def make(**k: Any) -> LocalTagger:
        return LocalTagger(n_hidden=3, n_iter=5, patience=2, random_state=0, **k)

    whole = make().fit(X, y)
    for k in (1, 3):
        with pytest.raises(Stopped):
            make(callbacks=[StopAfter(k)]).fit(X, y, checkpoint=Checkpoint(tmp_path / "c", every_seconds=0))
        again = make().fit(X, y, checkpoint=tmp_path / "c")
        assert again.history_ == whole.history_ and saved_bytes(again) == saved_bytes(whole)


def test_a_map_that_goes_on_remembers_its_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration that lowers the evidence is dropped, also if it is the first after a checkpoint."""
    evidences = iter([])
    monkeypatch.setattr(
        dynamic_fit, "infer_path", lambda *_: (DynamicPath(np.zeros(1), np.zeros(1), next(evidences)), np.zeros(1))
    )
    monkeypatch.setattr(
        dynamic_fit,
        "_updated_variances",
        lambda problem, old, *_: old._replace(rows=2 * old.rows, columns=2 * old.columns),
    )
    first, learned = dynamic_fit.Variances(0.1, 0.1, 1.0), dynamic_fit.Learned(drift=True, initial=False)
    problem = dynamic_fit.PathProblem([0.0, 1.0], [None, None], 1, np.zeros((2, 1)), [], 1.0)
    settings = dynamic_fit.Settings("blocks")

    def objectives(resume_from: Any = None) -> tuple[list[float], list[Any]]:
        found = list(dynamic_fit.iterate(problem, first, settings, [("blocks", 5)], learned, resume_from))
        return [step.objective for step in found], [step.state() for step in found]  # type: ignore[misc]

    evidences = iter([1.0, 2.0, 1.5, 9.0])
    values, states = objectives()
    assert values == [1.0, 2.0]
    evidences = iter([1.5, 9.0])
    assert objectives(states[1])[0] == []
    evidences = iter([2.0, 1.5])
    assert objectives(states[0])[0] == [2.0]
    assert states[1].estimate.variances.drift == (0.2, 0.2) and states[1].n_done == 2
