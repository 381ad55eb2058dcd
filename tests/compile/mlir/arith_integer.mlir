// Integer arithmetic: integers carry no sign, operations do. Everything wraps.

func.func @i32_arithmetic(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0 = arith.addi %a, %b : tensor<37xi32>
  %1 = arith.subi %a, %b : tensor<37xi32>
  %2 = arith.muli %a, %b : tensor<37xi32>
  %3 = arith.andi %a, %b : tensor<37xi32>
  %4 = arith.ori %a, %b : tensor<37xi32>
  %5 = arith.xori %a, %b : tensor<37xi32>
  return %0, %1, %2, %3, %4, %5
      : tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

func.func @i8_arithmetic(%a: tensor<5x9xi8>, %b: tensor<5x9xi8>)
    -> (tensor<5x9xi8>, tensor<5x9xi8>, tensor<5x9xi8>, tensor<5x9xi8>) {
  %0 = arith.addi %a, %b : tensor<5x9xi8>
  %1 = arith.subi %a, %b : tensor<5x9xi8>
  %2 = arith.muli %a, %b : tensor<5x9xi8>
  %3 = arith.xori %0, %2 : tensor<5x9xi8>
  return %0, %1, %2, %3 : tensor<5x9xi8>, tensor<5x9xi8>, tensor<5x9xi8>, tensor<5x9xi8>
}

func.func @i64_arithmetic(%a: tensor<21xi64>, %b: tensor<21xi64>) -> (tensor<21xi64>, tensor<21xi64>, tensor<21xi64>) {
  %0 = arith.addi %a, %b overflow<nsw, nuw> : tensor<21xi64>
  %1 = arith.subi %a, %b : tensor<21xi64>
  %2 = arith.muli %a, %b : tensor<21xi64>
  return %1, %2, %2 : tensor<21xi64>, tensor<21xi64>, tensor<21xi64>
}

func.func @i1_arithmetic(%a: tensor<17xi1>, %b: tensor<17xi1>)
    -> (tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>) {
  %0 = arith.andi %a, %b : tensor<17xi1>
  %1 = arith.ori %a, %b : tensor<17xi1>
  %2 = arith.xori %a, %b : tensor<17xi1>
  %3 = arith.addi %a, %b : tensor<17xi1>
  %4 = arith.muli %a, %b : tensor<17xi1>
  %5 = arith.cmpi slt, %a, %b : tensor<17xi1>
  return %0, %1, %2, %3, %4, %5 : tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>, tensor<17xi1>
}

// A divisor of 0, and the smallest number by -1, are undefined.
// input 1: not 0 -1
func.func @i32_signed_division(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0 = arith.divsi %a, %b : tensor<37xi32>
  %1 = arith.remsi %a, %b : tensor<37xi32>
  %2 = arith.floordivsi %a, %b : tensor<37xi32>
  %3 = arith.ceildivsi %a, %b : tensor<37xi32>
  return %0, %1, %2, %3 : tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

// input 0: -127 to 127
// input 1: not 0
func.func @i8_signed_division(%a: tensor<51xi8>, %b: tensor<51xi8>)
    -> (tensor<51xi8>, tensor<51xi8>, tensor<51xi8>, tensor<51xi8>) {
  %0 = arith.divsi %a, %b : tensor<51xi8>
  %1 = arith.remsi %a, %b : tensor<51xi8>
  %2 = arith.floordivsi %a, %b : tensor<51xi8>
  %3 = arith.ceildivsi %a, %b : tensor<51xi8>
  return %0, %1, %2, %3 : tensor<51xi8>, tensor<51xi8>, tensor<51xi8>, tensor<51xi8>
}

// input 1: not 0
func.func @i32_unsigned_division(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0 = arith.divui %a, %b : tensor<37xi32>
  %1 = arith.remui %a, %b : tensor<37xi32>
  %2 = arith.ceildivui %a, %b : tensor<37xi32>
  return %0, %1, %2 : tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

// input 1: not 0
func.func @i64_unsigned_division(%a: tensor<23xi64>, %b: tensor<23xi64>)
    -> (tensor<23xi64>, tensor<23xi64>, tensor<23xi64>) {
  %0 = arith.divui %a, %b : tensor<23xi64>
  %1 = arith.remui %a, %b : tensor<23xi64>
  %2 = arith.ceildivui %a, %b : tensor<23xi64>
  return %0, %1, %2 : tensor<23xi64>, tensor<23xi64>, tensor<23xi64>
}

// input 1: not 0
func.func @i8_unsigned_division(%a: tensor<51xi8>, %b: tensor<51xi8>) -> (tensor<51xi8>, tensor<51xi8>, tensor<51xi8>) {
  %0 = arith.divui %a, %b : tensor<51xi8>
  %1 = arith.remui %a, %b : tensor<51xi8>
  %2 = arith.ceildivui %a, %b : tensor<51xi8>
  return %0, %1, %2 : tensor<51xi8>, tensor<51xi8>, tensor<51xi8>
}

// A shift by the width or more is undefined.
// input 1: 0 to 31
func.func @i32_shifts(%a: tensor<37xi32>, %b: tensor<37xi32>) -> (tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0 = arith.shli %a, %b : tensor<37xi32>
  %1 = arith.shrsi %a, %b : tensor<37xi32>
  %2 = arith.shrui %a, %b : tensor<37xi32>
  return %0, %1, %2 : tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

// input 1: 0 to 7
// input 3: 0 to 63
func.func @i8_i64_shifts(%a: tensor<29xi8>, %b: tensor<29xi8>, %c: tensor<29xi64>, %d: tensor<29xi64>)
    -> (tensor<29xi8>, tensor<29xi8>, tensor<29xi8>, tensor<29xi64>, tensor<29xi64>, tensor<29xi64>) {
  %0 = arith.shli %a, %b : tensor<29xi8>
  %1 = arith.shrsi %a, %b : tensor<29xi8>
  %2 = arith.shrui %a, %b : tensor<29xi8>
  %3 = arith.shli %c, %d : tensor<29xi64>
  %4 = arith.shrsi %c, %d : tensor<29xi64>
  %5 = arith.shrui %c, %d : tensor<29xi64>
  return %0, %1, %2, %3, %4, %5
      : tensor<29xi8>, tensor<29xi8>, tensor<29xi8>, tensor<29xi64>, tensor<29xi64>, tensor<29xi64>
}

func.func @i32_extrema(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0 = arith.maxsi %a, %b : tensor<37xi32>
  %1 = arith.maxui %a, %b : tensor<37xi32>
  %2 = arith.minsi %a, %b : tensor<37xi32>
  %3 = arith.minui %a, %b : tensor<37xi32>
  return %0, %1, %2, %3 : tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

func.func @i64_i16_extrema(%a: tensor<21xi64>, %b: tensor<21xi64>, %c: tensor<21xi16>, %d: tensor<21xi16>)
    -> (tensor<21xi64>, tensor<21xi64>, tensor<21xi16>, tensor<21xi16>) {
  %0 = arith.maxui %a, %b : tensor<21xi64>
  %1 = arith.minui %a, %b : tensor<21xi64>
  %2 = arith.maxui %c, %d : tensor<21xi16>
  %3 = arith.minsi %c, %d : tensor<21xi16>
  return %0, %1, %2, %3 : tensor<21xi64>, tensor<21xi64>, tensor<21xi16>, tensor<21xi16>
}

func.func @i32_signed_comparisons(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>) {
  %0 = arith.cmpi eq, %a, %b : tensor<37xi32>
  %1 = arith.cmpi ne, %a, %b : tensor<37xi32>
  %2 = arith.cmpi slt, %a, %b : tensor<37xi32>
  %3 = arith.cmpi sle, %a, %b : tensor<37xi32>
  %4 = arith.cmpi sgt, %a, %b : tensor<37xi32>
  %5 = arith.cmpi sge, %a, %b : tensor<37xi32>
  return %0, %1, %2, %3, %4, %5 : tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>
}

func.func @i64_unsigned_comparisons(%a: tensor<37xi64>, %b: tensor<37xi64>)
    -> (tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>) {
  %0 = arith.cmpi ult, %a, %b : tensor<37xi64>
  %1 = arith.cmpi ule, %a, %b : tensor<37xi64>
  %2 = arith.cmpi ugt, %a, %b : tensor<37xi64>
  %3 = arith.cmpi uge, %a, %b : tensor<37xi64>
  return %0, %1, %2, %3 : tensor<37xi1>, tensor<37xi1>, tensor<37xi1>, tensor<37xi1>
}

func.func @i32_extended(%a: tensor<37xi32>, %b: tensor<37xi32>)
    -> (tensor<37xi32>, tensor<37xi1>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>) {
  %0, %1 = arith.addui_extended %a, %b : tensor<37xi32>, tensor<37xi1>
  %2:2 = arith.mulsi_extended %a, %b : tensor<37xi32>
  %3, %4 = arith.mului_extended %a, %b : tensor<37xi32>
  return %0, %1, %2#0, %2#1, %3, %4
      : tensor<37xi32>, tensor<37xi1>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>
}

func.func @i32_select(%c: tensor<13xi1>, %a: tensor<13xi32>, %b: tensor<13xi32>) -> tensor<13xi32> {
  %0 = arith.select %c, %a, %b : tensor<13xi1>, tensor<13xi32>
  return %0 : tensor<13xi32>
}

// input 1: 1 to 100
func.func @i32_single_numbers(%a: tensor<2xi32>, %b: tensor<i32>) -> tensor<6xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %three = arith.constant 3 : i32
  %x = tensor.extract %a[%c0] : tensor<2xi32>
  %y = tensor.extract %a[%c1] : tensor<2xi32>
  %d = tensor.extract %b[] : tensor<i32>
  %s = arith.addi %x, %y : i32
  %q = arith.divui %s, %d : i32
  %r = arith.remsi %x, %d : i32
  %c = arith.cmpi ult, %x, %y : i32
  %m = arith.select %c, %q, %r : i32
  %h = arith.shrui %m, %three : i32
  %f = arith.floordivsi %x, %d : i32
  %0 = tensor.from_elements %s, %q, %r, %m, %h, %f : tensor<6xi32>
  return %0 : tensor<6xi32>
}
