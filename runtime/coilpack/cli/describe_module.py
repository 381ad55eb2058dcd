"""What an IREE module holds, as plain data: a part of the content of `coilpack inspect --json`."""

from __future__ import annotations

import re
from typing import Any

from coilpack.runtime.vmfb import Rodata, Vmfb, VmFunction, VmImport
from coilpack.runtime.vmfb.calling_convention import call_types

# `%name: type` in the declaration of a VM function, as `sync func @f(%input0: tensor<4xf32>) -> (%output0: ...)`.
_DECLARED = re.compile(r"%([\w$.-]+): ((?:[^,()<>]|<[^<>]*>)+)")


def describe_module(module: Vmfb) -> dict[str, Any]:
    """Describes a module, but for its CUDA executables.

    Returns:
        `module`, `version`, `bytecode_version`, `dependencies`, `devices`, `formats`, `functions`, `imports`,
        `parameters`, `other_executables` and `rodata`. The types of a function are those that its author declared or,
        where the module has no declaration, those of its calling convention.
    """
    return {
        "module": module.module_name,
        "version": module.version,
        "bytecode_version": ".".join(map(str, module.bytecode_version)),
        "dependencies": [
            {"name": needed.name, "minimum_version": needed.minimum_version, "optional": needed.optional}
            for needed in module.dependencies
        ],
        "devices": list(module.devices),
        "formats": list(module.formats),
        "functions": [_function(function) for function in module.functions if not function.name.startswith("__")],
        "imports": [_import(imported) for imported in module.imports],
        "parameters": {"scopes": list(module.parameter_scopes), "keys": list(module.parameter_keys)},
        "other_executables": [
            {"format": other.format, "bytes": other.nbytes, "segment": other.segment, "exports": other.exports}
            for other in module.other_executables
        ],
        "rodata": [_rodata(segment) for segment in module.rodata],
    }


def _function(function: VmFunction) -> dict[str, Any]:
    inputs, _, outputs = function.declaration.partition(" -> ")
    types = None if function.declaration else call_types(function.calling_convention)
    return {
        "name": function.name,
        "inputs": _nameless(types.arguments) if types else _declared(inputs),
        "outputs": _nameless(types.results) if types else _declared(outputs),
        "calling_convention": function.calling_convention,
        "attributes": dict(function.attributes),
    }


def _declared(text: str) -> list[dict[str, str]]:
    return [{"name": name, "type": type_.strip()} for name, type_ in _DECLARED.findall(text)]


def _nameless(types: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"name": "", "type": type_} for type_ in types]


def _import(imported: VmImport) -> dict[str, Any]:
    types = call_types(imported.calling_convention)
    signature = f"({', '.join(types.arguments)}) -> ({', '.join(types.results)})" if types else ""
    return {
        "name": imported.name,
        "signature": signature,
        "calling_convention": imported.calling_convention,
        "optional": imported.optional,
    }


def _rodata(segment: Rodata) -> dict[str, Any]:
    described = {"bytes": segment.nbytes, "embedded": segment.embedded, "kind": segment.kind}
    return described if segment.text is None else {**described, "text": segment.text}
