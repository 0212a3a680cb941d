"""Attention that forgets: what an event sees of the events before it, and after it (Eq. 8-10).

Forgetting attention     score(i, j) = q_i k_j / sqrt(w) + C_i - C_j,  C the running sum of ln sigmoid(forget gate);
                         softmax over j <= i.
Gated linear attention   S_i = diag(a_i) S_(i-1) + k_i v_i^T,  output q_i^T S_i, with a gate a for each channel of k.

Both run over a row and over the row reversed; one projection brings the two together (Eq. 10).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.model import compiled_attention, compiled_rows
from event2vec.model.compiled_rows import EPSILON
from event2vec.model.config import ModelConfig
from event2vec.model.gated_linear import gated_linear_attention
from event2vec.model.rows import Rows, reverse

# How many numbers of each type hold a sum of log gates precisely enough. float16 is missing: it cannot hold sums
# beyond 65,504 at all.
PARTS = {torch.float64: 1, torch.float32: 2, torch.bfloat16: 3}


def forgetting_weights(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch key_heads length width"],
    log_forget: Float[Tensor, "batch heads length"],
) -> Float[Tensor, "batch heads length length"]:
    """How much each event attends to itself and to each earlier event, written out.

    The one definition of the weights: the tests of the fast forms and the attention figures call it.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return _softmax_with_gates(q.to(wide) @ k.to(wide).mT / q.shape[-1] ** 0.5, log_forget)


def _softmax_with_gates(
    scores: Float[Tensor, "batch heads length length"], log_forget: Float[Tensor, "batch heads length"]
) -> Float[Tensor, "batch heads length length"]:
    faded = log_forget.double().cumsum(-1)  # the difference of two long sums is taken: float32 would lose 2e-4 here
    scores = scores + (faded[..., :, None] - faded[..., None, :]).to(scores.dtype)
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


def relative_attention_written_out(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch heads length width"],
    v: Float[Tensor, "batch heads length width"],
    log_forget: Float[Tensor, "batch heads length"],
    angles: Float[Tensor, "batch length pairs"],
) -> Float[Tensor, "batch heads length width"]:
    """The definition of relative attention: event i sees k_j and v_j rotated by a_j - a_i. Slow; for tests.

    The network rotates q, k and v by their own angles and the answer back (`Rows.rotate`), which is the same.
    """
    differences = (angles[:, None, :] - angles[:, :, None])[:, None]  # (batch, 1, i, j, pairs)
    seen_from = torch.polar(torch.ones_like(differences), differences)
    q, k, v = (torch.complex(*part.chunk(2, dim=-1)) for part in (q, k, v))
    scores = (q[:, :, :, None].conj() * seen_from * k[:, :, None]).real.sum(dim=-1)
    weights = _softmax_with_gates(scores / (2 * q.shape[-1]) ** 0.5, log_forget)
    seen = (weights[..., None] * seen_from * v[:, :, None]).sum(dim=3)
    return torch.cat([seen.real, seen.imag], dim=-1)


def forgetting_attention(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch key_heads length width"],
    v: Float[Tensor, "batch key_heads length width"],
    log_forget: Float[Tensor, "batch heads length"],
) -> Float[Tensor, "batch heads length width"]:
    """`forgetting_weights` times v, in memory that is linear in length: compiled, or folded into the stock kernel.

        seen = forgetting_attention(q, k, v, F.logsigmoid(gates))

    Causal and exact. Keys and values may have fewer heads than queries.
    """
    inputs = [part.transpose(1, 2) for part in (q, k, v, log_forget)]
    if compiled_attention.serves(*inputs):
        return compiled_attention.attend(inputs, None, compiled_attention.BEFORE)[:, :, 0].transpose(1, 2)
    return folded_attention(q, k, v, log_forget)


def folded_attention(
    q: Float[Tensor, "batch heads length width"],
    k: Float[Tensor, "batch key_heads length width"],
    v: Float[Tensor, "batch key_heads length width"],
    log_forget: Float[Tensor, "batch heads length"],
) -> Float[Tensor, "batch heads length width"]:
    """Forgetting attention by the stock causal kernel, for devices and types that the compiled code does not serve.

    The bias C_i - C_j has rank two, so it is folded into queries and keys: q' = [C_i, 1, q], k' = [1, -C_j, k]. One
    number is too coarse for C; it is summed in float64 and kept in as many columns as its type needs. They come first,
    so that the two large numbers cancel before anything small is added. What is added to a whole row leaves softmax as
    it was, so C_i needs only its first column.

    On some CPUs, weights between 1e-45 and 1e-38 make the kernel's gradients many times slower. Training therefore
    goes back through `flush_denormals`, and the command line calls `tune_cpu`.
    """
    width = q.shape[-1]
    dtype = _kernel_dtype(q)
    answer = dtype if torch.is_autocast_enabled(q.device.type) else v.dtype
    # The kernel can scale the scores itself, which saves a pass over q and a rounding of it. But in the gradients of
    # float32 that undoes the cancelling.
    scale = 1.0 if torch.is_grad_enabled() and dtype != torch.bfloat16 else width**-0.5
    parts = [part.to(q.device) for part in _split(_running_sum(log_forget) / scale, dtype)]
    one = torch.ones_like(parts[0])
    filling = [torch.zeros_like(one)] * _filling(width + 1 + len(parts), q.device)
    query_columns = torch.stack([parts[0].detach(), *[one] * len(parts), *filling], dim=-1)
    key_columns = torch.stack([one, *[-part for part in parts], *filling], dim=-1)
    q = torch.cat([query_columns, q.to(dtype) if scale != 1 else q.to(dtype) * width**-0.5], dim=-1)
    k = _for_each_head(key_columns, k.to(dtype))
    v = _for_each_head(torch.zeros_like(key_columns), v.to(dtype))
    with torch.autocast(q.device.type, enabled=False):  # it would round C after it has been split
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return seen[..., -width:].to(answer)


def _kernel_dtype(q: Tensor) -> torch.dtype:
    """The type in which attention is computed: the one that autocast would choose, if it can hold C."""
    device = q.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else q.dtype
    return dtype if dtype in PARTS else torch.float32


def _running_sum(log_forget: Float[Tensor, "*rows length"]) -> Float[Tensor, "*rows length"]:
    """C, in float64, on the CPU where the device has no such type."""
    return (log_forget.cpu() if log_forget.device.type == "mps" else log_forget).double().cumsum(-1)


def _split(values: Float[Tensor, "*shape"], dtype: torch.dtype) -> list[Tensor]:
    """Numbers of a narrower type that sum to `values`. The first carries the gradient of all."""
    parts = [values.to(dtype)]
    rest = values.detach()
    while len(parts) < PARTS[dtype]:
        rest = rest - parts[-1].detach().double()
        parts.append(rest.to(dtype))
    return parts


def _filling(width: int, device: torch.device) -> int:
    """Columns of zeros that bring a head to a width that CUDA's kernels take."""
    return -width % 8 if device.type == "cuda" else 0


def _for_each_head(
    columns: Float[Tensor, "batch heads length more"], shared: Float[Tensor, "batch key_heads length width"]
) -> Float[Tensor, "batch heads length all"]:
    """Put columns that every head has of its own before those that several heads share."""
    batch, heads, length, more = columns.shape
    groups = shared.shape[1]
    columns = columns.view(batch, groups, heads // groups, length, more)
    shared = shared[:, :, None].expand(-1, -1, heads // groups, -1, -1)
    return torch.cat([columns, shared], dim=-1).flatten(1, 2)


class Direction(nn.Module):
    """Attention over rows in one direction: inputs from each token alone, and what the tokens make of each other's."""

    @abstractmethod
    def project(self, tokens: Float[Tensor, "batch length dim"], rows: Rows) -> tuple[Tensor, ...]:
        """What attention needs of each token, as (batch, length, ...) each."""

    @abstractmethod
    def attend(self, *inputs: Tensor) -> Float[Tensor, "batch length heads width"]:
        """Attention over inputs that `project` made, reversed or not."""


class ForgettingDirection(Direction):
    """The Forgetting Transformer: queries, keys, values and forget gates, with fewer key and value heads (App. A.2)."""

    def __init__(self, dim: int, heads: int, forget_bias: float) -> None:
        super().__init__()
        self.heads, self.width = heads, dim // heads
        key_dim = max(heads // 2, 1) * self.width
        self.sizes = (dim, key_dim, key_dim, heads)
        self.project_all = nn.Linear(dim, sum(self.sizes), bias=False)  # one product instead of four
        self.forget_bias = nn.Parameter(torch.full((heads,), float(forget_bias)))
        self.query_norm = nn.Parameter(torch.ones(dim))
        self.key_norm = nn.Parameter(torch.ones(key_dim))

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of them: of the projection, the norms of queries and of keys, and the gates' bias."""
        return self.project_all.weight, self.query_norm, self.key_norm, self.forget_bias

    def project(self, tokens: Float[Tensor, "batch length dim"], rows: Rows) -> tuple[Tensor, ...]:
        projected = self.project_all(tokens)
        weights = self.query_norm, self.key_norm, self.forget_bias
        if compiled_rows.serves(projected, self.width, *weights, rotation=rows.rotation):
            return compiled_rows.make_heads(projected, *weights, self.width, rows.rotation)
        q, k, v, gate = projected.split(self.sizes, dim=-1)
        q, k = self._normalise(q, self.query_norm), self._normalise(k, self.key_norm)
        log_forget = F.logsigmoid(gate.to(torch.promote_types(gate.dtype, torch.float32)) + self.forget_bias)
        return *rows.rotate(q, k, v.unflatten(-1, (-1, self.width))), log_forget

    def _normalise(
        self, rows: Float[Tensor, "batch length channels"], weight: Float[Tensor, " channels"]
    ) -> Float[Tensor, "batch length heads width"]:
        """RMS norm of each head, with a weight for each channel of all of them."""
        rows = rows.unflatten(-1, (-1, self.width))
        weight = weight.view(-1, self.width).to(rows.dtype)
        return F.rms_norm(rows, (self.width,), eps=EPSILON) * weight

    def attend(self, *inputs: Tensor) -> Float[Tensor, "batch length heads width"]:
        q, k, v, log_forget = (part.transpose(1, 2) for part in inputs)
        return forgetting_attention(q, k, v, log_forget).transpose(1, 2)


class GatedLinearDirection(Direction):
    """Gated linear attention (App. A.3): keys half as wide as values, gates through a narrow layer, output gated."""

    GATE_RANK = 16
    SOFTNESS = 16  # gates are a 16th root, so that they start near 1 and memory is long

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        key_dim = max(dim // (2 * heads), 1) * heads
        self.sizes = (key_dim, key_dim, dim, dim)
        self.project_all = nn.Linear(dim, sum(self.sizes), bias=False)
        self.gate_down = nn.Linear(dim, self.GATE_RANK, bias=False)
        self.gate_up = nn.Linear(self.GATE_RANK, key_dim)
        self.norm = nn.Parameter(torch.ones(dim // heads))

    def project(self, tokens: Float[Tensor, "batch length dim"], rows: Rows) -> tuple[Tensor, ...]:
        q, k, v, output_gate = self.project_all(tokens).split(self.sizes, dim=-1)
        log_gate = F.logsigmoid(self.gate_up(self.gate_down(tokens)).float()) / self.SOFTNESS
        return tuple(part.unflatten(-1, (self.heads, -1)) for part in (q, k, v, log_gate, output_gate))

    def attend(self, *inputs: Tensor) -> Float[Tensor, "batch length heads width"]:
        q, k, v, log_gate, output_gate = inputs
        q = q * q.shape[-1] ** -0.5
        seen = gated_linear_attention(*(part.transpose(1, 2) for part in (q, k, v, log_gate))).transpose(1, 2)
        seen = F.rms_norm(seen, seen.shape[-1:], eps=EPSILON) * self.norm.to(seen.dtype)
        # Silu. torch's own rounds differently at the end of a thread's share, so threads would change the last bit.
        return seen * (output_gate * F.logsigmoid(output_gate).exp())


class Bidirectional(nn.Module):
    """Attention over a row and over the row reversed (Eq. 8-10).

    Given one direction, both use its weights (the paper's choice); given two, each has its own (Table 8).
    """

    def __init__(self, dim: int, *directions: Direction) -> None:
        super().__init__()
        self.directions = nn.ModuleList(directions)
        self.output = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, tokens: Float[Tensor, "batch length dim"], rows: Rows) -> Float[Tensor, "batch length dim"]:
        ahead, back = cast(Direction, self.directions[0]), cast(Direction, self.directions[-1])
        inputs = ahead.project(tokens, rows)
        others = inputs if back is ahead else back.project(tokens, rows)
        parts = [*inputs] if back is ahead else [*inputs, *others]
        if isinstance(ahead, ForgettingDirection) and compiled_attention.serves(*parts, rotation=rows.rotation):
            seen: Tensor = compiled_attention.attend(parts, rows.counts, compiled_attention.BOTH, rows.rotation)
            return self.output(seen.flatten(2))
        seen_before = rows.rotate_back(ahead.attend(*inputs))
        seen_after = rows.reversed().rotate_back(back.attend(*(reverse(part, rows.turn) for part in others)))
        # W_fb [O_f; O_b] as two products: the second is turned back when it is narrow, and nothing is concatenated.
        weight_before, weight_after = self.output.weight.chunk(2, dim=1)
        after = reverse(F.linear(seen_after.flatten(2), weight_after), rows.turn)
        return F.linear(seen_before.flatten(2), weight_before) + after


ATTENTION: dict[str, Callable[[ModelConfig], Direction]] = {
    "forgetting": lambda config: ForgettingDirection(config.dim, config.heads, config.forget_bias),
    "gated_linear": lambda config: GatedLinearDirection(config.dim, config.heads),
}  # by the names that `ModelConfig.attention` takes


def build_attention(config: ModelConfig) -> Bidirectional:
    directions = (ATTENTION[config.attention](config) for _ in range(1 if config.shared else 2))
    return Bidirectional(config.dim, *directions)
