"""`torch.utils.model_zoo`: checkpoints by their address, under the older name."""

from flambeau.hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url
