"""Which form of the grammar an operation has."""

from __future__ import annotations

from collections.abc import Iterable


def _family(dialect: str, names: str) -> Iterable[str]:
    return (f"{dialect}.{name}" for name in names.split())


# Operations on scalars and tensors alike whose operands are all of one type, by the number of operands.
ELEMENTWISE: dict[str, int] = {
    **dict.fromkeys(_family("arith", "flush_denormals negf"), 1),
    **dict.fromkeys(
        _family(
            "math",
            "absf absi acos acosh asin asinh atan atanh cbrt ceil cos cosh ctlz ctpop cttz erf erfc exp exp2 expm1"
            " floor isfinite isinf isnan isnormal log log10 log1p log2 round roundeven rsqrt sin sincos sinh sqrt tan"
            " tanh trunc",
        ),
        1,
    ),
    **dict.fromkeys(
        _family(
            "arith",
            "addf addi andi ceildivsi ceildivui divf divsi divui floordivsi maximumf maximumnumf maxnumf maxsi maxui"
            " minimumf minimumnumf minnumf minsi minui mulf muli mulsi_extended mului_extended ori remf remsi remui"
            " shli shrsi shrui subf subi xori",
        ),
        2,
    ),
    **dict.fromkeys(_family("math", "atan2 copysign ipowi powf"), 2),
    "math.fma": 3,
}
# Those whose results are truths, and those that have two results of the operands' type.
TESTS = frozenset(_family("math", "isfinite isinf isnan isnormal"))
PAIRS = frozenset((*_family("arith", "mulsi_extended mului_extended"), "math.sincos"))

CASTS = (
    *_family(
        "arith",
        "bitcast convertf extf extsi extui fptosi fptoui index_cast index_castui sitofp truncf trunci uitofp",
    ),
    *_family("tensor", "bitcast cast"),
)

# Structured operations of which the name says what they compute: `linalg.name ins(…) outs(…)`.
NAMED = tuple(
    _family(
        "linalg",
        "abs add ceil copy div div_unsigned erf exp fill floor log max min mul negf powf reciprocal round rsqrt select"
        " sqrt square sub tanh elementwise softmax"
        " matmul matmul_transpose_a matmul_transpose_b batch_matmul batch_matmul_transpose_a batch_matmul_transpose_b"
        " batch_reduce_matmul quantized_matmul quantized_batch_matmul mmt4d batch_mmt4d contract"
        " matvec vecmat batch_matvec batch_vecmat dot"
        " conv_1d conv_2d conv_3d conv_1d_nwc_wcf conv_1d_ncw_fcw conv_2d_nhwc_hwcf conv_2d_nhwc_fhwc"
        " conv_2d_nchw_fchw conv_2d_nhwc_hwcf_q conv_2d_nhwc_fhwc_q conv_2d_nchw_fchw_q conv_2d_ngchw_fgchw"
        " conv_2d_ngchw_gfchw conv_2d_nhwgc_gfhwc conv_2d_ngchw_gfchw_q conv_2d_nhwgc_gfhwc_q"
        " conv_3d_ndhwc_dhwcf conv_3d_ndhwc_dhwcf_q conv_3d_ncdhw_fcdhw"
        " depthwise_conv_1d_nwc_wc depthwise_conv_1d_ncw_cw depthwise_conv_1d_nwc_wcm depthwise_conv_2d_nhwc_hwc"
        " depthwise_conv_2d_nchw_chw depthwise_conv_2d_nhwc_hwcm depthwise_conv_2d_nhwc_hwc_q"
        " depthwise_conv_2d_nhwc_hwcm_q depthwise_conv_3d_ndhwc_dhwc depthwise_conv_3d_ncdhw_cdhw"
        " depthwise_conv_3d_ndhwc_dhwcm"
        " pooling_nhwc_sum pooling_nhwc_max pooling_nhwc_max_unsigned pooling_nhwc_min pooling_nhwc_min_unsigned"
        " pooling_nchw_sum pooling_nchw_max pooling_nwc_sum pooling_nwc_max pooling_nwc_max_unsigned pooling_nwc_min"
        " pooling_nwc_min_unsigned pooling_ncw_sum pooling_ncw_max pooling_ndhwc_sum pooling_ndhwc_max"
        " pooling_ndhwc_min",
    )
)

# The kind of token that an operation's name is; the rules of the grammar start with them.
FORMS: dict[str, str] = {
    "func.func": "FUNCTION",
    "module": "MODULE",
    "builtin.module": "MODULE",
    **dict.fromkeys(("func.call", "call"), "CALL"),
    **dict.fromkeys(("func.return", "return", "linalg.yield", "tensor.yield"), "YIELD"),
    "cf.assert": "ASSERT",
    **dict.fromkeys(_family("affine", "apply max min"), "AFFINE"),
    "arith.constant": "CONSTANT",
    **dict.fromkeys(ELEMENTWISE, "ELEMENTWISE"),
    **dict.fromkeys(("arith.addui_extended", "arith.subui_extended", "math.fpowi"), "MIXED"),
    **dict.fromkeys(_family("arith", "cmpf cmpi"), "COMPARE"),
    "arith.select": "SELECT",
    "math.clampf": "CLAMP",
    **dict.fromkeys(CASTS, "CAST"),
    "tensor.empty": "EMPTY",
    "tensor.dim": "DIM",
    "tensor.rank": "RANK",
    "tensor.extract": "EXTRACT",
    "tensor.insert": "INSERT",
    "tensor.extract_slice": "EXTRACT_SLICE",
    "tensor.insert_slice": "INSERT_SLICE",
    "tensor.expand_shape": "REGROUP",
    "tensor.collapse_shape": "REGROUP",
    "tensor.reshape": "RESHAPE",
    "tensor.pad": "PAD",
    "tensor.splat": "SPLAT",
    "tensor.from_elements": "FROM_ELEMENTS",
    "tensor.concat": "CONCAT",
    "tensor.generate": "GENERATE",
    "linalg.generic": "GENERIC",
    "linalg.index": "INDEX",
    **dict.fromkeys(_family("linalg", "broadcast map reduce transpose"), "BODIED"),
    **dict.fromkeys(NAMED, "NAMED"),
}
