"""Finds the modules that a source text imports."""

from __future__ import annotations

import ast

__all__ = ["find_files_source_depends_on"]


def find_files_source_depends_on(source: str, package: str) -> list[tuple[str, str | None]]:
    """Pairs (module, name): `import a.b` gives ("a.b", None), `from a import b` ("a", "b").

    Args:
        source: the text.
        package: of the module, to which relative imports refer.
    """
    dependencies: dict[tuple[str, str | None], None] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            dependencies.update({(alias.name, None): None for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = package.split(".")
                base = parts[: len(parts) - node.level + 1]
                module = ".".join([*base, *([module] if module else [])])
            for alias in node.names:
                dependencies[(module, None if alias.name == "*" else alias.name)] = None
        elif _is_dynamic_import(node):
            dependencies[(node.args[0].value, None)] = None  # type: ignore[attr-defined]
    return list(dependencies)


def _is_dynamic_import(node: ast.AST) -> bool:
    """Whether a node is `__import__("name")`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "__import__"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )
