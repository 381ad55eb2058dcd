// Reductions: as linalg.generic, and by name.

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0, d1) -> ()>

// Large numbers would lose others in the sum.
// input 0: -10 to 10
// input 1: -10 to 10
func.func @sum_of_rows_onto(%a: tensor<9x37xf32>, %init: tensor<9xf32>) -> tensor<9xf32> {
  %0 = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<9x37xf32>) outs(%init : tensor<9xf32>) {
  ^bb0(%x: f32, %s: f32):
    %1 = arith.addf %x, %s : f32
    linalg.yield %1 : f32
  } -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// input 0: -10 to 10
func.func @sum_of_squares_of_all(%a: tensor<9x37xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %0 = linalg.generic {indexing_maps = [#id2, #none], iterator_types = ["reduction", "reduction"]}
      ins(%a : tensor<9x37xf32>) outs(%f : tensor<f32>) {
  ^bb0(%x: f32, %s: f32):
    %1 = arith.mulf %x, %x : f32
    %2 = arith.addf %s, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}

// input 0: 0.5 to 1.5
func.func @product_of_columns(%a: tensor<11x5xf32>) -> tensor<5xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %0 = linalg.generic {indexing_maps = [#id2, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : tensor<11x5xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %s: f32):
    %1 = arith.mulf %s, %x : f32
    linalg.yield %1 : f32
  } -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// IREE's vectorised reduction does not keep the order of NaN and others apart; no NaN here.
// input 0: -1000 to 1000
func.func @float_extrema(%a: tensor<7x19xf32>) -> (tensor<7xf32>, tensor<7xf32>, tensor<19xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %high = arith.constant 0x7F800000 : f32
  %e = tensor.empty() : tensor<7xf32>
  %g = tensor.empty() : tensor<19xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %h = linalg.fill ins(%high : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %k = linalg.fill ins(%high : f32) outs(%g : tensor<19xf32>) -> tensor<19xf32>
  %0 = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<7x19xf32>) outs(%f : tensor<7xf32>) {
  ^bb0(%x: f32, %s: f32):
    %3 = arith.maximumf %x, %s : f32
    linalg.yield %3 : f32
  } -> tensor<7xf32>
  %1 = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<7x19xf32>) outs(%h : tensor<7xf32>) {
  ^bb0(%x: f32, %s: f32):
    %3 = arith.minnumf %s, %x : f32
    linalg.yield %3 : f32
  } -> tensor<7xf32>
  %2 = linalg.generic {indexing_maps = [#id2, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : tensor<7x19xf32>) outs(%k : tensor<19xf32>) {
  ^bb0(%x: f32, %s: f32):
    %3 = arith.minimumf %s, %x : f32
    linalg.yield %3 : f32
  } -> tensor<19xf32>
  return %0, %1, %2 : tensor<7xf32>, tensor<7xf32>, tensor<19xf32>
}

func.func @integer_sums_and_extrema(%a: tensor<7x19xi32>) -> (tensor<7xi32>, tensor<7xi32>, tensor<7xi32>, tensor<7xi32>) {
  %zero = arith.constant 0 : i32
  %low = arith.constant -2147483648 : i32
  %ones = arith.constant -1 : i32
  %e = tensor.empty() : tensor<7xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<7xi32>) -> tensor<7xi32>
  %g = linalg.fill ins(%low : i32) outs(%e : tensor<7xi32>) -> tensor<7xi32>
  %h = linalg.fill ins(%ones : i32) outs(%e : tensor<7xi32>) -> tensor<7xi32>
  %0:4 = linalg.generic {indexing_maps = [#id2, #rows, #rows, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<7x19xi32>) outs(%f, %g, %f, %h : tensor<7xi32>, tensor<7xi32>, tensor<7xi32>, tensor<7xi32>) {
  ^bb0(%x: i32, %s: i32, %t: i32, %u: i32, %v: i32):
    %1 = arith.addi %s, %x : i32
    %2 = arith.maxsi %t, %x : i32
    %3 = arith.maxui %u, %x : i32
    %4 = arith.minui %x, %v : i32
    linalg.yield %1, %2, %3, %4 : i32, i32, i32, i32
  } -> (tensor<7xi32>, tensor<7xi32>, tensor<7xi32>, tensor<7xi32>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<7xi32>, tensor<7xi32>, tensor<7xi32>, tensor<7xi32>
}

func.func @bitwise(%a: tensor<7x19xi16>) -> (tensor<19xi16>, tensor<19xi16>, tensor<19xi16>) {
  %zero = arith.constant 0 : i16
  %ones = arith.constant -1 : i16
  %e = tensor.empty() : tensor<19xi16>
  %f = linalg.fill ins(%zero : i16) outs(%e : tensor<19xi16>) -> tensor<19xi16>
  %g = linalg.fill ins(%ones : i16) outs(%e : tensor<19xi16>) -> tensor<19xi16>
  %0:3 = linalg.generic {indexing_maps = [#id2, #columns, #columns, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : tensor<7x19xi16>) outs(%g, %f, %f : tensor<19xi16>, tensor<19xi16>, tensor<19xi16>) {
  ^bb0(%x: i16, %s: i16, %t: i16, %u: i16):
    %1 = arith.andi %s, %x : i16
    %2 = arith.ori %t, %x : i16
    %3 = arith.xori %u, %x : i16
    linalg.yield %1, %2, %3 : i16, i16, i16
  } -> (tensor<19xi16>, tensor<19xi16>, tensor<19xi16>)
  return %0#0, %0#1, %0#2 : tensor<19xi16>, tensor<19xi16>, tensor<19xi16>
}

func.func @any_and_all(%a: tensor<7x19xi1>) -> (tensor<7xi1>, tensor<7xi1>) {
  %false = arith.constant false
  %true = arith.constant true
  %e = tensor.empty() : tensor<7xi1>
  %f = linalg.fill ins(%false : i1) outs(%e : tensor<7xi1>) -> tensor<7xi1>
  %g = linalg.fill ins(%true : i1) outs(%e : tensor<7xi1>) -> tensor<7xi1>
  %0:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<7x19xi1>) outs(%f, %g : tensor<7xi1>, tensor<7xi1>) {
  ^bb0(%x: i1, %s: i1, %t: i1):
    %1 = arith.ori %s, %x : i1
    %2 = arith.andi %t, %x : i1
    linalg.yield %1, %2 : i1, i1
  } -> (tensor<7xi1>, tensor<7xi1>)
  return %0#0, %0#1 : tensor<7xi1>, tensor<7xi1>
}

// The place of the first largest of each row; few different numbers, so that some are equal.
// input 0: -3 to 3
func.func @place_of_largest(%a: tensor<7x19xf32>) -> (tensor<7xf32>, tensor<7xi32>) {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<7xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %g = tensor.empty() : tensor<7xi32>
  %h = linalg.fill ins(%zero : i32) outs(%g : tensor<7xi32>) -> tensor<7xi32>
  %rounded = math.roundeven %a : tensor<7x19xf32>
  %0:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%rounded : tensor<7x19xf32>) outs(%f, %h : tensor<7xf32>, tensor<7xi32>) {
  ^bb0(%x: f32, %best: f32, %place: i32):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i32
    %c = arith.cmpf ogt, %x, %best : f32
    %1 = arith.select %c, %x, %best : f32
    %2 = arith.select %c, %k, %place : i32
    linalg.yield %1, %2 : f32, i32
  } -> (tensor<7xf32>, tensor<7xi32>)
  return %0#0, %0#1 : tensor<7xf32>, tensor<7xi32>
}

// input 0: -10 to 10
// input 1: -10 to 10
func.func @reduce_by_name(%a: tensor<4x9x5xf32>, %init: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<9xf32>) {
  %0 = linalg.reduce ins(%a : tensor<4x9x5xf32>) outs(%init : tensor<4x5xf32>) dimensions = [1]
    (%x: f32, %s: f32) {
      %2 = arith.addf %x, %s : f32
      linalg.yield %2 : f32
    }
  %low = arith.constant dense<-3.0e+38> : tensor<9xf32>
  %1 = linalg.reduce {arith.maximumf} ins(%a : tensor<4x9x5xf32>) outs(%low : tensor<9xf32>) dimensions = [0, 2]
  return %0, %1 : tensor<4x5xf32>, tensor<9xf32>
}

// input 0: -20 to 20
func.func @softmax_by_name(%a: tensor<6x13xf32>) -> (tensor<6x13xf32>, tensor<6x13xf32>) {
  %e = tensor.empty() : tensor<6x13xf32>
  %0 = linalg.softmax dimension(1) ins(%a : tensor<6x13xf32>) outs(%e : tensor<6x13xf32>) -> tensor<6x13xf32>
  %1 = linalg.softmax dimension(0) ins(%a : tensor<6x13xf32>) outs(%e : tensor<6x13xf32>) -> tensor<6x13xf32>
  return %0, %1 : tensor<6x13xf32>, tensor<6x13xf32>
}

// input 0: -30 to 30
func.func @mean_and_variance(%a: tensor<5x40xf32>) -> tensor<5x40xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 40.0 : f32
  %small = arith.constant 1.0e-5 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %sums = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<5x40xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %s: f32):
    %1 = arith.addf %x, %s : f32
    linalg.yield %1 : f32
  } -> tensor<5xf32>
  %squares = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a, %sums : tensor<5x40xf32>, tensor<5xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %s: f32, %t: f32):
    %m = arith.divf %s, %n : f32
    %d = arith.subf %x, %m : f32
    %1 = arith.mulf %d, %d : f32
    %2 = arith.addf %t, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<5xf32>
  %g = tensor.empty() : tensor<5x40xf32>
  %0 = linalg.generic {indexing_maps = [#id2, #rows, #rows, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a, %sums, %squares : tensor<5x40xf32>, tensor<5xf32>, tensor<5xf32>) outs(%g : tensor<5x40xf32>) {
  ^bb0(%x: f32, %s: f32, %t: f32, %o: f32):
    %m = arith.divf %s, %n : f32
    %d = arith.subf %x, %m : f32
    %v = arith.divf %t, %n : f32
    %w = arith.addf %v, %small : f32
    %r = math.rsqrt %w : f32
    %1 = arith.mulf %d, %r : f32
    linalg.yield %1 : f32
  } -> tensor<5x40xf32>
  return %0 : tensor<5x40xf32>
}

// A window's dimensions are reductions; the map reads sums of dimensions.
// input 0: -10 to 10
// input 1: -2 to 2
func.func @window_as_generic(%a: tensor<20xf32>, %w: tensor<4xf32>) -> tensor<17xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<17xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<17xf32>) -> tensor<17xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, #columns, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a, %w : tensor<20xf32>, tensor<4xf32>) outs(%f : tensor<17xf32>) {
  ^bb0(%x: f32, %y: f32, %s: f32):
    %1 = arith.mulf %x, %y : f32
    %2 = arith.addf %s, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<17xf32>
  return %0 : tensor<17xf32>
}

// No combiner that is known by name, over few elements: Horner's rule.
// input 0: -2 to 2
// input 1: -1 to 1
func.func @any_combiner(%a: tensor<6x4xf32>, %x: tensor<6xf32>) -> tensor<6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %0 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a, %x : tensor<6x4xf32>, tensor<6xf32>) outs(%f : tensor<6xf32>) {
  ^bb0(%c: f32, %v: f32, %s: f32):
    %1 = arith.mulf %s, %v : f32
    %2 = arith.addf %1, %c : f32
    linalg.yield %2 : f32
  } -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
