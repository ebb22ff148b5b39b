"""`torch.package`: archives of modules' sources, pickled objects and files, read back elsewhere.

Reading an archive runs its code: open only archives whose origin is trusted.
"""

from flambeau.package.file_structure_representation import Directory
from flambeau.package.glob_group import GlobGroup
from flambeau.package.importer import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    sys_importer,
)
from flambeau.package.mangling import is_from_package
from flambeau.package.package_exporter import EmptyMatchError, PackageExporter, PackagingError
from flambeau.package.package_importer import PackageImporter

__all__ = [
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
    "is_from_package",
    "sys_importer",
]
