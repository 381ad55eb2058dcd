// Conversions between the types.

// input 0: -1000 to 1000
func.func @between_floats(%a: tensor<23xf32>, %b: tensor<23xf16>, %c: tensor<23xbf16>, %d: tensor<23xf64>)
    -> (tensor<23xf16>, tensor<23xbf16>, tensor<23xf64>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>) {
  %0 = arith.truncf %a : tensor<23xf32> to tensor<23xf16>
  %1 = arith.truncf %a : tensor<23xf32> to tensor<23xbf16>
  %2 = arith.extf %a : tensor<23xf32> to tensor<23xf64>
  %3 = arith.extf %b : tensor<23xf16> to tensor<23xf32>
  %4 = arith.extf %c : tensor<23xbf16> to tensor<23xf32>
  %5 = arith.truncf %d : tensor<23xf64> to tensor<23xf32>
  return %0, %1, %2, %3, %4, %5
      : tensor<23xf16>, tensor<23xbf16>, tensor<23xf64>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>
}

func.func @wider_integers(%a: tensor<23xi8>, %b: tensor<23xi1>, %c: tensor<23xi32>)
    -> (tensor<23xi32>, tensor<23xi32>, tensor<23xi32>, tensor<23xi32>, tensor<23xi64>, tensor<23xi64>) {
  %0 = arith.extsi %a : tensor<23xi8> to tensor<23xi32>
  %1 = arith.extui %a : tensor<23xi8> to tensor<23xi32>
  %2 = arith.extsi %b : tensor<23xi1> to tensor<23xi32>
  %3 = arith.extui %b : tensor<23xi1> to tensor<23xi32>
  %4 = arith.extsi %c : tensor<23xi32> to tensor<23xi64>
  %5 = arith.extui %c : tensor<23xi32> to tensor<23xi64>
  return %0, %1, %2, %3, %4, %5
      : tensor<23xi32>, tensor<23xi32>, tensor<23xi32>, tensor<23xi32>, tensor<23xi64>, tensor<23xi64>
}

func.func @narrower_integers(%a: tensor<23xi64>, %b: tensor<23xi32>)
    -> (tensor<23xi32>, tensor<23xi16>, tensor<23xi8>, tensor<23xi1>) {
  %0 = arith.trunci %a : tensor<23xi64> to tensor<23xi32>
  %1 = arith.trunci %a : tensor<23xi64> to tensor<23xi16>
  %2 = arith.trunci %b : tensor<23xi32> to tensor<23xi8>
  %3 = arith.trunci %b : tensor<23xi32> to tensor<23xi1>
  return %0, %1, %2, %3 : tensor<23xi32>, tensor<23xi16>, tensor<23xi8>, tensor<23xi1>
}

func.func @integers_to_floats(%a: tensor<23xi32>, %b: tensor<23xi8>, %c: tensor<23xi1>)
    -> (tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf64>) {
  %0 = arith.sitofp %a : tensor<23xi32> to tensor<23xf32>
  %1 = arith.uitofp %a : tensor<23xi32> to tensor<23xf32>
  %2 = arith.sitofp %b : tensor<23xi8> to tensor<23xf32>
  %3 = arith.uitofp %b : tensor<23xi8> to tensor<23xf32>
  %4 = arith.uitofp %c : tensor<23xi1> to tensor<23xf32>
  %5 = arith.uitofp %a : tensor<23xi32> to tensor<23xf64>
  return %0, %1, %2, %3, %4, %5
      : tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf32>, tensor<23xf64>
}

func.func @long_integers_to_floats(%a: tensor<23xi64>) -> (tensor<23xf64>, tensor<23xf64>, tensor<23xf32>) {
  %0 = arith.sitofp %a : tensor<23xi64> to tensor<23xf64>
  %1 = arith.uitofp %a : tensor<23xi64> to tensor<23xf64>
  %2 = arith.sitofp %a : tensor<23xi64> to tensor<23xf32>
  return %0, %1, %2 : tensor<23xf64>, tensor<23xf64>, tensor<23xf32>
}

// A number outside of the integer's range, and NaN, are undefined.
// input 0: -30000 to 30000
// input 1: 0 to 250
// input 2: 0 to 4e9
func.func @floats_to_integers(%a: tensor<23xf32>, %b: tensor<23xf32>, %c: tensor<23xf64>)
    -> (tensor<23xi32>, tensor<23xi16>, tensor<23xi8>, tensor<23xi64>, tensor<23xi32>) {
  %0 = arith.fptosi %a : tensor<23xf32> to tensor<23xi32>
  %1 = arith.fptosi %a : tensor<23xf32> to tensor<23xi16>
  %2 = arith.fptoui %b : tensor<23xf32> to tensor<23xi8>
  %3 = arith.fptosi %a : tensor<23xf32> to tensor<23xi64>
  %4 = arith.fptoui %c : tensor<23xf64> to tensor<23xi32>
  return %0, %1, %2, %3, %4 : tensor<23xi32>, tensor<23xi16>, tensor<23xi8>, tensor<23xi64>, tensor<23xi32>
}

func.func @same_bits(%a: tensor<23xf32>, %b: tensor<23xi16>, %c: tensor<23xi64>)
    -> (tensor<23xi32>, tensor<23xbf16>, tensor<23xf64>) {
  %0 = arith.bitcast %a : tensor<23xf32> to tensor<23xi32>
  %1 = arith.bitcast %b : tensor<23xi16> to tensor<23xbf16>
  %2 = arith.bitcast %c : tensor<23xi64> to tensor<23xf64>
  return %0, %1, %2 : tensor<23xi32>, tensor<23xbf16>, tensor<23xf64>
}

// input 1: 0 to 200
func.func @through_index(%a: tensor<9xi32>, %b: tensor<9xi32>) -> (tensor<9xi64>, tensor<9xi64>, tensor<9xi8>) {
  %e = tensor.empty() : tensor<9xi64>
  %s = tensor.empty() : tensor<9xi8>
  %r:3 = linalg.generic {
      indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
                       affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}
      ins(%a, %b : tensor<9xi32>, tensor<9xi32>) outs(%e, %e, %s : tensor<9xi64>, tensor<9xi64>, tensor<9xi8>) {
  ^bb0(%x: i32, %y: i32, %o: i64, %p: i64, %q: i8):
    %i = arith.index_cast %x : i32 to index
    %u = arith.index_castui %x : i32 to index
    %v = arith.index_cast %i : index to i64
    %w = arith.index_castui %u : index to i64
    %j = arith.index_cast %y : i32 to index
    %k = arith.index_cast %j : index to i8
    linalg.yield %v, %w, %k : i64, i64, i8
  } -> (tensor<9xi64>, tensor<9xi64>, tensor<9xi8>)
  return %r#0, %r#1, %r#2 : tensor<9xi64>, tensor<9xi64>, tensor<9xi8>
}
