"""timm: the smallest model of each of its modules, on small images."""

from __future__ import annotations

import functools
from collections.abc import Callable

import timm
import torch

from tests.libraries.cases import Case, Program

SMALL = 64  # pixels; models with a fixed size get their own
FEWER: dict[str, dict[str, int]] = {  # blocks, where the smallest model has many parameters
    name: {"depth": 3}
    for name in (
        "beit_base_patch16_224",
        "samvit_base_patch16_224",
        "naflexvit_base_patch16_gap",
    )
}
OWN_SIZE = ("crossvit_tiny_240", "bat_resnext26ts", "halonet26t", "efficientformer_l1")


def image_model(name: str) -> Case:
    """A model without weights, of ten classes."""
    generator = torch.Generator().manual_seed(3)
    options = {"num_classes": 10} | FEWER.get(name, {})
    try:
        if name in OWN_SIZE:
            raise ValueError
        model = timm.create_model(name, img_size=SMALL, **options)
        size = (3, SMALL, SMALL)
    except (TypeError, AssertionError, ValueError, RuntimeError):
        model = timm.create_model(name, **options)
        settings = model.default_cfg
        fixed = any(map(settings.get, ("fixed_input_size", "min_input_size"))) or name in OWN_SIZE
        size = tuple(settings["input_size"]) if fixed else (3, 96, 96)
    return Case(model, (torch.randn(2, *size, generator=generator),))


# One or two small models of each family, those with few parameters first.
NAMES = """
test_efficientnet test_efficientnet_gn test_nfnet test_mambaout test_byobnet test_convnext
test_vit test_resnet test_vit2 lcnet_035 mobilenetv2_035 starnet_s050 mobilenetv3_small_050
mobilenetv4_conv_small_035 mnasnet_small tinynet_e semnasnet_050 mobilevit_xxs
tf_mobilenetv3_small_075 repghostnet_050 mobilevitv2_050 edgenext_xx_small ghostnet_050
efficientvit_b0 efficientvit_m0 regnetx_002 cs3darknet_s regnety_002 mobilenet_edgetpu_100
xcit_nano_12_p16_224 swiftformer_xs spnasnet_100 inception_next_atto efficientformerv2_s0
fastvit_t8 convnext_atto efficientnet_lite0 pvt_v2_b0 rexnet_100 fbnetc_100 hgnetv2_b0
hardcorenas_a tf_efficientnet_b0 mobileone_s0 pit_ti_224 gmlp_ti16_224 repvit_m0_9 resnet10t
tiny_vit_5m_224 coat_tiny eva02_tiny_patch14_224 convit_tiny deit_tiny_patch16_224
vit_tiny_patch16_224 beit_base_patch16_224 samvit_base_patch16_224 naflexvit_base_patch16_gap
ese_vovnet19b_dw shvit_s1 mambaout_femto gernet_s crossvit_tiny_240 densenet121 levit_128s
repvgg_a0 resnext26ts dpn48b eca_botnext26ts_256 resnest14d bat_resnext26ts lambda_resnet26t
visformer_tiny coatnet_pico_rw_224 botnet26t_256 halonet26t csatv2 gmixer_12_224 hrnet_w18_small
resnetv2_18 resnet18 efficientformer_l1 poolformer_s12 gcvit_xxtiny skresnet18 cait_xxs24_224
hgnet_tiny darknet17 nf_resnet26 resmlp_12_224 maxvit_nano_rw_256 dla34 nest_tiny mixer_s32_224
convmixer_768_32 cspresnet50 legacy_xception vovnet39a vit_relpos_small_patch16_224
vit_small_patch16_rope_224 inception_v3 vitamin_small_224 rdnet_tiny res2net50_14w_8s
tnt_s_legacy_patch16_224 mvitv2_tiny twins_pcpvt_small xception41 volo_d1_224 hiera_tiny_224
sequencer2d_s swin_tiny_patch4_window7_224 swinv2_cr_tiny_ns_224 swinv2_tiny_window8_256
davit_tiny focalnet_tiny_srf selecsls42 tresnet_m nextvit_small hieradet_small legacy_seresnet18
inception_v4 inception_resnet_v2 nfnet_f0 pnasnet5large nasnetalarge vgg11
""".split()

CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(image_model, name) for name in NAMES if timm.is_model(name)
}
