"""The component "undertow" of spaCy: the vectors and states of a model, in every Doc.

spaCy finds it by its entry point: `nlp.add_pipe("undertow", config={"model": "news.lds"})`. A component after it that
is trained, such as a tagger or text classifier, reads the vectors by the architecture "undertow.DocTensor.v1".
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from undertow.adapters.spacy_docs import parts_of
from undertow.errors import FormatError, InputError, missing_extra
from undertow.results.tagging.representation import States, Vectors
from undertow.storage import load_model
from undertow.text.tokenizer import checked_sentences

try:
    import srsly
    from spacy.language import Language
    from spacy.tokens import Token
    from spacy.util import minibatch, raise_error, registry
    from thinc.api import Model
except ImportError as e:
    raise missing_extra("The component of spaCy needs spaCy", "spacy") from e

DATA = "undertow"  # key of doc.user_data
FOLDER = "model"  # of the model, in the component's own folder


class UndertowPipe:
    """A component of spaCy that gives the tokens of a Doc their vectors and hidden states.

    It sets `doc.tensor` (n_tokens, d), which `token.vector`, `span.vector`, `doc.vector` and their similarities then
    read; `token._.state`, the number of the hidden state for models that have states (a list of numbers with several
    layers); and `doc.user_data["undertow"]`, the kind of the model and the view. Sentences are read one by one where a
    component before this one has found them, otherwise the Doc as a whole. A token of white space has zeros, and no
    state.

    Parameters
    ----------
    model
        Path of a saved model. A pipeline read from disk or bytes brings its own copy, so the path is not read before
        the first Doc.
    view
        A view of the model's `transform`; None for its default.
    name
        Name of the component in its pipeline.

    Examples
    --------
    >>> import tempfile, spacy
    >>> from undertow import HMM
    >>> nlp = spacy.blank("en")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     HMM(2, n_iter=5, random_state=0).fit([["a", "b"] * 3] * 9).save(f"{place}/m.hmm")
    ...     _ = nlp.add_pipe("undertow", config={"model": f"{place}/m.hmm"})
    ...     doc = nlp("a b a")
    >>> doc.tensor.shape, doc[0]._.state == doc[2]._.state
    ((3, 2), True)
    """

    def __init__(self, model: str, view: str | None = None, name: str = "undertow") -> None:
        _register_state()
        self.name = name
        self._path = model
        self._view = view
        self._readers: tuple[Vectors, States | None] | None = None
        self._on_error: Callable[..., Any] = raise_error

    @property
    def undertow_model(self) -> Any:
        """The model of undertow; spaCy takes an attribute `model` for a network that it trains."""
        return self._read()[0].model

    @property
    def width(self) -> int:
        """Number of columns of `doc.tensor`."""
        return int(self._read()[0].vectors([[]])[0].shape[1])

    def _read(self) -> tuple[Vectors, States | None]:
        if self._readers is None:
            self._use(load_model(self._path))
        assert self._readers is not None
        return self._readers

    def _use(self, model: Any) -> None:
        vectors = Vectors(model, self._view, pieces=True)
        states = States(model, pieces=True) if hasattr(model, "decode") and hasattr(model, "posterior") else None
        self._readers = vectors, states

    # --- Docs -------------------------------------------------------------------------------------------

    def __call__(self, doc: Any) -> Any:
        """Set the vectors and states of a Doc.

        Parameters
        ----------
        doc
            A Doc.

        Returns
        -------
        Doc
            The same.
        """
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 128) -> Iterator[Any]:
        """Set the vectors and states of many Docs, some at a time.

        Parameters
        ----------
        stream
            Docs.
        batch_size
            How many are read together.

        Yields
        ------
        Doc
            The same, in order.
        """
        for docs in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call]
            try:
                self._annotate(docs)
                yield from docs
            except Exception as e:
                self._on_error(self.name, self, docs, e)

    def _annotate(self, docs: list[Any]) -> None:
        vectors, states = self._read()
        parts = [part for doc in docs for part in parts_of(doc)]
        sentences = list(checked_sentences(parts))
        rows = iter(vectors.vectors([*sentences, []]))
        numbers = iter(states.states(sentences)) if states is not None else None
        for doc in docs:
            pieces = parts_of(doc)
            places = np.array([token.i for part in pieces for token in part if not token.is_space], dtype=np.int64)
            found = [next(rows) for _ in pieces]
            tensor = np.zeros((len(doc), self.width), dtype=np.float32)
            if found:
                tensor[places] = np.concatenate(found)
            _set_vectors(doc, tensor)
            doc.user_data[DATA] = {"kind": vectors.model.kind, "view": self._view}
            if numbers is not None:
                for i, state in zip(places.tolist(), (z for _ in pieces for z in next(numbers).tolist()), strict=True):
                    doc[i]._.state = state

    def set_error_handler(self, error_handler: Callable[..., Any]) -> None:
        """Set the function that handles errors in a Doc.

        Parameters
        ----------
        error_handler
            Function of the component's name, the component, the Docs and the exception.
        """
        self._on_error = error_handler

    def get_error_handler(self) -> Callable[..., Any]:
        """The function that handles errors in a Doc.

        Returns
        -------
        callable
        """
        return self._on_error

    # --- saving -----------------------------------------------------------------------------------------

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write a copy of the model to the component's folder.

        Parameters
        ----------
        path
            The folder.
        exclude
            "model" leaves the model out.
        """
        if FOLDER not in exclude:
            Path(path).mkdir(parents=True, exist_ok=True)
            self.undertow_model.save(Path(path) / FOLDER, overwrite=True)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read the model from the component's folder.

        Parameters
        ----------
        path
            The folder.
        exclude
            "model" leaves the model as it is.

        Returns
        -------
        UndertowPipe
            The component itself.
        """
        if FOLDER not in exclude:
            self._use(load_model(Path(path) / FOLDER))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """The model's files as one string of bytes.

        Parameters
        ----------
        exclude
            "model" leaves the model out.

        Returns
        -------
        bytes
        """
        if FOLDER in exclude:
            return srsly.msgpack_dumps({})  # type: ignore[no-any-return]
        with tempfile.TemporaryDirectory() as place:
            self.undertow_model.save(Path(place) / FOLDER)
            files = sorted((Path(place) / FOLDER).iterdir())
            return srsly.msgpack_dumps({f.name: f.read_bytes() for f in files})  # type: ignore[no-any-return]

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Read the model from what `to_bytes` gave.

        Parameters
        ----------
        bytes_data
            The bytes.
        exclude
            "model" leaves the model as it is.

        Returns
        -------
        UndertowPipe
            The component itself.

        Raises
        ------
        FormatError
            If the bytes are not those of a model.
        """
        files = srsly.msgpack_loads(bytes_data)
        if FOLDER in exclude or not files:
            return self
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / FOLDER
            folder.mkdir()
            for name, data in files.items():
                if Path(name).name != name:
                    raise FormatError(f"The bytes hold a file {name!r} out of the model's folder: they are damaged.")
                (folder / name).write_bytes(data)
            self._use(load_model(folder))
        return self


@Language.factory("undertow", assigns=["doc.tensor", "token._.state"], default_config={"view": None})
def make_undertow(nlp: Language, name: str, model: str, view: str | None) -> UndertowPipe:
    """The factory behind `nlp.add_pipe("undertow", config={"model": path})`."""
    return UndertowPipe(model, view, name)


# --- vectors of tokens, spans and Docs ------------------------------------------------------------------


def _set_vectors(doc: Any, tensor: Any) -> None:
    """Put the vectors in `doc.tensor`, and let `vector` read them there even if the vocabulary has vectors too.

    Without such, `vector` reads the tensor by itself; hooks are better avoided, as spaCy cannot send them to processes.
    """
    doc.tensor = tensor
    if doc.vocab.vectors.size == 0:
        return
    doc.user_token_hooks.update(vector=_token_vector, has_vector=_true)
    doc.user_span_hooks.update(vector=_span_vector, has_vector=_true)
    doc.user_hooks.update(vector=_doc_vector, has_vector=_true)


def _token_vector(token: Any) -> Any:
    return token.doc.tensor[token.i]


def _span_vector(span: Any) -> Any:
    return span.doc.tensor[span.start : span.end].mean(axis=0)


def _doc_vector(doc: Any) -> Any:
    return doc.tensor.mean(axis=0) if len(doc) else np.zeros(doc.tensor.shape[1], dtype=np.float32)


def _true(_: Any) -> bool:
    return True


def _register_state() -> None:
    """Register `token._.state`, once a process; another package's attribute of that name must be one that is stored."""
    if not Token.has_extension("state"):
        Token.set_extension("state", default=None)
    elif any(Token.get_extension("state")[1:]):
        raise InputError(
            "token._.state is another package's computed attribute here, where undertow would store states: "
            "remove it with Token.remove_extension('state')."
        )


# --- components that are trained on the vectors ---------------------------------------------------------


@registry.architectures("undertow.DocTensor.v1")  # type: ignore[untyped-decorator]
def doc_tensor(width: int) -> Model[Any, Any]:
    """The vectors that the component "undertow" left in Docs, as a `tok2vec` without weights.

    Parameters
    ----------
    width
        Number of columns, `nlp.get_pipe("undertow").width`.

    Returns
    -------
    thinc.api.Model
        From a list of Docs to a list of arrays (n_tokens, width).
    """
    return Model("undertow_doc_tensor", _forward, init=_init, dims={"nI": None, "nO": width})


def _forward(model: Model[Any, Any], docs: list[Any], is_train: bool) -> tuple[list[Any], Callable[[Any], Any]]:
    width = model.get_dim("nO")
    for doc in docs:
        if doc.tensor.shape != (len(doc), width):
            raise InputError(
                f"undertow.DocTensor.v1 needs doc.tensor of width {width}, and a Doc has the shape {doc.tensor.shape}: "
                "put the component 'undertow' before this one, name it in annotating_components when you train, and "
                "give its width."
            )
    return [model.ops.asarray2f(doc.tensor) for doc in docs], lambda _: []


def _init(model: Model[Any, Any], X: Any = None, Y: Any = None) -> None:
    """Give the sample Docs that spaCy infers shapes from zeros, as no component has run on them."""
    for doc in X or ():
        if doc.tensor.shape != (len(doc), model.get_dim("nO")):
            doc.tensor = np.zeros((len(doc), model.get_dim("nO")), dtype=np.float32)


__all__ = ["UndertowPipe", "doc_tensor", "make_undertow"]
