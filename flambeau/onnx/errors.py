"""`torch.onnx.errors`: exceptions of exports, for programs that name them."""


class OnnxExporterError(RuntimeError):
    """Base of the exceptions of exports to ONNX."""


class OnnxExporterWarning(UserWarning):
    """Base of the warnings of exports to ONNX."""


class UnsupportedOperatorError(OnnxExporterError):
    """PyTorch: an operator that ONNX has not. Never raised here."""


class SymbolicValueError(OnnxExporterError):
    """PyTorch: a value that does not fit an operator of ONNX. Never raised here."""
