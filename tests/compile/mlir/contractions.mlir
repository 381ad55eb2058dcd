// Products of matrices and vectors by name, onto what stands in their outs.

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -9 to 9
func.func @matmul_onto(%a: tensor<9x17xf32>, %b: tensor<17x6xf32>, %c: tensor<9x6xf32>) -> tensor<9x6xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<9x17xf32>, tensor<17x6xf32>) outs(%c : tensor<9x6xf32>) -> tensor<9x6xf32>
  return %0 : tensor<9x6xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
func.func @matmul_transposed_a(%a: tensor<17x9xf32>, %b: tensor<17x6xf32>) -> tensor<9x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x6xf32>) -> tensor<9x6xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<17x9xf32>, tensor<17x6xf32>) outs(%f : tensor<9x6xf32>) -> tensor<9x6xf32>
  return %0 : tensor<9x6xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
func.func @matmul_transposed_b(%a: tensor<9x17xf32>, %b: tensor<6x17xf32>) -> tensor<9x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x6xf32>) -> tensor<9x6xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<9x17xf32>, tensor<6x17xf32>) outs(%f : tensor<9x6xf32>) -> tensor<9x6xf32>
  return %0 : tensor<9x6xf32>
}

// A vector in a matrix' place: its map has one result.
// input 0: -4 to 4
// input 1: -4 to 4
func.func @matmul_broadcast(%a: tensor<17xf32>, %b: tensor<17x6xf32>) -> tensor<9x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x6xf32>) -> tensor<9x6xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<17xf32>, tensor<17x6xf32>) outs(%f : tensor<9x6xf32>) -> tensor<9x6xf32>
  return %0 : tensor<9x6xf32>
}

func.func @matmul_i8_to_i32(%a: tensor<5x12xi8>, %b: tensor<12x7xi8>, %c: tensor<5x7xi32>) -> (tensor<5x7xi32>, tensor<5x7xi32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<5x12xi8>, tensor<12x7xi8>) outs(%c : tensor<5x7xi32>) -> tensor<5x7xi32>
  %1 = linalg.matmul {cast = #linalg.type_fn<cast_unsigned>}
      ins(%a, %b : tensor<5x12xi8>, tensor<12x7xi8>) outs(%c : tensor<5x7xi32>) -> tensor<5x7xi32>
  return %0, %1 : tensor<5x7xi32>, tensor<5x7xi32>
}

func.func @matmul_i32(%a: tensor<5x12xi32>, %b: tensor<12x7xi32>, %c: tensor<5x7xi32>) -> tensor<5x7xi32> {
  %0 = linalg.matmul ins(%a, %b : tensor<5x12xi32>, tensor<12x7xi32>) outs(%c : tensor<5x7xi32>) -> tensor<5x7xi32>
  return %0 : tensor<5x7xi32>
}

// The accumulators are wider than the factors.
// input 0: -4 to 4
// input 1: -4 to 4
func.func @matmul_f16_to_f32(%a: tensor<33x48xf16>, %b: tensor<48x18xf16>) -> tensor<33x18xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<33x18xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<33x18xf32>) -> tensor<33x18xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<33x48xf16>, tensor<48x18xf16>) outs(%f : tensor<33x18xf32>) -> tensor<33x18xf32>
  return %0 : tensor<33x18xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
func.func @matmul_bf16_to_f32(%a: tensor<16x32xbf16>, %b: tensor<32x16xbf16>) -> tensor<16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x16xf32>) -> tensor<16x16xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<16x32xbf16>, tensor<32x16xbf16>) outs(%f : tensor<16x16xf32>) -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
func.func @batch_matmul_and_transposed(%a: tensor<3x5x7xf32>, %b: tensor<3x7x4xf32>, %c: tensor<3x4x7xf32>)
    -> (tensor<3x5x4xf32>, tensor<3x5x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x5x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  %0 = linalg.batch_matmul ins(%a, %b : tensor<3x5x7xf32>, tensor<3x7x4xf32>) outs(%f : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  %1 = linalg.batch_matmul
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %c : tensor<3x5x7xf32>, tensor<3x4x7xf32>) outs(%0 : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  return %0, %1 : tensor<3x5x4xf32>, tensor<3x5x4xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
func.func @matrix_and_vector(%a: tensor<9x17xf32>, %x: tensor<17xf32>, %y: tensor<9xf32>)
    -> (tensor<9xf32>, tensor<17xf32>, tensor<f32>) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %0 = linalg.matvec ins(%a, %x : tensor<9x17xf32>, tensor<17xf32>) outs(%y : tensor<9xf32>) -> tensor<9xf32>
  %1 = linalg.vecmat ins(%y, %a : tensor<9xf32>, tensor<9x17xf32>) outs(%x : tensor<17xf32>) -> tensor<17xf32>
  %2 = linalg.dot ins(%x, %x : tensor<17xf32>, tensor<17xf32>) outs(%zero : tensor<f32>) -> tensor<f32>
  return %0, %1, %2 : tensor<9xf32>, tensor<17xf32>, tensor<f32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
func.func @batches_of_vectors(%a: tensor<3x5x7xf32>, %x: tensor<3x7xf32>, %y: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x7xf32>) {
  %0 = linalg.batch_matvec ins(%a, %x : tensor<3x5x7xf32>, tensor<3x7xf32>) outs(%y : tensor<3x5xf32>) -> tensor<3x5xf32>
  %1 = linalg.batch_vecmat ins(%y, %a : tensor<3x5xf32>, tensor<3x5x7xf32>) outs(%x : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0, %1 : tensor<3x5xf32>, tensor<3x7xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -9 to 9
func.func @batch_reduce_matmul(%a: tensor<3x5x7xf32>, %b: tensor<3x7x4xf32>, %c: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %0 = linalg.batch_reduce_matmul ins(%a, %b : tensor<3x5x7xf32>, tensor<3x7x4xf32>) outs(%c : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %0 : tensor<5x4xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -9 to 9
func.func @contract_by_maps(%a: tensor<3x5x7xf32>, %b: tensor<7x3x4xf32>, %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = linalg.contract
      indexing_maps = [affine_map<(m, n, b, k) -> (b, m, k)>, affine_map<(m, n, b, k) -> (k, b, n)>,
                       affine_map<(m, n, b, k) -> (n, m)>]
      ins(%a, %b : tensor<3x5x7xf32>, tensor<7x3x4xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// The same as a generic operation, with casts in its body.
// input 0: -4 to 4
// input 1: -4 to 4
func.func @contraction_as_generic(%a: tensor<4x6x10xf16>, %b: tensor<4x10x5xf16>) -> tensor<4x5x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x5x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x5x6xf32>) -> tensor<4x5x6xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(b, i, j, k) -> (b, i, k)>, affine_map<(b, i, j, k) -> (b, k, j)>,
                       affine_map<(b, i, j, k) -> (b, j, i)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x6x10xf16>, tensor<4x10x5xf16>) outs(%f : tensor<4x5x6xf32>) {
  ^bb0(%x: f16, %y: f16, %s: f32):
    %1 = arith.extf %x : f16 to f32
    %2 = arith.extf %y : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %s, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x5x6xf32>
  return %0 : tensor<4x5x6xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
func.func @layer(%x: tensor<5x16xf32>, %w: tensor<16x12xf32>, %bias: tensor<12xf32>) -> tensor<5x12xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x12xf32>
  %b = linalg.broadcast ins(%bias : tensor<12xf32>) outs(%e : tensor<5x12xf32>) dimensions = [0]
  %0 = linalg.matmul ins(%x, %w : tensor<5x16xf32>, tensor<16x12xf32>) outs(%b : tensor<5x12xf32>) -> tensor<5x12xf32>
  %1 = linalg.map ins(%0 : tensor<5x12xf32>) outs(%e : tensor<5x12xf32>)
    (%v: f32, %o: f32) {
      %2 = arith.maximumf %v, %zero : f32
      linalg.yield %2 : f32
    }
  return %1 : tensor<5x12xf32>
}
