"""From models to a package of the kernels that Inductor tuned for them on this machine's GPU."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.capture.host_graph import HostGraph, unchanged
from coilpack.compiler.emit import IMAGE_KINDS, ImageChoice, check_output, emit_package
from coilpack.compiler.freezing.example_inputs import exported_inputs
from coilpack.compiler.freezing.frozen_kernels import FrozenKernels
from coilpack.compiler.freezing.host_program import read_host_program
from coilpack.compiler.freezing.inductor_product import DeviceMemory, InductorProduct, compile_product, cuda_target
from coilpack.compiler.freezing.recorded_bundle import write_bundle
from coilpack.compiler.freezing.registration import Registration, register
from coilpack.compiler.freezing.settings import Mode, inductor_settings
from coilpack.compiler.frontends import export_callable, load_program
from coilpack.compiler.function_source import finished_function, function_sources, target_bundle
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.pt2 import Pt2File
from coilpack.compiler.python_file import python_callable
from coilpack.compiler.targets import Target
from coilpack.compiler.weights import Weights
from coilpack.runtime.atomic import write_atomically
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir

Progress = Callable[[str], None]
Model = torch.nn.Module | Callable[..., Any] | torch.export.ExportedProgram | str | Path


@dataclass(frozen=True)
class FreezeReport:
    """What was made.

    Attributes:
        output: the package.
        nbytes: its size.
        program: the program in it.
        bound: how many kernels of generated modules were bound.
        ignored: names of entries of bundles that no module names, one for each entry.
        cached: functions that Inductor's cache had: nothing of them was compiled.
        reassembled: kernels of which this machine's assembler makes other machine code than was measured.
    """

    output: Path
    nbytes: int
    program: ir.Program
    bound: int
    ignored: tuple[str, ...]
    cached: tuple[str, ...]
    reassembled: tuple[str, ...]


@dataclass(frozen=True)
class Frozen:
    """Functions of one package before it is written.

    Attributes:
        bundle: the program, its executables and weights.
        registrations: the kernels of each function's module, by the function's name.
        reassembled: kernels of which this machine's assembler makes other machine code than was measured.
    """

    bundle: TargetBundle
    registrations: Mapping[str, Registration]
    reassembled: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """A function to freeze.

    Attributes:
        program: what was exported, on the CPU.
        inputs: what to run it with, one value for each of its inputs.
        file: the file that holds its weights, if one does.
    """

    program: torch.export.ExportedProgram
    inputs: Sequence[Any]
    file: Pt2File | None = None


def freeze(
    model: Model | Mapping[str, Model],
    example_inputs: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    mode: Mode = "max-autotune",
    *,
    output: str | Path,
    dynamic_shapes: Any = None,
    options: Mapping[str, object] | None = None,
    device: str = "cuda:0",
    function: str = "main",
    image: ImageChoice = "both",
    float32_matmul_precision: str | None = None,
    cache_artifact: str | Path | None = None,
    save_cache_artifact: str | Path | None = None,
    save_bundle: str | Path | None = None,
    progress: Progress = lambda message: None,  # noqa: ARG005
) -> FreezeReport:
    """Compiles and tunes models with Inductor on this machine's GPU, and writes a package of what won.

    Inductor compiles each function as `torch.compile` would, or takes it from its cache of graphs, and runs it once,
    which is when it measures most kernels. The package holds the code that was measured; opening it neither compiles
    nor measures.

    Args:
        model: a module or function, an exported program, the path of a `.pt2` file, or `module.py:callable`; or several
            functions of the package by their names, which share weights and what they change. A module may be on
            the GPU; what is exported already must be on the CPU.
        example_inputs: what to run it with, on the CPU or the GPU, as a tuple; for several functions, by their names.
            May be left out where the export has some. Kernels are tuned for these sizes.
        mode: how much Inductor tunes, as `torch.compile` names it. CUDA graphs are the runtime's affair in any.
        output: the file to write; replaced only when everything succeeded.
        dynamic_shapes: of a module or function, as `torch.export.export` takes it; of several, by their names.
        options: settings of `torch._inductor.config`, by name.
        device: where to compile and measure: the first CUDA device.
        function: the name in the package of a model that comes alone.
        image: the form of the kernels: PTX, machine code, or both.
        float32_matmul_precision: as `torch.set_float32_matmul_precision` takes it: `highest` multiplies in IEEE
            float32, `high` in TF32; None for what holds now.
        cache_artifact: a file of `torch.compiler.save_cache_artifacts`, whose graphs and choices are taken where they
            fit. Torch unpickles it: give only what you trust.
        save_cache_artifact: where to write such a file of this run.
        save_bundle: a folder to write the generated modules into, with the kernels that were bound, for a look at them.
        progress: called with short messages.

    Raises:
        UnsupportedError: there is no CUDA device, or something cannot be compiled; names the operation.
        RegistrationError: what Inductor compiled does not fit the module that it generated.
        CoilpackError: an input is wrong. Whatever is raised, no package is written.
    """
    target, output = cuda_target(device), Path(output)
    settings = inductor_settings(mode, options or {})
    models: Mapping[str, Model] = model if isinstance(model, Mapping) else {function: model}
    several = isinstance(model, Mapping)
    if not models or not all(models):
        raise InputError("there is no function to freeze, or one without a name; give at least one model, with a name")
    inputs = _by_function("example_inputs", example_inputs, models, several=several)
    dynamic = _by_function("dynamic_shapes", dynamic_shapes, models, several=several)
    _check_outputs(models, output, cache_artifact, save_cache_artifact)
    if save_bundle is not None:
        _check_bundles(Path(save_bundle), models)
    if cache_artifact is not None:
        _load_cache(Path(cache_artifact))
    with tempfile.TemporaryDirectory(prefix="coilpack-") as scratch, _matmul_precision(float32_matmul_precision):
        given = {
            name: _function(name, value, inputs.get(name), dynamic.get(name), Path(scratch))
            for name, value in models.items()
        }
        files = [function.file for function in given.values() if function.file is not None]
        weights = Weights(frozenset(digest for file in files for digest in file.digests.values()))
        products = compile_products(given, weights, settings, progress)
        frozen = freeze_products(products, target, weights, image, progress)
        if save_cache_artifact is not None:
            write_atomically(Path(save_cache_artifact), _cache_artifact())
        if save_bundle is not None:
            _save_bundles(Path(save_bundle), products, frozen.registrations, mode)
        progress(f"writing {output}")
        emit_package(files, [frozen.bundle], frozen.bundle.program, output)
    return _report(output, frozen, products)


@contextmanager
def _matmul_precision(precision: str | None) -> Iterator[None]:
    """Within it, products of float32 matrices have this precision; with None, that which they have anyway."""
    if precision is None:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _by_function(what: str, value: Any, models: Mapping[str, Model], *, several: bool) -> Mapping[str, Any]:
    """What was given for each function; of several, by their names."""
    if not several:
        return dict.fromkeys(models, value)
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not value.keys() <= models.keys():
        raise InputError(f"give {what} of several functions by their names, which are {', '.join(models)}")
    return value


def _check_outputs(
    models: Mapping[str, Model], output: Path, cache_artifact: str | Path | None, save_cache_artifact: str | Path | None
) -> None:
    """Refuses files that cannot be written, or are inputs, before any work."""
    named = [str(value) for value in models.values() if isinstance(value, str | Path)]
    read: list[str | Path] = [found[0] if (found := python_callable(source)) else source for source in named]
    check_output(output, read if cache_artifact is None else [*read, cache_artifact], "coil")
    if save_cache_artifact is not None:
        check_output(Path(save_cache_artifact), read, "coil")
        if Path(save_cache_artifact).resolve() == output.resolve():
            raise InputError(f"{str(output)!r} cannot be both the package and the cache artifact; name two files")


def _check_bundles(folder: Path, functions: Iterable[str]) -> None:
    """Refuses a folder for bundles that cannot be made, or functions that cannot name a folder in it."""
    if not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"bundles cannot be saved in {str(folder)!r}: name a folder, in a folder that is there")
    for name in functions:
        if name == ".." or Path(name).name != name:
            raise InputError(f"function {name!r} cannot name a folder to save its bundle in; give it another name")


def _report(output: Path, frozen: Frozen, products: Mapping[str, InductorProduct]) -> FreezeReport:
    registered = frozen.registrations.values()
    return FreezeReport(
        output=output,
        nbytes=output.stat().st_size,
        program=frozen.bundle.program,
        bound=sum(len(one.bound) for one in registered),
        ignored=tuple(name for one in registered for name in one.ignored),
        cached=tuple(name for name, product in products.items() if product.cached),
        reassembled=frozen.reassembled,
    )


def compile_products(
    given: Mapping[str, Function], weights: Weights, settings: Mapping[str, Any], progress: Progress
) -> dict[str, InductorProduct]:
    """Compiles functions with Inductor, one after another; see `compile_product`."""
    sources = function_sources({name: function.program for name, function in given.items()}, weights)
    memory = DeviceMemory()
    products: dict[str, InductorProduct] = {}
    for name, source in sources.items():
        progress(f"{name}: compiling and tuning with Inductor")
        products[name] = compile_product(source, given[name].inputs, settings, memory)
        kernels = len(products[name].bundle.autotuners)
        progress(f"{name}: {kernels} kernels" + (", from Inductor's cache" if products[name].cached else ""))
    return products


def freeze_products(
    products: Mapping[str, InductorProduct],
    target: Target,
    weights: Weights,
    image: ImageChoice = "both",
    progress: Progress = lambda message: None,  # noqa: ARG005
) -> Frozen:
    """A package of what Inductor made of functions. Needs no GPU, and runs nothing of the generated modules.

    Args:
        products: by function name.
        target: what the kernels were compiled for.
        weights: where the constants of the functions lie.
        image: the form of the kernels.
        progress: called with short messages.

    Raises:
        RegistrationError: a bundle does not fit its module.
        UnsupportedError: a module does something that no package carries out; names the line.
        CoilpackError: a kernel's code, description and signature do not fit together.
    """
    kinds = IMAGE_KINDS[image]
    compat.use_ptxas_of_torch()  # what it assembled is assembled again, under other names
    registrations: dict[str, Registration] = {}
    functions: list[ir.Function] = []
    with KernelCompiler(target, cubin=ir.ImageKind.CUBIN in kinds) as compiler:
        kernels = FrozenKernels(compiler)
        for name, product in products.items():
            registrations[name], host = _registered(product)
            progress(f"{name}: {len(registrations[name].bound)} kernels bound")
            bound = kernels.add(name, host.kernels, registrations[name].bound)
            functions.append(finished_function(product.signature, product.bindings, host, bound, weights))
        finished, reassembled = kernels.finish()
    return Frozen(target_bundle(target, kinds, functions, finished, weights), registrations, reassembled)


def _registered(product: InductorProduct) -> tuple[Registration, HostGraph[Any]]:
    """The kernels and the host program of a function."""
    if not product.module_source:
        return Registration({}, product.bundle, ()), unchanged(product.graph)
    registration = register(product.module_source, product.bundle)
    chosen = {name: bound.configuration for name, bound in registration.bound.items()}
    file = f"the module of {product.name!r}"
    return registration, read_host_program(product.module_source, chosen, product.placeholders, product.constants, file)


# --- models ---


def _function(name: str, model: Model, inputs: Sequence[Any] | None, dynamic_shapes: Any, scratch: Path) -> Function:
    """A function as an exported program on the CPU, with the inputs to run it with."""
    if inputs is not None and not isinstance(inputs, tuple | list):
        raise InputError(
            f"the example inputs of function {name!r} are a {type(inputs).__name__}; give a tuple of its positional "
            "arguments (a model that is called with keywords is exported first, by torch.export.export)"
        )
    if not isinstance(model, torch.export.ExportedProgram | str | Path):
        if inputs is None:
            raise InputError(f"function {name!r} is not exported yet; give example inputs to export and tune it with")
        program = _exported(name, _module(name, model), tuple(inputs), dynamic_shapes)
        return Function(program, exported_inputs(name, program, inputs))
    if dynamic_shapes is not None:
        raise InputError(f"function {name!r} is exported already; its dynamic shapes were fixed then: leave them out")
    if isinstance(model, torch.export.ExportedProgram):
        return Function(model, exported_inputs(name, model, inputs))
    path = _file(str(model), scratch)
    program, file = load_program(path), Pt2File.read(path)
    return Function(program, exported_inputs(name, program, inputs), file)


def _module(name: str, model: torch.nn.Module | Callable[..., Any]) -> torch.nn.Module:
    """The model as a module; one that is a function becomes the module's `forward`, with its parameters' names."""
    if isinstance(model, torch.nn.Module):
        return model
    if not callable(model):
        raise InputError(
            f"function {name!r} is a {type(model).__name__}; give a module, a function, an exported program or a file"
        )
    module = torch.nn.Module()
    module.forward = model
    return module


def _exported(
    name: str, model: torch.nn.Module, inputs: tuple[Any, ...], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Exports a module on the CPU; one that is elsewhere is copied."""
    tensors = (*model.parameters(), *model.buffers())
    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    model = model if on_cpu else copy.deepcopy(model).cpu()
    moved = compat.tree_map(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value, inputs)
    modes = [(part, part.training) for part in model.modules()]
    try:
        with torch.no_grad():
            return torch.export.export(model.eval(), moved, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise InputError(f"function {name!r} cannot be exported by torch.export: {error}") from error
    finally:
        for part, training in modes:
            part.training = training


def _file(source: str, scratch: Path) -> Path:
    """The `.pt2` file that a source names, or what it is exported to."""
    if found := python_callable(source):
        exported = Path(tempfile.mkdtemp(dir=scratch)) / "exported.pt2"  # a function may be named as no file can be
        export_callable(*found, exported)
        return exported
    if not Path(source).is_file():
        raise InputError(f"there is no file {source!r}; give a .pt2 file or module.py:callable")
    if Path(source).suffix != ".pt2":
        raise InputError(f"{source!r} is neither a .pt2 file nor module.py:callable")
    return Path(source)


# --- Inductor's product and cache ---


def _save_bundles(
    folder: Path, products: Mapping[str, InductorProduct], registrations: Mapping[str, Registration], mode: Mode
) -> None:
    """Writes the generated module of each function, and what was bound of its bundle, as a folder of its name."""
    provenance = {
        "mode": mode,
        "torch": torch.__version__,
        "triton": triton.VERSION,
        "device": torch.cuda.get_device_name(0),
    }
    folder.mkdir(exist_ok=True)
    for name, product in products.items():
        if product.module_source:
            write_bundle(folder / name, product.module_source, registrations[name].bundle, provenance)


def _load_cache(path: Path) -> None:
    """Puts what a file of torch's holds into Inductor's caches."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    problem = f"{str(path)!r} holds no artifacts that torch {torch.__version__} can load"
    try:
        loaded = torch.compiler.load_cache_artifacts(data)
    except Exception as error:
        raise InputError(f"{problem}: {error}") from error
    if loaded is None:
        raise InputError(f"{problem}; save them anew with this version")


def _cache_artifact() -> bytes:
    """What this process has put into Inductor's caches, as a file of torch's."""
    artifacts = torch.compiler.save_cache_artifacts()
    if artifacts is None:
        raise InputError("there is nothing to save as a cache artifact: Inductor compiled no kernel; leave it out")
    return bytes(artifacts[0])
