"""Generated code of graphs whose inputs and outputs are nested containers, and boxed arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.fx._codegen import CodeGen, _PyTreeInfo
from flambeau.utils import _pytree as pytree


class _BoxedCodeGen(CodeGen):
    """Takes all arguments in one list, which is emptied, so that they can be freed early."""

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The head of a function with the parameter `args_list`."""
        head = f"def {self._func_name}(self, args_list){maybe_return_annotation}:"
        names = [name for name in free_vars if name != "self"]
        if not names:
            return head
        plain = ", ".join(name.split(":")[0].split("=")[0].strip() for name in names)
        return f"{head}\n    {plain}, = args_list\n    args_list.clear()"


class _PyTreeCodeGen(CodeGen):
    """Flattens the arguments of a call by a recorded structure, and builds the result."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info: _PyTreeInfo = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        """The structure that the traced function returned."""
        if not isinstance(out, (list, tuple)):
            out = [out]
        if self.pytree_info.out_spec is None:
            raise AssertionError("pytree_info.out_spec is None, cannot unflatten outputs")
        return pytree.tree_unflatten(out, self.pytree_info.out_spec)

    def _format_annotations(self, free_vars: list[str], expanded_def: bool) -> str:
        typed = [name for name in free_vars if ":" in name]
        if not typed:
            return ""
        if expanded_def:
            return "".join(f"    {name}\n" for name in typed)
        names = [name.split(":")[0].strip() for name in typed]
        kinds = [name.split(":", 1)[1].split("#")[0].strip() for name in typed]
        return (
            "    "
            + "".join(f"{name}: {kind};  " for name, kind in zip(names, kinds, strict=True)).rstrip(
                "; "
            )
            + "\n"
        )

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The statement that flattens the arguments.

        Args:
            fn_args: names of the parameters.
            free_vars: names of the placeholders.
            expanded_def: whether annotations have a line each.
        """
        names = [name.split(":")[0].split("=")[0].strip() for name in free_vars]
        inputs = f"[{', '.join(fn_args)}]"
        return f"\n    {', '.join(names)}, = fx_pytree.tree_flatten_spec({inputs}, self._in_spec)"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The head of the function and the flattening of its arguments."""
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation)
        parameters = list(self.pytree_info.orig_args)
        has_self = bool(parameters) and parameters[0] == "self"
        if has_self:
            free_vars.insert(0, "self")
            parameters.pop(0)
        head = super().gen_fn_def(list(parameters), maybe_return_annotation)
        names = free_vars[1:] if has_self else free_vars
        if names:
            head += self.gen_var_bindings(parameters, names, expanded_def)
            annotations = self._format_annotations(names, expanded_def)
            head += "\n" + annotations.rstrip("\n") if annotations else ""
        return head

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The return statement, which builds the traced function's containers."""
        write = repr_fn or repr
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return super().generate_output(output_args, descs=descs, repr_fn=repr_fn)
        if descs is not None and isinstance(output_args, (list, tuple)):
            values = self._format_multiline_container(output_args, descs, "", write)
        else:
            values = write(output_args)
        return f"return pytree.tree_unflatten({values}, self._out_spec)"
