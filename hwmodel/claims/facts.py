"""What the claims read from chips and models."""

from __future__ import annotations

from hwmodel.claims.rows import Value
from hwmodel.economics import cost
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.lower.attention import Attention
from hwmodel.lower.decoder import Formats
from hwmodel.lower.moe import Moe
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt
from hwmodel.partition.tensor import Tensor
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.workload import Workload

TB, GB, MS = 1e12, 1e9, 1e-3
LLAMA, DEEPSEEK, GPU = "llama-3.1-70b", "deepseek-v3", "h100_sxm"


def roof(chip: Chip, dtype: str) -> dict[str, Value]:
    """Inputs of a roofline: a chip's dense peak and its bandwidth."""
    return {
        "chip": chip.name,
        "dtype": dtype,
        "peak_flops_per_s": float(chip.peaks.by_dtype()[dtype]),
        "bandwidth_bytes_per_s": float(chip.main.bandwidth_bytes_per_s),
    }


def kv_per_token(model: Model, kv: str = "bf16") -> float:
    """Cache bytes (B) that one more token adds."""
    return counts.kv_law(model, fmt(kv)).bytes_per_token


def moe_of(model: Model) -> Moe:
    """Find the mixture of experts of a model, that of its first such layer."""
    return next(layer.ffn for layer in model.kinds if isinstance(layer.ffn, Moe))


def group_of(model: Model) -> int:
    """Query heads per KV head of a model's first attention layer."""
    return next(layer.attention.group for layer in model.kinds if isinstance(layer.attention, Attention))


def ideal(model: Model, chip: Chip, count: int, workload: Workload, kv: str) -> Result:
    """Find the physical floor of one step: BF16 weights, tensor parallel over all chips."""
    formats = Formats(model.dtype, fmt(kv), fmt("bf16"))
    cluster = Cluster((Pool("gpu", chip, count),))
    return run(Scenario("claim", model, formats, cluster, (Tensor(degree=count),), workload, "the claim"), ideal=True)


def decode_attention_intensity(model: Model, chip: Chip, kv: str, batch: int, context: int) -> float:
    """FLOP per cache byte of decode attention, as the kernel that prices it counts them."""
    placed = ideal(model, chip, 1, Workload(batch=batch, context=context), kv).placed
    ops = enumerate(placed.table.ops)
    core = next(index for index, op in ops if op.kind == "attention_decode" and op.kept is not None)
    return float(placed.priced[core, c.FLOPS] / placed.priced[core, c.KV_BYTES])


def hourly_usd(chip: Chip) -> float:
    """Dollars per hour of one chip: rental, else straight line."""
    spent, why = cost(Cluster((Pool("chip", chip, 1),)), 1.0)
    if spent is None:
        raise ValueError(why)
    return spent.usd_per_hour
