"""`torch.utils.data._utils`: parts of the loader under PyTorch's private module names."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker

MP_STATUS_CHECK_INTERVAL = 5.0
HAS_NUMPY = True
python_exit_status = False
