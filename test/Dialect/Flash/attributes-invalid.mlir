// RUN: flash-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{expected a mask (dense, causal or local), got 'diagonal'}}
func.func private @f() attributes {a = #flash.mask<diagonal>}

// -----

// expected-error @below {{expected left, right, chunk or sink_tokens, got 'up'}}
func.func private @f() attributes {a = #flash.mask<local, up = 3>}

// -----

// expected-error @below {{mask has two fields 'left'}}
func.func private @f() attributes {a = #flash.mask<local, left = 3, left = 4>}

// -----

// expected-error @below {{a mask has no type; before ':' write it without '#flash.mask'}}
func.func private @f() attributes {a = #flash.mask<causal> : i32}

// -----

// expected-error @below {{expected the window's left side to be at least 0, or -1 for unbounded, it is -2}}
func.func private @f() attributes {a = #flash.mask<local, left = -2>}

// -----

// expected-error @below {{expected the window's right side to be at least 0, or -1 for unbounded, it is -7}}
func.func private @f() attributes {a = #flash.mask<local, right = -7>}

// -----

// expected-error @below {{a causal mask ends at the diagonal, the window's right side is 3; leave causal out, or the right side -1 or 0}}
func.func private @f() attributes {a = #flash.mask<causal, right = 3>}

// -----

// expected-error @below {{a causal mask has no window, chunk or sink tokens; use local with right = 0}}
func.func private @f() attributes {a = #flash.mask<causal, left = 3>}

// -----

// expected-error @below {{a dense mask has no window, chunk or sink tokens; use local}}
func.func private @f() attributes {a = #flash.mask<dense, chunk = 3>}

// -----

// expected-error @below {{expected an attention chunk of at least 1, or 0 for none, it is -3}}
func.func private @f() attributes {a = #flash.mask<local, chunk = -3>}

// -----

// expected-error @below {{expected at least 0 sink tokens, there are -1}}
func.func private @f() attributes {a = #flash.mask<local, sink_tokens = -1>}

// -----

// expected-error @below {{expected a mask's numbers to be at most 2147483647, got 9223372036854775807; leave out a bound that no key reaches}}
func.func private @f() attributes {a = #flash.mask<local, right = 9223372036854775807>}

// -----

// expected-error @below {{integer value too large}}
func.func private @f() attributes {a = #flash.mask<local, right = 99223372036854775807>}

// -----

// expected-error @below {{expected a target (cpu, sm_80, sm_86, sm_89, sm_90a), got 'sm_90'}}
func.func private @f() attributes {a = #flash.target<"sm_90">}

// -----

// expected-error @below {{a plan has no field 'tiles'}}
func.func private @f() attributes {a = #flash.plan<tiles = [4, 4]>}

// -----

// expected-error @below {{plan has two fields 'tile'}}
func.func private @f() attributes {a = #flash.plan<tile = [4, 4], tile = [8, 8]>}

// -----

// expected-error @below {{plan field 'tile' needs two integers from 1 to 2147483647, got [4, 4, 4]}}
func.func private @f() attributes {a = #flash.plan<tile = [4, 4, 4]>}

// -----

// expected-error @below {{plan field 'tile' needs two integers from 1 to 2147483647, got [4, 0]}}
func.func private @f() attributes {a = #flash.plan<tile = [4, 0]>}

// -----

// expected-error @below {{plan field 'tile' needs two integers from 1 to 2147483647, got 4}}
func.func private @f() attributes {a = #flash.plan<tile = 4>}

// -----

// expected-error @below {{plan field 'registers' needs two integers from 1 to 2147483647, got [24, "all"]}}
func.func private @f() attributes {a = #flash.plan<registers = [24, "all"]>}

// -----

// expected-error @below {{plan field 'stages' needs an integer from 1 to 2147483647, got -2}}
func.func private @f() attributes {a = #flash.plan<stages = -2>}

// -----

// expected-error @below {{plan field 'stages' needs an integer from 1 to 2147483647, got 2 : i8}}
func.func private @f() attributes {a = #flash.plan<stages = 2 : i8>}

// -----

// expected-error @below {{plan field 'splits' needs an integer from 1 to 2147483647, got 4294967296}}
func.func private @f() attributes {a = #flash.plan<splits = 4294967296>}

// -----

// expected-error @below {{plan field 'staged_columns' needs an integer from 0 to 2147483647, got -64}}
func.func private @f() attributes {a = #flash.plan<staged_columns = -64>}

// -----

// expected-error @below {{plan field 'overlap' needs true or false, got 1}}
func.func private @f() attributes {a = #flash.plan<overlap = 1>}

// -----

// expected-error @below {{plan field 'split_by' needs one of "rows", "columns", got "heads"}}
func.func private @f() attributes {a = #flash.plan<split_by = "heads">}

// -----

// expected-error @below {{plan field 'order' needs one of "single", "static", "dynamic", "varlen_dynamic", "backward_lpt", "backward_spt", got "random"}}
func.func private @f() attributes {a = #flash.plan<order = "random">}

// -----

// expected-error @below {{plan field 'why' needs a dictionary of strings, got {tile = 3 : i64}}}
func.func private @f() attributes {a = #flash.plan<why = {tile = 3}>}
