!t = tensor<1x64x4x64xbf16>
!l = tensor<1x4x64xf32>
func.func @f(%q: !t, %l: !l) -> (!t, !t, !t) {
  %a:3 = flash.attention_backward %q, %q, %q, %q, %l, %q by <causal> {target = #flash.target<"cpu">} : !t, !t, !t, !t, !l, !t -> !t, !t, !t
  return %a#0, %a#1, %a#2 : !t, !t, !t
}
