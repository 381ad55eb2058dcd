// forms.mlir as iree-opt 3.13.0 prints it with --mlir-print-op-generic --allow-unregistered-dialect.
#map = affine_map<(d0)[s0] -> (d0 + s0 * 4)>
#map1 = affine_map<(d0, d1)[s0, s1] -> (d0 * 2 + s0 - d1, ((d1 + s1) floordiv 3) mod 5, (-d0) ceildiv 4)>
#map2 = affine_map<(d0) -> (d0, 5)>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map6 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map7 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map8 = affine_map<(d0) -> ()>
"builtin.module"() ({
  "func.func"() <{arg_attrs = [{}, {x.y}], function_type = (tensor<4xf32>, i32) -> (tensor<4xf32>, i1), res_attrs = [{x.z = 1 : i8}, {}], sym_name = "declared", sym_visibility = "private"}> ({
  }) : () -> ()
  "func.func"() <{function_type = () -> (), sym_name = "empty", sym_visibility = "nested"}> ({
    "func.return"() : () -> ()
  }) {a, b.c = "d", "quoted key" = [true, false, unit, -3, 2.500000e+00, @s::@t, f32, (f32) -> ()]} : () -> ()
  "func.func"() <{function_type = (tensor<4xf32>, i32) -> tensor<4xf32>, sym_name = "calls"}> ({
  ^bb0(%arg63: tensor<4xf32>, %arg64: i32):
    %108:2 = "func.call"(%arg63, %arg64) <{callee = @declared}> : (tensor<4xf32>, i32) -> (tensor<4xf32>, i1)
    %109:2 = "func.call"(%108#0, %arg64) <{callee = @declared}> {k} : (tensor<4xf32>, i32) -> (tensor<4xf32>, i1)
    "cf.assert"(%109#1) <{msg = "a \22quoted\22 \E2\82\AC\0A text"}> : (i1) -> ()
    "func.return"(%109#0) : (tensor<4xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (f32, f32, i32, i32, f16) -> (), sym_name = "flags"}> ({
  ^bb0(%arg58: f32, %arg59: f32, %arg60: i32, %arg61: i32, %arg62: f16):
    %84 = "arith.addf"(%arg58, %arg59) <{fastmath = #arith.fastmath<nnan,ninf>}> {x.y = 1 : i64} : (f32, f32) -> f32
    %85 = "arith.addi"(%arg60, %arg61) <{overflowFlags = #arith.overflow<nsw, nuw>}> : (i32, i32) -> i32
    %86 = "arith.shrui"(%arg60, %arg61) <{isExact}> : (i32, i32) -> i32
    %87 = "arith.divsi"(%arg60, %arg61) <{isExact}> : (i32, i32) -> i32
    %88 = "arith.extui"(%arg60) <{nonNeg}> : (i32) -> i64
    %89 = "arith.uitofp"(%arg60) <{nonNeg}> : (i32) -> f32
    %90 = "arith.truncf"(%arg58) <{roundingmode = 0 : i32}> : (f32) -> f16
    %91 = "arith.trunci"(%arg60) <{overflowFlags = #arith.overflow<nsw>}> : (i32) -> i8
    %92 = "arith.cmpf"(%arg58, %arg59) <{fastmath = #arith.fastmath<fast>, predicate = 11 : i64}> : (f32, f32) -> i1
    %93 = "arith.cmpi"(%arg60, %arg61) <{predicate = 5 : i64}> : (i32, i32) -> i1
    %94 = "arith.extf"(%arg62) <{fastmath = #arith.fastmath<contract>}> : (f16) -> f32
    %95 = "arith.cmpf"(%arg58, %arg59) <{fastmath = #arith.fastmath<none>, predicate = 15 : i64}> : (f32, f32) -> i1
    %96 = "arith.select"(%93, %arg58, %arg59) : (i1, f32, f32) -> f32
    %97:2 = "arith.mulsi_extended"(%arg60, %arg61) : (i32, i32) -> (i32, i32)
    %98:2 = "arith.addui_extended"(%arg60, %arg61) : (i32, i32) -> (i32, i1)
    %99 = "math.fpowi"(%arg58, %arg60) <{fastmath = #arith.fastmath<afn>}> : (f32, i32) -> f32
    %100 = "math.clampf"(%arg58, %arg59, %94) <{fastmath = #arith.fastmath<none>}> : (f32, f32, f32) -> f32
    %101 = "math.fma"(%arg58, %arg59, %arg58) <{fastmath = #arith.fastmath<none>}> : (f32, f32, f32) -> f32
    %102:2 = "math.sincos"(%arg58) <{fastmath = #arith.fastmath<none>}> : (f32) -> (f32, f32)
    %103 = "math.isnan"(%arg58) <{fastmath = #arith.fastmath<none>}> : (f32) -> i1
    %104:2 = "arith.subui_extended"(%arg60, %arg61) : (i32, i32) -> (i32, i1)
    %105 = "arith.convertf"(%arg62) : (f16) -> bf16
    %106 = "arith.maximumnumf"(%arg58, %arg59) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
    %107 = "arith.flush_denormals"(%arg58) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
    "func.return"() : () -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<4xi1>, i1, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>), sym_name = "selects"}> ({
  ^bb0(%arg55: tensor<4xi1>, %arg56: i1, %arg57: tensor<4xf32>):
    %82 = "arith.select"(%arg55, %arg57, %arg57) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %83 = "arith.select"(%arg56, %arg57, %arg57) : (i1, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%82, %83) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = () -> (), sym_name = "constants"}> ({
    %60 = "arith.constant"() <{value = 1 : index}> : () -> index
    %61 = "arith.constant"() <{value = true}> : () -> i1
    %62 = "arith.constant"() <{value = -1 : i8}> {x.y} : () -> i8
    %63 = "arith.constant"() <{value = -1 : i16}> : () -> i16
    %64 = "arith.constant"() <{value = 1.000000e+00 : f64}> : () -> f64
    %65 = "arith.constant"() <{value = 4 : i64}> : () -> i64
    %66 = "arith.constant"() <{value = 0x7FF0000000000000 : f64}> : () -> f64
    %67 = "arith.constant"() <{value = dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>}> : () -> tensor<2x3xi32>
    %68 = "arith.constant"() <{value = dense<true> : tensor<3xi1>}> : () -> tensor<3xi1>
    %69 = "arith.constant"() <{value = dense<[0.000000e+00, 1.000000e+00]> : tensor<2xf32>}> : () -> tensor<2xf32>
    %70 = "arith.constant"() <{value = dense<[1.000980e-01, -9.999220e+09, 0x7FC0, 3.140630e+00]> : tensor<4xbf16>}> : () -> tensor<4xbf16>
    %71 = "arith.constant"() <{value = dense<[0.000000e+00, 6.550400e+04, 0x7C00, 3.332520e-01]> : tensor<4xf16>}> : () -> tensor<4xf16>
    %72 = "arith.constant"() <{value = dense<-1> : tensor<2x2xindex>}> : () -> tensor<2x2xindex>
    %73 = "arith.constant"() <{value = dense<[-1, -128]> : tensor<2xi8>}> : () -> tensor<2xi8>
    %74 = "arith.constant"() <{value = dense<[3.125000e-01, -4.480000e+02]> : tensor<2xf8E4M3FN>}> : () -> tensor<2xf8E4M3FN>
    %75 = "arith.constant"() <{value = dense<> : tensor<0x3xf32>}> : () -> tensor<0x3xf32>
    %76 = "arith.constant"() <{value = dense<[-1, -9223372036854775808]> : tensor<2xi64>}> : () -> tensor<2xi64>
    %77 = "arith.constant"() <{value = dense<[7, -8]> : tensor<2xi4>}> : () -> tensor<2xi4>
    %78 = "arith.constant"() <{value = dense<[true, false]> : tensor<2xi1>}> : () -> tensor<2xi1>
    %79 = "arith.constant"() <{value = 1.703130e+00 : bf16}> : () -> bf16
    %80 = "arith.constant"() <{value = dense<2.500000e-01> : tensor<f32>}> : () -> tensor<f32>
    %81 = "arith.constant"() <{value = dense_resource<blob> : tensor<3xi16>}> : () -> tensor<3xi16>
    "func.return"() : () -> ()
  }) : () -> ()
  "func.func"() <{function_type = (index, index) -> (index, index, index), sym_name = "affine"}> ({
  ^bb0(%arg53: index, %arg54: index):
    %57 = "affine.apply"(%arg53, %arg54) <{map = #map}> : (index, index) -> index
    %58 = "affine.min"(%arg53, %arg54, %arg54, %arg53) <{map = #map1}> : (index, index, index, index) -> index
    %59 = "affine.max"(%arg53) <{map = #map2}> {k = 1 : i32} : (index) -> index
    "func.return"(%57, %58, %59) : (index, index, index) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<?x4xf32>, index, f32, tensor<2xindex>) -> (), sym_name = "tensors"}> ({
  ^bb0(%arg45: tensor<?x4xf32>, %arg46: index, %arg47: f32, %arg48: tensor<2xindex>):
    %32 = "tensor.empty"(%arg46, %arg46) : (index, index) -> tensor<?x3x?xf32>
    %33 = "arith.constant"() <{value = 1 : index}> : () -> index
    %34 = "tensor.dim"(%arg45, %33) {k} : (tensor<?x4xf32>, index) -> index
    %35 = "tensor.rank"(%arg45) : (tensor<?x4xf32>) -> index
    %36 = "tensor.extract"(%arg45, %arg46, %33) : (tensor<?x4xf32>, index, index) -> f32
    %37 = "tensor.insert"(%arg47, %arg45, %arg46, %arg46) : (f32, tensor<?x4xf32>, index, index) -> tensor<?x4xf32>
    %38 = "tensor.extract_slice"(%arg45, %arg46, %arg46) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>, static_offsets = array<i64: -9223372036854775808, 0>, static_sizes = array<i64: 2, -9223372036854775808>, static_strides = array<i64: 1, 1>}> : (tensor<?x4xf32>, index, index) -> tensor<2x?xf32>
    %39 = "tensor.extract_slice"(%arg45) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0, 0>, static_sizes = array<i64: 1, 4>, static_strides = array<i64: 1, 1>}> {k} : (tensor<?x4xf32>) -> tensor<4xf32>
    %40 = "tensor.insert_slice"(%39, %arg45, %arg46, %arg46) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>, static_offsets = array<i64: -9223372036854775808, 0>, static_sizes = array<i64: 1, 4>, static_strides = array<i64: -9223372036854775808, 1>}> : (tensor<4xf32>, tensor<?x4xf32>, index, index) -> tensor<?x4xf32>
    %41 = "tensor.expand_shape"(%arg45, %arg46) <{reassociation = [[0], [1, 2]], static_output_shape = array<i64: -9223372036854775808, 2, 2>}> : (tensor<?x4xf32>, index) -> tensor<?x2x2xf32>
    %42 = "tensor.collapse_shape"(%41) <{reassociation = [[0, 1], [2]]}> : (tensor<?x2x2xf32>) -> tensor<?x2xf32>
    %43 = "tensor.cast"(%arg45) : (tensor<?x4xf32>) -> tensor<3x4xf32>
    %44 = "tensor.pad"(%arg45, %arg46, %arg46) <{nofold, operandSegmentSizes = array<i32: 1, 1, 1>, static_high = array<i64: -9223372036854775808, 1>, static_low = array<i64: 0, -9223372036854775808>}> ({
    ^bb0(%arg51: index, %arg52: index):
      "tensor.yield"(%arg47) : (f32) -> ()
    }) : (tensor<?x4xf32>, index, index) -> tensor<?x?xf32>
    %45 = "tensor.splat"(%arg47) : (f32) -> tensor<2x3xf32>
    %46 = "tensor.splat"(%arg47, %arg46) : (f32, index) -> tensor<2x?xf32>
    %47 = "tensor.from_elements"(%arg47, %arg47, %arg47) : (f32, f32, f32) -> tensor<3xf32>
    %48 = "tensor.from_elements"(%arg47) : (f32) -> tensor<f32>
    %49 = "tensor.concat"(%arg45, %arg45) <{dim = 1 : i64}> : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
    %50 = "tensor.generate"(%arg46) ({
    ^bb0(%arg49: index, %arg50: index):
      %55 = "arith.index_cast"(%arg49) : (index) -> i32
      %56 = "arith.sitofp"(%55) : (i32) -> f32
      "tensor.yield"(%56) : (f32) -> ()
    }) : (index) -> tensor<?x4xf32>
    %51 = "tensor.reshape"(%arg45, %arg48) : (tensor<?x4xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %52 = "tensor.bitcast"(%arg45) : (tensor<?x4xf32>) -> tensor<?x4xi32>
    %53 = "tensor.extract"(%48) : (tensor<f32>) -> f32
    %54 = "tensor.expand_shape"(%48) <{reassociation = [], static_output_shape = array<i64: 1, 1>}> : (tensor<f32>) -> tensor<1x1xf32>
    "func.return"() : () -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<4xf32>, tensor<3x4xf32>, tensor<4x5xf32>, tensor<3x5xf32>, tensor<3xf32>, f32) -> (), sym_name = "structured"}> ({
  ^bb0(%arg3: tensor<4xf32>, %arg4: tensor<3x4xf32>, %arg5: tensor<4x5xf32>, %arg6: tensor<3x5xf32>, %arg7: tensor<3xf32>, %arg8: f32):
    %1 = "linalg.generic"(%arg3, %arg3) <{indexing_maps = [#map3, #map3], iterator_types = [#linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg43: f32, %arg44: f32):
      %31 = "linalg.index"() <{dim = 0 : i64}> : () -> index
      "linalg.yield"(%arg43) : (f32) -> ()
    }) {x.y = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2:2 = "linalg.generic"(%arg3, %arg3) <{indexing_maps = [#map3, #map3], iterator_types = [#linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 0, 2>}> ({
    ^bb0(%arg41: f32, %arg42: f32):
      "linalg.yield"(%arg41, %arg42) : (f32, f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    %3 = "linalg.fill"(%arg8, %arg6) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg39: f32, %arg40: f32):
      "linalg.yield"(%arg39) : (f32) -> ()
    }) : (f32, tensor<3x5xf32>) -> tensor<3x5xf32>
    %4 = "linalg.matmul"(%arg4, %arg5, %3) <{indexing_maps = [#map4, #map5, #map6], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg36: f32, %arg37: f32, %arg38: f32):
      %29 = "arith.mulf"(%arg36, %arg37) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %30 = "arith.addf"(%arg38, %29) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%30) : (f32) -> ()
    }) {x.y} : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %5 = "tensor.empty"() : () -> tensor<3x3xf32>
    %6 = "tensor.empty"() : () -> tensor<4x3xf32>
    %7 = "tensor.empty"() : () -> tensor<f32>
    %8 = "linalg.matmul"(%arg4, %arg4, %5) <{indexing_maps = [#map4, #map7, #map6], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg33: f32, %arg34: f32, %arg35: f32):
      %27 = "arith.mulf"(%arg33, %arg34) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %28 = "arith.addf"(%arg35, %27) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%28) : (f32) -> ()
    }) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %9 = "linalg.reduce"(%arg4, %arg7) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg31: f32, %arg32: f32):
      %26 = "arith.addf"(%arg32, %arg31) <{fastmath = #arith.fastmath<fast>}> : (f32, f32) -> f32
      "linalg.yield"(%26) : (f32) -> ()
    }) : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3xf32>
    %10 = "linalg.reduce"(%arg4, %arg7) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg29: f32, %arg30: f32):
      %25 = "arith.maxnumf"(%arg29, %arg30) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%25) : (f32) -> ()
    }) {x.y} : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3xf32>
    %11:2 = "linalg.reduce"(%arg4, %arg4, %arg7, %arg7) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg25: f32, %arg26: f32, %arg27: f32, %arg28: f32):
      "linalg.yield"(%arg25, %arg26) : (f32, f32) -> ()
    }) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
    %12 = "linalg.map"(%arg3, %arg3) ({
    ^bb0(%arg23: f32, %arg24: f32):
      %24 = "math.exp"(%arg23) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%24) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %13 = "linalg.map"(%arg3, %arg3, %arg3) ({
    ^bb0(%arg20: f32, %arg21: f32, %arg22: f32):
      %23 = "arith.mulf"(%arg20, %arg21) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%23) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %14 = "linalg.transpose"(%arg4, %6) <{permutation = array<i64: 1, 0>}> ({
    ^bb0(%arg18: f32, %arg19: f32):
      "linalg.yield"(%arg18) : (f32) -> ()
    }) : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    %15 = "linalg.broadcast"(%arg7, %arg4) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg16: f32, %arg17: f32):
      "linalg.yield"(%arg16) : (f32) -> ()
    }) {x.y} : (tensor<3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %16 = "linalg.softmax"(%arg4, %arg4) <{dimension = 1 : i64}> : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %17 = "linalg.elementwise"(%arg3, %arg3) <{indexing_maps = [#map3, #map3], kind = #linalg.elementwise_kind<exp>, operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg14: f32, %arg15: f32):
      %22 = "math.exp"(%arg14) <{fastmath = #arith.fastmath<none>}> : (f32) -> f32
      "linalg.yield"(%22) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %18 = "linalg.contract"(%arg3, %arg3, %7) <{indexing_maps = [#map3, #map3, #map8], operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg11: f32, %arg12: f32, %arg13: f32):
      %20 = "arith.mulf"(%arg11, %arg12) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %21 = "arith.addf"(%arg13, %20) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%21) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %19 = "linalg.copy"(%arg3, %arg3) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg9: f32, %arg10: f32):
      "linalg.yield"(%arg9) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"() : () -> ()
  }) : () -> ()
  "func.func"() <{function_type = (i32) -> (i32, i32), sym_name = "generic_form"}> ({
  ^bb0(%arg0: i32):
    %0:3 = "test.many"(%arg0, %arg0) <{p = 1 : i64}> ({
    ^bb0(%arg1: i32, %arg2: i32):
      "test.br"(%arg1)[^bb1, ^bb1] : (i32) -> ()
    ^bb1:  // 2 preds: ^bb0, ^bb0
      "test.end"() : () -> ()
    }, {
    }) {q = #test.attr<a, [b], "c">, type = !test.type<x>} : (i32, i32) -> (i32, f32, i32)
    "func.return"(%0#0, %0#2) : (i32, i32) -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "inner"}> ({
    "func.func"() <{function_type = () -> (), sym_name = "declared", sym_visibility = "private"}> ({
    }) : () -> ()
  }) {x.y = 2 : i8} : () -> ()
}) : () -> ()

{-#
  dialect_resources: {
    builtin: {
      blob: "0x02000000010002000300"
    }
  }
#-}

