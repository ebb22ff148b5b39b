"""`torch.utils.tensorboard`: writes what TensorBoard shows, with the package `tensorboard`."""

try:
    import tensorboard
except ImportError as error:
    raise ImportError(
        "[tensorboard] the package `tensorboard` is not installed\n"
        "hint: pip install tensorboard (1.15 or newer)"
    ) from error

from tensorboard.summary.writer.record_writer import RecordWriter

from flambeau.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
