!t = tensor<1x64x4x64xbf16>
gpu.module @m {
  func.func @f(%q: !t) -> !t {
    %o = flash.attention %q, %q, %q by <causal> : !t, !t, !t -> !t
    return %o : !t
  }
}
