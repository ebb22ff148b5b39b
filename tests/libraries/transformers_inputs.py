"""Inputs of transformers architectures: patches with their grid, sounds with masks, single ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

IMAGE = 5  # the token that stands for an image, where a table of sizes says so


def _random(*shape: int, seed: int = 5) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _whole(low: int, high: int, *shape: int, seed: int = 5) -> Any:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def _words(high: int = 90) -> Any:
    return _whole(10, high, 2, 10)


def _mels(config: Any, depth: int = 0) -> int:
    """The number of frequencies of a model's spectra."""
    for name in ("num_mel_bins", "feature_size", "input_feat_size"):
        if isinstance(getattr(config, name, None), int):
            return getattr(config, name)
    parts = [p for p in vars(config).values() if hasattr(p, "model_type")]
    return max([_mels(p, depth + 1) for p in parts] if depth < 3 else [], default=0)


def further_inputs(config: Any) -> list[dict[str, Any]]:
    """Inputs that a model with this configuration may take, the likeliest first."""
    grid = torch.tensor([[1, 4, 4], [1, 4, 8]])
    patch = getattr(config, "patch_size", None)
    patch = patch if isinstance(patch, int) else 8
    channels = getattr(config, "in_channels", None) or getattr(config, "num_channels", None) or 3
    channels = channels if isinstance(channels, int) else 3
    names = ("temporal_patch_size", "patch_temporal")
    times = next((t for t in (getattr(config, name, None) for name in names) if t), 1)
    rows = _random(48, channels * times * patch * patch)
    squares = _random(48, channels, patch, patch)
    choices = [
        {name: patches, "grid_thw": grid}
        for name in ("hidden_states", "pixel_values")
        for patches in (rows, squares)
    ]
    choices += [{"pixel_values": patches, "image_grid_thw": grid} for patches in (rows, squares)]
    mels = _mels(config) or 80
    words = _words()
    for sound in (_random(2, 64, mels), _random(2, mels, 64)):
        for more in (
            {},
            {"input_features_mask": torch.ones(2, 64, dtype=torch.int64)},
            {"attention_mask": torch.ones(2, 64, dtype=torch.int64)},
            {"decoder_input_ids": words[:, :7]},
            {"input_ids": words},
        ):
            choices.append({"input_features": sound, **more})
    choices += [{"input_values": _random(2, 1, length)} for length in (8192, 1920)]
    for size in (64, 128, 256):
        images = _random(2, channels, size, size)
        choices += [{"pixel_values": images}, {"pixel_values": images, "input_ids": words}]
    choices.append({"pixel_values": _random(2, 2, 3, 32, 32), "input_ids": words})
    return choices


def _time_series(config: Any) -> dict[str, Any]:
    past = config.context_length + max(config.lags_sequence)
    return {
        "past_values": _random(2, past),
        "past_time_features": _random(2, past, config.num_time_features),
        "past_observed_mask": torch.ones(2, past),
        "future_values": _random(2, config.prediction_length, seed=6),
        "future_time_features": _random(2, config.prediction_length, config.num_time_features),
    }


def _boxes(_: Any) -> dict[str, Any]:
    return {"input_ids": _words(), "bbox": _whole(0, 30, 2, 10, 2).repeat(1, 1, 2).sort(-1)[0]}


def _layout(config: Any) -> dict[str, Any]:
    return _boxes(config) | {"pixel_values": _random(2, 3, 32, 32)}


def _with_images(config: Any) -> dict[str, Any]:
    """Words, four of which are the image's."""
    words = _words()
    words[:, 2:6] = IMAGE
    return {"input_ids": words, "pixel_values": _random(2, 3, 32, 32)}


def _instructed(config: Any) -> dict[str, Any]:
    return _with_images(config) | {"qformer_input_ids": _words()}


def _instructed_video(config: Any) -> dict[str, Any]:
    words = _words().repeat(1, 2)
    words[:, 2:10] = IMAGE
    frames = _random(2, 2, 3, 32, 32)
    return {"input_ids": words, "pixel_values": frames, "qformer_input_ids": _words()}


def _kosmos(config: Any) -> dict[str, Any]:
    mask = torch.zeros(2, 10, dtype=torch.int64)
    mask[:, 2:6] = 1
    return {
        "input_ids": _words(),
        "pixel_values": _random(2, 3, 32, 32),
        "image_embeds_position_mask": mask,
    }


def _decisions(config: Any) -> dict[str, Any]:
    return {
        "states": _random(2, 5, config.state_dim),
        "actions": _random(2, 5, config.act_dim),
        "rewards": _random(2, 5, 1),
        "returns_to_go": _random(2, 5, 1, seed=6),
        "timesteps": torch.arange(5).repeat(2, 1),
        "attention_mask": torch.ones(2, 5),
    }


def _codec(config: Any) -> dict[str, Any]:
    return {"input_values": _random(2, 1, 5120), "input_features": _random(2, 16, 16)}


def _codes(config: Any) -> dict[str, Any]:
    return {"input_ids": _whole(3, 30, 2, 10, config.num_codebooks + 1)}


def _clvp(config: Any) -> dict[str, Any]:
    return {"input_ids": _words(), "input_features": _random(2, 80, 64)}


def _fastspeech(config: Any) -> dict[str, Any]:
    config = getattr(config, "model_config", config)
    return {
        "input_ids": _words(),
        "spectrogram_labels": _random(2, 20, config.num_mel_bins),
        "duration_labels": torch.full((2, 10), 2),
        "pitch_labels": _random(2, 10, 1),
        "energy_labels": _random(2, 10, 1, seed=6),
    }


def _speech_states(config: Any) -> dict[str, Any]:
    return {
        "input_values": _random(2, 12, config.hidden_size),
        "decoder_input_values": _random(2, 7, config.hidden_size),
    }


def _prompted_images(config: Any) -> dict[str, Any]:
    height, width = config.image_size
    return {
        "pixel_values": _random(2, 3, height // 2, width),
        "prompt_pixel_values": _random(2, 3, height // 2, width, seed=6),
        "prompt_masks": _random(2, 3, height // 2, width, seed=7),
    }


def _siglip2(config: Any) -> dict[str, Any]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    result = {
        "pixel_values": _random(2, 16, 192),
        "pixel_attention_mask": mask,
        "spatial_shapes": torch.tensor([[4, 4], [3, 4]]),
    }
    return result | ({"input_ids": _words()} if hasattr(config, "text_config") else {})


def _past(config: Any) -> dict[str, Any]:
    length = config.context_length
    values = {"past_values": _random(2, length)}
    if config.model_type == "timesfm":
        values["past_values_padding"] = torch.zeros(2, length, dtype=torch.int64)
        values["freq"] = torch.tensor([[0], [1]])
    return values


_INPUTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "time_series_transformer informer autoformer": _time_series,
    "bros": _boxes,
    "layoutlmv3": _layout,
    "blip-2": _with_images,
    "instructblip": _instructed,
    "instructblipvideo": _instructed_video,
    "kosmos-2": _kosmos,
    "decision_transformer": _decisions,
    "neucodec xcodec2": _codec,
    "kyutai_speech_to_text": _codes,
    "clvp": _clvp,
    "fastspeech2_conformer fastspeech2_conformer_with_hifigan": _fastspeech,
    "speecht5": _speech_states,
    "seggpt": _prompted_images,
    "siglip2 siglip2_vision_model": _siglip2,
    "timesfm timesfm2_5": _past,
    "patchtst patchtsmixer": lambda config: {
        "past_values": _random(2, config.context_length, config.num_input_channels)
    },
    "reformer": lambda config: {"input_ids": _whole(3, 90, 2, 16)},
    "mgp-str": lambda config: {"pixel_values": _random(2, 3, 32, 128)},
    "efficientloftr lightglue": lambda config: {"pixel_values": _random(1, 2, 3, 64, 64)},
    "oneformer": lambda config: {
        "pixel_values": _random(2, 3, 64, 64),
        "task_inputs": _whole(3, 90, 2, config.task_seq_len),
    },
    "video_llama_3_vision": lambda config: {
        "pixel_values": _random(48, 3 * config.patch_size**2),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 8]]),
        "merge_sizes": torch.tensor([2, 2]),
    },
    "lxmert": lambda config: {
        "input_ids": _words(),
        "visual_feats": _random(2, 4, config.visual_feat_dim),
        "visual_pos": _random(2, 4, 4),
    },
    "blip_2_qformer": lambda config: {
        "query_embeds": _random(2, 6, 32),
        "encoder_hidden_states": _random(2, 5, 32),
    },
    "idefics": lambda config: {
        "input_ids": _words(),
        "pixel_values": _random(2, 1, 3, 32, 32),
        "image_attention_mask": torch.ones(2, 10, 1, dtype=torch.int64),
    },
    "perceiver": lambda config: {"inputs": _random(2, 10, config.d_model)},
    "videoprism": lambda config: {
        "pixel_values_videos": _random(2, 4, 3, 32, 32),
        "input_ids": _words(),
    },
    "pe_audio": lambda config: {"input_ids": _words(), "input_values": _random(2, 1, 3200)},
    "pe_video": lambda config: {
        "input_ids": _words(),
        "pixel_values_videos": _random(2, 4, 3, 28, 28),
    },
    "pe_video_encoder": lambda config: {"pixel_values_videos": _random(2, 4, 3, 28, 28)},
    "pe_audio_video_encoder pe_audio_video": lambda config: {
        "input_values": _random(2, 1, 3200),
        "pixel_values_videos": _random(2, 4, 3, 28, 28),
    },
    "gemma3n_audio": lambda config: {
        "audio_mel": _random(2, 64, 16),
        "audio_mel_mask": torch.zeros(2, 64, dtype=torch.bool),
    },
    "gemma4_vision": lambda config: {
        "pixel_values": _random(2, 36, 3 * config.patch_size**2),
        "pixel_position_ids": torch.cartesian_prod(torch.arange(6), torch.arange(6)).repeat(
            2, 1, 1
        ),
    },
    "inkling2_vision": lambda config: {
        "pixel_values": _random(2 * 16, 16, 16, 3),
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
    },
    "molmo2": lambda config: {
        "input_ids": _words(),
        "mm_token_type_ids": torch.zeros(2, 10, dtype=torch.int64),
    },
    "muse_glimmer_assistant": lambda config: {
        "noise_embeds": _random(2, 4, 32),
        "context_hidden_states": _random(2, 6, 32 * len(config.target_layer_ids)),
        "position_ids": torch.arange(10).repeat(2, 1),
    },
    "vjepa2": lambda config: {"pixel_values_videos": _random(2, 4, 3, 32, 32)},
    "clap": lambda config: {
        "input_ids": _words(),
        "input_features": _random(2, 1, 64, 16),
        "is_longer": torch.tensor([[False], [True]]),
    },
    "audioflamingo3_encoder": lambda config: {
        "input_features": _random(2, 16, 32),
        "input_features_mask": torch.ones(2, 32, dtype=torch.int64),
    },
    "fun_asr_nano_encoder": lambda config: {
        "input_features": _random(2, 32, 16 * config.num_stacked_frames),
        "input_features_mask": torch.ones(2, 32, dtype=torch.int64),
    },
    "granite_speech5_ctc granite_speech5_encoder": lambda config: {
        "input_features": _random(2, 32, 64)
    },
    "qwen3_asr_encoder": lambda config: {
        "input_features": _random(2, 16, 200),
        "input_features_mask": torch.ones(2, 200, dtype=torch.int64),
    },
    "higgs_audio_v2_tokenizer": lambda config: {"input_values": _random(2, 1, 9600)},
    "mimi_decoder pocket_tts_audio_tokenizer_decoder": lambda config: {
        "latents": _random(2, 32, 4)
    },
    "xclip": lambda config: {
        "input_ids": _words(),
        "pixel_values": _random(2, config.vision_config.num_frames, 3, 32, 32),
    },
    "wav2vec2-bert": lambda config: {"input_features": _random(2, 16, 32)},
    "yolos": lambda config: {"pixel_values": _random(2, 3, 32, 32)},
    "vibevoice_acoustic_tokenizer_encoder": lambda config: {"hidden_states": _random(2, 1, 6400)},
    "vibevoice_acoustic_tokenizer_decoder": lambda config: {
        "hidden_states": _random(2, config.hidden_size, 4)
    },
    "neomme": lambda config: {"input_ids": _words()},
    "depth_pro": lambda config: {"pixel_values": _random(2, 3, 64, 64)},
    "tvp": lambda config: {
        "input_ids": _words()[:1],
        "pixel_values": _random(1, 2, 3, 128, 128),
        "attention_mask": torch.ones(1, 10, dtype=torch.int64),
    },
    "pi0": lambda config: {
        "action_embeds": _random(2, 4, 32),
        "input_ids": _words(),
        "pixel_values": _random(2, 1, 3, 32, 32),
        "pixel_attention_mask": torch.ones(2, 1, dtype=torch.int64),
    },
    "minicpm_ocr_vision minicpmv4_7_vision": lambda config: {
        "pixel_values": _random(1, 3, 8, 16 * 8),
        "target_sizes": torch.tensor([[4, 4]]),
    },
}

INPUTS = {name: make for names, make in _INPUTS.items() for name in names.split()}
