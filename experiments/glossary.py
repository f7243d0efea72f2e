"""What the codes in tables and texts of the evidence stand for; `report.py` explains each where it stands."""

from __future__ import annotations

import re

CODES: dict[str, str] = {
    r"LDS": "linear dynamical system: a Gaussian state that moves linearly from token to token",
    r"F?HMM-\d+-\d+": "factorial HMM: number of layers, then states of each",
    r"POST-\d-\d+": "posteriors of a factorial HMM as features: number of layers, then states of each",
    r"POST-HMM-\d+": "posteriors of a flat HMM as features, with its number of states",
    r"HMM-\d+": "flat hidden Markov model with this number of states",
    r"FHMM": "factorial hidden Markov model: several layers of states",
    r"HMM": "hidden Markov model",
    r"EM": "expectation–maximization, which fits the models",
    r"SSID": "subspace identification, a start for EM by singular vectors",
    r"ASOS": "approximate second-order statistics, the E-step of the LDS",
    r"OOV": "out of vocabulary: words that the labelled training text does not have",
    r"F1": "harmonic mean of precision and recall",
    r"AUC": "area under the ROC curve: the share of (right, wrong) pairs in the right order",
    r"AP": "average precision: the area under the precision–recall curve",
    r"CRF": "conditional random field, the tagger that reads all features",
    r"CBOW|W2V": "word2vec, which predicts a word from the mean of its neighbours",
    r"Brown": "Brown clusters: words merged into a binary tree of classes",
    r"SVD(?:-\d+)?": "singular value decomposition, with its number of dimensions",
    r"PMI": "pointwise mutual information",
    r"RNN": "recurrent neural network",
    r"CRAFT": "97 biomedical articles with Penn tags",
    r"EWT": "English Web Treebank: reviews, mails, blogs, with tags and dependencies",
    r"GENIA": "biomedical abstracts with tags",
    r"MASC": "texts of many genres with tags",
    r"WNUT-17": "unusual names in user text",
    r"BC2GM": "names of genes in biomedical abstracts",
    r"NCBI": "names of diseases in biomedical abstracts",
    r"WSJ": "news of the Wall Street Journal, the Penn Treebank",
    r"eLife": "35 million tokens of open biomedical articles",
    r"WikiText-2": "two million tokens of Wikipedia, a common test of language models",
    r"NIPS": "papers of the NIPS conference, 1987–1997: which author used which word",
    r"E?ACL|NAACL|EMNLP|COLING|LREC|IJCNLP": "a conference, by the ACL anthology",
}
ANY = re.compile(r"(?<![\w-])(?:" + "|".join(f"(?:{code})" for code in CODES) + r")(?![\w-])")


def meaning(code: str) -> str:
    """What a code stands for."""
    return next(text for pattern, text in CODES.items() if re.fullmatch(pattern, code))


def codes_in(text: str) -> list[str]:
    """The codes of a text, each once, in the order in which they appear."""
    return list(dict.fromkeys(ANY.findall(text)))
