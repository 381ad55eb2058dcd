// Named operations by element, and of shape. linalg.add and its like are gone since IREE 3.13; their kinds stay.

func.func @arithmetic(%a: tensor<7x5xf32>, %b: tensor<7x5xf32>)
    -> (tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>) {
  %e = tensor.empty() : tensor<7x5xf32>
  %0 = linalg.elementwise <add> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %1 = linalg.elementwise <sub> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %2 = linalg.elementwise <mul> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %3 = linalg.elementwise <div> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %4 = linalg.elementwise <max_signed> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %5 = linalg.elementwise <min_signed> ins(%a, %b : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>
}

// Divisors of 0, and the smallest number by -1, are undefined.
// input 1: not 0 -1
func.func @integer_arithmetic(%a: tensor<19xi32>, %b: tensor<19xi32>)
    -> (tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>) {
  %e = tensor.empty() : tensor<19xi32>
  %0 = linalg.elementwise <add> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  %1 = linalg.elementwise <mul> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  %2 = linalg.elementwise <div> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  %3 = linalg.elementwise <div_unsigned> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  %4 = linalg.elementwise <max_signed> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  %5 = linalg.elementwise <min_unsigned> ins(%a, %b : tensor<19xi32>, tensor<19xi32>) outs(%e : tensor<19xi32>) -> tensor<19xi32>
  return %0, %1, %2, %3, %4, %5
      : tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>, tensor<19xi32>
}

// input 0: -8 to 8
func.func @functions(%a: tensor<29xf32>)
    -> (tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>) {
  %e = tensor.empty() : tensor<29xf32>
  %0 = linalg.elementwise <exp> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %1 = linalg.elementwise <abs> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %2 = linalg.elementwise <ceil> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %3 = linalg.elementwise <floor> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %4 = linalg.elementwise <negf> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %5 = linalg.elementwise <tanh> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %6 = linalg.elementwise <square> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %7 = linalg.elementwise <erf> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7
      : tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>
}

// input 0: 0.1 to 90
// input 1: -2 to 2
func.func @functions_of_positive_numbers(%a: tensor<29xf32>, %b: tensor<29xf32>)
    -> (tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>) {
  %e = tensor.empty() : tensor<29xf32>
  %0 = linalg.elementwise <log> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %1 = linalg.elementwise <sqrt> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %2 = linalg.elementwise <rsqrt> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %3 = linalg.elementwise <reciprocal> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %4 = linalg.elementwise <powf> ins(%a, %b : tensor<29xf32>, tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  %5 = linalg.elementwise <round> ins(%a : tensor<29xf32>) outs(%e : tensor<29xf32>) -> tensor<29xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>, tensor<29xf32>
}

func.func @select_by_name(%c: tensor<19xi1>, %a: tensor<19xf16>, %b: tensor<19xf16>) -> tensor<19xf16> {
  %e = tensor.empty() : tensor<19xf16>
  %0 = linalg.elementwise <select> ins(%c, %a, %b : tensor<19xi1>, tensor<19xf16>, tensor<19xf16>) outs(%e : tensor<19xf16>) -> tensor<19xf16>
  return %0 : tensor<19xf16>
}

func.func @transposed(%a: tensor<3x5x7xf32>, %b: tensor<4x6xi8>) -> (tensor<7x3x5xf32>, tensor<6x4xi8>) {
  %e = tensor.empty() : tensor<7x3x5xf32>
  %f = tensor.empty() : tensor<6x4xi8>
  %0 = linalg.transpose ins(%a : tensor<3x5x7xf32>) outs(%e : tensor<7x3x5xf32>) permutation = [2, 0, 1]
  %1 = linalg.transpose ins(%b : tensor<4x6xi8>) outs(%f : tensor<6x4xi8>) permutation = [1, 0]
  return %0, %1 : tensor<7x3x5xf32>, tensor<6x4xi8>
}

func.func @broadcast(%a: tensor<5xf32>, %s: tensor<i32>) -> (tensor<3x5x2xf32>, tensor<5x3xf32>, tensor<4xi32>) {
  %e = tensor.empty() : tensor<3x5x2xf32>
  %f = tensor.empty() : tensor<5x3xf32>
  %g = tensor.empty() : tensor<4xi32>
  %0 = linalg.broadcast ins(%a : tensor<5xf32>) outs(%e : tensor<3x5x2xf32>) dimensions = [0, 2]
  %1 = linalg.broadcast ins(%a : tensor<5xf32>) outs(%f : tensor<5x3xf32>) dimensions = [1]
  %2 = linalg.broadcast ins(%s : tensor<i32>) outs(%g : tensor<4xi32>) dimensions = [0]
  return %0, %1, %2 : tensor<3x5x2xf32>, tensor<5x3xf32>, tensor<4xi32>
}

func.func @mapped(%a: tensor<6x5xf32>, %b: tensor<6x5xf32>) -> (tensor<6x5xf32>, tensor<6x5xf32>) {
  %e = tensor.empty() : tensor<6x5xf32>
  %0 = linalg.map {arith.addf} ins(%a, %b : tensor<6x5xf32>, tensor<6x5xf32>) outs(%e : tensor<6x5xf32>)
  %1 = linalg.map ins(%a, %b : tensor<6x5xf32>, tensor<6x5xf32>) outs(%e : tensor<6x5xf32>)
    (%x: f32, %y: f32, %o: f32) {
      %c = arith.cmpf ogt, %x, %y : f32
      %2 = arith.select %c, %x, %y : f32
      linalg.yield %2 : f32
    }
  return %0, %1 : tensor<6x5xf32>, tensor<6x5xf32>
}

func.func @kinds_with_maps(%a: tensor<4x3xf32>, %b: tensor<3x4xf32>, %c: tensor<3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %e = tensor.empty() : tensor<4x3xf32>
  %0 = linalg.elementwise <sub>
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>]
      ins(%a, %b : tensor<4x3xf32>, tensor<3x4xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  %1 = linalg.elementwise <mul>
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>]
      ins(%0, %c : tensor<4x3xf32>, tensor<3xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<4x3xf32>
}
