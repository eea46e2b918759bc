/*===- Flash.h - the C API of libflashc.so ---------------------------------===*\
 *
 * A problem (JSON text) becomes a program, and a program runs on tensors that the caller owns:
 *
 *   FlashProgram *program;
 *   FlashBytes text;
 *   if (flash_compile("{\"target\": \"cpu\", \"element\": \"bf16\", \"head_size\": 128}",
 *                     &program, &text))
 *     complain(text.data), flash_free(text.data);
 *
 * A problem's fields:
 *
 *   target       "cpu", "sm_80", "sm_86", "sm_89" or "sm_90a"
 *   element      "f16", "bf16", "f32" or "f8e4m3"
 *   head_size    of q and k;  head_size_v: of v and o (default: head_size)
 *   causal       true or false;  window: [left, right], -1 = unbounded;  chunk, sink_tokens: 0 =
 *                none
 *   softcap      whether scores are capped;  sink: whether a logit per query head joins the
 *                denominator
 *   batch, heads, kv_heads, len_q, len_k   sizes that the plan is made for; left out: unknown
 *   packed_q, packed_k   whether sequences lie one after the other (cu_seqlens_q, cu_seqlens_k);
 *                used_q, used_k: whether only so many rows count (seqused_q, seqused_k); len_q and
 *                len_k bound them; total_q: rows of a packed q; left out: unknown
 *   page_size    of paged keys and values, which need used_k; left out: not paged
 *   kv_batch_idx, leftpad_k, append   whether a call has these (append: k_new and v_new, which need
 *                used_k)
 *   rotary       pairs of columns that rotary_cos and rotary_sin turn in q and k_new; 0 or left
 *                out: none
 *   rotary_interleaved   whether pairs are neighbours
 *   merge        whether the problem is not attention but the join of its parts: o_partial [n, B,
 *                Sq, Hq, Dv] and lse_partial [n, B, Hq, Sq] of f32 become o and lse; of the other
 *                fields only target, element and head_size_v count
 *   backward     whether the problem is attention's gradients: o and lse are inputs and so is do,
 *                of o's shape; dq, dk and dv become what q, k and v are multiplied by, dsink [Hq]
 *                (f32) where there is a sink
 *   deterministic  of gradients: whether two runs must give the same bits (attention's always are)
 *   num_splits   0 or left out: the planner's choice;  pack_gqa: left out: the planner's choice
 *   sms          multiprocessors, or worker threads of the CPU; left out: the machine table's
 *   transfer     how a GPU reads k and v: "tma" (the default), or "gather", which any strides will
 *                do for (tma refuses tensors that repeat themselves, with a stride of 0)
 *   plan         fields fixed by hand: "#flash.plan<tile = [128, 128], stages = 2>", or they alone
 *   passes       optional passes switched off: {"skip_blocks": false, "pipeline_loads": false, ...}
 *   records      files of measured plans (flash/Schedule/Record.h), the first match counts, a plan
 *                by hand outdoes them;  gpu: whose records count, as the driver names it; left out:
 *                anyone's
 *
 * Every function is thread safe, throws nothing, prints nothing and never aborts on bad input. Each
 * that can fail returns a status and takes a last argument `text` that receives the result, or on
 * failure the sentence why: lower case, no full stop, what was expected and what was found. Strings
 * are UTF-8.
 *
\*===----------------------------------------------------------------------===*/
#ifndef FLASH_C_FLASH_H
#define FLASH_C_FLASH_H

#include <stddef.h>
#include <stdint.h>

#define FLASH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum FlashStatus {
  FLASH_OK = 0,
  FLASH_INVALID = 1,   /**< the caller's input does not make sense */
  FLASH_NOT_BUILT = 2, /**< it makes sense, and this version has no kernel for it */
  FLASH_INTERNAL = 3   /**< the machine, the driver or this library failed */
} FlashStatus;

/** Bytes with a NUL behind them, which `size` does not count. Free `data` with flash_free. An empty
    result may have data NULL. */
typedef struct FlashBytes {
  char *data;
  size_t size;
} FlashBytes;

/** A compiled problem. May be run by several threads at once. */
typedef struct FlashProgram FlashProgram;

enum { FLASH_MAX_RANK = 5 };

/** A tensor in the caller's memory. Names and shapes: q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B,
    Sk, Hkv, Dv], o [B, Sq, Hq, Dv] of the problem's element type; lse [B, Hq, Sq] and sink [Hq] of
    f32. As far as the problem has them: cu_seqlens_q, cu_seqlens_k [B + 1] (then q and o [total,
    Hq, .] and lse [Hq, total]; k and v [total, Hkv, .]), seqused_q, seqused_k, kv_batch_idx and
    leftpad_k [B], schedule [4, B + 1] (flash_prepare), page_table [B, pages] (then k and v [pages,
    page size, Hkv, .]) of 32-bit integers; k_new, v_new [B, Snew, Hkv, .], rotary_cos, rotary_sin
    [positions, pairs] of the element type. Strides count elements; the last dimension is
    contiguous, but for lse and sink. */
typedef struct FlashTensor {
  const char *name;
  void *data;
  int64_t rank;
  int64_t size[FLASH_MAX_RANK];
  int64_t stride[FLASH_MAX_RANK];
} FlashTensor;

/** Values that vary from call to call. Scores times scale, capped, have to lie within 2^27 either
    way (within 2^16 where the keys are split): f32 cannot tell larger ones apart. softcap is read
    only by programs of a problem that has it; max_seqlen_q and max_seqlen_k, at least the rows of
    every sequence, only where q is packed, and where k is packed or paged. */
typedef struct FlashScalars {
  float scale;
  float softcap;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
} FlashScalars;

/** Version of the compiler, "major.minor.patch"; static storage. */
FLASH_API const char *flash_version(void);

/** Frees the data of a FlashBytes; NULL is fine. */
FLASH_API void flash_free(void *data);

/** Everything that shapes the code of a problem, as text: equal keys, equal programs. Includes this
    build of the compiler and the assembler's version; sizes only by what the plan made of them. */
FLASH_API FlashStatus flash_key(const char *problem, FlashBytes *text);

/** The problem's plan and the reason of each decision: for people, or with `json` as an object. */
FLASH_API FlashStatus flash_explain(const char *problem, int json, FlashBytes *text);

/** Plans and compiles a problem: to PTX for a GPU, to code in memory for the CPU. */
FLASH_API FlashStatus flash_compile(const char *problem, FlashProgram **program, FlashBytes *text);

/** Names the assembler to use from now on (NULL: keep to $FLASH_PTXAS, $PATH and
    /usr/local/cuda/bin) and yields its version, or nothing where there is none. FLASH_PTXAS=none
    hides them all. */
FLASH_API FlashStatus flash_ptxas(const char *path, FlashBytes *text);

/** Assembles a GPU program's PTX to a cubin where there is an assembler; without one, and for the
    CPU, does nothing: the driver compiles the PTX when it is first launched. Not while another
    thread uses the program. */
FLASH_API FlashStatus flash_assemble(FlashProgram *program, FlashBytes *text);

/** A part of a program: "mlir" (the op it was made of), "plan", "metadata" (JSON: kernels, threads,
    shared bytes, parameters), "ptx", "cubin", "report" (what the assembler said), or "blob" (what
    flash_program_load takes). Empty where
    the program has no such part. */
FLASH_API FlashStatus flash_program_text(const FlashProgram *program, const char *part,
                                         FlashBytes *text);

/** The program that a blob of this build was made of. */
FLASH_API FlashStatus flash_program_load(const void *blob, size_t size, FlashProgram **program,
                                         FlashBytes *text);

/** No other thread may use the program any more; NULL is fine. */
FLASH_API void flash_program_free(FlashProgram *program);

/** Runs a CPU program on `workers` threads; returns when it is done. */
FLASH_API FlashStatus flash_run(FlashProgram *program, const FlashTensor *tensors, size_t count,
                                const FlashScalars *scalars, int workers, FlashBytes *text);

/** Bytes of the device's memory that flash_launch needs for these tensors besides them: the parts
    of split keys, 0 for most programs. The caller hands them over as one more tensor, named
    "workspace", of rank 1 and f32; what is in them does not matter, before or after. */
FLASH_API FlashStatus flash_workspace(FlashProgram *program, const FlashTensor *tensors,
                                      size_t count, const FlashScalars *scalars, int device,
                                      size_t *bytes, FlashBytes *text);

/** Queues a GPU program on `stream` (a CUstream) of CUDA device `device`: no waiting, no
    allocation. Works in the current context if it is the device's, else in the device's primary
    context. Tensors lie on the device; pointers and strides are multiples of 16 bytes. May be
    captured into a graph; two executable copies of one graph must not run at once, for their blocks
    may take tiles from one counter. */
FLASH_API FlashStatus flash_launch(FlashProgram *program, const FlashTensor *tensors, size_t count,
                                   const FlashScalars *scalars, int device, void *stream,
                                   FlashBytes *text);

/** Where the counters lie that a GPU program's blocks take tiles from: 32-bit integers in the
   memory of `device`, all 0 whenever no launch is under way. 0 bytes where no launch there has used
   any. For tests. */
FLASH_API FlashStatus flash_counters(FlashProgram *program, int device, void **data, size_t *bytes,
                                     FlashBytes *text);

/** Fills only the operand "schedule", of 32-bit integers [4, B + 1], for the call that these
    tensors make: how many parts the keys of each sequence are split into, and in which order tiles
    run. A program has one if its plan splits sequences by their own lengths (a kernel whose "op" is
    "prepare" stands in its metadata). Runs and launches with the filled operand do not compute it
    again: it holds as long as the lengths of the sequences do, and for calls of the same shapes and
    scalars. On the CPU device and stream do not matter. */
FLASH_API FlashStatus flash_prepare(FlashProgram *program, const FlashTensor *tensors, size_t count,
                                    const FlashScalars *scalars, int device, void *stream,
                                    FlashBytes *text);

#ifdef __cplusplus
}
#endif

#endif /* FLASH_C_FLASH_H */
