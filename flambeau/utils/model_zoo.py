"""`torch.utils.model_zoo`: checkpoints by their address, under the older name."""

from flambeau.hub import _progress_bar, load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url
tqdm = _progress_bar()
