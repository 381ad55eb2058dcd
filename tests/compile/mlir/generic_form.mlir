// Operations in their generic form.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>, sym_name = "products"}> ({
  ^bb0(%arg0: tensor<3x8xf32>, %arg1: tensor<3x8xf32>):
    %0 = "arith.mulf"(%arg0, %arg1) <{fastmath = #arith.fastmath<none>}> : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
    %1 = "arith.constant"() <{value = dense<1.500000e+00> : tensor<3x8xf32>}> : () -> tensor<3x8xf32>
    %2 = "arith.addf"(%0, %1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
    "func.return"(%2) : (tensor<3x8xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<3x8xf32>) -> (tensor<3xf32>, tensor<3xi1>), sym_name = "maxima"}> ({
  ^bb0(%arg0: tensor<3x8xf32>):
    %0 = "arith.constant"() <{value = 0xFF800000 : f32}> : () -> f32
    %1 = "tensor.empty"() : () -> tensor<3xf32>
    %2 = "linalg.fill"(%0, %1) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg1: f32, %arg2: f32):
      "linalg.yield"(%arg1) : (f32) -> ()
    }) : (f32, tensor<3xf32>) -> tensor<3xf32>
    %3 = "linalg.generic"(%arg0, %2) <{indexing_maps = [#map, #map1], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg1: f32, %arg2: f32):
      %5 = "arith.maxnumf"(%arg1, %arg2) : (f32, f32) -> f32
      "linalg.yield"(%5) : (f32) -> ()
    }) : (tensor<3x8xf32>, tensor<3xf32>) -> tensor<3xf32>
    %4 = "arith.cmpf"(%3, %3) <{predicate = 7 : i64}> : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
    "func.return"(%3, %4) : (tensor<3xf32>, tensor<3xi1>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<6x9xi32>) -> tensor<4xi32>, sym_name = "part"}> ({
  ^bb0(%arg0: tensor<6x9xi32>):
    %0 = "tensor.extract_slice"(%arg0) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 1, 2>, static_sizes = array<i64: 1, 4>, static_strides = array<i64: 3, 1>}> : (tensor<6x9xi32>) -> tensor<4xi32>
    %1:2 = "arith.addui_extended"(%0, %0) : (tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi1>)
    %2 = "arith.extui"(%1#1) : (tensor<4xi1>) -> tensor<4xi32>
    %3 = "arith.xori"(%1#0, %2) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    "func.return"(%3) : (tensor<4xi32>) -> ()
  }) : () -> ()
}) : () -> ()
