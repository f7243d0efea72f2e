"""Inference in discrete chains: the names other rooms use.

`forward_backward_logs` and `viterbi_logs` serve small dense chains with any log scores (discrete_chain_logs.py).
"""

from undertow.kernels.discrete_chain_logs import ChainPosterior, forward_backward_logs, viterbi_logs

__all__ = ["ChainPosterior", "forward_backward_logs", "viterbi_logs"]
