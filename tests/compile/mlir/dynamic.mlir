// Sizes that only a run knows.

// input 0: n
// input 1: n
func.func @elementwise(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = arith.mulf %a, %b : tensor<?xf32>
  %1 = arith.maximumf %0, %a : tensor<?xf32>
  return %1 : tensor<?xf32>
}

// input 0: n x m
// input 1: m
func.func @row_added(%a: tensor<?x?xf32>, %r: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c0 : tensor<?x?xf32>
  %m = tensor.dim %a, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%a, %r : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %1 = arith.addf %x, %y : f32
    linalg.yield %1 : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// input 0: n x m, -9 to 9
func.func @row_sums(%a: tensor<?x?xf32>) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%x: f32, %s: f32):
    %1 = arith.addf %s, %x : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// input 0: n x k, -4 to 4
// input 1: k x m, -4 to 4
func.func @matmul(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c0 : tensor<?x?xf32>
  %m = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// input 0: n x 16, -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
func.func @layer_of_a_batch(%x: tensor<?x16xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x16xf32>
  %e = tensor.empty(%n) : tensor<?x8xf32>
  %i = linalg.broadcast ins(%b : tensor<8xf32>) outs(%e : tensor<?x8xf32>) dimensions = [0]
  %0 = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x8xf32>) outs(%i : tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%v: f32, %o: f32):
    %2 = arith.maximumf %v, %zero : f32
    linalg.yield %2 : f32
  } -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// input 0: n x 5, -20 to 20
func.func @softmax(%a: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x5xf32>
  %e = tensor.empty(%n) : tensor<?x5xf32>
  %0 = linalg.softmax dimension(1) ins(%a : tensor<?x5xf32>) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %0 : tensor<?x5xf32>
}

// input 0: n x 6
func.func @reshaped(%a: tensor<?x6xf32>) -> (tensor<?xf32>, tensor<?x2x3xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x6xf32>
  %0 = tensor.collapse_shape %a [[0, 1]] : tensor<?x6xf32> into tensor<?xf32>
  %1 = tensor.expand_shape %a [[0], [1, 2]] output_shape [%n, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
  %2 = math.absf %1 : tensor<?x2x3xf32>
  return %0, %2 : tensor<?xf32>, tensor<?x2x3xf32>
}

// A size that another is computed from: all but the first and the last. Computed sizes of 0 and 1 are refused at run time.
// sizes: n 4 5 9 40
// input 0: n
func.func @inner_part(%a: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %m = affine.apply affine_map<()[s0] -> (s0 - 2)>()[%n]
  %0 = tensor.extract_slice %a[1] [%m] [1] : tensor<?xf32> to tensor<?xf32>
  return %0 : tensor<?xf32>
}

// input 0: n x 4
func.func @padded_and_joined(%a: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.pad %a low[1, 0] high[2, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<?x4xf32> to tensor<?x4xf32>
  %1 = tensor.concat dim(0) %0, %a : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// A size as a number among others.
// input 0: n x 3, -9 to 9
func.func @mean_of_columns(%a: tensor<?x3xf32>) -> (tensor<3xf32>, tensor<i64>) {
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x3xf32>
  %i = arith.index_cast %n : index to i64
  %f = arith.sitofp %i : i64 to f32
  %sums = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%a : tensor<?x3xf32>) outs(%zero : tensor<3xf32>) {
  ^bb0(%x: f32, %s: f32):
    %2 = arith.addf %s, %x : f32
    linalg.yield %2 : f32
  } -> tensor<3xf32>
  %e = tensor.empty() : tensor<3xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%sums : tensor<3xf32>) outs(%e : tensor<3xf32>) {
  ^bb0(%x: f32, %o: f32):
    %2 = arith.divf %x, %f : f32
    linalg.yield %2 : f32
  } -> tensor<3xf32>
  %1 = tensor.from_elements %i : tensor<i64>
  return %0, %1 : tensor<3xf32>, tensor<i64>
}

// input 0: 1 x 2 x h x w, -3 to 3
// input 1: -3 to 3
// sizes: h 4 5 9
// sizes: w 4 7 12
func.func @convolution(%x: tensor<1x2x?x?xf32>, %k: tensor<3x2x3x3xf32>) -> tensor<1x3x?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %h = tensor.dim %x, %c2 : tensor<1x2x?x?xf32>
  %w = tensor.dim %x, %c3 : tensor<1x2x?x?xf32>
  %oh = arith.subi %h, %c2 : index
  %ow = arith.subi %w, %c2 : index
  %e = tensor.empty(%oh, %ow) : tensor<1x3x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x3x?x?xf32>) -> tensor<1x3x?x?xf32>
  %0 = linalg.conv_2d_nchw_fchw
      ins(%x, %k : tensor<1x2x?x?xf32>, tensor<3x2x3x3xf32>) outs(%f : tensor<1x3x?x?xf32>) -> tensor<1x3x?x?xf32>
  return %0 : tensor<1x3x?x?xf32>
}

// input 0: n x m
func.func @transposed(%a: tensor<?x?xi32>) -> tensor<?x?xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c0 : tensor<?x?xi32>
  %m = tensor.dim %a, %c1 : tensor<?x?xi32>
  %e = tensor.empty(%m, %n) : tensor<?x?xi32>
  %0 = linalg.transpose ins(%a : tensor<?x?xi32>) outs(%e : tensor<?x?xi32>) permutation = [1, 0]
  return %0 : tensor<?x?xi32>
}
