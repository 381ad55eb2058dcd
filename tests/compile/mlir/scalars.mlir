// Functions of numbers that are not tensors.

// input 1: -50 to 50
func.func @scaled(%a: tensor<7xf32>, %s: f32) -> tensor<7xf32> {
  %e = tensor.empty() : tensor<7xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a : tensor<7xf32>) outs(%e : tensor<7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %1 = arith.mulf %x, %s : f32
    linalg.yield %1 : f32
  } -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

func.func @integers(%a: i32, %b: i32) -> tensor<3xi32> {
  %0 = arith.addi %a, %b : i32
  %1 = arith.maxui %a, %b : i32
  %2 = arith.xori %a, %b : i32
  %3 = tensor.from_elements %0, %1, %2 : tensor<3xi32>
  return %3 : tensor<3xi32>
}

// input 0: 0 to 5
func.func @row(%i: index, %a: tensor<6x4xf32>) -> tensor<4xf32> {
  %0 = tensor.extract_slice %a[%i, 0] [1, 4] [1, 1] : tensor<6x4xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}
