"""Random host programs compute the same, bit for bit, in IREE's runtime and in ours."""

from __future__ import annotations

import shlex

import iree_program
import numpy as np
import pytest
from emulated_driver import COMPILER, emulated_driver
from iree_random import ELEMENTS, random_program
from iree_releases import installed

from coilpack import runtime
from coilpack.compiler.iree.emit import compile_command, write_folder
from coilpack.runtime.executable import write_executable
from coilpack.runtime.package import write_package

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


@pytest.mark.parametrize(
    "seeds", [range(6), *(pytest.param(range(n, n + 40), marks=pytest.mark.slow) for n in (100, 200, 300))], ids=str
)
def test_random_functions(tmp_path, request, seeds: range) -> None:
    releases = installed(request.config.getoption("--iree"))
    if not releases:
        pytest.skip("needs IREE's tools (extra `iree`)")
    program, folder, package = random_program(seeds), tmp_path / "program", tmp_path / "program.coil"
    image = {program.targets[0].images[0].entry: write_executable(iree_program.executable())}
    write_package(package, program, image, iree_program.storages())
    write_folder(folder, program, iree_program.executable(), iree_program.storages())
    x = np.random.default_rng().standard_normal(ELEMENTS).astype(np.float32)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    (tmp_path / "driver").mkdir()
    with emulated_driver(tmp_path / "driver") as (served, environment):
        for release in releases:
            release.checked(*shlex.split(compile_command(folder)))
            for signature in program.signatures:
                with runtime.open(package, device="emulator") as opened:  # anew each time, as state is in IREE's
                    expected = [result.numpy().tobytes() for result in opened(x, function=signature.name)]
                paths = [tmp_path / f"{number}.bin" for number in range(len(expected))]
                release.checked(
                    "iree-run-module",
                    "--device=cuda",
                    f"--module={folder / 'module.vmfb'}",
                    f"--parameters=model={folder / 'weights.safetensors'}",
                    f"--function={signature.name}",
                    f"--input={ELEMENTS}xf32=@{tmp_path / 'x.bin'}",
                    *(f"--output=@{path}" for path in paths),
                    environment=environment,
                )
                assert not served.errors
                found = [path.read_bytes() for path in paths]
                assert found == expected, f"{signature.name} of IREE {release.version}, for {x.tolist()}"
