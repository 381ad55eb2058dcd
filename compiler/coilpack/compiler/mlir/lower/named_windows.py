"""Named convolutions and pooling, whose names say the order of their operands' dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from coilpack.compiler.mlir.lower.context import Context, Data, Handler, Size
from coilpack.compiler.mlir.lower.named_bodies import BodyWriter, execute_structured
from coilpack.compiler.mlir.syntax import (
    AffineBinary,
    AffineConstant,
    AffineDim,
    AffineExpr,
    AffineMap,
    DenseElementsAttr,
    Operation,
)

_SPATIAL = "dhw"
_CONVOLVED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # what torch's convolution multiplies


@dataclass(frozen=True)
class Layout:
    """The dimensions of each operand, one letter each.

    `n` is the batch, `c` channels, `f` filters, `g` groups, `m` the filters of one channel; `d`, `h`, `w` are places in
    the input and the result, and offsets in the window.
    """

    input: str
    window: str
    output: str

    @property
    def spatial(self) -> str:
        """The letters of places, in the window's order."""
        return "".join(c for c in self.window if c in _SPATIAL)


_CONVOLUTIONS: Mapping[str, Layout] = {
    "linalg.conv_1d": Layout("w", "w", "w"),
    "linalg.conv_1d_ncw_fcw": Layout("ncw", "fcw", "nfw"),
    "linalg.conv_1d_nwc_wcf": Layout("nwc", "wcf", "nwf"),
    "linalg.conv_2d": Layout("hw", "hw", "hw"),
    "linalg.conv_2d_nchw_fchw": Layout("nchw", "fchw", "nfhw"),
    "linalg.conv_2d_nhwc_hwcf": Layout("nhwc", "hwcf", "nhwf"),
    "linalg.conv_2d_nhwc_fhwc": Layout("nhwc", "fhwc", "nhwf"),
    "linalg.conv_2d_ngchw_fgchw": Layout("ngchw", "fgchw", "ngfhw"),
    "linalg.conv_2d_ngchw_gfchw": Layout("ngchw", "gfchw", "ngfhw"),
    "linalg.conv_2d_nhwgc_gfhwc": Layout("nhwgc", "gfhwc", "nhwgf"),
    "linalg.conv_3d": Layout("dhw", "dhw", "dhw"),
    "linalg.conv_3d_ncdhw_fcdhw": Layout("ncdhw", "fcdhw", "nfdhw"),
    "linalg.conv_3d_ndhwc_dhwcf": Layout("ndhwc", "dhwcf", "ndhwf"),
    "linalg.depthwise_conv_1d_ncw_cw": Layout("ncw", "cw", "ncw"),
    "linalg.depthwise_conv_1d_nwc_wc": Layout("nwc", "wc", "nwc"),
    "linalg.depthwise_conv_1d_nwc_wcm": Layout("nwc", "wcm", "nwcm"),
    "linalg.depthwise_conv_2d_nchw_chw": Layout("nchw", "chw", "nchw"),
    "linalg.depthwise_conv_2d_nhwc_hwc": Layout("nhwc", "hwc", "nhwc"),
    "linalg.depthwise_conv_2d_nhwc_hwcm": Layout("nhwc", "hwcm", "nhwcm"),
}
_SIGNED_KINDS: Mapping[str, str] = {"sum": "add", "max": "max_signed", "min": "min_signed"}
_ALL_KINDS: Mapping[str, str] = {**_SIGNED_KINDS, "max_unsigned": "max_unsigned", "min_unsigned": "min_unsigned"}
_POOLING: Mapping[str, tuple[str, Mapping[str, str]]] = {  # the window, and what is done with it by the end of the name
    "ncw": ("w", {"sum": "add", "max": "max_signed"}),
    "nwc": ("w", _ALL_KINDS),
    "nchw": ("hw", {"sum": "add", "max": "max_signed"}),
    "nhwc": ("hw", _ALL_KINDS),
    "ndhwc": ("dhw", _SIGNED_KINDS),
}


@dataclass(frozen=True)
class Window:
    """A layout with the steps of its places and offsets, by letter."""

    layout: Layout
    strides: Mapping[str, int]
    dilations: Mapping[str, int]

    @classmethod
    def of(cls, context: Context, operation: Operation, layout: Layout) -> Window:
        """Reads the attributes `strides` and `dilations`, which are 1 by default.

        Raises:
            InvalidFileError: a step is not positive, or there are not as many as the window has dimensions.
        """
        return cls(
            layout, _steps(context, operation, "strides", layout), _steps(context, operation, "dilations", layout)
        )

    def maps(self) -> list[AffineMap]:
        """The map of each operand, over the output's dimensions, then those that are summed, then the window's."""
        layout = self.layout
        letters = list(dict.fromkeys(layout.output + "".join(c for c in layout.input if c not in _SPATIAL)))
        place = {letter: AffineDim(number) for number, letter in enumerate(letters)}
        offset = {letter: AffineDim(len(letters) + number) for number, letter in enumerate(layout.spatial)}
        dims = len(letters) + len(offset)

        def at(letter: str) -> AffineExpr:
            if letter not in offset:
                return place[letter]
            return _sum(_times(place[letter], self.strides[letter]), _times(offset[letter], self.dilations[letter]))

        results: list[list[AffineExpr]] = [
            [at(letter) for letter in layout.input],
            [offset.get(letter) or place[letter] for letter in layout.window],
            [place[letter] for letter in layout.output],
        ]
        return [AffineMap(dims, 0, tuple(parts)) for parts in results]


def _times(dim: AffineDim, factor: int) -> AffineExpr:
    return dim if factor == 1 else AffineBinary("*", dim, AffineConstant(factor))


def _sum(left: AffineExpr, right: AffineExpr) -> AffineExpr:
    return AffineBinary("+", left, right)


def _steps(context: Context, operation: Operation, name: str, layout: Layout) -> dict[str, int]:
    attribute, spatial = operation.attributes.get(name), layout.spatial
    values = [1] * len(spatial)
    if isinstance(attribute, DenseElementsAttr):
        array = attribute.array
        values = [int(array)] * len(spatial) if array.ndim == 0 else [int(value) for value in array.flat]
    if len(values) != len(spatial) or min(values, default=1) < 1:
        problem = f"{name} = {values}: {len(spatial)} positive numbers are needed"
        raise context.invalid(operation, f"{operation.name}: {problem}")
    return dict(zip(spatial, values, strict=True))


# --- convolutions ---


def _convolution(layout: Layout) -> Handler:
    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        if len(operation.operands) != 3:
            raise context.invalid(operation, f"{operation.name}: {len(operation.operands)} operands instead of 3")
        window = Window.of(context, operation, layout)
        convolved = _convolved_by_torch(context, operation, window)
        if convolved is not None:
            return context.declared(operation, (convolved,))
        writer = BodyWriter.of(context, operation)
        element, weight, total = writer.arguments
        product = writer.combine("mul", writer.convert(element, writer.result), writer.convert(weight, writer.result))
        block = writer.block(writer.combine("add", total, product))
        return execute_structured(context, operation, window.maps(), block)

    return handle


def _convolved_by_torch(context: Context, operation: Operation, window: Window) -> torch.Tensor | None:
    """The sum of a convolution of torch's, for which Inductor has templates, and the init; None where it has none."""
    x, weights, init = context.tensors(operation)
    layout = window.layout
    if init.dtype not in _CONVOLVED or not x.is_floating_point() or not weights.is_floating_point():
        return None
    if "n" not in layout.input or "g" in layout.input:
        return None
    _require_sizes(context, operation, layout, (x, weights, init))
    spatial = layout.spatial
    x = _ordered(x, layout.input, f"nc{spatial}").to(init.dtype)
    for dim, letter in enumerate(spatial, start=2):
        needed = _reach(
            window, letter, init.shape[layout.output.index(letter)], weights.shape[layout.window.index(letter)]
        )
        x = _shortened(context, operation, x, dim, needed)
    groups = 1 if "f" in layout.window else int(x.shape[1])
    kernel = _kernel(weights.to(init.dtype), layout)
    result = torch.ops.aten.convolution.default(
        *(x, kernel, None),
        [window.strides[c] for c in spatial],
        [0] * len(spatial),
        [window.dilations[c] for c in spatial],
        *(False, [0] * len(spatial), groups),
    )
    return init + _placed(result, layout, weights)


def _require_sizes(context: Context, operation: Operation, layout: Layout, tensors: Sequence[torch.Tensor]) -> None:
    """Checks that dimensions of one letter are equal; places are not, which only have to be reached."""
    sizes: dict[str, Size] = {}
    for tensor, letters in zip(tensors, (layout.input, layout.window, layout.output), strict=True):
        if tensor.ndim != len(letters):
            raise context.invalid(operation, f"{operation.name}: {tensor.ndim} dimensions instead of {len(letters)}")
        for size, letter in zip(tensor.shape, letters, strict=True):
            if letter not in _SPATIAL:
                context.require_equal(
                    operation, size, sizes.setdefault(letter, size), f"the size of dimension {letter}"
                )


def _ordered(x: torch.Tensor, letters: str, wanted: str) -> torch.Tensor:
    return x.permute([letters.index(letter) for letter in wanted])


def _reach(window: Window, letter: str, places: Size, offsets: Size) -> Size:
    """How many elements of the input are read along a dimension."""
    return (places - 1) * window.strides[letter] + (offsets - 1) * window.dilations[letter] + 1


def _shortened(context: Context, operation: Operation, x: torch.Tensor, dim: int, needed: Size) -> torch.Tensor:
    """Without what no window reaches at the end of a dimension."""
    if statically_known_true(x.shape[dim] == needed):
        return x
    what = f"the windows read {needed} elements of dimension {dim - 2} of {x.shape[dim]}"
    context.require(operation, needed <= x.shape[dim], what)
    return x.narrow(dim, 0, needed)


def _kernel(weights: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Weights as torch has them: filters, channels of one group, offsets."""
    if "f" in layout.window:
        return _ordered(weights, layout.window, f"fc{layout.spatial}")
    if "m" in layout.window:
        return _ordered(weights, layout.window, f"cm{layout.spatial}").flatten(0, 1).unsqueeze(1)
    return _ordered(weights, layout.window, f"c{layout.spatial}").unsqueeze(1)


def _placed(result: torch.Tensor, layout: Layout, weights: torch.Tensor) -> torch.Tensor:
    """The result of torch in the order of the output."""
    if "m" in layout.window:
        result = result.unflatten(1, (-1, weights.shape[layout.window.index("m")]))  # type: ignore[no-untyped-call]
        return _ordered(result, f"ncm{layout.spatial}", layout.output)
    filters = "f" if "f" in layout.window else "c"
    return _ordered(result, f"n{filters}{layout.spatial}", layout.output)


# --- pooling ---


def _pooling(layout: Layout, kind: str) -> Handler:
    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        if len(operation.operands) != 3:
            raise context.invalid(operation, f"{operation.name}: {len(operation.operands)} operands instead of 3")
        writer = BodyWriter.of(context, operation)
        element, _, total = writer.arguments
        block = writer.block(writer.combine(kind, total, writer.convert(element, writer.result)))
        return execute_structured(context, operation, Window.of(context, operation, layout).maps(), block)

    return handle


OPERATIONS: Mapping[str, Handler] = {
    **{name: _convolution(layout) for name, layout in _CONVOLUTIONS.items()},
    **{
        f"linalg.pooling_{letters}_{name}": _pooling(Layout(letters, window, letters), kind)
        for letters, (window, kinds) in _POOLING.items()
        for name, kind in kinds.items()
    },
}
