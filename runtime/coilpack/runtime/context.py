"""A context: what a program needs to run besides code and weights: memory for intermediate values, and its state."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from coilpack.runtime.arguments import bind_arguments
from coilpack.runtime.arrays import DeviceArray, as_device_view
from coilpack.runtime.devices.base import Buffer, Device
from coilpack.runtime.errors import DeviceError, InputError
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.loaded import LoadedProgram
from coilpack.runtime.philox import check_seed, random_seeds
from coilpack.runtime.plan import Base, Plan
from coilpack.runtime.program import ir
from coilpack.runtime.sizes import as_integer, check_shapes, solve_sizes, value_of
from coilpack.runtime.staging import StagedArgument
from coilpack.runtime.streams import for_all_threads, stream_handle

Result = DeviceArray | int

_MAX_EXECUTORS = 128  # each stands for a function and one combination of sizes; each may hold a graph on the device
_MAX_PREPARED = 10_000  # operations
_SLACK = 4  # a block that grows with the sizes of calls takes a quarter more than it needs, to grow seldom
_LEAST_SEEDS = 4096  # bytes

# What open contexts use. In a cycle of garbage with its context, the collector might free it before it has the context
# wait for its work; what is reachable from here is no garbage.
_in_use: dict[int, object] = {}


class Snapshot:
    """The state of a context at one moment; it does not change.

    Taken by `snapshot`, it serves every context of the same program, and lives as long as somebody refers to it.
    """

    __slots__ = ("_buffer", "_program", "_stream")

    def __init__(self, program: LoadedProgram, buffer: Buffer, stream: int) -> None:
        self._program = weakref.ref(program)
        self._buffer = buffer
        self._stream = stream

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that it takes."""
        return self._buffer.nbytes


class _Block:
    """Device memory that grows to what the calls of a context need."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffer: Buffer | None = None

    @property
    def address(self) -> int:
        return self._buffer.address if self._buffer else 0

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes if self._buffer else 0

    def replace(self, nbytes: int, stream: int) -> None:
        """Another block, on which nothing waits; where there is no memory for it there is none at all."""
        self.close()
        self._buffer = self._device.allocate(nbytes, stream)

    def close(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.close()


class Context:
    """Runs the functions of a program over state of its own. Made by `Program.new_context`.

    Contexts of one program share code and weights; each has its own globals and memory for intermediate values, so
    calls of several contexts may run at once, on several streams. One context may be called from several threads: its
    calls run one after another, on whatever streams.

    Args:
        program: what it runs.
        graphs: run what is called again as a CUDA graph.
    """

    def __init__(self, program: LoadedProgram, graphs: bool) -> None:
        device = program.device
        self._program = program
        self._graphs = graphs
        self._lock = threading.Lock()
        self._closed = False
        self._stream = device.default_stream  # of the latest call
        self._executors: dict[tuple[str, tuple[int, ...]], Executor] = {}
        self._arena, self._seeds = _Block(device), _Block(device)
        self._globals: Buffer = device.allocate(program.globals_nbytes, self._stream)
        _in_use[id(self)] = program, self._executors, self._arena, self._seeds, self._globals
        program.initialize_globals(self._globals.address, self._stream)

    def __repr__(self) -> str:
        return f"<Context of {self._program.file} on {self._program.device.name}>"

    # --- calls ---

    def __call__(
        self,
        *arguments: object,
        function: str | None = None,
        stream: object = None,
        seed: object = None,
        **by_name: object,
    ) -> Result | tuple[Result, ...]:
        """Calls a function. The work is queued; reading a result waits for it.

        Args:
            *arguments: its inputs in order: numpy arrays, which are uploaded, or arrays on the device: anything with
                DLPack or the CUDA array interface; integers where it takes integers. A host array that the function
                writes to is updated, which waits. Arrays on the device may have any strides; where kernels cannot use
                them as they lie, copies are made (and copied back when written). The function reads what its inputs
                hold before the call, even if it writes to an array that shares memory with them.
            function: its name; may be left out for `main`, or where there is only one.
            stream: where to queue the work: None for the default stream, a handle, or an object with `__cuda_stream__`.
            seed: of its random numbers, -2**63 to 2**64 - 1; for functions that draw some, and only those.
            **by_name: inputs by their names.

        Returns:
            The output, or a tuple of them where there are none or several. Integers are Python's.

        Raises:
            InputError: an argument or the seed is missing or does not fit: element type, shape, value or device.
            NotFoundError: there is no function, or no input, of that name.
            DeviceError: there is too little memory, or the device fails.
        """
        program, device = self._program, self._program.device
        callee = program.callee(function)
        signature, labels = callee.signature, callee.labels
        if seed is not None and not signature.random and any(a.name == "seed" for a in signature.inputs):
            by_name, seed = {**by_name, "seed": seed}, None  # an input that is called so
        key = _check_seed(signature, seed)
        handle = stream_handle(stream, device)
        given = bind_arguments(signature, arguments, by_name)
        views = [
            as_integer(value, what)
            if callee.integers and argument.value is not None
            else as_device_view(value, device, handle, what)
            for value, argument, what in zip(given, signature.inputs, labels, strict=True)
        ]
        shapes = [view if isinstance(view, int) else view.shape for view in views]
        sizes = {} if callee.fixed else solve_sizes(signature, shapes)
        integers = _integers(signature, sizes) if callee.integers else ()
        try:
            with self._lock:
                executor = self._executor(callee.body, sizes, shapes)
                with self._on(handle):
                    staged = program.stager.stage(views, executor.plan, handle, labels)
                    outputs = self._run(executor, staged, key, handle)
        finally:  # a call that fails may have queued some of its work
            for view in views:
                if isinstance(view, DeviceArray):
                    device.order(handle, view.stream)  # whoever uses or frees it there comes after this call
        arrays = self._arrays(executor.plan, staged, outputs, handle)
        results = _place_integers(integers, arrays) if integers else arrays
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, executor: Executor, staged: Sequence[StagedArgument | None], seed: int, stream: int) -> list[Buffer]:
        device, plan = self._program.device, executor.plan
        outputs = [device.allocate(nbytes, stream) for nbytes in plan.output_nbytes]
        if plan.seeds:
            device.write(self._seeds.address, draw_seeds(plan, seed), stream)
        addresses = [argument.array.address if argument else 0 for argument in staged]
        executor.run(addresses, [buffer.address for buffer in outputs], stream)
        for argument in staged:
            if argument is not None and argument.origin is not None:
                self._program.stager.write_back(argument)
        return outputs

    def _arrays(
        self, plan: Plan, staged: Sequence[StagedArgument | None], outputs: Sequence[Buffer], stream: int
    ) -> list[DeviceArray]:
        device = self._program.device
        results = []
        for reference, type_ in plan.results:
            if reference.base is Base.OUTPUT:
                buffer = outputs[reference.index]
                results.append(DeviceArray(device, buffer, buffer.address + reference.offset, type_, stream))
            else:
                argument = staged[reference.index]
                assert argument is not None, "the verifier lets no integer be returned as an array"
                results.append(argument.array.part(reference.offset, type_))
        return results

    # --- streams ---

    @contextmanager
    def _on(self, stream: int) -> Iterator[None]:
        """Orders the work queued inside after the latest call, with which it shares memory."""
        device = self._program.device
        device.order(self._stream, stream)
        self._stream = stream
        try:
            yield
        finally:
            self._stream = for_all_threads(stream, device)  # the next call may come from another thread
            device.order(stream, self._stream)

    # --- plans and memory ---

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(f"{self._program.file}: the program is closed, or this context of it")

    def prepare(self, functions: Sequence[ir.Function]) -> None:
        """Makes functions without symbols ready to run, with memory for all of them.

        Of a package of very many functions, only the first: each takes milliseconds, and its first call can as well.

        Raises:
            InputError: a launch does not fit the device or its kernel.
            DeviceError: there is too little memory.
        """
        with self._lock:
            self._reserve(self._program.arena_nbytes, 0, grows=False)
            operations = 0
            for function in functions[:_MAX_EXECUTORS]:
                operations += len(function.operations)
                if operations > _MAX_PREPARED:
                    break
                self._executor(function, {}, None)

    def _executor(
        self, function: ir.Function, sizes: Mapping[str, int], given: Sequence[tuple[int, ...] | int] | None
    ) -> Executor:
        self._check_open()
        key = (function.name, tuple(sizes.values()))
        executor = self._executors.pop(key, None)
        if given is not None and (executor is None or not _fit(executor.plan, given)):
            try:
                check_shapes(function.signature, given, sizes)
            except InputError:
                if executor is not None:
                    self._executors[key] = executor
                raise
        if executor is None:
            plan = self._program.plan(function, sizes)
            self._reserve(plan.arena_nbytes, plan.seeds_nbytes, grows=bool(sizes))
            memory = Memory(
                self._arena.address, self._program.weights_address, self._globals.address, self._seeds.address
            )
            executor = Executor(self._program.device, plan, self._program.kernels, memory, self._graphs)
        self._executors[key] = executor  # now the latest one
        while len(self._executors) > _MAX_EXECUTORS:
            self._executors.pop(next(iter(self._executors))).close()
        return executor

    def _reserve(self, arena_nbytes: int, seeds_nbytes: int, *, grows: bool) -> None:
        if arena_nbytes > self._arena.nbytes:
            # What other functions surely need comes at once, for a larger arena costs all that is bound to this one.
            least = max(arena_nbytes, self._program.arena_nbytes)
            slack = arena_nbytes // _SLACK if grows and self._arena.nbytes else 0
            try:
                self._replace(self._arena, max(arena_nbytes + slack, least))
            except DeviceError:
                if arena_nbytes + slack <= least:
                    raise
                self._replace(self._arena, least)
        if seeds_nbytes > self._seeds.nbytes:
            self._replace(self._seeds, max(seeds_nbytes, _LEAST_SEEDS))

    def _replace(self, block: _Block, nbytes: int) -> None:
        self._drop_executors()  # they know the old address
        # Memory is freed on the stream it was allocated for; the latest call may still use it on another.
        self._program.device.synchronize(self._stream)
        block.replace(nbytes, self._stream)

    def _drop_executors(self) -> None:
        while self._executors:
            self._executors.popitem()[1].close()

    # --- state ---

    def reset(self, *, stream: object = None) -> None:
        """Gives all globals their initial contents again.

        Args:
            stream: where to queue the work, as in a call.
        """
        self._change(stream, lambda handle: self._program.initialize_globals(self._globals.address, handle))

    def snapshot(self, *, stream: object = None) -> Snapshot:
        """A copy of all globals as they are after the calls so far.

        Args:
            stream: where to queue the work, as in a call.

        Raises:
            DeviceError: there is no memory for the copy.
        """
        device = self._program.device
        handle = stream_handle(stream, device)
        buffer = device.allocate(self._globals.nbytes, handle)
        self._change(handle, lambda _: device.copy(buffer.address, self._globals.address, buffer.nbytes, handle))
        return Snapshot(self._program, buffer, for_all_threads(handle, device))

    def restore(self, snapshot: Snapshot, *, stream: object = None) -> None:
        """Gives all globals the contents that they had when a snapshot was taken, of this or another context.

        Args:
            snapshot: of a context of the same program.
            stream: where to queue the work, as in a call.

        Raises:
            InputError: it is of another program.
        """
        if snapshot._program() is not self._program:
            raise InputError(f"{self._program.file}: the snapshot is of another program")
        device = self._program.device
        handle = stream_handle(stream, device)
        device.order(snapshot._stream, handle)
        source, nbytes = snapshot._buffer.address, snapshot._buffer.nbytes
        self._change(handle, lambda _: device.copy(self._globals.address, source, nbytes, handle))
        device.order(handle, snapshot._stream)  # its memory is freed there

    def _change(self, stream: object, queue: Callable[[int], Any]) -> None:
        handle = stream_handle(stream, self._program.device)
        with self._lock:
            self._check_open()
            with self._on(handle):
                queue(handle)

    # --- closing ---

    def close(self) -> None:
        """Waits for its work and frees its memory. Results and snapshots stay valid. Closing twice is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._program.device.synchronize(self._stream)
            finally:
                del _in_use[id(self)]
                self._drop_executors()
                for block in (self._arena, self._globals, self._seeds):
                    block.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_globals", None) is not None and not sys.is_finalizing():
            self.close()


def _integers(signature: ir.Signature, sizes: Mapping[str, int]) -> Sequence[int | None]:
    """For each output the integer that it is, None for an array."""
    return [None if output.value is None else value_of(output.value, signature, sizes) for output in signature.outputs]


def _place_integers(integers: Sequence[int | None], arrays: Sequence[DeviceArray]) -> list[Result]:
    """All results in order: where there is no integer, the next array."""
    left = iter(arrays)
    return [next(left) if integer is None else integer for integer in integers]


def _check_seed(signature: ir.Signature, seed: object) -> int:
    if signature.random:
        if seed is None:
            raise InputError(f"{signature.name}: draws random numbers; pass an integer as seed= (--seed)")
        return check_seed(seed, signature.name)
    if seed is not None:
        raise InputError(f"{signature.name}: takes no seed: it draws no random numbers")
    return 0


def draw_seeds(plan: Plan, seed: int) -> memoryview:
    """The bytes of all rows of seeds that a call with that seed has in memory."""
    block = bytearray(plan.seeds_nbytes)
    for row in plan.seeds:
        data = random_seeds(seed, row.count, row.philox_offset).tobytes()
        block[row.offset : row.offset + len(data)] = data
    return memoryview(block)


def _fit(plan: Plan, given: Sequence[tuple[int, ...] | int]) -> bool:
    return all(isinstance(g, int) or g == type_.shape for g, type_ in zip(given, plan.arguments, strict=True))
