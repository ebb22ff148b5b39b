"""torchaudio: its models at small sizes, transforms and functions of signals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torchaudio
from torchaudio import functional, models, transforms

from tests.libraries.cases import Case, Program

LENGTHS = torch.tensor([12, 9])
ENCODER = {
    "extractor_mode": "group_norm", "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2)],
    "extractor_conv_bias": False, "encoder_embed_dim": 32, "encoder_projection_dropout": 0.0,
    "encoder_pos_conv_kernel": 8, "encoder_pos_conv_groups": 2, "encoder_num_layers": 2,
    "encoder_num_heads": 2, "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 48,
    "encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_norm_first": False,
    "encoder_layer_drop": 0.0, "aux_num_out": 10,
}  # fmt: skip


def noise(*size: int) -> torch.Tensor:
    """Standard normal numbers from a fixed seed."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def wave(samples: int = 1600) -> torch.Tensor:
    """Two channels of a chord."""
    time = torch.arange(samples) / 8000
    return torch.stack([(2 * math.pi * f * time).sin() + 0.1 * noise(samples) for f in (220, 447)])


def tacotron() -> Case:
    """Tacotron 2 with teacher forcing; its dropout is always on."""
    model = models.Tacotron2(
        n_symbol=20, symbol_embedding_dim=16, encoder_embedding_dim=16, n_mels=8,
        encoder_n_convolution=2, encoder_kernel_size=3, decoder_rnn_dim=24, prenet_dim=12,
        attention_rnn_dim=24, attention_hidden_dim=12, attention_location_n_filter=4,
        attention_location_kernel_size=5, postnet_n_convolution=2, postnet_kernel_size=3,
        postnet_embedding_dim=16,
    )  # fmt: skip
    tokens = torch.arange(14).reshape(2, 7)
    lengths = torch.tensor([7, 6])
    return Case(model, (tokens, lengths, noise(2, 8, 6), torch.tensor([6, 5])), compiled=False)


MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "wav2vec2": (lambda: models.wav2vec2_model(**ENCODER), (noise(2, 400),)),
    "wav2vec2_layer_norm": (
        lambda: models.wav2vec2_model(
            **(
                ENCODER
                | {
                    "extractor_mode": "layer_norm",
                    "extractor_conv_bias": True,
                    "encoder_layer_norm_first": True,
                }
            )
        ),
        (noise(2, 400), torch.tensor([400, 300])),
    ),
    "wavlm": (
        lambda: models.wavlm_model(**ENCODER, encoder_num_buckets=8, encoder_max_distance=16),
        (noise(2, 400),),
    ),
    "conformer": (
        lambda: models.Conformer(16, 4, 32, 2, depthwise_conv_kernel_size=7),
        (noise(2, 12, 16), LENGTHS),
    ),
    "conformer_group_norm": (
        lambda: models.Conformer(16, 4, 32, 2, 7, use_group_norm=True, convolution_first=True),
        (noise(2, 12, 16), LENGTHS),
    ),
    "conv_tasnet": (
        lambda: models.ConvTasNet(2, 16, 32, 3, 16, 32, 2, 2),
        (noise(2, 1, 400),),
    ),
    "deep_speech": (lambda: models.DeepSpeech(16, n_hidden=32, n_class=10), (noise(2, 1, 12, 16),)),
    "emformer": (
        lambda: models.Emformer(32, 2, 48, 2, segment_length=4, right_context_length=1),
        (noise(2, 13, 32), LENGTHS),
    ),
    "wav2letter": (
        lambda: models.Wav2Letter(num_classes=10, input_type="mfcc", num_features=13),
        (noise(1, 13, 40),),
    ),
    "wave_rnn": (
        lambda: models.WaveRNN([2, 2, 3], 16, 12, 2, 32, 32, 5, 20, 16, 16),
        (noise(1, 1, 72), noise(1, 1, 20, 10)),
    ),
    "squim_objective": (
        lambda: models.squim_objective_model(32, 64, 32, 2, 32, 1, "LSTM", 7, 3),
        (noise(1, 800),),
    ),
    "hdemucs": (
        lambda: models.HDemucs(["a", "b"], nfft=512, depth=4, channels=8),
        (noise(1, 2, 8192),),
    ),
    "rnnt": (
        lambda: models.emformer_rnnt_model(
            input_dim=16, encoding_dim=24, num_symbols=10, segment_length=4,
            right_context_length=4, time_reduction_input_dim=8, time_reduction_stride=4,
            transformer_num_heads=2, transformer_ffn_dim=32, transformer_num_layers=2,
            transformer_dropout=0.0, transformer_activation="gelu",
            transformer_left_context_length=4, transformer_max_memory_size=0,
            transformer_weight_init_scale_strategy="depthwise", transformer_tanh_on_mem=True,
            symbol_embedding_dim=16, num_lstm_layers=2, lstm_layer_norm=True,
            lstm_layer_norm_epsilon=1e-3, lstm_dropout=0.0,
        ),
        (noise(2, 16, 16), torch.tensor([12, 12]), torch.ones(2, 4, dtype=torch.int32),
         torch.tensor([4, 3], dtype=torch.int32)),
    ),
}  # fmt: skip

TRANSFORMS: dict[str, Callable[[], Any]] = {
    "spectrogram": lambda: transforms.Spectrogram(n_fft=200),
    "complex_spectrogram": lambda: transforms.Spectrogram(n_fft=200, power=None),
    "mel": lambda: transforms.MelSpectrogram(8000, n_fft=200, n_mels=16),
    "mfcc": lambda: transforms.MFCC(8000, 8, melkwargs={"n_fft": 200, "n_mels": 16}),
    "lfcc": lambda: transforms.LFCC(8000, 16, 8, speckwargs={"n_fft": 200}),
    "resample": lambda: transforms.Resample(8000, 6000),
    "resample_kaiser": lambda: transforms.Resample(
        8000, 16000, resampling_method="sinc_interp_kaiser"
    ),
    "mu_law": transforms.MuLawEncoding,
    "deltas": transforms.ComputeDeltas,
    "volume": lambda: transforms.Vol(0.5),
    "fade": lambda: transforms.Fade(100, 200, "logarithmic"),
    "preemphasis": transforms.Preemphasis,
    "deemphasis": transforms.Deemphasis,
    "centroid": lambda: transforms.SpectralCentroid(8000, n_fft=200),
    "pitch_shift": lambda: transforms.PitchShift(8000, 2, n_fft=200),
    "loudness": lambda: transforms.Loudness(8000),
}

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    name: functools.partial(lambda call, x: call(x), call)
    for name, call in {
        "bass": lambda x: functional.bass_biquad(x, 8000, 5.0),
        "lowpass": lambda x: functional.lowpass_biquad(x, 8000, 900),
        "highpass": lambda x: functional.highpass_biquad(x, 8000, 900),
        "equalizer": lambda x: functional.equalizer_biquad(x, 8000, 900, 3.0),
        "contrast": functional.contrast,
        "overdrive": lambda x: functional.overdrive(x[:, :200]),
        "phaser": lambda x: functional.phaser(x[:, :200], 8000),
        "filtfilt": lambda x: functional.filtfilt(
            x[:, :200], torch.tensor([1.0, -0.5]), torch.tensor([0.5, 0.2])
        ),
        "convolve": lambda x: functional.convolve(x, x[:, :50]),
        "fftconvolve": lambda x: functional.fftconvolve(x, x[:, :50]),
        "pitch": lambda x: functional.detect_pitch_frequency(x, 8000),
        "amplitude": lambda x: functional.amplitude_to_DB(x**2, 10.0, 1e-10, 0.0, 80.0),
        "sliding": lambda x: functional.sliding_window_cmn(x.reshape(2, 160, 10), 60, 20),
        "kaldi": lambda x: torchaudio.compliance.kaldi.fbank(x, sample_frequency=8000, dither=0.0),
    }.items()
}


def rnnt_loss() -> Case:
    """The loss of a transducer, with gradients of a linear layer before it."""

    class Joint(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            targets = torch.tensor([[1, 2], [3, 1]], dtype=torch.int32)
            lengths = torch.tensor([4, 3], dtype=torch.int32)
            ends = torch.tensor([2, 2], dtype=torch.int32)
            return functional.rnnt_loss(self.linear(x), targets, lengths, ends, blank=0)

    return Case(Joint(), (noise(2, 4, 3, 6),), compiled=False)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(lambda make, args: Case(make(), args), make, args)
    for name, (make, args) in MODELS.items()
}
CASES |= {
    f"transform_{name}": functools.partial(
        lambda make: Case(make(), (wave(),), backward=False), make
    )
    for name, make in TRANSFORMS.items()
}
CASES |= {
    f"function_{name}": functools.partial(lambda call: Program(lambda: call(wave())), call)
    for name, call in FUNCTIONS.items()
}
CASES |= {"tacotron2": tacotron, "rnnt_loss": rnnt_loss}
