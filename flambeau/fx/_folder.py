"""`GraphModule.to_folder`: a module as a package of source and weights."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau.fx import _function_names
from flambeau.fx.graph_module import _format_import_block

# Modules that their repr can rebuild.
_BY_REPR = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
)  # fmt: skip


def write(module: Any, folder: Path, module_name: str) -> None:
    """Writes a graph module.

    Args:
        module: the module.
        folder: where to.
        module_name: the name of the class.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generated = module.graph.python_code(root_module="self")
    torch.save(module.state_dict(), folder / "state_dict.pt")
    names = _names(generated.globals)
    package = names.split()[-1] if " as " in names else "torch"
    body = [f"class {module_name}({package}.nn.Module):", "    def __init__(self):",
            "        super().__init__()"]  # fmt: skip
    body += [f"        {line}" for line in _members(module, folder)]
    body.append(f"        self.load_state_dict(torch.load(r'{folder}/state_dict.pt'))")
    code = "\n".join("    " + line if line else line for line in generated.src.split("\n"))
    block = _format_import_block(generated.globals)
    home = "torch.nn" if names == "import torch" else "flambeau.nn"
    text = f"\n{names}\n{block}\n\nfrom {home} import *\n" + "\n".join(body) + f"\n{code}\n"
    (folder / "module.py").write_text(text)
    (folder / "__init__.py").write_text("from .module import *")


def _names(names: dict[str, Any]) -> str:
    return _function_names.import_of("torch")


def _members(module: Any, folder: Path) -> list[str]:
    lines = []
    for name, child in module.named_children():
        text = repr(child)
        if type(child).__name__ in _BY_REPR:
            lines.append(f"setattr(self, {name!r}, {text})")
            continue
        path = folder / f"{name}.pt"
        comment = text.replace("\n", " ")
        lines.append(f"setattr(self, {name!r}, {_stored(child, path)}) # {comment}")
    for name, buffer in module._buffers.items():
        if buffer is not None:
            size = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
            lines.append(f"self.register_buffer({name!r}, {size})")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            size = f"torch.empty({list(parameter.shape)}, dtype={parameter.dtype})"
            lines.append(f"setattr(self, {name!r}, torch.nn.Parameter({size}))")
    return lines


def _stored(module: Any, path: Path) -> str:
    """Writes a module to a file; returns the expression that reads it."""
    try:
        torch.save(module, path)
    except TypeError:  # a file of weights alone
        path.write_bytes(pickle.dumps(module))
        return f"__import__('pickle').load(open(r'{path}', 'rb'))"
    return f"torch.load(r'{path}', weights_only=False)"
