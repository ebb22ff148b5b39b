"""Compiled models that run without Python and without the native core: AOTInductor's packages."""
