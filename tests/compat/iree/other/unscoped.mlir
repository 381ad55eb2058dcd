// Parameters without a scope.
util.global private @weight = #flow.parameter.named<"layer.weight"> : tensor<64xf32>
util.global private @bias = #flow.parameter.named<"b"> : tensor<64xf32>
util.global private @scale = #flow.parameter.named<"scale$1"> : tensor<64xf32>
func.func @main(%x: tensor<64xf32>, %n: i32) -> (tensor<64xf32>, i32) {
  %weight = util.global.load @weight : tensor<64xf32>
  %bias = util.global.load @bias : tensor<64xf32>
  %scale = util.global.load @scale : tensor<64xf32>
  %product = arith.mulf %x, %weight : tensor<64xf32>
  %sum = arith.addf %product, %bias : tensor<64xf32>
  %scaled = arith.mulf %sum, %scale : tensor<64xf32>
  return %scaled, %n : tensor<64xf32>, i32
}
