// Pooling by name: sums, largest and smallest of windows. The window's values are not read.

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -3 to 3
func.func @sums(%x: tensor<2x3x8x9xf32>, %init: tensor<2x3x3x4xf32>, %y: tensor<1x7x6x2xf32>)
    -> (tensor<2x3x3x4xf32>, tensor<1x5x4x2xf32>) {
  %window = tensor.empty() : tensor<3x3xf32>
  %0 = linalg.pooling_nchw_sum {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
      ins(%x, %window : tensor<2x3x8x9xf32>, tensor<3x3xf32>) outs(%init : tensor<2x3x3x4xf32>) -> tensor<2x3x3x4xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x5x4x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x5x4x2xf32>) -> tensor<1x5x4x2xf32>
  %1 = linalg.pooling_nhwc_sum {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%y, %window : tensor<1x7x6x2xf32>, tensor<3x3xf32>) outs(%f : tensor<1x5x4x2xf32>) -> tensor<1x5x4x2xf32>
  return %0, %1 : tensor<2x3x3x4xf32>, tensor<1x5x4x2xf32>
}

// input 0: -50 to 50
// input 1: -50 to 50
func.func @largest(%x: tensor<2x3x8x9xf32>, %y: tensor<1x7x6x2xf32>) -> (tensor<2x3x4x3xf32>, tensor<1x3x5x2xf32>) {
  %window = tensor.empty() : tensor<2x3xf32>
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x3x4x3xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<2x3x4x3xf32>) -> tensor<2x3x4x3xf32>
  %0 = linalg.pooling_nchw_max {dilations = dense<1> : tensor<2xi64>, strides = dense<[2, 3]> : tensor<2xi64>}
      ins(%x, %window : tensor<2x3x8x9xf32>, tensor<2x3xf32>) outs(%f : tensor<2x3x4x3xf32>) -> tensor<2x3x4x3xf32>
  %pairs = tensor.empty() : tensor<3x2xf32>
  %g = tensor.empty() : tensor<1x3x5x2xf32>
  %h = linalg.fill ins(%low : f32) outs(%g : tensor<1x3x5x2xf32>) -> tensor<1x3x5x2xf32>
  %1 = linalg.pooling_nhwc_max {dilations = dense<[2, 1]> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%y, %pairs : tensor<1x7x6x2xf32>, tensor<3x2xf32>) outs(%h : tensor<1x3x5x2xf32>) -> tensor<1x3x5x2xf32>
  return %0, %1 : tensor<2x3x4x3xf32>, tensor<1x3x5x2xf32>
}

// input 0: -50 to 50
func.func @smallest(%y: tensor<1x7x6x2xf32>, %z: tensor<1x7x6x2xi32>) -> (tensor<1x6x5x2xf32>, tensor<1x6x5x2xi32>) {
  %window = tensor.empty() : tensor<2x2xf32>
  %high = arith.constant dense<0x7F800000> : tensor<1x6x5x2xf32>
  %0 = linalg.pooling_nhwc_min
      ins(%y, %window : tensor<1x7x6x2xf32>, tensor<2x2xf32>) outs(%high : tensor<1x6x5x2xf32>) -> tensor<1x6x5x2xf32>
  %places = tensor.empty() : tensor<2x2xi32>
  %most = arith.constant dense<2147483647> : tensor<1x6x5x2xi32>
  %1 = linalg.pooling_nhwc_min
      ins(%z, %places : tensor<1x7x6x2xi32>, tensor<2x2xi32>) outs(%most : tensor<1x6x5x2xi32>) -> tensor<1x6x5x2xi32>
  return %0, %1 : tensor<1x6x5x2xf32>, tensor<1x6x5x2xi32>
}

func.func @unsigned(%x: tensor<1x5x6x3xi8>) -> (tensor<1x4x5x3xi8>, tensor<1x4x5x3xi8>) {
  %window = tensor.empty() : tensor<2x2xi8>
  %least = arith.constant dense<0> : tensor<1x4x5x3xi8>
  %most = arith.constant dense<-1> : tensor<1x4x5x3xi8>
  %0 = linalg.pooling_nhwc_max_unsigned
      ins(%x, %window : tensor<1x5x6x3xi8>, tensor<2x2xi8>) outs(%least : tensor<1x4x5x3xi8>) -> tensor<1x4x5x3xi8>
  %1 = linalg.pooling_nhwc_min_unsigned
      ins(%x, %window : tensor<1x5x6x3xi8>, tensor<2x2xi8>) outs(%most : tensor<1x4x5x3xi8>) -> tensor<1x4x5x3xi8>
  return %0, %1 : tensor<1x4x5x3xi8>, tensor<1x4x5x3xi8>
}

func.func @integer_sums(%x: tensor<1x5x6x3xi32>, %init: tensor<1x4x5x3xi32>) -> tensor<1x4x5x3xi32> {
  %window = tensor.empty() : tensor<2x2xi32>
  %0 = linalg.pooling_nhwc_sum
      ins(%x, %window : tensor<1x5x6x3xi32>, tensor<2x2xi32>) outs(%init : tensor<1x4x5x3xi32>) -> tensor<1x4x5x3xi32>
  return %0 : tensor<1x4x5x3xi32>
}
