"""transformers: every architecture that a small configuration makes, random weights."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from tests.libraries.cases import Case, Program
from tests.libraries.transformers_inputs import INPUTS, further_inputs
from tests.libraries.transformers_sizes import ARGUMENTS, SIZES, apply

# Set in every configuration, and in those it contains, that has a setting of this name and more.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32,
    "embedding_size": 32,
    "encoder_hidden_size": 32, "decoder_hidden_size": 32, "text_embed_dim": 32, "hidden_dim": 32,
    "embedding_dim": 32, "word_embed_proj_dim": 32, "projection_dim": 32, "output_dim": 32,
    "vision_hidden_size": 32, "vision_embed_dim": 32, "num_pos_feats": 16, "mlp_dim": 48,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "depth": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "d_kv": 8, "head_dim": 8, "vocab_size": 99,
    "max_position_embeddings": 64, "image_size": 32, "patch_size": 8, "pad_token_id": 0,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_num_experts": 4, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
    "shared_expert_intermediate_size": 16, "moe_shared_expert_intermediate_size": 16,
    "num_queries": 6, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "mamba_d_state": 8, "mamba_n_heads": 4,
    "mamba_d_head": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "state_size": 8,
    "max_source_positions": 16, "num_mel_bins": 16, "mask_time_length": 2, "max_length": 40,
    "prediction_length": 4, "context_length": 8, "num_conv_pos_embeddings": 4,
    "audio_hidden_size": 32,
    "num_text_layers": 2, "text_vocab_size": 99, "num_latents": 6, "d_latents": 32, "chunk_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4,
}  # fmt: skip
UNREPEATABLE = {"reformer"}  # in training: it draws its own seeds
LARGEST = 64  # of numbers in lists of widths; longer lists of depths are cut


def shrink(config: Any, depth: int = 0) -> Any:
    """A configuration with small sizes."""
    for name, current in tuple(vars(config).items()):
        value = SMALL.get(name)
        if type(current) is int and value is not None:
            setattr(config, name, min(value, current) if name != "pad_token_id" else value)
        elif name == "prediction_length":
            config.prediction_length = 4
        elif _numbers(current) and ("size" in name or "dim" in name or "channels" in name):
            factor = max(1, max(current) // LARGEST)
            setattr(config, name, type(current)(max(8, n // factor) for n in current))
        elif _numbers(current) and ("depth" in name or "num_blocks" in name):
            setattr(config, name, type(current)(min(n, 2) for n in current))
    layers = getattr(config, "num_hidden_layers", None)
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        kinds = vars(config).get(name)
        if isinstance(kinds, list) and isinstance(layers, int):
            setattr(config, name, kinds[-layers:])
    for value in tuple(vars(config).values()):
        if depth < 3 and hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value, depth + 1)
    return config


def _numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(type(n) is int for n in value)


def small_config(model_type: str) -> Any:
    """The small configuration of an architecture."""
    if model_type in ARGUMENTS:
        return CONFIG_MAPPING[model_type](**ARGUMENTS[model_type])
    config = shrink(CONFIG_MAPPING[model_type]())
    apply(config, SIZES.get(model_type, {}))
    return config


def inputs_of(model: Any, config: Any) -> tuple[dict[str, Any], ...]:
    """Inputs that a model may take, the likeliest first, by the names of its parameters."""
    generator = torch.Generator().manual_seed(3)
    names = inspect.signature(model.forward).parameters
    text = {"input_ids": torch.randint(3, 90, (2, 10), generator=generator)}
    if "decoder_input_ids" in names:
        text["decoder_input_ids"] = text["input_ids"].flip(1)[:, :7]
    if "bbox" in names:
        text["bbox"] = torch.randint(0, 30, (2, 10, 2), generator=generator).repeat(1, 1, 2)
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    size = size if isinstance(size, int) else size[0]
    channels = getattr(vision, "num_channels", 3) or 3
    images = torch.randn(2, channels, size, size, generator=generator)
    video = torch.randn(2, getattr(vision, "num_frames", 4), 3, size, size, generator=generator)
    mels = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
    length = 2 * getattr(config, "max_source_positions", 64)
    sound = torch.randn(2, 1600, generator=generator)
    features = torch.randn(2, mels, length, generator=generator)
    spectra = torch.randn(2, getattr(config, "max_length", 64), mels, generator=generator)
    decoder = {k: v for k, v in text.items() if k == "decoder_input_ids"}
    choices = [
        {"pixel_values": images, **text} if "input_ids" in names else {"pixel_values": images},
        text,
        {"pixel_values": images},
        {"pixel_values": images, **decoder},
        {"pixel_values": video},
        {"pixel_values": video, **text},
        {"pixel_values_videos": video},
        {"input_values": sound},
        {"input_values": sound[:, None]},
        {"input_values": sound, **decoder},
        {"input_values": spectra},
        {"input_values": spectra, **decoder},
        {"input_features": features, **decoder},
        {"input_features": spectra, **decoder},
        {"input_features": features, **text},
        {"inputs_embeds": torch.randn(2, 10, 32, generator=generator)},
        {"query_embeds": torch.randn(2, 6, 32, generator=generator)},
        {"hidden_states": torch.randn(2, 10, 32, generator=generator)},
        *further_inputs(config),
    ]
    required = [
        name
        for name, parameter in names.items()
        if parameter.default is parameter.empty and parameter.kind.name.startswith("POS")
    ]
    return tuple(
        choice
        for choice in choices
        if choice.keys() <= names.keys() and all(name in choice for name in required)
    )


def base(model_type: str) -> Case:
    """The bare model of an architecture."""
    config = small_config(model_type)
    model = AutoModel.from_config(config)
    own = INPUTS.get(model_type)
    choices = (own(config),) if own else inputs_of(model, config)
    return Case(model, choices=choices, backward=model_type not in UNREPEATABLE)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(base, name)
    for name in CONFIG_MAPPING
    if CONFIG_MAPPING[name] in MODEL_MAPPING
}
