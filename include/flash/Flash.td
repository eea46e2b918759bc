//===- Flash.td - what is computed: attention, combine, append ------------===//
//
// The dialect says *what*: operands, mask, target. How it is done is written
// into `#flash.plan` by the planning passes, where everybody can read it.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_TD
#define FLASH_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Flash_Dialect : Dialect {
  let name = "flash";
  let cppNamespace = "::flash";
  let summary = "Attention, said once";
  let description = [{
    `flash.attention` computes `softmax(scale * q @ k^T, mask) @ v` row by row and the logarithm of the
    softmax denominator; `flash.attention_backward` its gradients; `flash.combine` joins partial results over disjoint sets of keys; `flash.append` writes new keys
    and values into a cache.

    *Rationale.* The mask is an attribute and not an operand, because the blocks a kernel may skip follow
    from it. The plan is an attribute and not a pass option, because a decision that stands in the IR can
    be read, written by hand, kept, checked and tested.
  }];
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes();";
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class Flash_Attr<string n, string mnem, string text> : AttrDef<Flash_Dialect, n> {
  let mnemonic = mnem;
  let summary = text;
  let genVerifyDecl = 1;
  let hasCustomAssemblyFormat = 1;
}

def Flash_MaskAttr : Flash_Attr<"Mask", "mask", "which keys a query sees, bottom-right aligned"> {
  let description = [{
    With `offset = Sk - Sq`: `dense` shows every key; `causal` keys `j <= i + offset`; `local` keys
    `i + offset - left <= j <= i + offset + right` (a bound left out is unbounded), of the query's own chunk
    of `chunk` keys if `chunk` is given, and besides them the first `sink_tokens` keys as far as the right
    bound allows. Numbers may be left out: unbounded sides, no chunk, no sink tokens.

    Example: `#flash.mask<local, left = 256, right = 0, sink_tokens = 4>`, in an op `by <local, left = 256, right = 0>`.
  }];
  let parameters = (ins "::flash::schedule::MaskKind":$kind, "int64_t":$left, "int64_t":$right,
                        "int64_t":$chunk, "int64_t":$sinkTokens);
  let builders = [AttrBuilder<(ins "::flash::schedule::Mask":$mask), [{
    return $_get($_ctxt, mask.kind, mask.left, mask.right, mask.chunk, mask.sinkTokens);
  }]>];
  let extraClassDeclaration = [{
    /// The same mask as the planner's library knows it.
    ::flash::schedule::Mask mask() const;
    ::flash::schedule::MaskRequest request() const;
  }];
}

def Flash_TargetAttr : Flash_Attr<"Target", "target", "the machine to compile for"> {
  let description = "One of `cpu`, `sm_80`, `sm_86`, `sm_89`, `sm_90a`. Example: `#flash.target<\"sm_90a\">`.";
  let parameters = (ins StringRefParameter<>:$name);
  let extraClassDeclaration = "::flash::schedule::Target target() const;";
}

def Flash_PlanAttr : Flash_Attr<"Plan", "plan", "how the op is done: the planner's decisions, by name"> {
  let description = [{
    A field that a hand writes is kept and checked; a field left out is filled by the pass that decides it.

    | field | decides |
    | --- | --- |
    | `tile = [M, N]` | query rows and keys of a tile |
    | `stages` | slots of the K and of the V ring |
    | `consumers`, `registers = [producer, consumer]` | warp groups that multiply, beside the one that copies, and registers of a thread of each |
    | `warps` | warps that copy and compute, without roles |
    | `in_step` | K and V are fetched between the products that read them, each once its slot is free |
    | `persistent` | whether a block takes several tiles |
    | `split_by` | what the consumers split: `"rows"` or `"columns"` of V |
    | `overlap` | the next QK product runs beside this tile's softmax and PV; of gradients: dQ of a tile is multiplied beside the next tile's softmax |
    | `q_in_regs` | Q is read into registers once a tile |
    | `early_wait` | the next K is awaited before PV is, behind the softmax |
    | `own_dv` | of gradients: dV has a kernel of its own, so that consumers hold all columns of dK, or of dV |
    | `alternate` | of gradients with `own_dv`: Q and dO, as wide, alternate in two slots: Q of the next block comes where dO was |
    | `late_v` | of gradients: V is fetched behind the first block's queries, and awaited in each block in front of its product |
    | `late_dp` | of gradients: dO is awaited once more in front of what needs dP, which keeps the exponentials before that |
    | `ping_pong` | the consumers take turns at issuing products |
    | `defer_max` | exponents of unmasked blocks are measured against an older maximum; rows that outgrow it are redone |
    | `multicast` | two blocks side by side share keys and values: each fetches half for both |
    | `staged_columns` | columns of the output that a consumer stages in shared memory at once, to be stored beside the next tile: all of its columns or a multiple of 64; 0: stored from registers |
    | `pack_gqa` | the query heads of one KV head are rows of one tile |
    | `splits` | over how many parts the keys are split |
    | `order` | in which order blocks take tiles; `"dynamic"`: the longest first, inside sections of heads that fit the L2 cache |
    | `stealing` | blocks take tiles from a counter instead of with a static stride |
    | `transfer` | `"tma"`, or `"gather"` where no tensor map can describe K and V |
    | `read_once` | the lines of keys and values are the first that the L2 cache gives up |
    | `join = [parts, aside]` | parts of the keys that their `flash.combine` reads at once, and how many of those by threads of their own (its `tile` and `aside`) |
    | `aside` | of a `flash.combine`: parts that are read at once by threads of their own |
    | `ordered` | gradients: a tile of dQ is summed in the order of the tiles of keys |
    | `roles`, `skip_blocks`, `pipeline_loads`, `exact_counts` | passes that may be switched off |
    | `why` | a reason for each decision, by field |

    Gradients refuse what only attention has: `in_step`, `q_in_regs`, `early_wait`, `ping_pong`, `pack_gqa`, `splits`, `stealing`, `defer_max`,
    `multicast`, `read_once`, `join`, and `split_by` without `warps`.

    Example: `#flash.plan<tile = [128, 128], stages = 2>`.
  }];
  let parameters = (ins "::mlir::DictionaryAttr":$fields);
  let extraClassDeclaration = [{
    ::std::optional<int64_t> getInt(::llvm::StringRef field) const;
    ::std::optional<bool> getFlag(::llvm::StringRef field) const;
    ::std::optional<::llvm::StringRef> getText(::llvm::StringRef field) const;
    /// `field[index]` of an array field.
    ::std::optional<int64_t> getInt(::llvm::StringRef field, unsigned index) const;
    /// This plan with `field` set, and with the reason for it if there is one.
    PlanAttr with(::llvm::StringRef field, ::mlir::Attribute value, ::llvm::StringRef why = {}) const;
    /// This plan with `why` as the reason of every field that has none.
    PlanAttr because(::llvm::StringRef why) const;
  }];
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

class Problem_Operand<string getter> : InterfaceMethod<"", "::mlir::Value", getter>;
class Problem_Cache<string getter> : InterfaceMethod<"", "::mlir::Value", getter, (ins), "", "return {};">;
class Problem_Attribute<string name> : InterfaceMethod<"", "::flash::" # name # "Attr", "get" # name # "Attr">;
class Problem_Setter<string name>
    : InterfaceMethod<"", "void", "set" # name # "Attr", (ins "::flash::" # name # "Attr":$attr)>;

def ProblemOpInterface : OpInterface<"ProblemOpInterface"> {
  let cppNamespace = "::flash";
  let description = "Attention and what is derived of it: what the planner and the verifiers ask of an op.";
  let methods = [
    Problem_Operand<"getQ">, Problem_Operand<"getK">, Problem_Operand<"getV">, Problem_Operand<"getSink">,
    Problem_Operand<"getScale">, Problem_Operand<"getSoftcap">, Problem_Operand<"getCuSeqlensQ">,
    Problem_Operand<"getCuSeqlensK">, Problem_Operand<"getSequsedQ">, Problem_Operand<"getSequsedK">,
    Problem_Cache<"getAppended">, Problem_Cache<"getPageTable">, Problem_Cache<"getKvBatchIdx">,
    Problem_Cache<"getLeftpadK">,
    Problem_Attribute<"Mask">, Problem_Attribute<"Target">, Problem_Attribute<"Plan">,
    Problem_Setter<"Mask">, Problem_Setter<"Target">, Problem_Setter<"Plan">];
  let extraClassDeclaration = [{
    /// The tables, by name; null where the op has none.
    ::llvm::SmallVector<std::pair<::llvm::StringRef, ::mlir::Value>> getTables();
    /// The op as the planning library knows it, for the cpu; sizes that the types leave open are unknown.
    ::flash::schedule::Problem problem();
  }];
}

def TensorOrMemRef : AnyTypeOf<[AnyRankedTensor, AnyMemRef], "tensor or memref">;

class Flash_Op<string mnem, list<Trait> traits = []> : Op<Flash_Dialect, mnem, traits> { let hasVerifier = 1; }

def Flash_AttentionOp : Flash_Op<"attention",
    [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, ProblemOpInterface]> {
  let summary = "softmax(scale * q k^T) v and the logarithm of its denominator";
  let description = [{
    | operand | shape | element |
    | --- | --- | --- |
    | q | `B x Sq x Hq x D` | f16, bf16, f32 (cpu) |
    | k | `B x Sk x Hkv x D`, `Hq % Hkv = 0` | as q |
    | v | `B x Sk x Hkv x Dv` | as q |
    | sink | `Hq` | f32, a logit of any size that joins the denominator only; inf: o is 0 and lse inf |
    | o | `B x Sq x Hq x Dv` | as q |
    | lse | `B x Hq x Sq` | f32, natural logarithm |

    `scale` defaults to `1/sqrt(D)`; with `softcap c`, c from 2^-64 to 2^10, a score is `c * tanh(s / c)`. Scores lie within 2^27 either way:
    past that the rounding of `scale * m`, m a row's maximum, outgrows what p of f16 can hold. Where the keys are split,
    within 2^16: past that the rounding of a part's lse shows in its weight. Over tensors the results
    are o and, if wanted, lse; over memrefs both are written to `outs`. A row that sees no key gives 0 and
    -inf. With o of one more dimension (`splits x B x Sq x Hq x Dv`, f32) and lse likewise, split s of the keys writes
    its own normalised part: what `flash-split-kv` makes and `flash.combine` joins. Such parts know no sink.

    Tables say which rows are a sequence's; they hold i32, contiguous, one element a sequence unless said.

    | table | meaning |
    | --- | --- |
    | cu_seqlens_q (`B + 1`) | q and o are packed, `total x Hq x D`, lse is `Hq x total`: sequence b has the rows from its element on to the next one. Besides `max_seqlen_q`, which bounds every sequence |
    | cu_seqlens_k (`B + 1`) | k and v are packed, `total x Hkv x D` |
    | seqused_q, seqused_k | only the first that many rows of a sequence count; rows of o and lse past them are left alone |
    | appended (an index) | rows that stand behind seqused_k's and count too |
    | page_table (`B x P`) | k and v are pages, `pages x page size x Hkv x D`: row r of sequence b is slot `r mod page size` of page `[b, r / page size]`. Besides seqused_k |
    | kv_batch_idx | sequence b reads the keys and values of this one instead of b: dimension 0 of k, v and page_table |
    | leftpad_k | the first that many rows of a sequence's keys do not count |

    With `schedule` (`4 x (B + 1)` i32, memrefs only) each sequence has its own number of parts, splits at most, by its share
    of all work. A kernel before the attention's own writes the schedule, from nothing but lengths: while these stay, so may
    what it wrote, and a `flash.combine` needs it.

    Bytes of rows that do not count, and of pages that no row names, never reach a result.

    ```mlir
    %o, %lse = flash.attention %q, %k, %v by <causal>
        : tensor<?x?x16x128xbf16>, tensor<?x?x4x128xbf16>, tensor<?x?x4x128xbf16>
        -> tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>
    %p = flash.attention %packed, %pages, %pages cu_seqlens_q(%cu : tensor<?xi32>) max_seqlen_q %most
        seqused_k(%used : tensor<?xi32>) page_table(%table : tensor<?x?xi32>) by <causal>
        : tensor<?x16x128xbf16>, tensor<?x64x4x128xbf16>, tensor<?x64x4x128xbf16> -> tensor<?x16x128xbf16>
    ```
  }];
  let arguments = (ins TensorOrMemRef:$q, TensorOrMemRef:$k, TensorOrMemRef:$v, Optional<TensorOrMemRef>:$sink,
                       Optional<F32>:$scale, Optional<F32>:$softcap,
                       Optional<TensorOrMemRef>:$cu_seqlens_q, Optional<Index>:$max_seqlen_q,
                       Optional<TensorOrMemRef>:$cu_seqlens_k, Optional<TensorOrMemRef>:$seqused_q,
                       Optional<TensorOrMemRef>:$seqused_k, Optional<Index>:$appended,
                       Optional<TensorOrMemRef>:$page_table, Optional<TensorOrMemRef>:$kv_batch_idx,
                       Optional<TensorOrMemRef>:$leftpad_k, Optional<AnyMemRef>:$schedule, Variadic<AnyMemRef>:$outs,
                       Flash_MaskAttr:$mask, OptionalAttr<Flash_TargetAttr>:$target, OptionalAttr<Flash_PlanAttr>:$plan);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`sink` `(` $sink^ `:` type($sink) `)`)? (`scale` $scale^)? (`softcap` $softcap^)?
    (`cu_seqlens_q` `(` $cu_seqlens_q^ `:` type($cu_seqlens_q) `)`)? (`max_seqlen_q` $max_seqlen_q^)?
    (`cu_seqlens_k` `(` $cu_seqlens_k^ `:` type($cu_seqlens_k) `)`)?
    (`seqused_q` `(` $seqused_q^ `:` type($seqused_q) `)`)? (`seqused_k` `(` $seqused_k^ `:` type($seqused_k) `)`)?
    (`appended` $appended^)? (`page_table` `(` $page_table^ `:` type($page_table) `)`)?
    (`kv_batch_idx` `(` $kv_batch_idx^ `:` type($kv_batch_idx) `)`)?
    (`leftpad_k` `(` $leftpad_k^ `:` type($leftpad_k) `)`)? (`schedule` `(` $schedule^ `:` type($schedule) `)`)?
    (`outs` `(` $outs^ `:` type($outs) `)`)? `by` $mask attr-dict
    `:` type($q) `,` type($k) `,` type($v) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// The type of o (and of lse, or null): a result's or an out's.
    ::mlir::ShapedType getOutputType();
    ::mlir::ShapedType getLseType();
    bool isPartial();
  }];
}

def Flash_AttentionBackwardOp : Flash_Op<"attention_backward",
    [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, ProblemOpInterface]> {
  let summary = "the gradients of attention";
  let description = [{
    | operand | shape | element |
    | --- | --- | --- |
    | q, k, v, sink | as `flash.attention` has them | |
    | o, lse | its results | |
    | do | as o | as q |
    | dq, dk, dv | as q, k, v | as q |
    | dsink | `Hq`, where there is a sink | f32 |

    Over tensors the gradients are results, over memrefs `outs`. With `p = exp(s - lse)` and
    `ds = p * (do v^T - rowsum(do * o))`: `dv = p^T do`, `dq = scale * ds k`, `dk = scale * ds^T q`, of all query heads that
    read a KV head; ds takes the softcap's slope too; `dsink = -sum exp(sink - lse) * rowsum(do * o)`. A row that sees no
    key gives and gets exact zeros. Scale, softcap, mask and tables are the attention's; rows of gradients that do not
    count are left alone. With `deterministic` two runs give the same bits.

    ```mlir
    %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %do by <causal>
        : tensor<?x?x16x128xbf16>, tensor<?x?x4x128xbf16>, tensor<?x?x4x128xbf16>, tensor<?x?x16x128xbf16>,
          tensor<?x16x?xf32>, tensor<?x?x16x128xbf16>
        -> tensor<?x?x16x128xbf16>, tensor<?x?x4x128xbf16>, tensor<?x?x4x128xbf16>
    ```
  }];
  let arguments = (ins TensorOrMemRef:$q, TensorOrMemRef:$k, TensorOrMemRef:$v, TensorOrMemRef:$o, TensorOrMemRef:$lse,
                       TensorOrMemRef:$dO, Optional<TensorOrMemRef>:$sink, Optional<F32>:$scale, Optional<F32>:$softcap,
                       Optional<TensorOrMemRef>:$cu_seqlens_q, Optional<TensorOrMemRef>:$cu_seqlens_k,
                       Optional<TensorOrMemRef>:$seqused_q, Optional<TensorOrMemRef>:$seqused_k,
                       Variadic<AnyMemRef>:$outs, UnitAttr:$deterministic,
                       Flash_MaskAttr:$mask, OptionalAttr<Flash_TargetAttr>:$target, OptionalAttr<Flash_PlanAttr>:$plan);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $o `,` $lse `,` $dO (`sink` `(` $sink^ `:` type($sink) `)`)? (`scale` $scale^)?
    (`softcap` $softcap^)? (`cu_seqlens_q` `(` $cu_seqlens_q^ `:` type($cu_seqlens_q) `)`)?
    (`cu_seqlens_k` `(` $cu_seqlens_k^ `:` type($cu_seqlens_k) `)`)?
    (`seqused_q` `(` $seqused_q^ `:` type($seqused_q) `)`)? (`seqused_k` `(` $seqused_k^ `:` type($seqused_k) `)`)?
    (`outs` `(` $outs^ `:` type($outs) `)`)? `by` $mask attr-dict
    `:` type($q) `,` type($k) `,` type($v) `,` type($o) `,` type($lse) `,` type($dO) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// The types of dq, dk, dv and, where there is a sink, dsink: results or outs.
    ::llvm::SmallVector<::mlir::ShapedType> getGradientTypes();
  }];
}

def Flash_CombineOp : Flash_Op<"combine",
    [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "joins attention over disjoint sets of keys";
  let description = [{
    `lse = log sum_s exp(lse_partial[s])`, `o = sum_s exp(lse_partial[s] - lse) * o_partial[s]`; a part that saw
    no key (lse -inf) is neutral. o_partial: `splits x B x Sq x Hq x Dv` f32; lse_partial: `splits x B x Hq x Sq` f32.
    Of packed sequences: `splits x total x Hq x Dv` and `splits x Hq x total`; o and lse likewise.
    A sink (`Hq` f32) is one more part whose lse is the head's logit and whose o is 0.
    As in the attention, cu_seqlens_q with a bound of its sequences, max_seqlen_q, tells which packed rows are a
    sequence's, and seqused_q how many of them count: the other rows of o and lse are left alone. With the attention's
    `schedule` a sequence has as many parts as it says.

    ```mlir
    %o, %lse = flash.combine %op, %lp : tensor<3x?x?x16x128xf32>, tensor<3x?x16x?xf32>
        -> tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>
    ```
  }];
  let arguments = (ins TensorOrMemRef:$o_partial, TensorOrMemRef:$lse_partial, Optional<TensorOrMemRef>:$sink,
                       Optional<TensorOrMemRef>:$cu_seqlens_q, Optional<Index>:$max_seqlen_q,
                       Optional<TensorOrMemRef>:$seqused_q, Optional<AnyMemRef>:$schedule, Variadic<AnyMemRef>:$outs, OptionalAttr<Flash_TargetAttr>:$target, OptionalAttr<Flash_PlanAttr>:$plan);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $o_partial `,` $lse_partial (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`cu_seqlens_q` `(` $cu_seqlens_q^ `:` type($cu_seqlens_q) `)`)? (`max_seqlen_q` $max_seqlen_q^)?
    (`seqused_q` `(` $seqused_q^ `:` type($seqused_q) `)`)? (`schedule` `(` $schedule^ `:` type($schedule) `)`)? (`outs` `(` $outs^ `:` type($outs) `)`)?
    attr-dict `:` type($o_partial) `,` type($lse_partial) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getOutputType();
    ::mlir::ShapedType getLseType();
  }];
}

def Flash_AppendOp : Flash_Op<"append",
    [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "writes new keys and values into a cache, turned by a rotary embedding";
  let description = [{
    Row t of k_new and v_new (`B x Snew x Hkv x D` and `Dv`) becomes row `seqused_k[b] + t` of sequence b of the caches
    k and v, which are outs; tables as `flash.attention` has them. With `rotary`, k_new is turned on its way: elements
    `2i` and `2i + 1` (`interleaved`), or `i` and `i + R/2`, by the angle whose cosine and sine stand in row
    `seqused_k[b] + t` of cos and sin (`positions x R/2`), for i below R/2; elements from R on stay. So is q, into the
    third out of its shape: query t by row `seqused_k[b] + t`, or with `fixed` every query by row `seqused_k[b]`.
    An attention behind it sees the rows by `appended`.

    ```mlir
    flash.append %k_new, %v_new seqused_k(%used : memref<?xi32>) rotary(%cos, %sin : memref<?x32xbf16>, memref<?x32xbf16>)
        q(%q : memref<?x?x16x128xbf16>) outs(%k, %v, %turned : memref<?x?x4x128xbf16>, memref<?x?x4x128xbf16>,
        memref<?x?x16x128xbf16>) {interleaved} : memref<?x?x4x128xbf16>, memref<?x?x4x128xbf16>
    ```

    *Rationale.* An op of its own, before the attention in the order of the stream: so the reads of the cache are ordered
    behind its writes without a flag in memory.
  }];
  let arguments = (ins AnyMemRef:$k_new, AnyMemRef:$v_new, AnyMemRef:$seqused_k, Optional<AnyMemRef>:$page_table,
                       Optional<AnyMemRef>:$kv_batch_idx, Optional<AnyMemRef>:$cos, Optional<AnyMemRef>:$sin,
                       Optional<AnyMemRef>:$q, Optional<AnyMemRef>:$cu_seqlens_q, Optional<Index>:$max_seqlen_q,
                       Variadic<AnyMemRef>:$outs, UnitAttr:$interleaved, UnitAttr:$fixed,
                       OptionalAttr<Flash_TargetAttr>:$target, OptionalAttr<Flash_PlanAttr>:$plan);
  let assemblyFormat = [{
    $k_new `,` $v_new `seqused_k` `(` $seqused_k `:` type($seqused_k) `)`
    (`page_table` `(` $page_table^ `:` type($page_table) `)`)? (`kv_batch_idx` `(` $kv_batch_idx^ `:` type($kv_batch_idx) `)`)?
    (`rotary` `(` $cos^ `,` $sin `:` type($cos) `,` type($sin) `)`)? (`q` `(` $q^ `:` type($q) `)`)?
    (`cu_seqlens_q` `(` $cu_seqlens_q^ `:` type($cu_seqlens_q) `)`)? (`max_seqlen_q` $max_seqlen_q^)?
    `outs` `(` $outs `:` type($outs) `)` attr-dict `:` type($k_new) `,` type($v_new)
  }];
}

#endif // FLASH_TD
