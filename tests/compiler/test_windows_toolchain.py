"""Command lines of Windows compilers: flags, OpenMP, names of files. Nothing is run."""

import subprocess

import pytest

from flambeau.compiler import windows_toolchain
from flambeau.compiler.targets import COMMON_FLAGS, TARGETS
from flambeau.compiler.windows_toolchain import COMPILERS, compiler, file_name

X86 = ("avx512", "avx2", "generic")


def line(name, output, target="avx2", **options):
    return compiler(name).command_line(["kernels.c"], TARGETS[target], output, **options)


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("target", X86)
def test_flags_of_every_target(name, target):
    flags = compiler(name).flags(TARGETS[target])
    assert {"/nologo", "/MD", "/O2", "/fp:precise"} <= set(flags)
    arch = {"avx512": ["/arch:AVX512"], "avx2": ["/arch:AVX2"], "generic": []}[target]
    assert [flag for flag in flags if flag.startswith("/arch")] == arch
    assert all(flag.startswith("/") for flag in flags)
    assert len(flags) == len(set(flags))
    assert not [flag for flag in flags if "openmp" in flag or "fPIC" in flag]


@pytest.mark.parametrize("name", ("clang-cl", "icx-cl"))
def test_flags_of_the_promise_about_numbers_are_passed_on(name):
    flags = compiler(name).flags(TARGETS["avx2"])
    for flag in ("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-std=gnu11"):
        assert flag in COMMON_FLAGS and f"/clang:{flag}" in flags


def test_cl_gets_no_flags_of_gcc():
    flags = compiler("cl").flags(TARGETS["avx512"])
    assert "/std:c11" in flags and not [flag for flag in flags if "clang" in flag]


@pytest.mark.parametrize(
    ("name", "flags", "libraries"),
    [
        ("cl", ["/openmp", "/openmp:experimental"], []),
        ("clang-cl", ["/openmp"], ["libomp.lib"]),
        ("icx-cl", ["/Qiopenmp"], ["libiomp5md.lib"]),
    ],
)
def test_openmp(name, flags, libraries):
    """The runtime is linked, not named where only an object file is made."""
    with_pragmas = line(name, "k.dll", openmp=True)
    assert [each for each in with_pragmas if "openmp" in each] == flags
    assert [each for each in with_pragmas if each.endswith(".lib")] == libraries
    assert not [each for each in line(name, "k.obj", openmp=True) if each.endswith(".lib")]


@pytest.mark.parametrize("name", COMPILERS)
def test_a_library(name):
    arguments = line(
        name, "out/kernels.dll", objects=["a.obj"], exports=["fb_0"],
        include_dirs=["C:/Program Files/include"], library_dirs=["C:/libs"],
        libraries=["python311"],
    )  # fmt: skip
    before, after = (arguments[: arguments.index("/link")], arguments[arguments.index("/link") :])
    assert before[0] == name
    assert before[-5:] == ["/TC", "kernels.c", "a.obj", r"/Feout\kernels.dll", "/LD"]
    assert r"/IC:\Program Files\include" in before
    assert after == ["/link", r"/LIBPATH:C:\libs", "python311.lib", "/EXPORT:fb_0"]
    assert r'"/IC:\Program Files\include"' in subprocess.list2cmdline(arguments)


@pytest.mark.parametrize("name", COMPILERS)
def test_an_object_file(name):
    arguments = line(name, "/tmp/kernels.obj")
    assert arguments[-4:] == ["/c", "/TC", "kernels.c", r"/Fo\tmp\kernels.obj"]
    assert "/LD" not in arguments and "/link" not in arguments


def test_names():
    assert file_name("kernels", "library") == "kernels.dll"
    assert file_name("extension", "module") == "extension.pyd"
    assert file_name("kernels", "object") == "kernels.obj"
    assert line("cl", "extension.pyd")[-3:] == ["/Feextension.pyd", "/LD", "/link"]
    with pytest.raises(ValueError, match=r"cannot make 'kernels\.so'"):
        line("cl", "kernels.so")


def test_programs():
    assert compiler(r"C:\Program Files\LLVM\bin\CLANG-CL.exe").dialect is COMPILERS["clang-cl"]
    assert compiler("C:/oneapi/bin/icx-cl").dialect is COMPILERS["icx-cl"]
    with pytest.raises(ValueError, match="cl, clang-cl, icx-cl"):
        compiler("gcc")
    with pytest.raises(NotImplementedError, match="neon"):
        windows_toolchain.compiler("cl").flags(TARGETS["neon"])
