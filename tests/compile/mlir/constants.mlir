// Constants of all kinds.

func.func @dense_and_splat() -> (tensor<2x3xf32>, tensor<4xf64>, tensor<3xi64>, tensor<2x2xi8>, tensor<f32>) {
  %0 = arith.constant dense<[[1.0, -2.5, 3.25e-3], [4.0e+5, 0.0, -0.0]]> : tensor<2x3xf32>
  %1 = arith.constant dense<0.1> : tensor<4xf64>
  %2 = arith.constant dense<[1, -9223372036854775808, 9223372036854775807]> : tensor<3xi64>
  %3 = arith.constant dense<[[0x7F, -128], [255, 1]]> : tensor<2x2xi8>
  %4 = arith.constant dense<42.5> : tensor<f32>
  return %0, %1, %2, %3, %4 : tensor<2x3xf32>, tensor<4xf64>, tensor<3xi64>, tensor<2x2xi8>, tensor<f32>
}

func.func @special_floats() -> (tensor<6xf32>, tensor<3xf16>, tensor<3xbf16>, tensor<2xf64>) {
  %0 = arith.constant dense<[0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000, 0x3F800001, 1.17549435e-38]> : tensor<6xf32>
  %1 = arith.constant dense<[0x7C00, 0x3C01, -6.5e+4]> : tensor<3xf16>
  %2 = arith.constant dense<[0xFF80, 0x3F81, 1.0e+30]> : tensor<3xbf16>
  %3 = arith.constant dense<[0x7FF0000000000000, 0x3FF0000000000001]> : tensor<2xf64>
  return %0, %1, %2, %3 : tensor<6xf32>, tensor<3xf16>, tensor<3xbf16>, tensor<2xf64>
}

// All bytes as one string of hexadecimal digits.
func.func @hexadecimal_bytes(%a: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<3xi16>) {
  %c = arith.constant dense<"0x0000803F000000400000404000008040"> : tensor<2x2xf32>
  %0 = arith.mulf %a, %c : tensor<2x2xf32>
  %1 = arith.constant dense<"0x0100FF7F0080"> : tensor<3xi16>
  return %0, %1 : tensor<2x2xf32>, tensor<3xi16>
}

func.func @truth_values(%a: tensor<5xi1>) -> (tensor<5xi1>, tensor<2xi1>) {
  %c = arith.constant dense<[true, false, true, true, false]> : tensor<5xi1>
  %t = arith.constant dense<true> : tensor<2xi1>
  %0 = arith.xori %a, %c : tensor<5xi1>
  return %0, %t : tensor<5xi1>, tensor<2xi1>
}

func.func @scalars(%a: tensor<f32>) -> (tensor<3xf32>, tensor<2xi32>) {
  %x = tensor.extract %a[] : tensor<f32>
  %p = arith.constant 3.0e+0 : f32
  %q = arith.constant 0xFF800000 : f32
  %i = arith.constant -17 : i32
  %u = arith.constant 0xFFFFFFFE : i32
  %n = arith.constant 5 : index
  %j = arith.index_cast %n : index to i32
  %k = arith.addi %i, %j : i32
  %y = arith.mulf %x, %p : f32
  %z = arith.maximumf %q, %x : f32
  %0 = tensor.from_elements %x, %y, %z : tensor<3xf32>
  %1 = tensor.from_elements %k, %u : tensor<2xi32>
  return %0, %1 : tensor<3xf32>, tensor<2xi32>
}

// input 0: -9 to 9
func.func @weights(%x: tensor<3x4xf32>) -> tensor<3x2xf32> {
  %w = arith.constant dense<[[0.5, -1.0], [2.0, 0.25], [-3.0, 1.5], [0.125, 8.0]]> : tensor<4x2xf32>
  %b = arith.constant dense<[10.0, -10.0]> : tensor<2xf32>
  %e = tensor.empty() : tensor<3x2xf32>
  %i = linalg.broadcast ins(%b : tensor<2xf32>) outs(%e : tensor<3x2xf32>) dimensions = [0]
  %0 = linalg.matmul ins(%x, %w : tensor<3x4xf32>, tensor<4x2xf32>) outs(%i : tensor<3x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

func.func @resource(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %c = arith.constant dense_resource<quarters> : tensor<2x2xf32>
  %0 = arith.addf %a, %c : tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      quarters: "0x040000000000803E0000003F0000403F0000803F"
    }
  }
#-}
