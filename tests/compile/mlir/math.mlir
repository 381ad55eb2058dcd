// Functions of mathematics, but for those that IREE's compiler refuses: clampf, erfc, ipowi, isinf,
// isnormal and log10.

// input 0: -20 to 20
// input 1: 0.01 to 80
func.func @exponentials(%a: tensor<37xf32>, %b: tensor<37xf32>)
    -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %0 = math.exp %a : tensor<37xf32>
  %1 = math.exp2 %a : tensor<37xf32>
  %2 = math.expm1 %a : tensor<37xf32>
  %3 = math.log %b : tensor<37xf32>
  %4 = math.log2 %b : tensor<37xf32>
  %5 = math.log1p %b : tensor<37xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}

// input 0: -3 to 3
// input 1: -0.999 to 0.999
func.func @trigonometry(%a: tensor<37xf32>, %b: tensor<37xf32>)
    -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %0 = math.sin %a : tensor<37xf32>
  %1 = math.cos %a : tensor<37xf32>
  %2 = math.tan %b : tensor<37xf32>
  %3 = math.asin %b : tensor<37xf32>
  %4 = math.acos %b : tensor<37xf32>
  %5 = math.atan %a : tensor<37xf32>
  // Without zeros: IREE returns NaN for two of them, and the opposite angle for -0.0.
  %little = arith.constant dense<0.01> : tensor<37xf32>
  %y = arith.addf %a, %little : tensor<37xf32>
  %6 = math.atan2 %y, %b : tensor<37xf32>
  return %0, %1, %2, %3, %4, %5, %6
      : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}

// input 0: -5 to 5
// input 1: -0.9 to 0.9
// input 2: 1 to 50
func.func @hyperbolics(%a: tensor<37xf32>, %b: tensor<37xf32>, %c: tensor<37xf32>)
    -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %0 = math.sinh %a : tensor<37xf32>
  %1 = math.cosh %a : tensor<37xf32>
  %2 = math.tanh %a : tensor<37xf32>
  %3 = math.asinh %a : tensor<37xf32>
  %4 = math.acosh %c : tensor<37xf32>
  %5 = math.atanh %b : tensor<37xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}

// input 0: 0.01 to 100
// input 1: -4 to 4
func.func @powers_and_roots(%a: tensor<37xf32>, %b: tensor<37xf32>)
    -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %0 = math.sqrt %a : tensor<37xf32>
  %1 = math.rsqrt %a : tensor<37xf32>
  %2 = math.powf %a, %b : tensor<37xf32>
  %3 = math.cbrt %a : tensor<37xf32>
  return %0, %1, %2, %3 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}

// input 0: -4 to 4
func.func @error_function(%a: tensor<37xf32>) -> tensor<37xf32> {
  %0 = math.erf %a : tensor<37xf32>
  return %0 : tensor<37xf32>
}

func.func @rounding(%a: tensor<45xf32>)
    -> (tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>) {
  %two = arith.constant dense<2.0> : tensor<45xf32>
  %half = arith.constant dense<0.5> : tensor<45xf32>
  %d = arith.mulf %a, %two : tensor<45xf32>
  %r = math.roundeven %d : tensor<45xf32>
  // Multiples of a half, where the kinds of rounding differ.
  %h = arith.mulf %r, %half : tensor<45xf32>
  %0 = math.ceil %a : tensor<45xf32>
  %1 = math.floor %a : tensor<45xf32>
  %2 = math.trunc %a : tensor<45xf32>
  %3 = math.round %h : tensor<45xf32>
  %4 = math.roundeven %h : tensor<45xf32>
  %5 = math.absf %a : tensor<45xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>, tensor<45xf32>
}

// input 0: -9 to 9
// input 1: -9 to 9
// input 2: -9 to 9
func.func @signs_and_products(%a: tensor<45xf32>, %b: tensor<45xf32>, %c: tensor<45xf32>)
    -> (tensor<45xf32>, tensor<45xf32>) {
  %0 = math.copysign %a, %b : tensor<45xf32>
  %1 = math.fma %a, %b, %c : tensor<45xf32>
  return %0, %1 : tensor<45xf32>, tensor<45xf32>
}

func.func @kinds_of_numbers(%a: tensor<45xf32>) -> (tensor<45xi1>, tensor<45xi1>) {
  %0 = math.isnan %a : tensor<45xf32>
  %1 = math.isfinite %a : tensor<45xf32>
  return %0, %1 : tensor<45xi1>, tensor<45xi1>
}

// The absolute value of the smallest number is undefined.
// input 0: -2147483647 to 2147483647
func.func @bits_of_integers(%a: tensor<45xi32>) -> (tensor<45xi32>, tensor<45xi32>, tensor<45xi32>, tensor<45xi32>) {
  %0 = math.absi %a : tensor<45xi32>
  %1 = math.ctlz %a : tensor<45xi32>
  %2 = math.cttz %a : tensor<45xi32>
  %3 = math.ctpop %a : tensor<45xi32>
  return %0, %1, %2, %3 : tensor<45xi32>, tensor<45xi32>, tensor<45xi32>, tensor<45xi32>
}

func.func @bits_of_narrow_and_long_integers(%a: tensor<21xi8>, %b: tensor<21xi64>)
    -> (tensor<21xi8>, tensor<21xi8>, tensor<21xi8>, tensor<21xi64>, tensor<21xi64>, tensor<21xi64>) {
  %0 = math.ctlz %a : tensor<21xi8>
  %1 = math.cttz %a : tensor<21xi8>
  %2 = math.ctpop %a : tensor<21xi8>
  %3 = math.ctlz %b : tensor<21xi64>
  %4 = math.cttz %b : tensor<21xi64>
  %5 = math.ctpop %b : tensor<21xi64>
  return %0, %1, %2, %3, %4, %5
      : tensor<21xi8>, tensor<21xi8>, tensor<21xi8>, tensor<21xi64>, tensor<21xi64>, tensor<21xi64>
}

// input 0: 0.25 to 3
// input 1: -6 to 6
func.func @integer_powers(%a: tensor<25xf32>, %b: tensor<25xi32>) -> tensor<25xf32> {
  %0 = math.fpowi %a, %b : tensor<25xf32>, tensor<25xi32>
  return %0 : tensor<25xf32>
}

// input 0: -4 to 4
// input 1: 0.1 to 30
func.func @f64_functions(%a: tensor<15xf64>, %b: tensor<15xf64>)
    -> (tensor<15xf64>, tensor<15xf64>, tensor<15xf64>, tensor<15xf64>, tensor<15xf64>) {
  %0 = math.sqrt %b : tensor<15xf64>
  %1 = math.floor %a : tensor<15xf64>
  %2 = math.absf %a : tensor<15xf64>
  %3 = math.fma %a, %b, %b : tensor<15xf64>
  %4 = math.rsqrt %b : tensor<15xf64>
  return %0, %1, %2, %3, %4 : tensor<15xf64>, tensor<15xf64>, tensor<15xf64>, tensor<15xf64>, tensor<15xf64>
}

// input 0: -4 to 4
// input 1: 0.1 to 30
func.func @f16_functions(%a: tensor<31xf16>, %b: tensor<31xf16>)
    -> (tensor<31xf16>, tensor<31xf16>, tensor<31xf16>, tensor<31xf16>, tensor<31xf16>) {
  %0 = math.exp %a : tensor<31xf16>
  %1 = math.tanh %a : tensor<31xf16>
  %2 = math.log %b : tensor<31xf16>
  %3 = math.sqrt %b : tensor<31xf16>
  %4 = math.erf %a : tensor<31xf16>
  return %0, %1, %2, %3, %4 : tensor<31xf16>, tensor<31xf16>, tensor<31xf16>, tensor<31xf16>, tensor<31xf16>
}
