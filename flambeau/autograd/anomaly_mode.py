"""`torch.autograd.anomaly_mode`: PyTorch's home of anomaly detection."""

from flambeau.autograd.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
