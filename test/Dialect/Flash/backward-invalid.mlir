// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @outputs(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected dq, dk and dv as results, got 2}}
  %dq, %dk = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @sink(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{expected dq, dk, dv and dsink as results, got 3}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do sink(%s : tensor<4xf32>) by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @do_length(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x9x4x64xf32>) {
  // expected-error @+1 {{expected do's length (9) to equal q's (8)}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x9x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @o_element(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf16>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected o's element type to be 'f32' as q's, got 'f16'}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf16>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @o_rank(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected o of rank 4 (batch x length x heads x head size), got rank 5}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @lse_heads(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x2x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected lse's heads (2) to equal q's (4)}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x2x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @dq_heads(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected dq's heads (2) to equal q's (4)}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @dk_length(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected dk's length (8) to equal k's (9)}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x8x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @dv_head_size(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>) {
  // expected-error @+1 {{expected dv's head size (32) to equal v's (64)}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x32xf32>
  return
}

// -----

func.func @dsink(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %v: tensor<1x9x2x64xf32>, %o: tensor<1x8x4x64xf32>, %lse: tensor<1x4x8xf32>, %do: tensor<1x8x4x64xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{expected dsink's heads (2) to equal q's (4)}}
  %dq, %dk, %dv, %ds = flash.attention_backward %q, %k, %v, %o, %lse, %do sink(%s : tensor<4xf32>) by <dense>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32> -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<2xf32>
  return
}
