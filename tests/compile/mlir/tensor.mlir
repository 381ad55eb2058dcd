// Shapes, parts and single elements of tensors. IREE's compiler refuses tensor.splat
// and tensor.generate.

func.func @slices(%a: tensor<9x11xf32>, %b: tensor<2x3xf32>) -> (tensor<4x3xf32>, tensor<11xf32>, tensor<9x11xf32>) {
  %0 = tensor.extract_slice %a[1, 2] [4, 3] [2, 3] : tensor<9x11xf32> to tensor<4x3xf32>
  %1 = tensor.extract_slice %a[8, 0] [1, 11] [1, 1] : tensor<9x11xf32> to tensor<11xf32>
  %2 = tensor.insert_slice %b into %a[3, 1] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<9x11xf32>
  return %0, %1, %2 : tensor<4x3xf32>, tensor<11xf32>, tensor<9x11xf32>
}

// A slice of a lower rank goes into its place, too.
func.func @row_into(%a: tensor<5x7xi16>, %row: tensor<7xi16>) -> tensor<5x7xi16> {
  %0 = tensor.insert_slice %row into %a[4, 0] [1, 7] [1, 1] : tensor<7xi16> into tensor<5x7xi16>
  return %0 : tensor<5x7xi16>
}

func.func @reshapes(%a: tensor<6x5x2xf32>) -> (tensor<30x2xf32>, tensor<60xf32>, tensor<2x3x5x2xf32>, tensor<2x3x1x10xf32>) {
  %0 = tensor.collapse_shape %a [[0, 1], [2]] : tensor<6x5x2xf32> into tensor<30x2xf32>
  %1 = tensor.collapse_shape %a [[0, 1, 2]] : tensor<6x5x2xf32> into tensor<60xf32>
  %2 = tensor.expand_shape %a [[0, 1], [2], [3]] output_shape [2, 3, 5, 2] : tensor<6x5x2xf32> into tensor<2x3x5x2xf32>
  %3 = tensor.collapse_shape %a [[0], [1, 2]] : tensor<6x5x2xf32> into tensor<6x10xf32>
  %4 = tensor.expand_shape %3 [[0, 1], [2, 3]] output_shape [2, 3, 1, 10] : tensor<6x10xf32> into tensor<2x3x1x10xf32>
  return %0, %1, %2, %4 : tensor<30x2xf32>, tensor<60xf32>, tensor<2x3x5x2xf32>, tensor<2x3x1x10xf32>
}

func.func @to_and_from_rank_0(%a: tensor<f32>, %b: tensor<1x1xf32>) -> (tensor<1x1x1xf32>, tensor<f32>) {
  %0 = tensor.expand_shape %a [] output_shape [1, 1, 1] : tensor<f32> into tensor<1x1x1xf32>
  %1 = tensor.collapse_shape %b [] : tensor<1x1xf32> into tensor<f32>
  return %0, %1 : tensor<1x1x1xf32>, tensor<f32>
}

func.func @padded(%a: tensor<3x4xf32>) -> (tensor<6x7xf32>, tensor<3x9xf32>) {
  %zero = arith.constant 0.0 : f32
  %infinity = arith.constant 0xFF800000 : f32
  %0 = tensor.pad %a low[1, 0] high[2, 3] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<3x4xf32> to tensor<6x7xf32>
  %1 = tensor.pad %a low[0, 5] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %infinity : f32
  } : tensor<3x4xf32> to tensor<3x9xf32>
  return %0, %1 : tensor<6x7xf32>, tensor<3x9xf32>
}

func.func @padded_with_an_input(%a: tensor<3x4xi8>, %v: tensor<i8>) -> tensor<5x4xi8> {
  %x = tensor.extract %v[] : tensor<i8>
  %0 = tensor.pad %a low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %x : i8
  } : tensor<3x4xi8> to tensor<5x4xi8>
  return %0 : tensor<5x4xi8>
}

// Of rank 1, as the next: IREE places the elements of tensors of rank 2 wrong.
func.func @elements(%a: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<1xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %x = tensor.extract %a[%c0, %c3] : tensor<3x4xf32>
  %y = tensor.extract %a[%c2, %c0] : tensor<3x4xf32>
  %0 = tensor.from_elements %x, %y, %y, %x : tensor<4xf32>
  %1 = tensor.from_elements %y : tensor<1xf32>
  return %0, %1 : tensor<4xf32>, tensor<1xf32>
}

func.func @one_element_replaced(%a: tensor<7xi32>) -> tensor<7xi32> {
  %c2 = arith.constant 2 : index
  %x = arith.constant -7 : i32
  %0 = tensor.insert %x into %a[%c2] : tensor<7xi32>
  return %0 : tensor<7xi32>
}

// input 0: 0 to 4
func.func @element_at_a_computed_place(%place: tensor<i32>, %a: tensor<5x3xf32>) -> tensor<2xf32> {
  %c1 = arith.constant 1 : index
  %p = tensor.extract %place[] : tensor<i32>
  %i = arith.index_cast %p : i32 to index
  %x = tensor.extract %a[%i, %c1] : tensor<5x3xf32>
  %y = arith.negf %x : f32
  %0 = tensor.from_elements %x, %y : tensor<2xf32>
  return %0 : tensor<2xf32>
}

func.func @joined(%a: tensor<2x3xf32>, %b: tensor<4x3xf32>, %c: tensor<6x2xf32>) -> tensor<6x5xf32> {
  %0 = tensor.concat dim(0) %a, %b : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<6x3xf32>
  %1 = tensor.concat dim(1) %0, %c : (tensor<6x3xf32>, tensor<6x2xf32>) -> tensor<6x5xf32>
  return %1 : tensor<6x5xf32>
}

func.func @cast_and_sizes(%a: tensor<3x4xi32>) -> tensor<2xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = tensor.cast %a : tensor<3x4xi32> to tensor<?x4xi32>
  %n = tensor.dim %0, %c0 : tensor<?x4xi32>
  %m = tensor.dim %0, %c1 : tensor<?x4xi32>
  %p = arith.muli %n, %m : index
  %x = arith.index_cast %n : index to i64
  %y = arith.index_cast %p : index to i64
  %1 = tensor.from_elements %x, %y : tensor<2xi64>
  return %1 : tensor<2xi64>
}
