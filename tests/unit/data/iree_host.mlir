// Written by coilpack compile --emit iree. Compile it with:
//   iree-compile module.mlir --iree-hal-executable-object-search-path=. -o module.vmfb
#target = #hal.executable.target<"cuda", "cuda-nvptx-fb", {target_arch = "sm_90a"}>
#device = #hal.device.target<"cuda", [#target]> : !hal.device
module @program attributes {hal.device.targets = [#device]} {
  "hal.executable.source"() <{sym_name = "add", sym_visibility = "private",
      objects = #hal.executable.objects<{#target = [
        #hal.executable.object<{path = "kernels/000_add.ptx"}>]}>}> ({
    "hal.executable.export"() <{sym_name = "add", ordinal = 0 : index,
        layout = #hal.pipeline.layout<constants = 3, bindings = [#hal.pipeline.binding<storage_buffer, ReadOnly>, #hal.pipeline.binding<storage_buffer>]>,
        workgroup_size = [64 : index, 1 : index, 1 : index],
        workgroup_local_memory = 0 : index}> ({
      ^bb0(%device: !hal.device, %x: index, %y: index, %z: index):
        hal.return %x, %y, %z : index, index, index
    }, {}) : () -> ()
    "hal.executable.source_end"() : () -> ()
  }) : () -> ()
  util.global private @weight.w = #flow.parameter.named<"model"::"w"> : tensor<64xi8>
  util.global private mutable @state.seen = dense<0> : tensor<16xi8>
  func.func @"a \22main\22"(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, i64) {
    %c0 = arith.constant 0 : index
    %x_dim = tensor.dim %x, %c0 : tensor<?x4xf32>
    %c1 = arith.constant 1 : index
    %ok = arith.cmpi sle, %c1, %x_dim : index
    cf.assert %ok, "a \22main\22: argument 0 (x): dimension 0: s must be at least 1"
    %c5000000000 = arith.constant 5000000000 : index
    %ok_1 = arith.cmpi sle, %x_dim, %c5000000000 : index
    cf.assert %ok_1, "a \22main\22: argument 0 (x): dimension 0: s must be at most 5000000000"
    %c4 = arith.constant 4 : index
    %quotient = arith.floordivsi %x_dim, %c4 : index
    %product = arith.muli %quotient, %c4 : index
    %rest = arith.subi %x_dim, %product : index
    %ok_2 = arith.cmpi eq, %rest, %c0 : index
    cf.assert %ok_2, "a \22main\22: s % 4 == 0 must hold"
    %c16 = arith.constant 16 : index
    %size = arith.muli %x_dim, %c16 : index
    %x_bytes = flow.tensor.bitcast %x : tensor<?x4xf32>{%x_dim} -> tensor<?xi8>{%size}
    %w = util.global.load immutable @weight.w : tensor<64xi8>
    %seen = util.global.load @state.seen : tensor<16xi8>
    %y = flow.tensor.empty : tensor<?xi8>{%size}
    %c0_i8 = arith.constant 0 : i8
    %y_1 = flow.tensor.splat %c0_i8 : tensor<?xi8>{%size}
    %c2147483647 = arith.constant 2147483647 : index
    %ok_3 = arith.cmpi sle, %x_dim, %c2147483647 : index
    cf.assert %ok_3, "a \22main\22: the grid of add, s, must be within 0 and 2147483647"
    %hidden = util.optimization_barrier %x_dim : index
    %k = arith.index_cast %x_dim : index to i32
    %c_2 = arith.constant -2 : index
    %size_1 = arith.muli %x_dim, %c_2 : index
    %k_1 = arith.index_cast %size_1 : index to i32
    %c32 = arith.constant 32 : index
    %high = arith.shrui %size_1, %c32 : index
    %k_2 = arith.index_cast %high : index to i32
    %hidden_1 = util.optimization_barrier %c32 : index
    %w_part = flow.tensor.slice %w[%hidden_1 for %c32] : tensor<64xi8> -> tensor<32xi8>
    %y_2 = flow.dispatch @add::@add[%hidden, %c1, %c1](%k, %k_1, %k_2, %w_part, %y_1) : (i32, i32, i32, tensor<32xi8>, tensor<?xi8>{%size}) -> %y_1{%size}
    %c4_i32 = arith.constant 4 : i32
    %c1_i32 = arith.constant 1 : i32
    %c0_i32 = arith.constant 0 : i32
    %seen_1 = flow.dispatch @add::@add[%c1, %c1, %c1](%c4_i32, %c1_i32, %c0_i32, %x_bytes, %seen) : (i32, i32, i32, tensor<?xi8>{%size}, tensor<16xi8>) -> %seen
    %result = flow.tensor.bitcast %y_2 : tensor<?xi8>{%size} -> tensor<?x4xf32>{%x_dim}
    %c3 = arith.constant 3 : index
    %quotient_1 = arith.floordivsi %x_dim, %c3 : index
    %result_1 = arith.index_cast %quotient_1 : index to i64
    util.global.store %seen_1, @state.seen : tensor<16xi8>
    return %result, %result_1 : tensor<?x4xf32>, i64
  }
}
