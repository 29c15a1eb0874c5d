"""How a checkpoint stores its weights: `quantization_config`, or the ModelOpt file beside the config."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hwmodel.model.architecture import Quantization, Rule
from hwmodel.model.config import Config
from hwmodel.model.dtypes import FORMATS, Format
from hwmodel.spec.errors import InputError, did_you_mean, shortened
from hwmodel.spec.yamlfile import Document, Path_

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16",
           "fp32": "fp32"}  # fmt: skip
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "FP8_PB_WO": "fp8_block", "FP8_BLOCK": "fp8_block", "MXFP4": "mxfp4",
               "W4A16_AWQ": "int4_128", "INT4_AWQ": "int4_128", "W4A8_AWQ": "int4_128", "INT8_SQ": "int8",
               "W8A8_SQ_PER_CHANNEL": "int8", "MXFP8": "mxfp8", "W4A8_MXFP4_FP8": "mxfp4", "NVFP4_AWQ": "nvfp4",
               "W8A16": "int8_wo", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel"}  # fmt: skip
_METHODS = ("fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors", "modelopt", "gptq", "awq", "bitsandbytes")
_IGNORES = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")


def activation_dtype(config: Config) -> Format:
    """Read `dtype` or `torch_dtype`; bf16 when neither says."""
    path, value = config.find("dtype", "torch_dtype")
    if value is None:
        return FORMATS["bf16"]
    name = _DTYPES.get(str(value).removeprefix("torch."))
    if name is None:
        config.problem(path, f"unknown dtype '{str(value)[:40]}'{did_you_mean(value, _DTYPES)}")
    return FORMATS[name or "bf16"]


def quantization(config: Config, companion: Document | None, wide: Format) -> tuple[Quantization, Format | None]:
    """Read how weights are stored, and the KV format if the ModelOpt file states one.

    The companion wins where both speak, except that a map of single layers is read on top of the config's base format.
    """
    plain = Quantization(wide, wide=wide, name=wide.name)
    place, raw = config.find("quantization_config")
    config.ignore("quantization_config")
    inner = _modelopt(companion) if companion is not None else None
    if raw is not None and not isinstance(raw, dict):
        config.problem(place, "expected an object of keys to values")
        return plain, None
    experts = _expert_rules(config)
    if inner is not None and companion is not None:
        base = _from_config(config, place, raw, wide) if isinstance(raw, dict) and _is_mixed(inner) else None
        found = _from_modelopt(companion, ("quantization",), inner, wide, base)
        return replace(found, rules=(*found.rules, *experts)), _kv_format(companion, inner)
    if raw is None:
        if "fp8" in config.text("_name_or_path").lower():
            config.warn("the name says FP8, but there is no quantization_config; read as unquantised")
        return plain, None
    found = _from_config(config, place, raw, wide)
    if raw.get("kv_cache_scheme"):
        config.warn("quantization_config.kv_cache_scheme is not used: the KV format is the hf_quant file's, or yours")
    return replace(found, rules=(*found.rules, *experts)), None


def _expert_rules(config: Config) -> tuple[Rule, ...]:
    """A key of its own for the experts' format, beside a coarser method for the rest."""
    name = config.text("expert_dtype")
    if not name:
        return ()
    if name != "fp4":
        config.problem(config.find("expert_dtype")[0], f"unknown expert_dtype '{name[:40]}' (known: fp4)")
    return (Rule(r"\.experts\.", FORMATS["mxfp4"]),)


def _from_config(config: Config, place: Path_, raw: dict[str, Any], wide: Format) -> Quantization:
    """Read a `quantization_config` by its method."""
    document = config.document
    method = raw.get("quant_method")
    if method is None and raw.get("quant_algo") is not None:
        method = "modelopt"
    if not isinstance(method, str) or method not in _METHODS:
        hint = did_you_mean(method, _METHODS)
        message = f"unknown quant_method {str(method)[:40]!r}{hint}"
        raise InputError(document.problem((*place, "quant_method"), message))
    if raw.get("quant_algo") is not None and (method == "modelopt" or _is_mixed(raw)):
        base = _fp8(raw, wide) if method == "fp8" else None
        return _from_modelopt(document, place, raw, wide, base)
    ignored = _ignore_rules(document, place, raw)
    if method == "compressed-tensors" or raw.get("config_groups"):
        return _from_groups(document, place, raw, wide, ignored)
    if method == "fp8":
        return replace(_fp8(raw, wide), rules=ignored)
    if method == "fbgemm_fp8":
        return Quantization(FORMATS["fp8_channel"], ignored, wide, "fp8_channel")
    if method == "mxfp4":
        return Quantization(wide, (*ignored, Rule(r"\.experts\.", FORMATS["mxfp4"])), wide, "mxfp4")
    return Quantization(_integer(document, place, method, raw), ignored, wide, method)


def _fp8(raw: dict[str, Any], wide: Format) -> Quantization:
    block = raw.get("weight_block_size")
    found = FORMATS["fp8_block"] if block else FORMATS["fp8"]
    return Quantization(found, (), wide, found.name)


def _integer(document: Document, place: Path_, method: str, raw: dict[str, Any]) -> Format:
    """Weight-only integers of GPTQ, AWQ and bitsandbytes."""
    if method == "bitsandbytes":
        return FORMATS["int4"] if raw.get("load_in_4bit") else FORMATS["int8_wo"]
    bits, group = raw.get("bits", raw.get("w_bit", 4)), raw.get("group_size", raw.get("q_group_size", 128))
    if bits not in (4, 8) or isinstance(bits, bool) or not isinstance(group, int):
        message = f"expected 4 or 8 bits and a group size, got {str(bits)[:20]!r} and {str(group)[:20]!r}"
        raise InputError(document.problem((*place, "bits"), message))
    return _grouped(int(bits), group, "int")


def _grouped(bits: int, group: int, kind: str) -> Format:
    """The known format of that many bits in groups of that size, or one like it."""
    if kind == "float":
        if bits == 4:
            return FORMATS["nvfp4"] if group in (0, 16) else FORMATS["mxfp4"]
        return FORMATS["mxfp8"] if group == 32 else FORMATS["fp8"]
    if bits == 8:
        return FORMATS["int8_wo"]
    known = {32: "int4", 128: "int4_128"}
    if group in known:
        return FORMATS[known[group]]
    return replace(FORMATS["int4"], name=f"int4_{max(group, 0)}", group=max(group, 0))


def _from_groups(
    document: Document, place: Path_, raw: dict[str, Any], wide: Format, ignored: tuple[Rule, ...]
) -> Quantization:
    """Read `config_groups`: a format per group of targets."""
    groups = raw.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise InputError(document.problem((*place, "config_groups"), "expected an object of groups with weights"))
    rules, default = list(ignored), wide
    for name, group in groups.items():
        at = (*place, "config_groups", str(name))
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise InputError(document.problem(at, "expected an object with 'weights'"))
        found = _scheme(document, (*at, "weights"), weights)
        targets = group.get("targets") or ["Linear"]
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise InputError(document.problem((*at, "targets"), "expected a list of module names"))
        named = [target for target in targets if target != "Linear"]
        rules += [Rule(_pattern(document, (*at, "targets"), target), found, _layer(target)) for target in named]
        default = found if "Linear" in targets else default
    return Quantization(default, tuple(rules), wide, default.name)


def _scheme(document: Document, at: Path_, weights: dict[str, Any]) -> Format:
    bits, kind, strategy = weights.get("num_bits"), weights.get("type", "int"), weights.get("strategy")
    group = weights.get("group_size") or 0
    if bits not in (4, 8) or kind not in ("int", "float") or not isinstance(group, int):
        message = f"expected 4 or 8 bits of type int or float, got {str(bits)[:20]!r} of {str(kind)[:20]!r}"
        raise InputError(document.problem(at, message))
    if kind == "float" and bits == 8 and not group:
        return FORMATS[{"channel": "fp8_channel", "block": "fp8_block"}.get(str(strategy), "fp8")]
    if kind == "int" and bits == 8 and not group:
        return FORMATS["int8"]
    return _grouped(int(bits), group, str(kind))


def _modelopt(companion: Document) -> dict[str, Any]:
    inner = companion.value.get("quantization") if isinstance(companion.value, dict) else None
    if not isinstance(inner, dict):
        raise InputError(companion.problem((), "expected an object with 'quantization' (a hf_quant_config.json)"))
    return inner


def _is_mixed(raw: dict[str, Any]) -> bool:
    return raw.get("quant_algo") == "MIXED_PRECISION"


def _from_modelopt(
    document: Document, place: Path_, raw: dict[str, Any], wide: Format, base: Quantization | None
) -> Quantization:
    """Read ModelOpt's keys; with MIXED_PRECISION layers are named one by one and the rest is stored as in `base`."""
    if _is_mixed(raw):
        layers = raw.get("quantized_layers")
        if not isinstance(layers, dict):
            raise InputError(document.problem((*place, "quantized_layers"), "expected an object of layers"))
        rules = []
        for name, entry in layers.items():
            algorithm = entry.get("quant_algo") if isinstance(entry, dict) else None
            found = _algorithm(document, (*place, "quantized_layers", str(name)), algorithm)
            pattern = _pattern(document, (*place, "quantized_layers", str(name)), str(name))
            rules.append(Rule(pattern, found, _layer(str(name))))
        if base is None:
            return Quantization(wide, tuple(rules), wide, "mixed")
        return replace(base, rules=(*rules, *base.rules), name="mixed")
    algorithm = raw.get("quant_algo")
    if algorithm is None:
        return Quantization(wide, wide=wide, name=wide.name)
    found = _algorithm(document, (*place, "quant_algo"), algorithm)
    return Quantization(found, _ignore_rules(document, place, raw), wide, found.name)


def _algorithm(document: Document, at: Path_, name: Any) -> Format:
    known = _ALGORITHMS.get(str(name).upper())
    if known is None:
        message = f"unknown quant_algo {str(name)[:40]!r}{did_you_mean(name, _ALGORITHMS)}"
        raise InputError(document.problem(at, message))
    return FORMATS[known]


def _kv_format(document: Document, raw: dict[str, Any]) -> Format | None:
    name = raw.get("kv_cache_quant_algo")
    if name is None or str(name).lower() == "none":
        return None
    return _algorithm(document, ("quantization", "kv_cache_quant_algo"), name)


def _ignore_rules(document: Document, place: Path_, raw: dict[str, Any]) -> tuple[Rule, ...]:
    """Modules left wide: all patterns that any layer may match in one rule, those of single layers in one rule each."""
    by_layer: dict[int | None, list[str]] = {}
    for key in _IGNORES:
        names = raw.get(key) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(document.problem((*place, key), "expected a list of module names"))
        for name in names:
            by_layer.setdefault(_layer(name), []).append(_pattern(document, (*place, key), name))
    return tuple(Rule("|".join(dict.fromkeys(parts)), None, layer) for layer, parts in by_layer.items())


_OUTER = re.compile(r"(?:(?:model|language_model|backbone|transformer)\.)+(?=\w)")


_WILDCARDS, _LONGEST = 4, 300
_REPEATED = re.compile(r"(?<!\\)\)[*+{]|(?<!\\)[*+?}][*+{]")
"""A group (or a repetition) that is repeated: ``(a+)+`` takes time that doubles with every character."""
_UNREAD = re.compile(r"\(\?(?![:=!])|\\[1-9]")
"""Names, flags and references, which have no meaning among other patterns."""


def _pattern(document: Document, at: Path_, name: str) -> str:
    """A module name, glob or ``re:`` pattern as a regular expression on full names, whatever they start with.

    Patterns come from files of others: those that a match could spend hours on are refused.
    """
    text = name.removeprefix("re:").removeprefix("^").removeprefix(".*")
    wild = len(re.findall(r"(?<![\\(])[*+?{]" if name.startswith("re:") else r"[*?]+", text))
    slow = name.startswith("re:") and (_REPEATED.search(text) or _UNREAD.search(text))
    if slow or wild > _WILDCARDS or len(name) > _LONGEST:
        message = f"pattern '{shortened(name)}' is too complex; at most {_WILDCARDS} wildcards, none of them of a group"
        raise InputError(document.problem(at, message))
    if name.startswith("re:"):
        try:
            re.compile(f"(?:{text})")
        except (re.error, RecursionError, OverflowError):
            return re.escape(text)
        return f"(?:{text})"
    inner = _OUTER.sub("", name, count=1) if _OUTER.match(name) else name
    if "*" in inner or "?" in inner:
        body = re.sub(r"(?:\.\*)+", ".*", re.escape(inner).replace(r"\*", ".*")).replace(r"\?", ".")
        return rf"(?:(?:^|\.){body}$)"
    return rf"(?:(?:^|\.){re.escape(inner)}(?:\.|$))"


def _layer(name: str) -> int | None:
    """The one layer a name can be about, when it spells the number out."""
    found = re.match(r"(?:[A-Za-z_]+\.)*layers\.(\d{1,6})(?=\.|$)", name)
    return int(found.group(1)) if found else None
