// linalg.generic with parallel iterators: any maps, indices, several results.

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#column = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#none = affine_map<(d0, d1) -> ()>

// input 0: -4 to 4
// input 1: -4 to 4
// input 2: -4 to 4
// input 3: -4 to 4
func.func @transposed_and_broadcast(%a: tensor<7x5xf32>, %r: tensor<7xf32>, %c: tensor<5xf32>, %s: tensor<f32>) -> tensor<5x7xf32> {
  %e = tensor.empty() : tensor<5x7xf32>
  %0 = linalg.generic {indexing_maps = [#turned, #row, #column, #none, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a, %r, %c, %s : tensor<7x5xf32>, tensor<7xf32>, tensor<5xf32>, tensor<f32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: f32, %o: f32):
    %1 = arith.mulf %x, %y : f32
    %2 = arith.addf %1, %z : f32
    %3 = arith.subf %2, %w : f32
    linalg.yield %3 : f32
  } -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}

// input 0: -4 to 4
// input 1: -4 to 4
func.func @outs_are_read(%a: tensor<7x5xf32>, %init: tensor<7x5xf32>) -> tensor<7x5xf32> {
  %0 = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<7x5xf32>) outs(%init : tensor<7x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %1 = arith.mulf %x, %x : f32
    %2 = arith.addf %1, %o : f32
    linalg.yield %2 : f32
  } -> tensor<7x5xf32>
  return %0 : tensor<7x5xf32>
}

func.func @several_results(%a: tensor<7x5xf32>) -> (tensor<7x5xf32>, tensor<5x7xi32>) {
  %e = tensor.empty() : tensor<7x5xf32>
  %f = tensor.empty() : tensor<5x7xi32>
  %0:2 = linalg.generic {indexing_maps = [#id2, #id2, #turned], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<7x5xf32>) outs(%e, %f : tensor<7x5xf32>, tensor<5x7xi32>) {
  ^bb0(%x: f32, %o: f32, %p: i32):
    %1 = math.absf %x : f32
    %2 = arith.bitcast %x : f32 to i32
    linalg.yield %1, %2 : f32, i32
  } -> (tensor<7x5xf32>, tensor<5x7xi32>)
  return %0#0, %0#1 : tensor<7x5xf32>, tensor<5x7xi32>
}

func.func @indices() -> (tensor<4x6xi32>, tensor<4x6xi64>) {
  %e = tensor.empty() : tensor<4x6xi32>
  %f = tensor.empty() : tensor<4x6xi64>
  %0:2 = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      outs(%e, %f : tensor<4x6xi32>, tensor<4x6xi64>) {
  ^bb0(%o: i32, %p: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c6 = arith.constant 6 : index
    %m = arith.muli %i, %c6 : index
    %n = arith.addi %m, %j : index
    %x = arith.index_cast %n : index to i32
    %d = arith.subi %i, %j : index
    %y = arith.index_cast %d : index to i64
    linalg.yield %x, %y : i32, i64
  } -> (tensor<4x6xi32>, tensor<4x6xi64>)
  return %0#0, %0#1 : tensor<4x6xi32>, tensor<4x6xi64>
}

func.func @lower_triangle(%a: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<6x6xf32>) outs(%a : tensor<6x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sge, %i, %j : index
    %1 = arith.select %c, %x, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<6x6xf32>
  return %0 : tensor<6x6xf32>
}

// Maps with sums, factors, constants.
func.func @affine_reads(%a: tensor<9x4xf32>, %b: tensor<20xf32>) -> tensor<4x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0 * 2 + d1, 3)>, affine_map<(d0, d1) -> (d0 + d1 * 4 + 5)>, #id2],
      iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<9x4xf32>, tensor<20xf32>) outs(%e : tensor<4x3xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %1 = arith.subf %x, %y : f32
    linalg.yield %1 : f32
  } -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

func.func @diagonal(%a: tensor<5x5xf32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<5xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0, d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a : tensor<5x5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// input 0: 0 to 6
func.func @rows_by_number(%rows: tensor<4xi64>, %a: tensor<7x3xf32>) -> tensor<4x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %0 = linalg.generic {indexing_maps = [#column, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<4xi64>) outs(%e : tensor<4x3xf32>) {
  ^bb0(%r: i64, %o: f32):
    %i = arith.index_cast %r : i64 to index
    %j = linalg.index 1 : index
    %x = tensor.extract %a[%i, %j] : tensor<7x3xf32>
    linalg.yield %x : f32
  } -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// Values from outside of the body.
func.func @captured(%a: tensor<11xf32>, %v: tensor<f32>) -> tensor<11xf32> {
  %s = tensor.extract %v[] : tensor<f32>
  %two = arith.constant 2.0 : f32
  %t = arith.mulf %s, %two : f32
  %e = tensor.empty() : tensor<11xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a : tensor<11xf32>) outs(%e : tensor<11xf32>) {
  ^bb0(%x: f32, %o: f32):
    %1 = arith.mulf %x, %t : f32
    %2 = arith.divf %1, %two : f32
    linalg.yield %2 : f32
  } -> tensor<11xf32>
  return %0 : tensor<11xf32>
}

func.func @affine_arithmetic() -> tensor<13xi32> {
  %e = tensor.empty() : tensor<13xi32>
  %c5 = arith.constant 5 : index
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<13xi32>) {
  ^bb0(%o: i32):
    %i = linalg.index 0 : index
    %a = affine.apply affine_map<(d0)[s0] -> ((d0 - 6) floordiv 4 + (d0 - 6) mod s0 + d0 ceildiv 3)>(%i)[%c5]
    %b = affine.min affine_map<(d0) -> (d0 * 3, 10, 20 - d0)>(%i)
    %c = affine.max affine_map<(d0) -> (d0 - 2, 4)>(%i)
    %d = arith.addi %a, %b : index
    %f = arith.muli %d, %c : index
    %x = arith.index_cast %f : index to i32
    linalg.yield %x : i32
  } -> tensor<13xi32>
  return %0 : tensor<13xi32>
}

func.func @filled_and_copied(%a: tensor<3x4xf32>, %v: tensor<f16>) -> (tensor<3x4xf32>, tensor<5xf16>, tensor<2x2xi8>) {
  %x = tensor.extract %v[] : tensor<f16>
  %c = arith.constant -3 : i8
  %e = tensor.empty() : tensor<3x4xf32>
  %f = tensor.empty() : tensor<5xf16>
  %g = tensor.empty() : tensor<2x2xi8>
  %0 = linalg.copy ins(%a : tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
  %1 = linalg.fill ins(%x : f16) outs(%f : tensor<5xf16>) -> tensor<5xf16>
  %2 = linalg.fill ins(%c : i8) outs(%g : tensor<2x2xi8>) -> tensor<2x2xi8>
  return %0, %1, %2 : tensor<3x4xf32>, tensor<5xf16>, tensor<2x2xi8>
}

func.func @called_twice(%a: tensor<6xf32>) -> tensor<6xf32> {
  %0 = func.call @scaled(%a) : (tensor<6xf32>) -> tensor<6xf32>
  %1 = func.call @scaled(%0) : (tensor<6xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

func.func private @scaled(%a: tensor<6xf32>) -> tensor<6xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, -6.0]> : tensor<6xf32>
  %0 = arith.mulf %a, %c : tensor<6xf32>
  return %0 : tensor<6xf32>
}
