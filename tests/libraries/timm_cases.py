"""timm: the smallest model of each of its modules, on small images."""

from __future__ import annotations

import functools
from collections.abc import Callable

import timm
import torch

from tests.libraries.cases import Case, Program

SMALL = 64  # pixels; models with a fixed size get their own


def image_model(name: str) -> Case:
    """A model without weights, of ten classes."""
    generator = torch.Generator().manual_seed(3)
    options = {"num_classes": 10}
    try:
        model = timm.create_model(name, img_size=SMALL, **options)
        size = (3, SMALL, SMALL)
    except (TypeError, AssertionError, ValueError, RuntimeError):
        model = timm.create_model(name, **options)
        settings = model.default_cfg
        fixed = settings.get("fixed_input_size") or settings.get("min_input_size")
        size = tuple(settings["input_size"]) if fixed else (3, 96, 96)
    return Case(model, (torch.randn(2, *size, generator=generator),))


# One or two small models of each family.
NAMES = """
beit_base_patch16_224 bat_resnext26ts cait_xxs24_224 coat_tiny coatnet_pico_rw_224 convit_tiny
convmixer_768_32 convnext_atto crossvit_tiny_240 cspresnet50 csatv2 davit_tiny
deit_tiny_patch16_224 densenet121 dla34 dpn48b edgenext_xx_small efficientformer_l1
efficientformerv2_s0 efficientvit_b0 efficientvit_m0 efficientnet_lite0 eva02_tiny_patch14_224
fastvit_t8 focalnet_tiny_srf fbnetc_100 gcvit_xxtiny gernet_s ghostnet_050 hgnet_tiny hgnetv2_b0
hiera_tiny_224 hieradet_small hrnet_w18_small inception_next_atto inception_resnet_v2 inception_v3
inception_v4 levit_128s lcnet_035 mambaout_femto maxvit_nano_rw_256 mvitv2_tiny poolformer_s12
mixer_s32_224 mnasnet_small mobilenetv2_035 mobilenetv3_small_050 mobilenetv4_conv_small_035
mobilevit_xxs mobilevitv2_050 mobileone_s0 naflexvit_base_patch16_gap nasnetalarge nest_tiny
nextvit_small nf_resnet26 nfnet_f0 pit_ti_224 pnasnet5large pvt_v2_b0 rdnet_tiny regnetx_002
regnety_002 repghostnet_050 repvgg_a0 repvit_m0_9 res2net50_14w_8s resmlp_12_224 resnest14d
resnet10t resnet18 resnetv2_18 resnext26ts rexnet_100 selecsls42 semnasnet_050 sequencer2d_s
shvit_s1 skresnet18 skresnet34 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224
swinv2_tiny_window8_256 swinv2_cr_tiny_ns_224 test_byobnet test_convnext test_efficientnet
test_efficientnet_gn test_nfnet test_resnet test_vit test_vit2 test_mambaout tf_efficientnet_b0
tf_mobilenetv3_small_075 tiny_vit_5m_224 tinynet_e tnt_s_legacy_patch16_224 tresnet_m
twins_pcpvt_small vgg11 vit_tiny_patch16_224 vit_relpos_small_patch16_224 visformer_tiny
vitamin_small_224 volo_d1_224 vovnet39a xception41 xcit_nano_12_p16_224 vit_small_patch16_rope_224
samvit_base_patch16_224 lambda_resnet26t halonet26t botnet26t_256 eca_botnext26ts_256
gmlp_ti16_224 gmixer_12_224 legacy_senet154 legacy_xception mobilenet_edgetpu_100 hardcorenas_a
spnasnet_100 cs3darknet_s darknet17 ese_vovnet19b_dw
""".split()

CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(image_model, name) for name in NAMES if timm.is_model(name)
}
