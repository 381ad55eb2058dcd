"""`coilpack compile`: from a model to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coilpack.cli.sources import function_sources, require_compiler
from coilpack.cli.terminal import orderly_end, progress_printer

if TYPE_CHECKING:
    from coilpack.compiler.driver import CompileOptions, CompileReport, MatmulChoice
    from coilpack.compiler.emit import Emit, ImageChoice

_EMITTED: Mapping[str, Emit] = {".cda1": "cda1", ".txt": "text"}  # by the output's suffix


@click.command()
@click.argument("source", metavar="[IN]", required=False)
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="NAME=IN",
    help="A function of the package and what it is compiled from; repeat it instead of IN, which is the function main.",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file, or folder for IREE, to write."
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("sm_80",),
    show_default=True,
    metavar="ARCH",
    help="A GPU architecture, as sm_90; repeat it, or separate several by commas.",
)
@click.option(
    "--emit",
    type=click.Choice(["coil", "cda1", "text", "iree"]),
    help="A package, a bare executable of one target, the program as text, or a folder for iree-compile (default: a "
    "package, or what the output's suffix .cda1 or .txt says).",
)
@click.option(
    "--image",
    type=click.Choice(["ptx", "cubin", "both"]),
    help="Kernels as PTX, machine code, or both (default: both; ptx for cda1 and iree).",
)
@click.option("--ptx-version", metavar="N", help="PTX ISA version to write, as 8.4; older drivers take older ones.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes at a time (default: one a processor).")
@click.option("--tf32", is_flag=True, help="Multiply float32 matrices in TF32 instead of IEEE float32.")
@click.option(
    "--matmul",
    type=click.Choice(["triton", "cublaslt"]),
    default="triton",
    show_default=True,
    help="What multiplies matrices: kernels of the package, or NVIDIA's library, called when it runs.",
)
@click.option(
    "--candidates",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Configurations to keep of each kernel, for coilpack tune to choose among on a GPU.",
)
@click.option(
    "--tuning",
    type=click.Path(path_type=Path),
    metavar="REPORT",
    help="Take the configurations that coilpack tune found fastest, of which this is its report.",
)
@click.option("--signature", metavar="ITEMS", help='Of a Triton function, as "*fp32:16, *fp32, i32, 128".')
@click.option("--grid", metavar="SIZES", help='Its workgroups, as "cdiv(n, 128), 1, 1"; else each launch says them.')
@click.option("--num-warps", type=click.IntRange(min=1), metavar="N", help="Its warps (default: its tuner's, or 4).")
@click.option("--num-stages", type=click.IntRange(min=1), metavar="N", help="Its pipeline stages (default: likewise).")
@click.option("--no-cache", is_flag=True, help="Compile everything anew.")
def command(
    source: str | None,
    functions: Sequence[str],
    output: Path,
    targets: Sequence[str],
    emit: Emit | None,
    image: ImageChoice | None,
    ptx_version: str | None,
    jobs: int | None,
    tf32: bool,
    matmul: MatmulChoice,
    candidates: int,
    tuning: Path | None,
    signature: str | None,
    grid: str | None,
    num_warps: int | None,
    num_stages: int | None,
    no_cache: bool,
) -> None:
    """Compile IN into a file that runs without PyTorch.

    IN is a .pt2 file that torch.export.save wrote, or module.py:callable, where the callable returns a module and
    its example inputs. No GPU is needed, whatever the targets. It can be an MLIR file too, of which each public
    function is compiled under its own name; --function NAME=model.mlir:@FUNCTION takes one.

    Functions of one package share what is equal, weights and kernels, and each buffer that one of them changes with
    those of the same name.

    IN can also be kernels without a model: kernels.py:function, a @triton.jit function, with --signature; or a module
    that Inductor generated (output_code.py), whose kernels are all compiled and whose own code is not run.
    """
    if signature is None and (grid, num_warps, num_stages) != (None, None, None):
        raise click.UsageError("--grid, --num-warps and --num-stages belong to a Triton function, with --signature")
    if signature is not None and functions:
        raise click.UsageError("--signature belongs to IN, a Triton function, and not to --function")
    sources = function_sources(source, functions)
    require_compiler()
    from coilpack.compiler.cache import default_directory
    from coilpack.compiler.driver import CompileOptions, compile_kernels, compile_package
    from coilpack.compiler.kernel_options import KernelOptions
    from coilpack.compiler.mlir.sources import all_functions

    emit = emit or _EMITTED.get(output.suffix, "coil")
    options: CompileOptions = CompileOptions(
        targets=_split(targets),
        emit=emit,
        image=image or ("ptx" if emit in ("cda1", "iree") else "both"),
        ptx_version=ptx_version,
        jobs=jobs,
        cache=None if no_cache else default_directory(),
        float32_matmul_precision="high" if tf32 else "highest",
        matmul=matmul,
        candidates=candidates,
        tuning=tuning,
    )
    with orderly_end(), progress_printer() as progress:
        if source is not None and (signature is not None or source.endswith(".py")):
            kernel = None if signature is None else KernelOptions(signature, grid, num_warps, num_stages)
            report = compile_kernels(source, output, options, kernel, progress)
        else:
            functions_of_mlir = all_functions(source) if source is not None else {}
            report = compile_package(functions_of_mlir or sources, output, options, progress)
    click.echo(_summary(report))
    for next_command in report.next_commands:
        click.echo(next_command)


def _split(targets: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for item in targets for name in item.split(",") if name.strip())


def _summary(report: CompileReport) -> str:
    targets = ", ".join(target.name for target in report.program.targets)
    kernels = sum(len(target.kernels) for target in report.program.targets)
    cached = f"; from the cache: {', '.join(report.cached_targets)}" if report.cached_targets else ""
    return f"{report.output}: {report.nbytes} bytes, {kernels} kernels for {targets}{cached}"
