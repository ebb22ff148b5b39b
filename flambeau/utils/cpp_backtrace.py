"""`torch.utils.cpp_backtrace`: the stack of calls as text."""

from flambeau.utils.naming import get_cpp_backtrace

__all__ = ["get_cpp_backtrace"]
