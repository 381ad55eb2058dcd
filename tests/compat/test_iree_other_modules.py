"""What modules say besides their CUDA executables: what they need, other executables, parameters."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coilpack.cli.describe import describe
from coilpack.runtime.vmfb import ForeignExecutable, VmDependency, Vmfb, read_vmfb

FOLDER = Path(__file__).parent / "iree"
OTHER = FOLDER / "other"
DUMP = Path(shutil.which("iree-dump-module") or Path(sys.executable).with_name("iree-dump-module"))
HAL_5, HAL_7 = (VmDependency("hal", version, False) for version in (5, 7))
PARAMETERS = VmDependency("io_parameters", 0, False)
CUDA, VULKAN, VMVX, ELF = "cuda-nvptx-fb", "vulkan-spirv-fb", "vmvx-bytecode-fb", "embedded-elf-x86_64"

NEEDS = {
    "parameters-2.9.0": ([PARAMETERS, HAL_5], ["cuda"], [CUDA]),
    "parameters-3.13.0": ([PARAMETERS, HAL_7], ["cuda"], [CUDA]),
    "unscoped-2.9.0": ([PARAMETERS, HAL_5], ["cuda"], [CUDA]),
    "unscoped-3.13.0": ([PARAMETERS, HAL_7], ["cuda"], [CUDA]),
    "names-cuda-or-vulkan-3.13.0": ([HAL_7], ["cuda", "vulkan"], [CUDA, VULKAN]),
    "names-llvm-cpu-2.9.0": ([HAL_5], ["local*"], [ELF]),
    "names-llvm-cpu-3.13.0": ([HAL_7], ["local*"], [ELF]),
    "names-vmvx-2.9.0": ([HAL_5], ["local*"], [VMVX]),
    "names-vmvx-3.13.0": ([HAL_7], ["local*"], [VMVX]),
    "names-vulkan-3.13.0": ([HAL_7], ["vulkan"], [VULKAN]),
}
POINTWISE = ("decode$step_dispatch_0_elementwise_8_f32", "decode_step_dispatch_0_elementwise_8_f32")
EXPORTS = {
    "names-vmvx-2.9.0": (*POINTWISE, "row$max_dispatch_0_generic_16x64_f32"),
    "names-vmvx-3.13.0": (*POINTWISE, "row$max_dispatch_0_reduction_16x64_f32"),
}


def path_of(name: str) -> Path:
    return OTHER / f"{name}.vmfb" if name in NEEDS else FOLDER / f"{name}.vmfb"


def read(name: str) -> Vmfb:
    return read_vmfb(path_of(name).read_bytes(), file=name)


def test_every_file_is_expected():
    assert sorted(path.stem for path in OTHER.glob("*.vmfb")) == sorted(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_needs(name):
    module = read(name)
    dependencies, devices, formats = NEEDS[name]
    assert list(module.dependencies) == dependencies
    assert (list(module.devices), list(module.formats)) == (devices, formats)
    assert len(module.executables) == (CUDA in formats)
    if CUDA not in formats:  # each of the others is an entry of its own in the archive
        with zipfile.ZipFile(path_of(name)) as archive:
            sizes = [entry.file_size for entry in archive.infolist() if entry.filename != "module.fb"]
        exports = EXPORTS.get(name)
        expected = [ForeignExecutable(formats[0], size, at, exports) for at, size in enumerate(sizes, 4)]
        assert list(module.other_executables) == expected
    if PARAMETERS in dependencies:
        assert module.parameter_scopes == (() if "unscoped" in name else ("model", "other"))
        assert module.parameter_keys == ("layer.weight", "b", "scale$1")
    else:
        assert (module.parameter_scopes, module.parameter_keys) == ((), ())


def test_types_of_integers():
    (main,) = describe(path_of("parameters-3.13.0"))["functions"]
    assert main["inputs"] == [{"name": "input0", "type": "tensor<64xf32>"}, {"name": "input1", "type": "i32"}]
    assert main["calling_convention"] == "0ri_ri"


@pytest.mark.skipif(not DUMP.exists(), reason="needs iree-base-runtime (extra `iree`)")
@pytest.mark.parametrize("name", ["parameters-2.9.0", "parameters-3.13.0", "names-vmvx-3.13.0", "names_dyn-3.6.0"])
def test_against_iree_dump_module(name):
    """IREE's own tool prints the same imports, exports, dependencies and segments."""
    dump = subprocess.run([DUMP, "--output=metadata", path_of(name)], capture_output=True, text=True, check=True).stdout
    lines = [" ".join(line.split()) for line in dump.splitlines()]
    module, described = read(name), describe(path_of(name))

    def listed(title: str) -> list[str]:
        rest = lines[lines.index(f"{title}:") + 1 :]
        section = rest[: rest.index("")]
        return [line.split("] ", 1)[1] for line in section if line.startswith("[")] or section

    imports = [f"{imported['name']}{imported['signature']}" for imported in described["imports"]]
    assert listed("Imported Functions") == imports
    exports = [line.split("(")[0] for line in listed("Exported Functions")]
    assert exports == [function.name for function in module.functions]
    needed = [f"{needed.name}, version >= {needed.minimum_version}, required" for needed in module.dependencies]
    assert listed("Module Dependencies") == needed
    segments = [line.split("] ", 1)[1].split() for line in lines if line.startswith(".rodata[")]
    places = [("embedded" if segment.embedded else "external", str(segment.nbytes)) for segment in module.rodata]
    assert [(words[0], words[1]) for words in segments] == places
