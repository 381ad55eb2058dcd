// Convolutions by name, onto what stands in their outs.

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -9 to 9
func.func @nchw_fchw(%x: tensor<2x3x9x11xf32>, %w: tensor<5x3x3x2xf32>, %init: tensor<2x5x7x10xf32>) -> tensor<2x5x7x10xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x3x9x11xf32>, tensor<5x3x3x2xf32>) outs(%init : tensor<2x5x7x10xf32>) -> tensor<2x5x7x10xf32>
  return %0 : tensor<2x5x7x10xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
func.func @nchw_fchw_strides_and_dilations(%x: tensor<1x2x11x13xf32>, %w: tensor<4x2x3x3xf32>) -> tensor<1x4x4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4x4x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x4x5xf32>) -> tensor<1x4x4x5xf32>
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<[2, 1]> : tensor<2xi64>, strides = dense<[2, 2]> : tensor<2xi64>}
      ins(%x, %w : tensor<1x2x11x13xf32>, tensor<4x2x3x3xf32>) outs(%f : tensor<1x4x4x5xf32>) -> tensor<1x4x4x5xf32>
  return %0 : tensor<1x4x4x5xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
func.func @nhwc_hwcf(%x: tensor<2x8x7x3xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<2x3x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3x5x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %0 = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : vector<2xi64>, strides = dense<[2, 1]> : vector<2xi64>}
      ins(%x, %w : tensor<2x8x7x3xf32>, tensor<3x3x3x4xf32>) outs(%f : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %0 : tensor<2x3x5x4xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -3 to 3
func.func @nhwc_fhwc(%x: tensor<1x6x6x4xf32>, %w: tensor<3x2x2x4xf32>, %init: tensor<1x5x5x3xf32>) -> tensor<1x5x5x3xf32> {
  %0 = linalg.conv_2d_nhwc_fhwc
      ins(%x, %w : tensor<1x6x6x4xf32>, tensor<3x2x2x4xf32>) outs(%init : tensor<1x5x5x3xf32>) -> tensor<1x5x5x3xf32>
  return %0 : tensor<1x5x5x3xf32>
}

func.func @nhwc_hwcf_i8(%x: tensor<1x5x6x3xi8>, %w: tensor<2x3x3x4xi8>, %init: tensor<1x4x4x4xi32>) -> tensor<1x4x4x4xi32> {
  %0 = linalg.conv_2d_nhwc_hwcf
      ins(%x, %w : tensor<1x5x6x3xi8>, tensor<2x3x3x4xi8>) outs(%init : tensor<1x4x4x4xi32>) -> tensor<1x4x4x4xi32>
  return %0 : tensor<1x4x4x4xi32>
}

// input 0: -3 to 3
// input 1: -3 to 3
func.func @nchw_f16_to_f32(%x: tensor<1x4x6x6xf16>, %w: tensor<3x4x3x3xf16>) -> tensor<1x3x4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x3x4x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  %0 = linalg.conv_2d_nchw_fchw
      ins(%x, %w : tensor<1x4x6x6xf16>, tensor<3x4x3x3xf16>) outs(%f : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
  return %0 : tensor<1x3x4x4xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -3 to 3
// input 3: -3 to 3
func.func @one_dimension(%x: tensor<2x3x15xf32>, %w: tensor<4x3x3xf32>, %y: tensor<2x15x3xf32>, %v: tensor<3x3x4xf32>)
    -> (tensor<2x4x7xf32>, tensor<2x11x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<2> : tensor<1xi64>}
      ins(%x, %w : tensor<2x3x15xf32>, tensor<4x3x3xf32>) outs(%f : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
  %g = tensor.empty() : tensor<2x11x4xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<2x11x4xf32>) -> tensor<2x11x4xf32>
  %1 = linalg.conv_1d_nwc_wcf {dilations = dense<2> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%y, %v : tensor<2x15x3xf32>, tensor<3x3x4xf32>) outs(%h : tensor<2x11x4xf32>) -> tensor<2x11x4xf32>
  return %0, %1 : tensor<2x4x7xf32>, tensor<2x11x4xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -3 to 3
func.func @depthwise_nchw(%x: tensor<2x5x8x7xf32>, %w: tensor<5x3x3xf32>, %init: tensor<2x5x3x3xf32>) -> tensor<2x5x3x3xf32> {
  %0 = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
      ins(%x, %w : tensor<2x5x8x7xf32>, tensor<5x3x3xf32>) outs(%init : tensor<2x5x3x3xf32>) -> tensor<2x5x3x3xf32>
  return %0 : tensor<2x5x3x3xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
func.func @depthwise_nhwc(%x: tensor<1x7x9x5xf32>, %w: tensor<3x3x5xf32>) -> tensor<1x5x5x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x5x5x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x5x5x5xf32>) -> tensor<1x5x5x5xf32>
  %0 = linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<[1, 2]> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x7x9x5xf32>, tensor<3x3x5xf32>) outs(%f : tensor<1x5x5x5xf32>) -> tensor<1x5x5x5xf32>
  return %0 : tensor<1x5x5x5xf32>
}

// Several filters for each channel.
// input 0: -3 to 3
// input 1: -3 to 3
func.func @depthwise_nhwc_hwcm(%x: tensor<1x6x5x3xf32>, %w: tensor<2x2x3x4xf32>) -> tensor<1x5x4x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x5x4x3x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x5x4x3x4xf32>) -> tensor<1x5x4x3x4xf32>
  %0 = linalg.depthwise_conv_2d_nhwc_hwcm {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x6x5x3xf32>, tensor<2x2x3x4xf32>) outs(%f : tensor<1x5x4x3x4xf32>) -> tensor<1x5x4x3x4xf32>
  return %0 : tensor<1x5x4x3x4xf32>
}

// input 0: -3 to 3
// input 1: -3 to 3
// input 2: -9 to 9
func.func @padded_layer(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %bias: tensor<4xf32>) -> tensor<1x4x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<1x3x6x6xf32> to tensor<1x3x8x8xf32>
  %e = tensor.empty() : tensor<1x4x6x6xf32>
  %b = linalg.broadcast ins(%bias : tensor<4xf32>) outs(%e : tensor<1x4x6x6xf32>) dimensions = [0, 2, 3]
  %0 = linalg.conv_2d_nchw_fchw ins(%p, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) outs(%b : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %0 : tensor<1x4x6x6xf32>
}
