// Forms and their variants, for comparison with what iree-opt makes of them: spacing, flags, short and long ways to say
// one thing. The functions compute nothing sensible.
#identity = affine_map<(d0) -> (d0)>
#rows = affine_map<(d0, d1) -> (d0, d1)>
#scaled = affine_map<(d0, d1)[s0, s1] -> (d0 * 2 + s0 - d1, (d1 + s1) floordiv 3 mod 5, -d0 ceildiv 4)>
#trait = {indexing_maps = [#identity, #identity], iterator_types = ["parallel"]}
!vec = tensor<4xf32>
!mat = tensor < ? x 4 x f32 >

func.func private @declared(!vec, i32 {x.y}) -> (!vec {x.z = 1 : i8}, i1)
func.func nested @empty() attributes {a, b.c = "d", "quoted key" = [true, false, unit, -3, 2.5, @s::@t, f32, (f32) -> ()]} {
  return
}

func.func @calls(%a: !vec, %n: i32) -> !vec {
  %r:2 = func.call @declared(%a, %n) : (!vec, i32) -> (!vec, i1)
  %s:2 = call @declared(%r#0, %n) {k} : (!vec, i32) -> (!vec, i1)
  cf.assert %s#1, "a \"quoted\" \E2\82\AC\n text"
  func.return %s : !vec
}

func.func @flags(%a: f32, %b: f32, %i: i32, %j: i32, %h: f16) {
  %0 = arith.addf %a, %b fastmath<nnan , ninf> {x.y = 1} : f32
  %1 = arith.addi %i, %j overflow<nuw, nsw> : i32
  %2 = arith.shrui %i, %j exact : i32
  %3 = arith.divsi %i, %j exact : i32
  %4 = arith.extui %i nneg : i32 to i64
  %5 = arith.uitofp %i nneg : i32 to f32
  %6 = arith.truncf %a to_nearest_even : f32 to f16
  %7 = arith.trunci %i overflow<nsw> : i32 to i8
  %8 = arith.cmpf ult, %a, %b fastmath<fast> : f32
  %9 = arith.cmpi "sge", %i, %j : i32
  %10 = arith.extf %h fastmath<contract> : f16 to f32
  %11 = arith.cmpf true, %a, %b : f32
  %12 = arith.select %9, %a, %b : f32
  %13:2 = arith.mulsi_extended %i, %j : i32
  %14, %15 = arith.addui_extended %i, %j : i32, i1
  %16 = math.fpowi %a, %i fastmath<afn> : f32, i32
  %17 = math.clampf %a to [%b, %10] : f32
  %18 = math.fma %a, %b, %a : f32
  %19, %20 = math.sincos %a : f32
  %21 = math.isnan %a : f32
  %22, %23 = arith.subui_extended %i, %j : i32, i1
  %24 = arith.convertf %h : f16 to bf16
  %25 = arith.maximumnumf %a, %b : f32
  %26 = arith.flush_denormals %a : f32
  return
}

func.func @selects(%c: tensor<4xi1>, %s: i1, %a: !vec) -> (!vec, !vec) {
  %0 = arith.select %c, %a, %a : tensor<4xi1>, tensor<4xf32>
  %1 = arith.select %s, %a, %a : !vec
  return %0, %1 : !vec, !vec
}

func.func @constants() {
  %0 = arith.constant 1 : index
  %1 = arith.constant true
  %2 = arith.constant {x.y} -0x1 : i8
  %3 = arith.constant 0xFFFF : i16
  %4 = arith.constant 1.0
  %5 = arith.constant 4
  %6 = arith.constant 0x7FF0000000000000 : f64
  %7 = arith.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %8 = arith.constant dense<true> : tensor<3xi1>
  %9 = arith.constant dense<"0x000000000000803F"> : tensor<2xf32>
  %10 = arith.constant dense<[0.1, -1.0e10, 0x7FC0, 3.14159]> : tensor<4xbf16>
  %11 = arith.constant dense<[1.0e-8, 65504.0, 65520.0, 0.33333]> : tensor<4xf16>
  %12 = arith.constant dense<-1> : tensor<2x2xindex>
  %13 = arith.constant dense<[255, -128]> : tensor<2xi8>
  %14 = arith.constant dense<[0.3, -448.0]> : tensor<2xf8E4M3FN>
  %15 = arith.constant dense<> : tensor<0x3xf32>
  %16 = arith.constant dense<[18446744073709551615, -9223372036854775808]> : tensor<2xi64>
  %17 = arith.constant dense<[7, -8]> : tensor<2xi4>
  %18 = arith.constant dense<"0x0100"> : tensor<2xi1>
  %19 = arith.constant 1.7 : bf16
  %20 = arith.constant dense<0.25> : tensor<f32>
  %21 = arith.constant dense_resource<blob> : tensor<3xi16>
  return
}

func.func @affine(%a: index, %b: index) -> (index, index, index) {
  %0 = affine.apply affine_map<(d0)[s0] -> (d0 + s0 * 4)>(%a)[%b]
  %1 = affine.min #scaled(%a, %b)[%b, %a]
  %2 = affine.max affine_map<(d0) -> (d0, 5)> (%a) {k = 1 : i32}
  return %0, %1, %2 : index, index, index
}

func.func @tensors(%t: !mat, %i: index, %x: f32, %shape: tensor<2xindex>) {
  %0 = tensor.empty(%i, %i) : tensor<?x3x?xf32>
  %c1 = arith.constant 1 : index
  %1 = tensor.dim {k} %t, %c1 : !mat
  %2 = tensor.rank %t : !mat
  %3 = tensor.extract %t[%i, %c1] : !mat
  %4 = tensor.insert %x into %t[%i, %i] : !mat
  %5 = tensor.extract_slice %t[%i, 0] [2, %i] [1, 1] : !mat to tensor<2x?xf32>
  %6 = tensor.extract_slice %t[0, 0][1, 4][1, 1] {k} : !mat to tensor<4xf32>
  %7 = tensor.insert_slice %6 into %t[%i, 0] [1, 4] [%i, 1] : tensor<4xf32> into !mat
  %8 = tensor.expand_shape %t [[0], [1, 2]] output_shape [%i, 2, 2] : !mat into tensor<?x2x2xf32>
  %9 = tensor.collapse_shape %8 [[0, 1], [2]] : tensor<?x2x2xf32> into tensor<?x2xf32>
  %10 = tensor.cast %t : !mat to tensor<3x4xf32>
  %11 = tensor.pad %t nofold low[0, %i] high[%i, 1] {
  ^bb0(%p: index, %q: index):
    tensor.yield %x : f32
  } : !mat to tensor<?x?xf32>
  %12 = tensor.splat %x : tensor<2x3xf32>
  %13 = tensor.splat %x[%i] : tensor<2x?xf32>
  %14 = tensor.from_elements %x, %x, %x : tensor<3xf32>
  %15 = tensor.from_elements %x : tensor<f32>
  %16 = tensor.concat dim(1) %t, %t : (!mat, !mat) -> tensor<?x8xf32>
  %17 = tensor.generate %i {
  ^bb0(%p: index, %q: index):
    %v = arith.index_cast %p : index to i32
    %w = arith.sitofp %v : i32 to f32
    tensor.yield %w : f32
  } : tensor<?x4xf32>
  %18 = tensor.reshape %t(%shape) : (!mat, tensor<2xindex>) -> tensor<?x?xf32>
  %19 = tensor.bitcast %t : !mat to tensor<?x4xi32>
  %20 = tensor.extract %15[] : tensor<f32>
  %21 = tensor.expand_shape %15 [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
  return
}

func.func @structured(%a: !vec, %m: tensor<3x4xf32>, %k: tensor<4x5xf32>, %o: tensor<3x5xf32>, %r: tensor<3xf32>, %x: f32) {
  %0 = linalg.generic #trait ins(%a : !vec) outs(%a : !vec) attrs = {x.y = 1} {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    linalg.yield %in : f32
  } -> !vec
  %1, %2 = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel"]}
      outs(%a, %a : !vec, !vec) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in, %out : f32, f32
  } -> (!vec, !vec)
  %3 = linalg.fill ins(%x : f32) outs(%o : tensor<3x5xf32>) -> tensor<3x5xf32>
  %4 = linalg.matmul {x.y} ins(%m, %k : tensor<3x4xf32>, tensor<4x5xf32>) outs(%3 : tensor<3x5xf32>) -> tensor<3x5xf32>
  %6 = tensor.empty() : tensor<3x3xf32>
  %13 = tensor.empty() : tensor<4x3xf32>
  %18 = tensor.empty() : tensor<f32>
  %5 = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%m, %m : tensor<3x4xf32>, tensor<3x4xf32>) outs(%6 : tensor<3x3xf32>) -> tensor<3x3xf32>
  %7 = linalg.reduce { arith.addf {fastmath = #arith.fastmath<fast>} } ins(%m : tensor<3x4xf32>) outs(%r : tensor<3xf32>) dimensions = [1]
  %8 = linalg.reduce ins(%m : tensor<3x4xf32>) outs(%r : tensor<3xf32>) dimensions = [1] {x.y}
    (%in: f32, %init: f32) {
      %s = arith.maxnumf %in, %init : f32
      linalg.yield %s : f32
    }
  %9:2 = linalg.reduce ins(%m, %m : tensor<3x4xf32>, tensor<3x4xf32>) outs(%r, %r : tensor<3xf32>, tensor<3xf32>) dimensions = [1]
    (%p: f32, %q: f32, %s: f32, %t: f32) {
      linalg.yield %p, %q : f32, f32
    }
  %10 = linalg.map { math.exp } ins(%a : !vec) outs(%a : !vec)
  %11 = linalg.map { arith.mulf } ins(%a, %a : !vec, !vec) outs(%a : !vec)
  %12 = linalg.transpose ins(%m : tensor<3x4xf32>) outs(%13 : tensor<4x3xf32>) permutation = [1, 0]
  %14 = linalg.broadcast ins(%r : tensor<3xf32>) outs(%m : tensor<3x4xf32>) dimensions = [1] {x.y}
  %15 = linalg.softmax dimension(1) ins(%m : tensor<3x4xf32>) outs(%m : tensor<3x4xf32>) -> tensor<3x4xf32>
  %16 = linalg.elementwise <exp> ins(%a : !vec) outs(%a : !vec) -> !vec
  %17 = linalg.contract indexing_maps = [#identity, #identity, affine_map<(d0) -> ()>] ins(%a, %a : !vec, !vec) outs(%18 : tensor<f32>) -> tensor<f32>
  %19 = linalg.copy ins(%a : !vec) outs(%a : !vec) -> !vec
  return
}

func.func @generic_form(%a: i32) -> (i32, i32) {
  %0:2, %1 = "test.many"(%a, %a) <{p = 1 : i64}> ({
  ^entry(%x: i32, %y: i32):
    "test.br"(%x)[^next, ^next] : (i32) -> ()
  ^next:
    "test.end"() : () -> ()
  }, {
  }) {q = #test.attr<a, [b], "c">, type = !test.type<x>} : (i32, i32) -> (i32, f32, i32)
  return %0#0, %1 : i32, i32
}

module @inner attributes {x.y = 2 : i8} {
  func.func private @declared()
}

{-#
  dialect_resources: {
    builtin: {
      blob: "0x02000000010002000300",
      other: "0x0400000000000000"
    }
  }
#-}
