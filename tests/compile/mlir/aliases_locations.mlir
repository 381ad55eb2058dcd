// Aliases of types and attributes, locations, a named module.
!matrix = tensor<4x5xf32>
!vector_of_rows = tensor<4xf32>
#identity = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
#kinds = ["parallel", "reduction"]
#here = loc("model.py":12:4)

module @aliases attributes {test.note = "any dialect's", test.numbers = [1 : i32, 2.5 : f64, unit]} {
  // input 0: -9 to 9
  func.func @row_sums(%a: !matrix loc("a")) -> !vector_of_rows {
    %zero = arith.constant 0.0 : f32 loc(unknown)
    %e = tensor.empty() : !vector_of_rows loc(#here)
    %f = linalg.fill ins(%zero : f32) outs(%e : !vector_of_rows) -> !vector_of_rows loc(callsite("f" at "model.py":3:1))
    %0 = linalg.generic {indexing_maps = [#identity, #first], iterator_types = #kinds}
        ins(%a : !matrix) outs(%f : !vector_of_rows) attrs = {name = "sums"} {
    ^bb0(%x: f32 loc("x"), %s: f32):
      %1 = arith.addf %x, %s : f32 loc(fused["x", #here])
      linalg.yield %1 : f32
    } -> !vector_of_rows loc(#later)
    return %0 : !vector_of_rows loc(fused<"pass">["sums"("model.py":8:2)])
  } loc("model.py":1:1)

  func.func public @attributes_of_arguments(%a: !matrix {test.name = "a"}, %b: !matrix {test.name = "b"})
      -> (!matrix {test.name = "sum"}) {
    %0 = arith.addf %a, %b {test.note = "by hand"} : !matrix
    return %0 : !matrix
  }
}
#later = loc("later.py":7:7)
