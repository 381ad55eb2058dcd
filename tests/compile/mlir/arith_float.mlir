// Floating-point arithmetic on whole tensors and on single numbers, in four precisions.

func.func @f32_arithmetic(%a: tensor<37xf32>, %b: tensor<37xf32>)
    -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %0 = arith.addf %a, %b : tensor<37xf32>
  %1 = arith.subf %a, %b : tensor<37xf32>
  %2 = arith.mulf %a, %b : tensor<37xf32>
  %3 = arith.divf %a, %b : tensor<37xf32>
  %4 = arith.negf %a : tensor<37xf32>
  return %0, %1, %2, %3, %4 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}

// A remainder's error grows with the quotient where it is not computed exactly.
// input 0: -50 to 50
// input 1: 0.5 to 9
func.func @f32_remainder(%a: tensor<37xf32>, %b: tensor<37xf32>) -> tensor<37xf32> {
  %0 = arith.remf %a, %b : tensor<37xf32>
  return %0 : tensor<37xf32>
}

func.func @f32_extrema(%a: tensor<9x5xf32>, %b: tensor<9x5xf32>)
    -> (tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>) {
  %0 = arith.maximumf %a, %b : tensor<9x5xf32>
  %1 = arith.minimumf %a, %b : tensor<9x5xf32>
  %2 = arith.maxnumf %a, %b : tensor<9x5xf32>
  %3 = arith.minnumf %a, %b : tensor<9x5xf32>
  return %0, %1, %2, %3 : tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>
}

func.func @f64_arithmetic(%a: tensor<2x11xf64>, %b: tensor<2x11xf64>)
    -> (tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>) {
  %0 = arith.addf %a, %b : tensor<2x11xf64>
  %1 = arith.subf %a, %0 : tensor<2x11xf64>
  %2 = arith.mulf %a, %b : tensor<2x11xf64>
  %3 = arith.divf %a, %b : tensor<2x11xf64>
  %4 = arith.maximumf %3, %b : tensor<2x11xf64>
  return %0, %1, %2, %3, %4 : tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>, tensor<2x11xf64>
}

// Divisors are kept from subnormal quotients, which IREE's build flushes.
// input 0: -100 to 100
// input 1: 0.25 to 16
func.func @f16_arithmetic(%a: tensor<33xf16>, %b: tensor<33xf16>)
    -> (tensor<33xf16>, tensor<33xf16>, tensor<33xf16>, tensor<33xf16>, tensor<33xf16>) {
  %0 = arith.addf %a, %b : tensor<33xf16>
  %1 = arith.subf %a, %b : tensor<33xf16>
  %2 = arith.mulf %a, %b : tensor<33xf16>
  %3 = arith.divf %a, %b : tensor<33xf16>
  %4 = arith.minimumf %a, %b : tensor<33xf16>
  return %0, %1, %2, %3, %4 : tensor<33xf16>, tensor<33xf16>, tensor<33xf16>, tensor<33xf16>, tensor<33xf16>
}

// input 0: -100 to 100
// input 1: 0.25 to 16
func.func @bf16_arithmetic(%a: tensor<33xbf16>, %b: tensor<33xbf16>)
    -> (tensor<33xbf16>, tensor<33xbf16>, tensor<33xbf16>, tensor<33xbf16>) {
  %0 = arith.addf %a, %b : tensor<33xbf16>
  %1 = arith.mulf %a, %b : tensor<33xbf16>
  %2 = arith.divf %a, %b : tensor<33xbf16>
  %3 = arith.negf %2 : tensor<33xbf16>
  return %0, %1, %2, %3 : tensor<33xbf16>, tensor<33xbf16>, tensor<33xbf16>, tensor<33xbf16>
}

// Small numbers, so that some are equal.
// input 0: -2 to 2
func.func @f32_ordered_comparisons(%a: tensor<41xf32>, %b: tensor<41xf32>)
    -> (tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>) {
  %r = math.roundeven %a : tensor<41xf32>
  %s = math.roundeven %b : tensor<41xf32>
  %0 = arith.cmpf oeq, %r, %s : tensor<41xf32>
  %1 = arith.cmpf ogt, %r, %s : tensor<41xf32>
  %2 = arith.cmpf oge, %r, %s : tensor<41xf32>
  %3 = arith.cmpf olt, %r, %s : tensor<41xf32>
  %4 = arith.cmpf ole, %r, %s : tensor<41xf32>
  %5 = arith.cmpf one, %r, %s : tensor<41xf32>
  %6 = arith.cmpf ord, %r, %s : tensor<41xf32>
  %7 = arith.cmpf false, %r, %s : tensor<41xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7
      : tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>
}

func.func @f32_unordered_comparisons(%a: tensor<41xf32>, %b: tensor<41xf32>)
    -> (tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>) {
  %0 = arith.cmpf ueq, %a, %b : tensor<41xf32>
  %1 = arith.cmpf ugt, %a, %b : tensor<41xf32>
  %2 = arith.cmpf uge, %a, %b : tensor<41xf32>
  %3 = arith.cmpf ult, %a, %b : tensor<41xf32>
  %4 = arith.cmpf ule, %a, %b : tensor<41xf32>
  %5 = arith.cmpf une, %a, %b : tensor<41xf32>
  %6 = arith.cmpf uno, %a, %b : tensor<41xf32>
  %7 = arith.cmpf true, %a, %b : tensor<41xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7
      : tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>, tensor<41xi1>
}

func.func @f32_select(%c: tensor<19xi1>, %a: tensor<19xf32>, %b: tensor<19xf32>) -> (tensor<19xf32>, tensor<19xf32>) {
  %0 = arith.select %c, %a, %b : tensor<19xi1>, tensor<19xf32>
  %true = arith.constant true
  %1 = arith.select %true, %b, %a : tensor<19xf32>
  return %0, %1 : tensor<19xf32>, tensor<19xf32>
}

func.func @f32_single_numbers(%a: tensor<f32>, %b: tensor<3xf32>) -> (tensor<f32>, tensor<4xf32>) {
  %c1 = arith.constant 1 : index
  %half = arith.constant 0.5 : f32
  %x = tensor.extract %a[] : tensor<f32>
  %y = tensor.extract %b[%c1] : tensor<3xf32>
  %s = arith.addf %x, %y : f32
  %t = arith.mulf %s, %half : f32
  %n = arith.negf %t : f32
  %c = arith.cmpf olt, %n, %x : f32
  %m = arith.select %c, %n, %y : f32
  %r0 = tensor.from_elements %t : tensor<f32>
  %r1 = tensor.from_elements %s, %t, %n, %m : tensor<4xf32>
  return %r0, %r1 : tensor<f32>, tensor<4xf32>
}

func.func @f32_flags(%a: tensor<7xf32>, %b: tensor<7xf32>) -> tensor<7xf32> {
  %0 = arith.addf %a, %b fastmath<nsz,contract> : tensor<7xf32>
  %1 = arith.mulf %0, %b fastmath<none> : tensor<7xf32>
  return %1 : tensor<7xf32>
}
