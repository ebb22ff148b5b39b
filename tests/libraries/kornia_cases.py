"""kornia: functions of images and geometry, layers, losses and augmentations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import kornia
import torch

from tests.libraries.cases import Case, Program


def image(channels: int = 3, size: int = 24, batch: int = 2) -> torch.Tensor:
    """Numbers in [0, 1) from a fixed seed."""
    generator = torch.Generator().manual_seed(5)
    return torch.rand(batch, channels, size, size, generator=generator)


SQUARE = torch.tensor([[[2.0, 3.0], [20.0, 4.0], [21.0, 19.0], [1.0, 22.0]]]).repeat(2, 1, 1)
ANGLES = torch.tensor([20.0, -35.0])
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "hsv": kornia.color.rgb_to_hsv,
    "hls": kornia.color.rgb_to_hls,
    "lab": kornia.color.rgb_to_lab,
    "luv": kornia.color.rgb_to_luv,
    "yuv": kornia.color.rgb_to_yuv,
    "xyz": kornia.color.rgb_to_xyz,
    "ycbcr": kornia.color.rgb_to_ycbcr,
    "grayscale": kornia.color.rgb_to_grayscale,
    "gaussian": lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
    "bilateral": lambda x: kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    "median": lambda x: kornia.filters.median_blur(x, (3, 3)),
    "box": lambda x: kornia.filters.box_blur(x, (3, 3)),
    "sobel": kornia.filters.sobel,
    "laplacian": lambda x: kornia.filters.laplacian(x, 3),
    "canny": kornia.filters.canny,
    "unsharp": lambda x: kornia.filters.unsharp_mask(x, (3, 3), (1.5, 1.5)),
    "gradient": kornia.filters.spatial_gradient,
    "motion": lambda x: kornia.filters.motion_blur(x, 5, 35.0, 0.5),
    "dilation": lambda x: kornia.morphology.dilation(x, torch.ones(3, 3)),
    "opening": lambda x: kornia.morphology.opening(x, torch.ones(3, 3)),
    "gradient_morphology": lambda x: kornia.morphology.gradient(x, torch.ones(3, 3)),
    "equalize": kornia.enhance.equalize,
    "clahe": lambda x: kornia.enhance.equalize_clahe(x, 2.0, (2, 2)),
    "posterize": lambda x: kornia.enhance.posterize(x, 4),
    "gamma": lambda x: kornia.enhance.adjust_gamma(x, 0.6),
    "hue": lambda x: kornia.enhance.adjust_hue(x, 0.4),
    "contrast": lambda x: kornia.enhance.adjust_contrast(x, 0.7),
    "histogram": lambda x: kornia.enhance.image_histogram2d(x, n_bins=16),
    "sharpness": lambda x: kornia.enhance.sharpness(x, 0.5),
    "zca": lambda x: kornia.enhance.zca_whiten(x.flatten(1)[:, :20]),
    "rotate": lambda x: kornia.geometry.rotate(x, ANGLES),
    "scale": lambda x: kornia.geometry.scale(x, torch.tensor([[1.3, 0.8], [0.7, 1.2]])),
    "shear": lambda x: kornia.geometry.shear(x, torch.tensor([[0.2, 0.1], [0.0, 0.3]])),
    "resize": lambda x: kornia.geometry.resize(x, (17, 31), antialias=True),
    "perspective": lambda x: kornia.geometry.warp_perspective(
        x, kornia.geometry.get_perspective_transform(SQUARE, SQUARE.flip(1)), (24, 20)
    ),
    "elastic": lambda x: kornia.geometry.elastic_transform2d(x, image(2) * 2 - 1, (7, 7)),
    "pyramid": lambda x: kornia.geometry.build_pyramid(x, 3),
    "crops": lambda x: kornia.geometry.crop_and_resize(x, SQUARE, (9, 11)),
    "center_crop": lambda x: kornia.geometry.center_crop(x, (9, 11)),
    "harris": lambda x: kornia.feature.harris_response(x[:, :1]),
    "hessian": lambda x: kornia.feature.hessian_response(x[:, :1]),
    "dog": lambda x: kornia.feature.dog_response(x[:, :1, None]),
    "ssim": lambda x: kornia.metrics.ssim(x, x.flip(-1), 5),
    "psnr": lambda x: kornia.metrics.psnr(x, x.flip(-1), 1.0),
    "quaternion": lambda x: kornia.geometry.quaternion_to_rotation_matrix(x.reshape(-1, 4)),
    "axis": lambda x: kornia.geometry.axis_angle_to_rotation_matrix(x.reshape(-1, 3)[:50]),
    "distance": lambda x: kornia.contrib.distance_transform((x[:, :1] > 0.8).float()),
    "patches": lambda x: kornia.contrib.extract_tensor_patches(x, 8, stride=4),
    "components": lambda x: kornia.contrib.connected_components((x[:, :1] > 0.6).float()),
    "homography": lambda x: kornia.geometry.find_homography_dlt(SQUARE, SQUARE.flip(1) * 1.5),
    "jpeg": lambda x: kornia.enhance.jpeg_codec_differentiable(
        torch.nn.functional.interpolate(x, 32), torch.tensor([50.0, 80.0])
    ),
}
LOSSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "ssim": lambda x: kornia.losses.ssim_loss(x, image().flip(-1), 5),
    "dice": lambda x: kornia.losses.dice_loss(x, (image(1) * 3).long().squeeze(1)),
    "focal": lambda x: kornia.losses.focal_loss(x, (image(1) * 3).long().squeeze(1), 0.5).sum(),
    "tversky": lambda x: kornia.losses.tversky_loss(x, (image(1) * 3).long().squeeze(1), 0.5, 0.5),
    "lovasz": lambda x: kornia.losses.lovasz_softmax_loss(x, (image(1) * 3).long().squeeze(1)),
    "charbonnier": lambda x: kornia.losses.charbonnier_loss(x, image().flip(-1)).sum(),
    "total_variation": lambda x: kornia.losses.total_variation(x).sum(),
    "inverse_depth": lambda x: kornia.losses.inverse_depth_smoothness_loss(x[:, :1], image()),
    "ms_ssim": lambda x: kornia.losses.MS_SSIMLoss(sigmas=[0.5, 1.0])(x, image().flip(-1)),
}
MODULES: dict[str, Callable[[], Any]] = {
    "sift": lambda: kornia.feature.SIFTDescriptor(16),
    "hardnet": lambda: kornia.feature.HardNet(pretrained=False),
    "sosnet": lambda: kornia.feature.SOSNet(pretrained=False),
    "tfeat": lambda: kornia.feature.TFeat(pretrained=False),
    "hynet": lambda: kornia.feature.HyNet(pretrained=False),
}
AUGMENTATIONS = {
    "flip": {"name": "RandomHorizontalFlip", "p": 0.5},
    "affine": {"name": "RandomAffine", "degrees": 20.0, "translate": (0.1, 0.1), "p": 1.0},
    "rotation": {"name": "RandomRotation", "degrees": 30.0, "p": 1.0},
    "jitter": {"name": "ColorJitter", "brightness": 0.2, "contrast": 0.2, "saturation": 0.2,
               "hue": 0.1, "p": 1.0},
    "crop": {"name": "RandomResizedCrop", "size": (16, 16), "p": 1.0},
    "erasing": {"name": "RandomErasing", "p": 1.0},
    "noise": {"name": "RandomGaussianNoise", "p": 1.0},
    "perspective": {"name": "RandomPerspective", "p": 1.0},
    "mixup": {"name": "RandomCutMixV2", "p": 1.0},
}  # fmt: skip


def with_gradient(call: Callable[[torch.Tensor], Any]) -> Program:
    """A loss and its gradient by the image."""

    def run() -> Any:
        pixels = image().requires_grad_()
        loss = call(pixels)
        loss.backward()
        return [loss, pixels.grad]

    return Program(run)


def augmented(options: dict[str, Any]) -> Program:
    """An augmentation with parameters from a fixed seed."""

    def run() -> Any:
        arguments = dict(options)
        augmentation = getattr(kornia.augmentation, arguments.pop("name"))(**arguments)
        torch.manual_seed(9)
        return augmentation(image())

    return Program(run)


def patches(make: Callable[[], Any], size: int = 32) -> Case:
    """A descriptor of patches."""
    size = 16 if "SIFT" in str(make()) else size
    return Case(make(), (image(1, size, 4),), compiled=False)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(lambda call: Program(lambda: call(image())), call)
    for name, call in FUNCTIONS.items()
}
CASES |= {f"loss_{name}": functools.partial(with_gradient, call) for name, call in LOSSES.items()}
CASES |= {
    f"augmentation_{name}": functools.partial(augmented, options)
    for name, options in AUGMENTATIONS.items()
}
CASES |= {f"descriptor_{name}": functools.partial(patches, make) for name, make in MODULES.items()}
