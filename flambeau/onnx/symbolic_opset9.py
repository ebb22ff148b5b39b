"""`torch.onnx.symbolic_opset9`: how operators are written with ONNX's operators; not here."""

from flambeau.onnx.symbolic_helper import symbolic_functions as _functions

globals()["__getattr__"] = _functions(__name__)
