"""A hypothesis strategy of valid programs."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol, evaluate
from coilpack.runtime.program.expr import symbols as used

# Programs are large: what hypothesis would do to make a failing one smaller takes minutes.
some_programs = settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=12)
dtypes = st.sampled_from(list(DType))
kinds = st.sampled_from([ExprKind.ADD, ExprKind.MUL, ExprKind.MIN, ExprKind.MAX])
divisions = st.sampled_from([ExprKind.FLOORDIV, ExprKind.MOD])


def expressions(symbols: list[str]) -> st.SearchStrategy[Expr]:
    """Expressions over the symbols; nothing divides by what may be zero."""
    small = st.integers(-9, 9)
    leaves = st.one_of(small, st.sampled_from([Symbol(name) for name in symbols])) if symbols else small
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Binary, kinds, inner, inner), st.builds(Binary, divisions, inner, st.integers(1, 99))
        ),
        max_leaves=6,
    )


def sizes(symbols: list[str]) -> st.SearchStrategy[Expr]:
    """Expressions that are not negative."""
    if not symbols:
        return st.integers(0, 5)
    return st.one_of(st.integers(0, 5), st.builds(lambda inner: Binary(ExprKind.MAX, inner, 0), expressions(symbols)))


@st.composite
def types(draw: st.DrawFn, symbols: list[str]) -> ir.TensorType:
    shape = tuple(draw(st.lists(sizes(symbols), max_size=3)))
    if draw(st.booleans()):
        return ir.TensorType.contiguous(draw(dtypes), shape)
    return ir.TensorType(draw(dtypes), shape, tuple(draw(sizes([])) for _ in shape))


def static_extent(tensor: ir.TensorType) -> int | None:
    """Bytes from the first element of a type to the end of its last; None where they depend on symbols."""
    if any(set(used(size)) for size in tensor.shape):
        return 0 if 0 in [evaluate(size, {}) for size in tensor.shape if not set(used(size))] else None
    shape = [evaluate(size, {}) for size in tensor.shape]
    if 0 in shape:
        return 0
    if any(set(used(stride)) for stride in tensor.strides):
        return None
    strides = [evaluate(stride, {}) for stride in tensor.strides]
    return (1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))) * tensor.dtype.itemsize


class _Body:
    """A function's body in the making."""

    def __init__(
        self,
        draw: st.DrawFn,
        signature: ir.Signature,
        names: list[str],
        storages: list[ir.Storage],
        globals_: list[ir.Global],
    ) -> None:
        self.draw, self.signature, self.storages, self.globals = draw, signature, storages, globals_
        self.symbols = [symbol.name for symbol in signature.symbols]
        self.names = names
        self.arguments = tuple(self.value(argument.type) for argument in signature.inputs)
        arrays = zip(self.arguments, signature.inputs, strict=True)
        self.values = [value for value, argument in arrays if argument.value is None]
        self.constant: set[ir.Value] = set()
        self.operations: list[ir.Operation] = []
        self.arena = 0

    def value(self, tensor: ir.TensorType) -> ir.Value:
        return ir.Value(self.names.pop(), tensor)

    def location(self) -> str:
        return self.draw(st.one_of(st.just(""), names))

    def alloc(self, tensor: ir.TensorType, space: ir.AllocSpace) -> ir.Value:
        value = self.value(tensor)
        extent = static_extent(tensor)
        nbytes = self.draw(sizes(self.symbols)) if extent is None else extent + self.draw(st.integers(0, 9))
        offset = self.arena if space is ir.AllocSpace.ARENA else 0
        if space is ir.AllocSpace.ARENA and not set(used(nbytes)):
            self.arena += -(-evaluate(nbytes, {}) // 256) * 256
        self.operations.append(ir.Alloc(value, space, nbytes, offset, location=self.location()))
        self.values.append(value)
        return value

    def parameter(self) -> None:
        storage = self.draw(st.sampled_from(self.storages))
        dtype = self.draw(dtypes)
        count = self.draw(st.integers(0, storage.nbytes // dtype.itemsize))
        start = self.draw(st.integers(0, (storage.nbytes - count * dtype.itemsize) // dtype.itemsize)) * dtype.itemsize
        value = self.value(ir.TensorType.contiguous(dtype, (count,)))
        self.operations.append(ir.Parameter(value, storage, start, location=self.location()))
        self.values.append(value)
        self.constant.add(value)

    def get_global(self) -> None:
        global_ = self.draw(st.sampled_from(self.globals))
        dtype = self.draw(dtypes)
        value = self.value(ir.TensorType.contiguous(dtype, (global_.nbytes // dtype.itemsize,)))
        self.operations.append(ir.GetGlobal(value, global_, location=self.location()))
        self.values.append(value)

    def random_seeds(self) -> None:
        value = self.value(ir.TensorType.contiguous(DType.i64, (self.draw(st.integers(0, 5)),)))
        offset = 4 * self.draw(st.integers(0, 2**62 - 1))
        self.operations.append(ir.RandomSeeds(value, offset, location=self.location()))
        self.values.append(value)
        self.constant.add(value)

    def matmul(self) -> None:
        dtype = self.draw(st.sampled_from([DType.f16, DType.bf16, DType.f32, DType.f64]))
        batch = tuple(self.draw(st.lists(sizes(self.symbols), max_size=1)))
        m, k, n = (self.draw(sizes(self.symbols)) for _ in range(3))
        lhs, rhs, target = (
            self.alloc(ir.TensorType.contiguous(dtype, (*batch, *shape)), ir.AllocSpace.ARENA)
            for shape in ((m, k), (k, n), (m, n))
        )
        numbers = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)  # no negative zero
        addend = self.alloc(target.type, ir.AllocSpace.ARENA) if self.draw(st.booleans()) else None
        beta = 0.0 if addend is None else self.draw(numbers)
        alpha, tf32 = self.draw(numbers), self.draw(st.booleans())
        self.operations.append(ir.Matmul(target, lhs, rhs, addend, alpha, beta, tf32, location=self.location()))

    def view(self) -> None:
        source = self.draw(st.sampled_from(self.values))
        value = self.value(source.type)
        self.operations.append(ir.View(value, source, 0, location=self.location()))
        self.values.append(value)
        if source in self.constant:
            self.constant.add(value)

    def writable(self) -> list[ir.Value]:
        return [value for value in self.values if value not in self.constant]

    def fill(self) -> None:
        targets = [value for value in self.writable() if value.type.is_contiguous]
        if targets:
            target = self.draw(st.sampled_from(targets))
            pattern = self.draw(st.integers(0, 2 ** (8 * min(8, target.type.dtype.itemsize)) - 1))
            self.operations.append(ir.Fill(target, pattern, location=self.location()))

    def dispatch(self, name: str) -> list[ir.Kernel]:
        """Adds a dispatch; the kernels that it may launch."""
        parameters: list[ir.KernelParameter] = []
        operands: list[ir.Operand] = []
        for _ in range(self.draw(st.integers(0, 5))):
            kind = self.draw(st.sampled_from(["value", "null", "float", "integer"]))
            if kind == "value" and self.values:
                value = self.draw(st.sampled_from(self.values))
                access = ir.Access.READ if value in self.constant else self.draw(st.sampled_from(list(_ACCESSES)))
                parameters.append(ir.PointerParameter(value.type.dtype, access, 1))
                operands.append(value)
            elif kind == "float":
                parameters.append(ir.ScalarParameter(self.draw(st.sampled_from([d for d in DType if d.is_float]))))
                operands.append(self.draw(st.floats()))
            elif kind == "integer":
                parameters.append(ir.ScalarParameter(DType.i64))
                operands.append(self.draw(st.one_of(st.integers(-(2**63), 2**63 - 1), expressions(self.symbols))))
            else:
                parameters.append(
                    ir.PointerParameter(self.draw(dtypes), ir.Access.READ, 2 ** self.draw(st.integers(0, 8)))
                )
                operands.append(None)
        integers = [
            f"p{index}"
            for index, parameter in enumerate(parameters)
            if isinstance(parameter, ir.ScalarParameter) and not parameter.dtype.is_float
        ]
        rule = tuple(Binary(ExprKind.MIN, self.draw(sizes(integers)), 65535) for _ in range(3))
        taken, cooperative = tuple(parameters), self.draw(st.booleans())
        kernel = ir.Kernel(name, taken, cooperative, self.draw(st.sampled_from([None, rule])), *self.origin())
        others = [
            ir.Kernel(f"{name}_{index}", taken, cooperative, None, *self.origin())
            for index in range(self.draw(st.integers(0, 2)))
        ]
        alternatives = tuple(ir.Alternative(other, self.grid()) for other in others)
        self.operations.append(
            ir.Dispatch(kernel, self.grid(), tuple(operands), alternatives, location=self.location())
        )
        return [kernel, *others]

    def grid(self) -> tuple[Expr, Expr, Expr]:
        x, y, z = (Binary(ExprKind.MIN, self.draw(sizes(self.symbols)), 65535) for _ in range(3))
        return x, y, z

    def origin(self) -> tuple[str, str]:
        """A kernel's source and configuration; either may be unknown."""
        source, configuration = (self.draw(st.one_of(st.just(""), names)) for _ in range(2))
        return source, configuration


_ACCESSES = (ir.Access.READ, ir.Access.WRITE, ir.Access.READ | ir.Access.WRITE)


_SHIFTS = st.integers(-9, 9)


@st.composite
def signatures(draw: st.DrawFn, name: str) -> ir.Signature:
    symbols = [f"s{index}" for index in range(draw(st.integers(0, 2)))]
    inputs, made = [], []
    for index, symbol in enumerate(symbols):
        low, high = sorted(draw(st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=2)))
        if draw(st.booleans()):
            size = Binary(ExprKind.ADD, Binary(ExprKind.MUL, Symbol(symbol), draw(st.integers(1, 9))), draw(_SHIFTS))
            inputs.append(ir.Argument(draw(names), ir.TensorType.contiguous(draw(dtypes), (Symbol(symbol), size))))
            made.append(ir.SizeSymbol(symbol, index, draw(st.integers(0, 1)), low, high))
        else:
            inputs.append(ir.Argument(draw(names), ir.INTEGER_TYPE, Symbol(symbol)))
            made.append(ir.SizeSymbol(symbol, index, None, -low, high))
    inputs += [ir.Argument("", draw(types(symbols))) for _ in range(draw(st.integers(0, 2)))]
    outputs = [ir.Argument("", draw(types(symbols))) for _ in range(draw(st.integers(0, 2)))]
    outputs += [ir.Argument("", ir.INTEGER_TYPE, draw(expressions(symbols))) for _ in range(draw(st.integers(0, 1)))]
    sides = expressions(symbols)
    guards = draw(st.lists(st.builds(ir.Guard, st.sampled_from(ir.GuardKind), sides, sides), max_size=2))
    return ir.Signature(name, tuple(inputs), tuple(outputs), tuple(made), tuple(guards), draw(st.booleans()))


@st.composite
def programs(draw: st.DrawFn) -> ir.Program:
    """Valid programs: one or two functions for one or two targets."""
    made = [draw(signatures(name)) for name in draw(st.lists(names, min_size=1, max_size=2, unique=True))]
    keys = draw(st.lists(names, max_size=3, unique=True))
    storages = [ir.Storage(key, draw(st.integers(0, 300))) for key in keys]
    globals_ = [ir.Global(key, draw(st.integers(0, 300))) for key in draw(st.lists(names, max_size=2, unique=True))]
    globals_ += [ir.Global(f"state of {s.name}", s.nbytes, s) for s in storages if draw(st.booleans())]
    targets = []
    for target in draw(st.lists(st.sampled_from(["sm_75", "sm_80", "sm_90a", "sm_120"]), max_size=2, unique=True)):
        kernels: list[ir.Kernel] = []
        functions = []
        for signature in made:
            pool = draw(st.one_of(st.just([]), st.lists(names, min_size=40, max_size=40, unique=True)))
            functions.append(_function(draw, signature, pool, storages, globals_, kernels))
        image = ir.Image(ir.ImageKind.PTX, f"executables/{target}.ptx.cda1")
        targets.append(ir.Target(target, (image,), tuple(kernels), tuple(functions)))
    return ir.Program(draw(names), tuple(made), tuple(storages), tuple(targets), tuple(globals_))


def _function(
    draw: st.DrawFn,
    signature: ir.Signature,
    pool: list[str],
    storages: list[ir.Storage],
    globals_: list[ir.Global],
    kernels: list[ir.Kernel],
) -> ir.Function:
    count = len(signature.inputs)
    defaults = [f"arg{index}" for index in range(count)] + [str(index) for index in range(40)]
    body = _Body(draw, signature, pool or defaults[::-1], storages, globals_)
    for _ in range(draw(st.integers(0, 6))):
        step = draw(st.sampled_from(["alloc", "parameter", "global", "seeds", "matmul", "view", "fill", "dispatch"]))
        if step == "alloc":
            body.alloc(draw(types(body.symbols)), draw(st.sampled_from(ir.AllocSpace)))
        elif step == "parameter" and storages:
            body.parameter()
        elif step == "global" and globals_:
            body.get_global()
        elif step == "seeds" and signature.random:
            body.random_seeds()
        elif step == "matmul":
            body.matmul()
        elif step == "view" and body.values:
            body.view()
        elif step == "fill":
            body.fill()
        elif step == "dispatch":
            kernels += body.dispatch(f"{signature.name}_dispatch_{len(kernels)}")
    arrays = [argument for argument in signature.outputs if argument.value is None]
    results = [body.alloc(argument.type, ir.AllocSpace.OUTPUT) for argument in arrays]
    if len(results) == 1:
        twin = body.alloc(results[0].type, ir.AllocSpace.OUTPUT)
        if twin.type.is_contiguous:
            body.operations.append(ir.Copy(results[0], twin))
    body.operations.append(ir.Return(tuple(results)))
    return ir.Function(signature, body.arguments, tuple(body.operations), body.arena)
