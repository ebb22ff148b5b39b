"""Sizes of transformers architectures that the general small ones do not fit.

`SIZES` are settings of a small configuration, set after the general ones: a plain name wherever a
configuration, or one that it contains, has it, a dotted one in one place even where there was
none (`.name`: in the configuration itself). Tables (of rotary positions) are merged. `ARGUMENTS`
make configurations whose other settings follow from these; they are not made smaller. Names of
several architectures stand in one text.
"""

from __future__ import annotations

import functools
from typing import Any

_HGNET = {
    "stem_channels": [3, 8, 8], "stage_in_channels": [8, 16, 16, 32],
    "stage_mid_channels": [8, 8, 8, 8], "stage_out_channels": [16, 16, 32, 32],
    "stage_num_blocks": [1, 1, 1, 1], "stage_numb_of_layers": [2, 2, 2, 2],
    "stage_kernel_size": [3, 3, 5, 5], "hidden_sizes": [16, 16, 32, 32], "embedding_size": 8,
}  # fmt: skip
_SWIN = {
    "embed_dim": 16, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4), "window_size": 4,
    "image_size": 64, "patch_size": 4, "hidden_size": 128,
}  # fmt: skip
_DETR = {
    "d_model": 32, "encoder_hidden_dim": 32, "encoder_in_channels": [16, 32, 32],
    "decoder_in_channels": [32, 32, 32], "feat_strides": [8, 16, 32], "num_queries": 6,
    "num_denoising": 0, "decoder_n_points": 2, "head_dim": 8, "image_size": 64,
    "initializer_range": 0.2,  # or all positions have one score, and rounding picks the best
}  # fmt: skip
_MIMI = {
    "upsample_groups": 8, "num_key_value_heads": 4, "num_filters": 8, "codebook_size": 32,
    "num_quantizers": 4, "codebook_dim": 16, "vector_quantization_hidden_dimension": 16,
}  # fmt: skip
_HEADS = {"num_key_value_heads": 4}  # latent attention has as many of both
_HIERA = {
    "hidden_size": 16, "patch_kernel_size": [7, 7], "patch_stride": [4, 4], "query_stride": [2, 2],
    "window_positional_embedding_background_size": [4, 4], "blocks_per_stage": [1, 1, 2, 1],
    "embed_dim_per_stage": [16, 32, 64, 128], "num_attention_heads_per_stage": [1, 2, 4, 4],
    "window_size_per_stage": [4, 2, 2, 2], "global_attention_blocks": [3],
    "backbone_channel_list": [128, 64, 32, 16], "fpn_hidden_size": 32, "image_size": 64,
    "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
}  # fmt: skip
_WIDE_HIERA = {"image_size": [64, 64]}
_TIMM_VIT = {"img_size": 28, "depth": 2, "embed_dim": 64, "num_heads": 4}
_DAC = {
    "encoder_hidden_size": 8, "decoder_hidden_size": 32, "downsampling_ratios": [2, 4, 5, 8],
    "upsampling_ratios": [8, 5, 4, 2], "hop_length": 320, "codebook_dim": 16, "codebook_size": 32,
}  # fmt: skip
_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
_ROPES = {
    kind: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    for kind in ("full_attention", "sliding_attention")
}

_SIZES: dict[str, dict[str, Any]] = {
    "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa minicpm3 "
    "mistral4 mistral_large4 mistral_large4_text hy_v4 kimi_k25 dots3_note dots3_note_text "
    "glm5_next glm5_next_text longcat_flash esmc": _HEADS,
    "deepseek_ocr2": {"text_config.mlp_layer_types": ["dense", "sparse"], "mlp_dim": 48},
    "deepseek_v2 dots1 deepseek_ocr2": {
        "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1,
    },
    "mistral4": {"head_dim": 16},
    "longcat_flash": {
        "qk_head_dim": 16, "moe_topk": 2, "zero_expert_num": 2, "ffn_hidden_size": 48,
        "expert_ffn_hidden_size": 16,
    },
    "glm46v glmga glm4v glm4v_moe glm4v_vision glm4v_moe_vision glm_ocr glm_ocr_vision "
    "glm5_next glm5_next_vision qwen2_5_vl_vision cohere_compass_vision "
    "qwen3_vl_moe_vision qwen3_vl_vision qwen3_5_moe_vision qwen3_5_vision "
    "qwen4_exp_vision qwen4_exp hunyuan_vl_vision hunyuan_vl": {
        "out_hidden_size": 32, "projection_intermediate_size": 48, "text_hidden_size": 32,
        "num_position_embeddings": 64,
    },
    "glm5_next glm5_next_text": {
        "linear_head_dim": 8, "linear_num_heads": 4, "hc_mult": 2, "hc_sinkhorn_iters": 4,
        "qk_head_dim": 8, "index_kpool": 2,
    },
    "dots3_note": {
        "adapter_in_dim": 32, "adapter_out_dim": 32, "adapter_input_size": 32,
        "downsample_hidden_size": 8,
    },
    "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_thinker glm46v glmga "
    "glm4v glm4v_text glm_image glm_image_text glm_ocr glm_ocr_text paddleocr_vl "
    "hunyuan_vl hunyuan_vl_text ernie4_5_vl_moe": {"rope_parameters": {"mrope_section": [2, 1, 1]}},
    "glm4v_moe glm4v_moe_text": {"rope_parameters": {"mrope_section": [1, 1, 0]}},
    "cohere_compass cohere_compass_text": {"rope_parameters": _ROPES},
    "ernie4_5_vl_moe": {
        "moe_k": 2, "moe_intermediate_size": [16, 8],
        "rope_parameters": {"mrope_section": [1, 1, 2]},
    },
    "hgnet_v2": _HGNET,
    "d_fine deimv2 pp_doclayout_v3 pp_doclayout_v4 pp_ocrv5_server_rec": _HGNET | _DETR,
    "rt_detr rt_detr_v2": _DETR | {
        "hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1], "embedding_size": 8,
    },
    "swinv2 maskformer-swin mask2former oneformer grounding-dino mm-grounding-dino": _SWIN,
    "swin donut-swin": _SWIN | {"window_size": 2},
    "swin2sr": {"num_heads": (4, 4), "depths": (2, 2), "num_layers": 2, "image_size": 32},
    "codegen gptj": {"rotary_dim": 8},
    "hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl hunyuan_vl_text ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 4},
    "esm": {"vocab_size": 99, "mask_token_id": 32, "pad_token_id": 1},
    "esmc": {"vocab_size": 99},
    "lilt": {"hidden_size": 48},
    "rwkv": {"attention_hidden_size": 32},
    "siglip siglip2": {"projection_size": 32},
    "siglip2 siglip2_vision_model": {"num_patches": 16},
    "radio": {"patch_dim": 192},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "nemotron_h nemo_speechlm": {"n_groups": 2, "moe_latent_size": None},
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "moonshine_streaming": {".num_key_value_heads": 4, "num_key_value_heads": 4},
    "kyutai_speech_to_text": {
        "vocab_size": 4001, "num_codebooks": 4, ".audio_pad_token_id": 3, "codebook_vocab_size": 99,
    } | _MIMI,
    "csm": {"num_codebooks": 4, "backbone_hidden_size": 32} | _MIMI,
    "mimi pocket_tts_audio_tokenizer mimi_decoder pocket_tts_audio_tokenizer_decoder": _MIMI,
    "youtu": _HEADS,
    "wav2vec2-bert": {"feature_projection_input_dim": 32},
    "zamba zamba2": {
        "num_hidden_layers": 4, ".layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_head_dim": 16, "attention_hidden_size": 64, "hybrid_layer_ids": [1, 3],
    },
    "zamba2": {"mamba_headdim": 8},
    "xlm": {"emb_dim": 32},
    "xclip": {
        "mit_hidden_size": 32, "mit_num_hidden_layers": 1, "mit_num_attention_heads": 4,
        "mit_intermediate_size": 48, "prompt_num_attention_heads": 4,
    },
    "xmod": {".default_language": "en_XX"},
    "yolos": {"num_detection_tokens": 6, "image_size": [32, 32]},
    "clvp": {
        "vocab_size": 256, "hidden_size": 128, "num_attention_heads": 2, "num_mel_attn_blocks": 2,
        "projection_dim": 128,
    },
    "pp_doclayout_v3": {"x4_feat_dim": 16, "mask_feature_channels": [16, 16]},
    "vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_encoder "
    "vibevoice_acoustic_tokenizer_decoder": {"num_filters": 2, "depths": (1, 1, 1, 1, 1, 1, 1)},
    "lightglue": {"descriptor_dim": 256, "hidden_size": 256, "intermediate_size": 512},
    "granite_speech5_ctc granite_speech5_encoder": {
        "context_size": 16, "max_position_embeddings": 512, "num_key_value_heads": 4,
    },
    "clap": {
        "spec_size": 64, "num_mel_bins": 16, "patch_embeds_hidden_size": 32, "window_size": 4,
        "num_hidden_layers": 2, "audio_config.depths": (1, 1), "audio_config.hidden_size": 64,
        "audio_config.num_attention_heads": (2, 4),
    },
    "neomme": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
            for kind in ("full_attention", "sliding_attention")
        },
        "embedding_rank": 8,
    },
    "fastspeech2_conformer fastspeech2_conformer_with_hifigan vits": {"vocab_size": 99},
    "fastspeech2_conformer_with_hifigan": {"model_in_dim": 16},
    "fastspeech2_conformer_with_hifigan vits": {
        "upsample_initial_channel": 32, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
        "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]],
    },
    "vits": {"flow_size": 32, "spectrogram_bins": 17, "posterior_encoder_num_wavenet_layers": 2},
    "ernie4_5_moe": {"moe_k": 2},
    "bros": {
        "dim_bbox_sinusoid_emb_2d": 32, "dim_bbox_sinusoid_emb_1d": 4, "dim_bbox_projection": 8,
    },
    "recurrent_gemma": {"lru_width": 32, "block_types": ["recurrent", "attention"]},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16},
    "sapiens2": {"num_key_value_heads_per_layer": [4, 2]},
    "t5gemma": {"cross_attention_hidden_size": 32},
    "t5gemma2_encoder": {"text_config.dropout_rate": 0.0},
    "dbrx": {
        "attn_config.rope_theta": 10000.0, "moe_top_k": 2, "ffn_hidden_size": 48, "clip_qkv": 8.0,
    },
    "chameleon": {".vocabulary_map": {"<image>": 5, "IMGIMGAZ": 6, "IMGIMGBZ": 7}},
    "chameleon emu3": {"base_channels": 32, "channel_multiplier": [1, 2]},
    "emu3": {
        ".vocabulary_map": {
            "<image>": 5, "<|extra_200|>": 6, "<|visual token 000000|>": 7,
            "<|visual token 000001|>": 8,
        },
        "codebook_size": 64,
    },
    "cvt": {
        "patch_sizes": (7, 3, 3), "embed_dim": (16, 32, 48), "num_heads": (1, 2, 3),
        "depth": (1, 2, 3), "padding_q": (1, 1, 1), "patch_padding": (2, 1, 1),
        "drop_path_rate": (0.0, 0.0, 0.1), "cls_token": (False, False, True),
    },
    "hrm_text": {
        "num_layers_per_stack": 1, "num_hidden_layers": 8, "layer_types": ["full_attention"] * 8,
    },
    "poolformer": {"patch_sizes": (7, 3, 3, 3), "hidden_sizes": (16, 16, 32, 32)},
    "pvt": {
        "patch_sizes": (4, 2, 2, 2), "hidden_sizes": (16, 16, 32, 32),
        "num_attention_heads": (1, 2, 2, 4),
    },
    "kimi_linear bailing_hybrid": {
        "num_experts_per_token": 2, "num_expert_group": 1, "linear_head_dim": 8,
        "linear_num_heads": 4, "num_key_value_heads": 4,
    },
    "kimi_linear granitemoehybrid": _MIXED,
    "bamba": {"attn_layer_indices": [1]},
    "bamba granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "lfm2_moe": {".layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "kimi_k25 kimi_k25_vision": {
        "merge_kernel_size": (2, 2), "pos_emb_height": 8, "pos_emb_width": 8,
        "projection_hidden_size": 32,
    },
    "inkling2_vision": {"projection_hidden_dim": 32, "text_hidden_size": 32, "posemb_grid_size": 8},
    "muse_spark_audio": {
        "patch_sizes": (4, 2, 2, 2), "hidden_sizes": (16, 32, 64, 128), "out_hidden_size": 64,
        "num_hidden_layers": 4,
    },
    "sam3 sam3_lite_text sam3_tracker": {
        "fpn_hidden_size": 32, "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        "window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 32,
    },
    "sam sam_hq": {
        "image_embedding_size": 4, "output_channels": 32, "vit_dim": 32, "window_size": 2,
        "global_attn_indexes": (1,),
    },
    "sam2": _HIERA | {
        "vision_config.backbone_config.image_size": [64, 64], "patch_size": 16,
        "prompt_encoder_config.hidden_size": 32, "mask_decoder_config.hidden_size": 32,
    },
    "sam2_vision_model": _HIERA | {"backbone_config.image_size": [64, 64]},
    "sam2_hiera_det_model": _HIERA | _WIDE_HIERA,
    "edgetam edgetam_vision_model": {
        "fpn_hidden_size": 32, "backbone_channel_list": [192, 48, 32, 32], "image_size": 64,
        "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]], "architecture": "test_resnet",
    },
    "pp_ocrv6_small_rec pp_ocrv6_tiny_rec": {"stem_channels": (3, 48, 96)},
    "uvdoc": {
        "backbone_config._out_features": [f"stage{i}" for i in range(1, 7)],
        "backbone_config._out_indices": [1, 2, 3, 4, 5, 6],
    },
    "univnet": {
        "resblock_kernel_sizes": (3, 3, 3), "resblock_stride_sizes": (8, 8, 4),
        "model_in_channels": 16, "model_hidden_channels": 16,
        "kernel_predictor_hidden_channels": 16,
    },
    "textnet": {
        "hidden_sizes": (16, 16, 16, 32, 32), "stem_out_channels": 16, "image_size": (64, 64),
    },
    "align efficientnet": {
        "kernel_sizes": [3, 3, 5, 3, 5, 5, 3], "num_block_repeats": [1] * 7,
        "in_channels": [32, 16, 24, 40, 80, 112, 192],
        "out_channels": [16, 24, 40, 80, 112, 192, 320], "width_coefficient": 0.25,
        "depth_coefficient": 0.5, "image_size": 64, "hidden_dim": 320,
    },
    "align": {"projection_dim": 80},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "input_size": 32},
    "vision-text-dual-encoder": {"pooler_output_size": 32},
    "lxmert": {
        "l_layers": 2, "x_layers": 2, "r_layers": 2, "visual_feat_dim": 16,
        "num_hidden_layers": {"vision": 2, "cross_encoder": 2, "language": 2},
    },
    "encodec": {"codebook_dim": 32, "num_filters": 8, "codebook_size": 32},
    "gemma4 gemma4_text": {"vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8},
    "funnel": {
        ".architectures": ["FunnelModel"], "block_sizes": (1, 1, 1), "d_head": 8, "d_inner": 48,
        "block_repeats": [1, 1, 1],
    },
    "diffusion_gemma": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    "qwen4_exp qwen4_exp_text": {
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 4,
        "indexer_compress_ratio": 2, "hc_count": 2, "hc_lowrank": 8,
        "rope_parameters": {"mrope_section": [2, 1, 1]},
    },
    "bit": {"num_groups": 4},
    "bridgetower": {"hidden_size": 128, "intermediate_size": 64},
    "vjepa2": {
        "crop_size": 32, "frames_per_clip": 4, "pred_hidden_size": 32,
        "pred_num_attention_heads": 4, "pred_num_hidden_layers": 2,
    },
    "step3p7": {".text_config.sliding_window": 4},
    "mgp-str": {"image_size": (32, 128), "num_bpe_labels": 50, "num_wordpiece_labels": 40},
    "kosmos-2": {"embed_dim": 32, "layers": 2, "attention_heads": 4, "latent_query_num": 4},
    "blip-2 instructblip instructblipvideo": {
        "image_token_index": 5, "video_token_index": 5, "num_query_tokens": 4,
        "image_text_hidden_size": 32,
    },
    "neucodec xcodec2": {
        "encoder_hidden_size": 8, "feature_projection_input_dim": 16, "output_hidden_size": 32,
        "downsampling_ratios": (2, 2, 4, 4, 5), "quantization_dim": 64, "num_key_value_heads": 4,
    },
    "tvp": {"max_img_size": 128, "visual_prompt_size": 8, "num_frames": 2},
    "gemma4_audio": {"subsampling_conv_channels": [64, 8], "output_proj_dims": 32},
    "gemma3n_audio": {
        "conf_num_hidden_layers": 2, "conf_num_attention_heads": 4,
        "sscp_conv_channel_size": (8, 4), "input_feat_size": 16,
    },
    "audioflamingo3_encoder qwen3_asr_encoder fun_asr_nano_encoder": {"num_mel_bins": 16},
    "qwen3_asr_encoder": {"downsample_hidden_size": 8, "n_window": 50, "n_window_infer": 200},
    "videoprism videoprism_vision_model": {
        "num_frames": 4, "tubelet_size": (1, 8, 8), "num_spatial_layers": 2,
        "num_temporal_layers": 2, "image_size": 32,
    },
    "pe_audio_encoder pe_audio pe_audio_video pe_audio_video_encoder "
    "higgs_audio_v2_tokenizer": _DAC,
    "higgs_audio_v2_tokenizer": {
        "downsampling_ratios": [8, 5, 4, 6], "upsampling_ratios": [8, 5, 4, 6], "hop_length": 960,
    },
    "pe_video_encoder": {"vision_config.model_args": _TIMM_VIT},
    "pe_video": {"video_config.vision_config.model_args": _TIMM_VIT},
    "pe_audio_video_encoder": {"video_config.vision_config.model_args": _TIMM_VIT},
    "pe_audio_video": {"audio_video_config.video_config.vision_config.model_args": _TIMM_VIT},
    "pi0": {"projection_dim": 32},
    "speecht5": {"speech_decoder_prenet_units": 16, "encoder_max_relative_position": 8},
    "granite4_vision": {
        "image_token_index": 5, "deepstack_layer_map": [[0, 0], [1, 1]], "downsample_rate": "1/2",
        "spatial_target_layers": [0, 1, 0, 1], "vision_feature_layer": -1,
    },
    "perception_lm": {
        "vision_config.architecture": "vit_tiny_patch16_224",
        "vision_config.model_args": {"img_size": 28, "depth": 2, "embed_dim": 32, "num_heads": 4},
    },
    "muse_glimmer_assistant": {"target_layer_ids": [1, 2], "block_size": 4},
}  # fmt: skip

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "time_series_transformer informer autoformer": {
        "prediction_length": 4, "context_length": 8, "num_time_features": 2, "d_model": 16,
        "lags_sequence": [1, 2, 3],
    },
    "autoformer": {"label_length": 4, "moving_average": 5},
    "hiera": {
        "image_size": (64, 64), "embed_dim": 16, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4),
    },
    "levit": {
        "image_size": 64, "hidden_sizes": (16, 32, 48), "num_attention_heads": (2, 2, 2),
        "depths": (1, 1, 1), "key_dim": (8, 8, 8),
    },
    "lw_detr": {
        "backbone_config": {
            "model_type": "lw_detr_vit", "image_size": 64, "hidden_size": 32, "patch_size": 4,
            "num_hidden_layers": 4, "num_attention_heads": 4, "window_block_indices": [0, 2],
            "out_indices": [1, 3], "pretrain_image_size": 64,
        },
        "projector_scale_factors": [1.0], "d_model": 32, "decoder_ffn_dim": 48, "group_detr": 2,
        "decoder_layers": 2, "decoder_self_attention_heads": 4, "num_queries": 6,
        "decoder_cross_attention_heads": 4, "decoder_n_points": 2,
    },
    "rf_detr": {
        "backbone_config": {
            "model_type": "rf_detr_dinov2", "image_size": 64, "hidden_size": 32, "patch_size": 4,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_windows": 2,
            "window_block_indexes": [0, 2], "out_features": ["stage2", "stage4"],
        },
        "d_model": 32, "decoder_ffn_dim": 48, "group_detr": 2, "decoder_layers": 2,
        "decoder_self_attention_heads": 4, "num_queries": 6, "intermediate_size": 48,
        "decoder_cross_attention_heads": 4, "decoder_n_points": 2,
    },
    "gemma3n_text": {
        "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8, "laurel_rank": 4,
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0], "pad_token_id": 0,
    },
    "patchtst": {
        "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16, "ffn_dim": 32,
        "num_input_channels": 2, "num_hidden_layers": 2, "prediction_length": 4,
    },
    "patchtsmixer": {
        "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 8,
        "num_input_channels": 2, "num_layers": 2, "prediction_length": 4,
    },
    "reformer": {
        "axial_pos_embds": False, "attention_head_size": 8, "hidden_size": 32, "num_buckets": 2,
        "num_attention_heads": 4, "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4,
        "feed_forward_size": 48, "attn_layers": ("local", "lsh"), "vocab_size": 99,
        "max_position_embeddings": 64,
    },
    "seggpt": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": (64, 32),
        "patch_size": 8, "mlp_dim": 48, "decoder_hidden_size": 16, "pretrain_image_size": 32,
        "merge_index": 0, "intermediate_hidden_state_indices": (0, 1),
    },
    "timesfm timesfm2_5": {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 4, "context_length": 64, "horizon_length": 16, "patch_length": 8,
    },
    "timesfm2_5": {"num_key_value_heads": 4, "output_quantile_len": 16},
    "efficientloftr": {
        "stage_num_blocks": [1, 1, 1, 1], "out_features": [8, 8, 16, 32], "hidden_size": 32,
        "num_attention_heads": 8, "num_attention_layers": 1,
    },
    "timm_backbone": {"backbone": "resnet18", "out_indices": [1, 2]},
    "depth_pro": {
        "patch_size": 16, "fusion_hidden_size": 16, "intermediate_hook_ids": (1, 0),
        "intermediate_feature_dims": (16, 16), "scaled_images_feature_dims": (16, 16, 16),
        "image_model_config": (_dino := {
            "model_type": "dinov2", "image_size": 16, "patch_size": 2, "hidden_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 4,
        }),
        "patch_model_config": _dino, "fov_model_config": _dino,
    },
}  # fmt: skip


def _by_name(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for names, settings in table.items():
        for name in names.split():
            result[name] = result.get(name, {}) | settings
    return result


SIZES, ARGUMENTS = _by_name(_SIZES), _by_name(_ARGUMENTS)


def apply(config: Any, settings: dict[str, Any]) -> None:
    """Sets the settings of a table of `SIZES` in a configuration and those it contains."""
    _everywhere(config, {name: value for name, value in settings.items() if "." not in name})
    for name, value in settings.items():
        if "." in name:
            *path, last = name.split(".")
            setattr(functools.reduce(getattr, filter(None, path), config), last, value)


def _everywhere(config: Any, settings: dict[str, Any], depth: int = 0) -> None:
    for name in settings.keys() & vars(config).keys():
        current, value = vars(config)[name], settings[name]
        both = isinstance(value, dict) and isinstance(current, dict)
        setattr(config, name, current | value if both else value)
    for part in tuple(vars(config).values()):
        if depth < 3 and hasattr(part, "to_dict") and hasattr(part, "model_type"):
            _everywhere(part, settings, depth + 1)
