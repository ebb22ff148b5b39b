"""diffusers: denoisers, autoencoders and whole denoising loops, at small sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import diffusers
import torch

from tests.libraries.cases import Case, Program

TEXT = 24  # width of encoded prompts
UNET = {
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "sample_size": 16,
}
CROSS = {
    **UNET,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "cross_attention_dim": TEXT,
    "attention_head_dim": 8,
}
CONDITIONED = {**CROSS, "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "sample_size": 8}
VAE = {
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "latent_channels": 4,
}


def noise(*size: int) -> torch.Tensor:
    """Standard normal numbers from a fixed seed."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def model(name: str, options: dict[str, Any], *args: Any, **kwargs: Any) -> Case:
    """A model of a class of diffusers and its call."""
    return Case(getattr(diffusers, name)(**options), args, kwargs)


STEPS = torch.tensor([7, 300])
PROMPT = noise(2, 6, TEXT)
LATENT = noise(2, 4, 16, 16)
SD3 = {
    **HEADS, "in_channels": 4, "out_channels": 4, "joint_attention_dim": TEXT,
    "caption_projection_dim": 32, "pooled_projection_dim": 16, "pos_embed_max_size": 16,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "unet_2d": (
        "UNet2DModel",
        {
            **UNET,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        (noise(2, 3, 16, 16), STEPS),
        {},
    ),
    "unet_2d_condition": ("UNet2DConditionModel", CONDITIONED, (LATENT, STEPS, PROMPT), {}),
    "unet_2d_condition_linear": (
        "UNet2DConditionModel",
        CONDITIONED | {"use_linear_projection": True, "resnet_time_scale_shift": "scale_shift"},
        (LATENT, STEPS, PROMPT),
        {},
    ),
    "unet_1d": (
        "UNet1DModel",
        {
            "block_out_channels": (16, 16, 32), "in_channels": 14, "out_channels": 14,
            "time_embedding_type": "positional", "use_timestep_embedding": True,
            "down_block_types": ("DownResnetBlock1D",) * 3,
            "up_block_types": ("UpResnetBlock1D",) * 2, "mid_block_type": "MidResTemporalBlock1D",
            "out_block_type": "OutConv1DBlock", "act_fn": "swish", "layers_per_block": 1,
            "downsample_each_block": False,
        },
        (noise(2, 14, 16), STEPS),
        {},
    ),
    "unet_3d_condition": (
        "UNet3DConditionModel",
        {
            **UNET,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
            "cross_attention_dim": TEXT,
            "attention_head_dim": 8,
        },
        (noise(1, 4, 3, 16, 16), STEPS[:1], PROMPT[:1]),
        {},
    ),
    "controlnet": (
        "ControlNetModel",
        {name: CROSS[name] for name in CROSS if name != "sample_size"}
        | {"conditioning_embedding_out_channels": (8, 16)},
        (LATENT, STEPS, PROMPT, noise(2, 3, 32, 32)),
        {},
    ),
    "autoencoder_kl": ("AutoencoderKL", VAE, (noise(2, 3, 32, 32),), {}),
    "vq_model": (
        "VQModel",
        VAE | {"latent_channels": 3, "num_vq_embeddings": 32},
        (noise(2, 3, 32, 32),),
        {},
    ),
    "autoencoder_tiny": (
        "AutoencoderTiny",
        {
            "encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1),
        },
        (noise(2, 3, 32, 32),),
        {},
    ),
    "dit": (
        "DiTTransformer2DModel",
        {**HEADS, "in_channels": 4, "norm_num_groups": 4, "num_embeds_ada_norm": 1000},
        (noise(2, 4, 8, 8), STEPS, torch.tensor([1, 5])),
        {},
    ),
    "pixart": (
        "PixArtTransformer2DModel",
        {
            **HEADS, "in_channels": 4, "out_channels": 8, "cross_attention_dim": 32,
            "caption_channels": TEXT, "num_embeds_ada_norm": 1000, "norm_num_groups": 1,
        },
        (noise(2, 4, 8, 8), PROMPT, STEPS),
        {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    "sd3": (
        "SD3Transformer2DModel",
        SD3,
        (noise(2, 4, 8, 8), PROMPT, noise(2, 16), STEPS),
        {},
    ),
    "flux": (
        "FluxTransformer2DModel",
        {
            "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
            "num_attention_heads": 2, "joint_attention_dim": TEXT, "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
        (noise(2, 16, 4), PROMPT, noise(2, 16), STEPS / 1000),
        {"img_ids": noise(16, 3).round(), "txt_ids": torch.zeros(6, 3)},
    ),
    "prior": (
        "PriorTransformer",
        {
            "num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 2,
            "embedding_dim": TEXT, "num_embeddings": 6,
        },
        (noise(2, TEXT), STEPS, noise(2, TEXT) + 1, PROMPT),
        {},
    ),
    "auraflow": (
        "AuraFlowTransformer2DModel",
        {
            "sample_size": 8, "in_channels": 4, "num_mmdit_layers": 1, "num_single_dit_layers": 1,
            "attention_head_dim": 8, "num_attention_heads": 4, "joint_attention_dim": TEXT,
            "caption_projection_dim": 32, "pos_embed_max_size": 64,
        },
        (noise(2, 4, 8, 8), PROMPT, STEPS / 1000),
        {},
    ),
    "sana": (
        "SanaTransformer2DModel",
        {
            "in_channels": 4, "out_channels": 4, "num_attention_heads": 2,
            "attention_head_dim": 16, "num_layers": 1, "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": TEXT,
            "sample_size": 8,
        },
        (noise(2, 4, 8, 8), PROMPT, STEPS),
        {},
    ),
    "wan": (
        "WanTransformer3DModel",
        {
            "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4,
            "out_channels": 4, "text_dim": TEXT, "freq_dim": 32, "ffn_dim": 32, "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        (noise(1, 4, 2, 8, 8), STEPS[:1], PROMPT[:1]),
        {},
    ),
    "ltx": (
        "LTXVideoTransformer3DModel",
        {
            "in_channels": 4, "out_channels": 4, "num_attention_heads": 2,
            "attention_head_dim": 16, "cross_attention_dim": 32, "num_layers": 1,
            "caption_channels": TEXT,
        },
        (noise(2, 32, 4), PROMPT, STEPS, torch.ones(2, 6).bool()),
        {"num_frames": 2, "height": 4, "width": 4},
    ),
    "hunyuan_dit": (
        "HunyuanDiT2DModel",
        {
            "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4,
            "patch_size": 2, "sample_size": 8, "hidden_size": 32, "num_layers": 2,
            "cross_attention_dim": TEXT, "cross_attention_dim_t5": TEXT,
            "pooled_projection_dim": 16, "text_len": 6, "text_len_t5": 6,
            "use_style_cond_and_image_meta_size": False,
        },
        (noise(2, 4, 8, 8), STEPS.float(), PROMPT, torch.ones(2, 6), PROMPT + 1, torch.ones(2, 6)),
        {"image_rotary_emb": (torch.ones(16, 16), torch.zeros(16, 16))},
    ),
    "cogview4": (
        "CogView4Transformer2DModel",
        {
            "in_channels": 4, "out_channels": 4, "num_layers": 2, "attention_head_dim": 16,
            "num_attention_heads": 2, "text_embed_dim": TEXT, "time_embed_dim": 16,
            "condition_dim": 8, "rope_axes_dim": (8, 8),
        },
        (noise(2, 4, 8, 8), PROMPT, STEPS, *(torch.tensor([[64.0, 64.0]] * 2),) * 2,
         torch.zeros(2, 2)),
        {},
    ),
}  # fmt: skip

SCHEDULERS = (
    "DDPMScheduler DDIMScheduler PNDMScheduler EulerDiscreteScheduler HeunDiscreteScheduler "
    "EulerAncestralDiscreteScheduler LMSDiscreteScheduler DPMSolverMultistepScheduler "
    "DPMSolverSinglestepScheduler KDPM2DiscreteScheduler KDPM2AncestralDiscreteScheduler "
    "DEISMultistepScheduler UniPCMultistepScheduler LCMScheduler EDMEulerScheduler "
    "FlowMatchEulerDiscreteScheduler TCDScheduler SASolverScheduler"
).split()


def loop(name: str) -> Program:
    """Every step of a scheduler, from noise to an image, with a UNet that was drawn at random."""

    def run() -> Any:
        torch.manual_seed(0)
        unet = MODELS["unet_2d"]
        denoiser = diffusers.UNet2DModel(**unet[1]).eval()
        scheduler = getattr(diffusers, name)()
        scheduler.set_timesteps(5)
        generator = torch.Generator().manual_seed(2)
        sample = torch.randn(1, 3, 16, 16, generator=generator)
        sample = sample * getattr(scheduler, "init_noise_sigma", 1.0)
        options = {"generator": generator} if name not in WITHOUT_GENERATOR else {}
        with torch.no_grad():
            for step in scheduler.timesteps:
                scaled = sample
                if hasattr(scheduler, "scale_model_input"):
                    scaled = scheduler.scale_model_input(sample, step)
                predicted = denoiser(scaled, step).sample
                sample = scheduler.step(predicted, step, sample, **options).prev_sample
        return sample

    return Program(run)


WITHOUT_GENERATOR = (
    "PNDMScheduler HeunDiscreteScheduler LMSDiscreteScheduler KDPM2DiscreteScheduler "
    "DEISMultistepScheduler UniPCMultistepScheduler DPMSolverSinglestepScheduler"
).split()


def text_to_image() -> Program:
    """Stable Diffusion's pipeline without its tokenizer: guidance, five steps, decoded image."""

    def run() -> Any:
        torch.manual_seed(0)
        pipeline = diffusers.StableDiffusionPipeline(
            vae=diffusers.AutoencoderKL(**VAE),
            text_encoder=None,
            tokenizer=None,
            unet=diffusers.UNet2DConditionModel(**CONDITIONED),
            scheduler=diffusers.DDIMScheduler(),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        pipeline.set_progress_bar_config(disable=True)
        image = pipeline(
            prompt_embeds=PROMPT[:1],
            negative_prompt_embeds=PROMPT[1:],
            num_inference_steps=5,
            generator=torch.Generator().manual_seed(4),
            output_type="pt",
        ).images
        return image

    return Program(run)


def training() -> Program:
    """Ten steps of training with an average of the weights and a schedule, then its losses."""

    def run() -> Any:
        from diffusers.optimization import get_cosine_schedule_with_warmup
        from diffusers.training_utils import EMAModel

        torch.manual_seed(0)
        denoiser = diffusers.UNet2DModel(**MODELS["unet_2d"][1])
        scheduler = diffusers.DDPMScheduler()
        optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-3)
        rates = get_cosine_schedule_with_warmup(optimizer, 2, 10)
        average = EMAModel(denoiser.parameters())
        losses = []
        for step in range(5):
            images, drawn = noise(2, 3, 16, 16), noise(2, 3, 16, 16) + step
            steps = torch.tensor([step * 100, step * 7])
            predicted = denoiser(scheduler.add_noise(images, drawn, steps), steps).sample
            loss = torch.nn.functional.mse_loss(predicted, drawn)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
            average.step(denoiser.parameters())
            losses.append(loss.detach())
        return torch.stack(losses)

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(model, kind, options, *args, **kwargs)
    for name, (kind, options, args, kwargs) in MODELS.items()
}
CASES |= {f"loop_{name}": functools.partial(loop, name) for name in SCHEDULERS}
CASES |= {"text_to_image": text_to_image, "training": training}
