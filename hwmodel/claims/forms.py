"""Closed forms behind the claims, each with its source: a paper, a definition or its derivation."""

from __future__ import annotations


def batch_where_cache_equals_weights(weights_bytes: float, context: int, kv_bytes_per_token: float) -> float:
    """Sequences whose cache is as large as the weights, both read once per decode step.

    Derivation: W = B x context x KV bytes per token, solved for B.
    """
    return weights_bytes / (context * kv_bytes_per_token)


def streaming_share(price_ratio: float, speed_ratio: float) -> float:
    """Share x of weight streaming in the standard step that explains a price for a speed.

    Derivation: a step of B sequences takes T = a + b B, so throughput at interactivity s = 1 / T is X(s) =
    (1 - a s) / b. With cost going as 1 / X and x = a s: (1 - x) / (1 - speed x) = price.
    """
    return (price_ratio - 1) / (price_ratio * speed_ratio - 1)


def static_utilisation_exponential(batch: int) -> float:
    """Share of useful slots of a static batch, E[n] / E[max of B n], for exponential lengths: 1 / H_B.

    Derivation: while i of B sequences are left, the next one ends after 1 / i mean lengths; the last after their sum.
    """
    return 1 / sum(1 / i for i in range(1, batch + 1))


def static_utilisation_uniform(batch: int) -> float:
    """Share of useful slots of a static batch for lengths uniform on (0, N): (B + 1) / (2 B).

    Derivation: E[n] = N / 2, and the largest of B is on average N B / (B + 1).
    """
    return (batch + 1) / (2 * batch)


def ttft_one_queue(rate: float, prefill_s: float) -> float:
    """Mean TTFT (s) of one prefill server, M/D/1: D + R D^2 / (2 (1 - R D)) (DistServe, OSDI 2024, section 3)."""
    return prefill_s + rate * prefill_s**2 / (2 * (1 - rate * prefill_s))


def ttft_two_stages(rate: float, prefill_s: float) -> float:
    """Mean TTFT (s) of two pipeline stages: D + R D^2 / (4 (2 - R D)) (DistServe, section 3)."""
    return prefill_s + rate * prefill_s**2 / (4 * (2 - rate * prefill_s))


def ttft_split(rate: float, prefill_s: float, speedup: float) -> float:
    """Mean TTFT (s) of tensor parallelism K times as fast: D / K + R D^2 / (2 K (K - R D)) (DistServe, section 3)."""
    return prefill_s / speedup + rate * prefill_s**2 / (2 * speedup * (speedup - rate * prefill_s))


def prefill_tokens(steps: int, first: int, added: int) -> tuple[int, int]:
    """Prompt tokens of a session without and with cache reuse: n c0 + d n (n - 1) / 2 and c0 + (n - 1) d.

    Derivation: step i sends c0 + i d tokens, summed over n steps; with reuse each token is computed once.
    """
    return steps * first + added * steps * (steps - 1) // 2, first + (steps - 1) * added


def recompute_s_per_token(params: float, flops_per_s: float, mfu: float) -> float:
    """Seconds (s) to prefill one token again: 2 P / (F MFU).

    Derivation: a multiplication and an addition per parameter, attention products left out.
    """
    return 2 * params / (flops_per_s * mfu)


def reload_bandwidth(prefix: int, hidden: int, group: int, element_bytes: float, flops_per_s: float) -> float:
    """Link rate (B/s) above which loading a cached prefix beats prefilling it (Mooncake, arXiv 2407.00079).

    B > 2 d s G / (g (a p d + b d^2)), d hidden width, s bytes per element, g query heads per KV head, p prefix tokens;
    a = 4 (attention) and b = 22 (matrices of a Llama block).
    """
    return 2 * hidden * element_bytes * flops_per_s / (group * (4 * prefix * hidden + 22 * hidden**2))


def margin(cost_over_price: float) -> float:
    """Gross margin, 1 - cost / price, by definition."""
    return 1 - cost_over_price


def attention_usd(
    core: float, cache_bytes: float, linear: float, flops_per_s: float, bytes_per_s: float, hourly: float
) -> float:
    """Dollars per token of attention on one chip (Step-3, arXiv 2507.19427): max(core / F, KV / BW) + linear / F, at its price.

    Parameters
    ----------
    core, linear
        FLOP of queries with the cache, and of the projections.
    hourly
        Dollars per hour of the chip.
    """
    seconds = max(core / flops_per_s, cache_bytes / bytes_per_s) + linear / flops_per_s
    return seconds * hourly / 3600


def sparsity_floor(hidden: int, layers: int, intensity: float, network_bytes_per_s: float, stage_s: float) -> float:
    """Least share of experts a token may use so that busy FFN chips are fed in time (Step-3, arXiv 2507.19427, section 5).

    Derivation: 2 B >= F / BW keeps a chip with FP8 weights busy with B tokens per expert, so the layer takes B / S tokens, of 3
    bytes an element there (FP8) and back (BF16): 3 h B L / (S Net) <= t.
    """
    return 3 * hidden * layers * intensity / (2 * network_bytes_per_s * stage_s)


def fixed_and_streamed(one_s: float, two_s: float) -> tuple[float, float]:
    """Fixed time and streaming time (s) of a token from its times on one and on two memories that share the stream.

    Derivation: t_1 = t_0 + w and t_2 = t_0 + w / 2.
    """
    return 2 * two_s - one_s, 2 * (one_s - two_s)
