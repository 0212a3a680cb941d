"""Gated linear attention: S_i = diag(a_i) S_(i-1) + k_i v_i^T, output q_i^T S_i; a gate a for each channel of k."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

CHUNK = 32  # rows of gated linear attention that are computed at once
WEAKEST = -5.0  # the log of the smallest gate: half a chunk of such gates is e^80, which float32 still holds


def gated_linear_recurrence(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch heads length width"],
    v: Float[Tensor, "batch heads length value_width"],
    log_gate: Float[Tensor, "batch heads length width"],
) -> Float[Tensor, "batch heads length value_width"]:
    """The definition of gated linear attention, event by event. Slow; tests hold the fast form to it."""
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    outputs = []
    for step in range(q.shape[2]):
        state = log_gate[:, :, step].exp()[..., None] * state + k[:, :, step, :, None] * v[:, :, step, None, :]
        outputs.append(q[:, :, step, None, :] @ state)
    return torch.cat(outputs, dim=2)


def gated_linear_attention(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch heads length width"],
    v: Float[Tensor, "batch heads length value_width"],
    log_gate: Float[Tensor, "batch heads length width"],
) -> Float[Tensor, "batch heads length value_width"]:
    """`gated_linear_recurrence` in chunks: matrix products within a chunk, one state handed from chunk to chunk.

    Gates below e^-5 are taken as e^-5. Computed in float32 whatever comes in: the factors within a chunk span the
    whole range of its exponents.
    """
    length, dtype = q.shape[2], v.dtype
    with torch.autocast(q.device.type, enabled=False):
        # Events of 0 at the end of the last chunk come after all real ones, so none of these sees them.
        q, k, v, log_gate = (
            F.pad(part.float(), (0, 0, 0, -length % CHUNK)).unflatten(2, (-1, CHUNK)) for part in (q, k, v, log_gate)
        )
        faded = log_gate.clamp(min=WEAKEST).cumsum(3)
        middle, whole = faded[..., CHUNK // 2 - 1 : CHUNK // 2, :], faded[..., -1:, :]
        scores = (q * (faded - middle).exp()) @ (k * (middle - faded).exp()).mT
        within = scores.tril() @ v
        added = (k * (whole - faded).exp()).mT @ v
        states = _states(whole.exp().squeeze(3), added)
        across = (q * faded.exp()) @ states
        return (within + across).flatten(2, 3)[:, :, :length].to(dtype)


def _states(
    kept: Float[Tensor, "batch heads chunks width"], added: Float[Tensor, "batch heads chunks width value_width"]
) -> Float[Tensor, "batch heads chunks width value_width"]:
    """The state that each chunk starts from."""
    state = added.new_zeros(added.shape[:2] + added.shape[3:])
    states = []
    for chunk in range(added.shape[2]):
        states.append(state)
        state = kept[:, :, chunk, :, None] * state + added[:, :, chunk]
    return torch.stack(states, dim=2) if states else added
