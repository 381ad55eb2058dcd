"""What a kernel is made of, the identity of that, and the front end that turns it into Triton IR."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.cache import content_key
from coilpack.compiler.kernels.signature import Parameter, runtime_parameters
from coilpack.compiler.targets import PtxVersion, Target
from coilpack.runtime.errors import InputError, UnsupportedError

DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class KernelSource:
    """A Triton kernel specialized for its arguments.

    Attributes:
        function: the `@triton.jit` function.
        kernel_name: the symbol that the PTX shall have; see `coilpack.runtime.executable.names`.
        signature: Triton's type of each argument by name (`*fp16`, `i32`, `fp32`; `constexpr` for constants).
        constants: values of constants by argument name or index path; None and equal-to-1 arguments are among them.
        attributes: `[["tt.divisibility", 16]]` by index path, for arguments that are always multiples of 16.
        options: of Triton's CUDA backend: `num_warps`, `num_stages`, `num_ctas`, `maxnreg`, `enable_fp_fusion`, ...
        location: the model's source line, for messages.
    """

    function: triton.JITFunction
    kernel_name: str
    signature: Mapping[str, str]
    constants: Mapping[str | tuple[int, ...], object] = field(default_factory=dict)
    attributes: Mapping[tuple[int, ...], Sequence[Sequence[object]]] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    location: str = ""

    def __str__(self) -> str:
        return f"kernel {self.kernel_name!r}" + (f" ({self.location})" if self.location else "")

    def parameters(self) -> tuple[Parameter, ...]:
        """The run-time arguments, in the order of the PTX parameters.

        Raises:
            InputError, UnsupportedError: see `runtime_parameters`.
        """
        try:
            return runtime_parameters(self.function.arg_names, self.signature, self.constants, self.attributes)
        except (InputError, UnsupportedError) as error:
            raise type(error)(f"{self}: {error}") from None

    def backend_options(self, ptx_version: PtxVersion) -> dict[str, object]:
        """The options with the PTX version as Triton takes it (87 for 8.7), which are JSON values.

        Raises:
            InputError: an option is not a number, string, boolean or None.
        """
        options = {k: v for k, v in self.options.items() if v is not None}
        for name, value in options.items():
            if not isinstance(value, bool | int | float | str):
                raise InputError(f"{self}: the option {name} is {value!r}, not a number, string or boolean")
        return {**options, "ptx_version": ptx_version[0] * 10 + ptx_version[1]}

    def front_end(self, target: Target, ptx_version: PtxVersion) -> str:
        """The kernel as the text of Triton IR.

        Raises:
            UnsupportedError: Triton refuses the function or an option; the message carries Triton's.
        """
        options = self.backend_options(ptx_version)
        try:
            return triton.make_ir(
                self.function, self.signature, self.constants, self.attributes, options, target.compute_capability
            )
        except (triton.CompilationError, ValueError, TypeError, AssertionError, RuntimeError) as error:
            raise UnsupportedError(f"{self}: Triton cannot compile it for {target.name}: {error}") from error

    def identity(self) -> dict[str, object] | None:
        """All of the source that decides the code, as JSON values; None where something has no stable text.

        The function counts with everything it calls and the globals it reads.
        """
        try:
            return {
                "function": self.function.cache_key,
                "globals": [[name, _stable(value)] for (name, _), (value, _) in self.function.used_global_vals.items()],
                "arguments": list(self.function.arg_names),
                "signature": dict(self.signature),
                "constants": sorted([str(k), _stable(v)] for k, v in self.constants.items()),
                "attributes": sorted([str(k), _stable(v)] for k, v in self.attributes.items()),
                "kernel_name": self.kernel_name,
            }
        except (_UnstableError, RuntimeError, AttributeError, TypeError):
            return None  # the last three: Triton could not follow what the function refers to; the front end says so

    def digest(self, configured: Collection[str]) -> str:
        """Tells kernels apart by what they are made of besides their configuration and symbol, in 16 hex digits.

        The same on every machine; empty where something has no stable text.

        Args:
            configured: the constants that the configuration chooses.
        """
        identity = self.identity()
        if identity is None:
            return ""
        kept = {name: value for name, value in self.constants.items() if name not in configured}
        constants = sorted([str(name), _stable(value)] for name, value in kept.items())
        return content_key(**{**identity, "kernel_name": "", "constants": constants})[:DIGEST_DIGITS]


class _UnstableError(Exception):
    """A value has no text that is the same in every process."""


def _stable(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str | triton.dtype):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, triton.constexpr):
        return f"constexpr:{_stable(value.value)}"
    if isinstance(value, triton.JITCallable):
        return f"function:{value.cache_key}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}:[{','.join(_stable(item) for item in value)}]"
    raise _UnstableError
