//===- Tile.td - how one block works, without naming hardware -------------===//
//
// Five types. Loops, branches and index arithmetic are upstream's scf and
// arith: a pass moves flash_tile ops between ordinary regions.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_TILE_TD
#define FLASH_TILE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Dialect : Dialect {
  let name = "flash_tile";
  let cppNamespace = "::flash::tile";
  let dependentDialects = ["::flash::FlashDialect"]; // the mask
  let summary = "How one block of an attention kernel works, without naming hardware";
  let description = [{
    Fragments are SSA values, shared memory is rings, everything else is upstream. Asynchrony is a type: `mma`
    gives a `flight`, and only `mma_wait` takes one. Ordinals are explicit: every ring op names the ordinal of
    its fill; slot = ordinal mod stages, parity = (ordinal / stages) mod 2. Each op names the unit that executes
    it, and roles come from clone-and-erase on that alone.

    *Rationale.* Differences from the sketch this dialect grew from: consumers may split V's *columns* instead of
    rows (`store ... col`, `slice`), which spares heads of 512 the exchange of P and of the rescale factors; a `load` takes
    a column of statistics straight into registers, which is all that `flash.combine` needs.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Types: one spelling, `<AxBxT>`, five meanings
//===----------------------------------------------------------------------===//

class Tile_Type<string n, string mnem, int rank, string text> : TypeDef<Tile_Dialect, n> {
  let mnemonic = mnem;
  let summary = text;
  let description = "Example: `!flash_tile." # mnem # !cond(!eq(rank, 1) : "<64xbf16>", !eq(rank, 2) : "<64x128xf32>",
                                                            true : "<2x128x64xbf16>") # "`.";
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType);
  let assemblyFormat = "`<` custom<Shape>($shape, $elementType) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = "static constexpr int64_t kRank = " # rank # ";";
}
def ViewType   : Tile_Type<"View", "view", 1,
    "a global tensor as sequences x heads x rows of `cols` elements; hides strides and packing">;
def RingType   : Tile_Type<"Ring", "ring", 3,
    "`stages` shared tiles, filled and released in the order of their ordinals 0, 1, 2, ...">;
def TileType   : Tile_Type<"Tile", "tile", 2,
    "one filled slot of a ring, readable until its release">;
def FragType   : Tile_Type<"Frag", "frag", 2,
    "rows x cols values in registers, rows spread over the warps of the role; Mx1 broadcasts along rows">;
def FlightType : Tile_Type<"Flight", "flight", 2,
    "a fragment that a multiplication is still writing; only mma_wait may take it">;

//===----------------------------------------------------------------------===//
// Enums, attributes, the unit interface
//===----------------------------------------------------------------------===//

class Tile_Enum<string n, string text, list<I32EnumAttrCase> cases> : I32EnumAttr<n, text, cases> {
  let cppNamespace = "::flash::tile";
  let genSpecializedAttr = 0;
}
class Tile_EnumAttr<EnumAttrInfo e, string mnem> : EnumAttr<Tile_Dialect, e, mnem> { let assemblyFormat = "$value"; }

def UnitEnum : Tile_Enum<"Unit", "who may execute an op", [
  I32EnumAttrCase<"any", 0>, I32EnumAttrCase<"copy", 1>, I32EnumAttrCase<"tensor", 2>, I32EnumAttrCase<"vector", 3>,
  I32EnumAttrCase<"turn", 4>]>;
def SoftmaxEnum : Tile_Enum<"SoftmaxMode", "what a softmax step is measured against", [
  I32EnumAttrCase<"first", 0>, I32EnumAttrCase<"online", 1>, I32EnumAttrCase<"deferred", 2>]>;
def SoftmaxAttr : Tile_EnumAttr<SoftmaxEnum, "softmax">;

def RoleAttr : AttrDef<Tile_Dialect, "Role"> {
  let mnemonic = "role";
  let summary = "one program of a block: its instances, warps an instance, registers a thread, and units";
  let description = [{
    Registers 0: as many as the compiler takes.
    Example: `#flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>`.
  }];
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$instances, "int64_t":$warps, "int64_t":$registers,
                        ArrayRefParameter<"::flash::tile::Unit">:$units);
  let assemblyFormat = "`<` $name `,` struct($instances, $warps, $registers) `,` `units` `=` `[` $units `]` `>`";
}

def Tile_MaskAttr : Attr<CPred<"::llvm::isa<::flash::MaskAttr>($_self)">, "#flash.mask"> {
  let storageType = "::flash::MaskAttr";
  let returnType = "::flash::MaskAttr";
  let convertFromStorage = "$_self";
}
def Tile_OrderAttr : StringBasedAttr<CPred<[{::llvm::isa<::mlir::StringAttr>($_self) &&
    ::flash::schedule::parseOrder(::llvm::cast<::mlir::StringAttr>($_self).getValue())}]>,
    "a work order (single, static, dynamic, varlen_dynamic, backward_lpt, backward_spt)">;

def UnitOpInterface : OpInterface<"UnitOpInterface"> {
  let cppNamespace = "::flash::tile";
  let description = "Names the unit that executes the op.";
  let methods = [InterfaceMethod<"The unit that executes this op.", "::flash::tile::Unit", "getUnit">];
}
/// An op says what it means, who executes it and how it looks; all three make its description.
class Tile_Op<string mnem, string unit, list<Trait> traits = []> : Op<Tile_Dialect, mnem, traits # [UnitOpInterface]> {
  string meaning = "";
  string example = ?; // of its lit test
  let description = meaning # "\n    Unit: `" # unit # "`.\n\n    ```mlir\n    " # example # "\n    ```\n";
  string extraUnit = "Unit getUnit() { return Unit::" # unit # "; }";
  let extraClassDeclaration = extraUnit;
}

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

def Rows  : MemRefRankOf<[I32], [1]>; // a table with one element a sequence
def Pages : MemRefRankOf<[I32], [2]>;

def ViewOp : Tile_Op<"view", "any", [Pure, AttrSizedOperandSegments]> {
  let summary = "a global tensor with everything that decides where a row lies";
  let meaning = [{
    | view | memref |
    | --- | --- |
    | `cols` > 1 | `B x S x H x cols`, row r of (b, h) is `[b, r, h]`; `S x H x cols` where all is one batch: `[r, h]` |
    | `cols` = 1 | `B x H x S`, row r of (b, h) is `[b, h, r]`; `H x S`: `[h, r]`; `S`: `[r]` |
    | `partial` | the same with a leading dimension of n splits; head h, split s is addressed as head `h * n + s` |

    Tables (i32, contiguous) change which row that is, and how many there are. In the order in which they apply to row r of b:

    | table | row | rows in use |
    | --- | --- | --- |
    | none | r | S |
    | leftpad | r + leftpad[b] | less leftpad[b], not below 0 |
    | seqused, appended | r | seqused[b] + appended instead of S |
    | batch_idx | of b' = batch_idx[b]; b' = b without | |
    | cu_seqlens, without a batch | r + cu_seqlens[b'] | cu_seqlens[b' + 1] - cu_seqlens[b'] instead of S |
    | page_table, with seqused | `[page_table[b', r / S], r mod S]`, the memref being `pages x S x H x cols` | |

    With `padded = n` a sequence's rows fill whole tiles of n: they are as many as a multiple of n holds, and with
    cu_seqlens begin at row `n * (cu_seqlens[b] / n + b)` of the memref. So nothing that is written tile by tile
    touches a neighbour's. Such rows of f32 may lie in `cells` of 16 rows by 8 columns, as products hold them, so
    that what a warp adds at once are whole lines of memory: for sums that nobody else reads. Loops ignore it.

    `group = g` packs query heads: row r of head h is query r / g of head h * g + r % g. Rows outside the length
    read as zero, whatever lies there, and are never written, and so are columns past `cols` of a wider tile.

    Rows that are read `once` need no place in caches.
  }];
  let example = [{%v = flash_tile.view %m : memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>> -> <64xbf16>
    %o = flash_tile.view %p {group = 2, partial} : memref<2x3x5x4x64xf32> -> <64xf32>
    %q = flash_tile.view %packed cu_seqlens(%cu : memref<?xi32>) : memref<?x4x64xf32> -> <64xf32>
    %k = flash_tile.view %pages seqused(%used : memref<?xi32>) appended %n page_table(%table : memref<?x?xi32>)
        : memref<?x16x4x64xf32> -> <64xf32>}];
  let arguments = (ins AnyMemRef:$source, Optional<Rows>:$cu_seqlens, Optional<Rows>:$seqused, Optional<Index>:$appended,
                       Optional<Pages>:$page_table, Optional<Rows>:$batch_idx, Optional<Rows>:$leftpad,
                       DefaultValuedAttr<I64Attr, "1">:$group, UnitAttr:$partial,
                       DefaultValuedAttr<I64Attr, "1">:$padded, UnitAttr:$once, UnitAttr:$cells);
  let results = (outs ViewType:$view);
  let assemblyFormat = [{ $source (`cu_seqlens` `(` $cu_seqlens^ `:` type($cu_seqlens) `)`)?
    (`seqused` `(` $seqused^ `:` type($seqused) `)`)? (`appended` $appended^)?
    (`page_table` `(` $page_table^ `:` type($page_table) `)`)? (`batch_idx` `(` $batch_idx^ `:` type($batch_idx) `)`)?
    (`leftpad` `(` $leftpad^ `:` type($leftpad) `)`)? attr-dict `:` type($source) `->` type($view) }];
  let builders = [OpBuilder<(ins "::mlir::Type":$view, "::mlir::Value":$source, "int64_t":$group, "bool":$partial)>];
  let extraClassDeclaration = extraUnit # [{
    bool isColumn() { return getView().getType().getShape()[0] == 1; }
    /// Whether the memref has a dimension for the batch (or pages), and which one counts rows.
    bool hasBatch() {
      return ::llvm::cast<::mlir::MemRefType>(getSource().getType()).getRank() == (isColumn() ? 3 : 4) + getPartial();
    }
    /// Whether the memref is one column, of no head.
    bool isBare() { return ::llvm::cast<::mlir::MemRefType>(getSource().getType()).getRank() == 1; }
    unsigned rowDim() { return isBare() ? 0 : getPartial() + hasBatch() + (isColumn() ? 1 : 0); }
    /// Whether a table says what the memref's shape says without.
    bool hasTables() { return (*this)->getNumOperands() > 1; }
  }];
  let hasVerifier = 1;
}
def LengthOp : Tile_Op<"length", "any", [Pure]> {
  let summary = "rows in use of sequence b (queries times group if packed), at least 0";
  let example = "%n = flash_tile.length %v[%b] : <64xbf16>";
  let arguments = (ins ViewType:$view, Index:$batch);
  let results = (outs Index:$rows);
  let assemblyFormat = "$view `[` $batch `]` attr-dict `:` type($view)";
}
def RingOp : Tile_Op<"ring", "any"> {
  let summary = "shared tiles in a ring; the ordinal `it` of a fill picks slot it % stages";
  let meaning = [{
    `writers` fills and `releases` releases complete one ordinal (set by split-roles). A ring of i32 hands on ordinals of
    work, to `for_work` alone. `offset` (of slot 0) and
    `barriers` (of the full and empty barriers), in bytes, are written by flash-tile-assign and by nobody else.
    With `cluster = n` the n blocks of a cluster fill their rings alike: each fetches an n-th of the rows for all, and a
    slot is free when it is released in all. `writers` and `releases` are one block's. A ring that stores go through
    (`store`) has no barriers.

    A ring `with` another has that one's barriers: each of its ordinals is filled, and waited for, right behind the
    other's, for nothing, and free when that is released.
  }];
  let example = [{%k = flash_tile.ring "k" {releases = 2 : i64} : <2x128x64xbf16>
    %lse = flash_tile.ring "lse" with %q : !flash_tile.ring<2x64x64xbf16> : <2x1x64xf32>}];
  let arguments = (ins StrAttr:$name, DefaultValuedAttr<I64Attr, "1">:$writers, DefaultValuedAttr<I64Attr, "1">:$releases,
                       OptionalAttr<I64Attr>:$offset, OptionalAttr<I64Attr>:$barriers,
                       DefaultValuedAttr<I64Attr, "1">:$cluster, Optional<RingType>:$with);
  let results = (outs RingType:$ring);
  let builders = [OpBuilder<(ins "RingType":$type, "::llvm::StringRef":$name, CArg<"::mlir::Value", "{}">:$with), [{
    build($_builder, $_state, type, name, /*writers=*/1, /*releases=*/1, /*offset=*/::mlir::IntegerAttr(),
          /*barriers=*/::mlir::IntegerAttr(), /*cluster=*/1, with);
  }]>];
  let assemblyFormat = "$name (`with` $with^ `:` type($with))? attr-dict `:` type($ring)";
  let extraClassDeclaration = extraUnit # [{
    /// Whether stores go through it: then it has no barriers.
    bool isStaging();
  }];
  let hasVerifier = 1;
}
def BlockRangeOp : Tile_Op<"block_range", "any", [Pure]> {
  let summary = "which key blocks rows [row0, row0 + rows) need, as four runs";
  let meaning = [{
    Blocks are visited downwards from `end - 1`: `right` masked ones (at least one if any block of this stretch is
    needed: it pays for the ragged end), `inner` fully visible ones, `left` masked ones, then `sink` blocks
    downwards from `sink - 1`. Evaluated for `split` of `splits`. With `every_row`,
    the right run goes on until each row that sees a key has seen one in it. Expanded late, from the planner's own formula.

    With `queries` rows are keys and blocks are queries: which queries see the keys [row0, row0 + rows). The right run is
    masked for the ends of sequences and windows and may be empty, the left one is the diagonal's; sink is 0.
  }];
  let example = [{%end, %right, %inner, %left, %sink = flash_tile.block_range by <causal> rows[%row0, 128] block 64
        lengths(%lq, %lk) split(%s, %n)}];
  let arguments = (ins Index:$row0, Index:$len_q, Index:$len_k, Index:$split, Index:$splits, I64Attr:$rows, I64Attr:$block,
                       Tile_MaskAttr:$mask, DefaultValuedAttr<I64Attr, "1">:$group, UnitAttr:$every_row, UnitAttr:$queries);
  let results = (outs Index:$end, Index:$right, Index:$inner, Index:$left, Index:$sink);
  let assemblyFormat = [{ (`queries` $queries^)? `by` $mask `rows` `[` $row0 `,` $rows `]` `block` $block `lengths` `(` $len_q `,` $len_k `)`
    `split` `(` $split `,` $splits `)` attr-dict }];
  let hasVerifier = 1;
}
def SplatOp : Tile_Op<"splat", "vector", [Pure]> {
  let summary = "a fragment of one value";
  let example = "%o = flash_tile.splat %zero : f32 -> <64x128xf32>";
  let arguments = (ins AnyFloat:$value);
  let results = (outs FragType:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Work and roles
//===----------------------------------------------------------------------===//

def ForWorkOp : Tile_Op<"for_work", "any", [AttrSizedOperandSegments]> {
  let summary = "runs the body for every tile of work that falls to this block";
  let meaning = [{
    Block arguments: m, head, batch, split, then the carried values. Together the blocks visit each tile of
    m_tiles x heads x batch x splits exactly once, in `order`: block i of n takes the tiles i, i + n, i + 2n, ...
    of it. `section` is the number of (batch, head) pairs whose keys and values share the L2 cache.

    With `packed`, whose elements are the rows before each of the sequences and after the last (cu_seqlens), m_tiles
    counts the tiles of all sequences: `tile` rows each, of `group` query heads; the batch names sequences, and
    does not multiply. m counts from the sequence's own start and may be one past its rows.

    With `schedule`, a table of ScheduleRow (flash/Schedule/WorkOrder.h) that a kernel before has filled, each sequence has
    its own tiles and splits, the most work first; m_tiles and splits only bound them. Split s of n is s + 2^16 n.

    With `via %ring` block i begins with tile i and takes each further one from a counter that all blocks share: the next
    is n + what the counter held. The loop that `takes` does so when it has ended a tile, and hands the ordinal on
    through the ring; the loops of the other roles follow. One past the last ends all of them. The
    counter is 0 before and after: each of the tiles adds one to it, and the last one wraps it to 0.

    With `cluster = n` blocks in groups of n take n m tiles that follow each other, as one; an m past the end computes on
    zeros and writes nothing.
  }];
  let example = [{%n = flash_tile.for_work "static"(%tiles, %heads, %batch, %splits) iter(%c0 : index) -> index {
    ^bb0(%m: index, %h: index, %b: index, %s: index, %t: index):
      flash_tile.yield %t : index
    }
  }];
  let arguments = (ins Tile_OrderAttr:$order, Index:$m_tiles, Index:$heads, Index:$batch, Index:$splits,
                       Optional<Index>:$section, Optional<Rows>:$packed, Optional<Pages>:$schedule, Optional<RingType>:$ring,
                       Variadic<AnyType>:$inits, UnitAttr:$takes, OptionalAttr<I64Attr>:$tile, DefaultValuedAttr<I64Attr, "1">:$group,
                       DefaultValuedAttr<I64Attr, "1">:$cluster);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{ $order `(` $m_tiles `,` $heads `,` $batch `,` $splits `)` (`section` $section^)?
    (`packed` `(` $packed^ `:` type($packed) `)`)? (`schedule` `(` $schedule^ `:` type($schedule) `)`)? (`via` $ring^ `:` type($ring))? (`iter` `(` $inits^ `:` type($inits) `)`)? attr-dict-with-keyword (`->` type($results)^)? $body }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}
def TotalOp : Tile_Op<"total", "any"> {
  let summary = "sums over i = 0 .. n - 1 of the values that the body yields";
  let meaning = [{
    The body has no side effects; who computes which i is open.
  }];
  let example = [{%pairs = flash_tile.total %n -> index {
    ^bb0(%i: index):
      %x = flash_tile.length %v[%i] : <64xbf16>
      flash_tile.yield %x : index
    }
  }];
  let arguments = (ins Index:$n);
  let results = (outs Variadic<Index>:$totals);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$n attr-dict-with-keyword `->` type($totals) $body";
  let hasRegionVerifier = 1;
}
def RolesOp : Tile_Op<"roles", "any"> {
  let summary = "runs several programs at once; each instance of a role gets its number as block argument";
  let meaning = [{
    Roles meet only at rings, in turns and at the op's end. Fragments do not cross its boundary.
  }];
  let example = [{flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 1, registers = 24, units = [copy]>,
                      #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>] {
    ^bb0(%w: index):
      flash_tile.yield
    }, {
    ^bb0(%w: index):
      flash_tile.yield
    }
  }];
  let arguments = (ins ArrayAttr:$roles);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let assemblyFormat = "$roles attr-dict-with-keyword custom<Bodies>($bodies)";
  let hasRegionVerifier = 1;
}
def YieldOp : Tile_Op<"yield", "any", [Pure, Terminator]> {
  let summary = "ends a region of this dialect";
  let example = "flash_tile.yield %t : index";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

def FillOp : Tile_Op<"fill", "copy"> {
  let summary = "starts the copy of a view's rows into ring[it]; returns at once";
  let meaning = [{
    Waits until the slot's previous ordinal is released, then copies rows [row, row + rows) x [0, cols), zeros
    outside the length. Visible only through `wait` of the same ordinal. The ordinals of one slot come without gaps.
    A view of one column fills a slot of one row: row r as its column r - row.
  }];
  let example = "flash_tile.fill %v[%b, %h, %row] -> %k[%it] : <64xbf16> -> <2x128x64xbf16>";
  let arguments = (ins ViewType:$view, Index:$batch, Index:$head, Index:$row, RingType:$ring, Index:$it);
  let assemblyFormat = "$view `[` $batch `,` $head `,` $row `]` `->` $ring `[` $it `]` attr-dict `:` type($view) `->` type($ring)";
  let hasVerifier = 1;
}
def WriteOp : Tile_Op<"write", "vector"> {
  let summary = "a fragment into rows [row, ...) of ring[it]";
  let meaning = [{
    A fill by this instance: it waits until the slot's previous ordinal is released, and `wait` of the ordinal sees what
    all `writers` have written.
  }];
  let example = "flash_tile.write %ds -> %r[%it] row %c64 : <64x128xbf16> -> <1x128x128xbf16>";
  let arguments = (ins FragType:$value, RingType:$ring, Index:$it, Optional<Index>:$row);
  let assemblyFormat = "$value `->` $ring `[` $it `]` (`row` $row^)? attr-dict `:` type($value) `->` type($ring)";
  let hasVerifier = 1;
}
def WaitOp : Tile_Op<"wait", "any"> {
  let summary = "blocks until ring[it] is filled and gives the tile";
  let meaning = [{
    With `again`, this instance has waited for the ordinal before, on every way to here: the tile is given at once.
  }];
  let example = "%t = flash_tile.wait %k[%it] : <2x128x64xbf16> -> <128x64xbf16>";
  let arguments = (ins RingType:$ring, Index:$it, UnitAttr:$again);
  let results = (outs TileType:$tile);
  let assemblyFormat = "(`again` $again^)? $ring `[` $it `]` attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}
def ReleaseOp : Tile_Op<"release", "any"> {
  let summary = "this instance reads ring[it] no more; every mma that reads the tile must have been waited for";
  let example = "flash_tile.release %k[%it] : <2x128x64xbf16>";
  let arguments = (ins RingType:$ring, Index:$it);
  let assemblyFormat = "$ring `[` $it `]` attr-dict `:` type($ring)";
  let hasVerifier = 1;
}
def SliceOp : Tile_Op<"slice", "any", [Pure]> {
  let summary = "columns [col, ...) of a tile, or of its rows [row, ...), as a tile; no data moves";
  let example = [{%half = flash_tile.slice %t[%col] : <64x512xbf16> -> <64x256xbf16>
    %own = flash_tile.slice %t[%c0] row %r : <128x64xbf16> -> <64x64xbf16>}];
  let arguments = (ins TileType:$tile, Index:$col, Optional<Index>:$row);
  let results = (outs TileType:$result);
  let assemblyFormat = "$tile `[` $col `]` (`row` $row^)? attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}
def ReadOp : Tile_Op<"read", "vector"> {
  let summary = "a tile into registers";
  let example = "%f = flash_tile.read %t : <64x128xbf16> -> <64x128xbf16>";
  let arguments = (ins TileType:$tile);
  let results = (outs FragType:$result);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}
def LoadOp : Tile_Op<"load", "vector"> {
  let summary = "a view's rows straight into registers; 0 outside the length";
  let meaning = [{
    With `parts(%left)`, of a partial view: as many rows as the fragment has, but `aside` parts of each, one part's rows behind the
    other's. `left` parts are there from `head` on, perhaps fewer than are read, or none: those that are not have 0, or as
    statistics (cols = 1) -inf.
  }];
  let example = [{%x = flash_tile.load %lse[%b, %h, %row] : <1xf32> -> <64x1xf32>
    %o = flash_tile.load %op[%b, %part, %row] parts(%left) aside 4 : <128xf32> -> <4x128xf32>}];
  let arguments = (ins ViewType:$view, Index:$batch, Index:$head, Index:$row, Optional<Index>:$left,
                       DefaultValuedAttr<I64Attr, "1">:$aside);
  let results = (outs FragType:$result);
  let assemblyFormat = [{ $view `[` $batch `,` $head `,` $row `]` (`parts` `(` $left^ `)`)? (`aside` $aside^)? attr-dict
    `:` type($view) `->` type($result) }];
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$view, "::mlir::Value":$batch, "::mlir::Value":$head,
                                 "::mlir::Value":$row)>];
  let hasVerifier = 1;
}
def StoreOp : Tile_Op<"store", "vector", [AttrSizedOperandSegments]> {
  let summary = "a fragment into a view's rows, from column `col` on; rows and columns outside are left alone";
  let meaning = [{
    With `via %ring[it]` the values go through slot `it` of the ring, as many columns at once as it has: the copy from
    there to the view runs on beside what follows, and the next store through the slot waits until the copy has read it.
    Such a ring has no barriers, each of its slots is one instance's own, and only stores use it.

    With `sum` it is added to what is there, in f32; other blocks may add to the same rows at the same time. With
    `turn(%turns[%place] is %turn)` it waits until that element of turns is `turn`, and makes it one more when it has
    added: so that a row's sum has an order. Blocks must take the work in an order in which no one waits for work behind
    its own. With `kept` a flash_tile.keep_turn of another role, of the same instance, does both beside other work.
  }];
  let example = [{flash_tile.store %o -> %v[%b, %h, %row] col %c256 : <64x256xbf16> -> <512xbf16>
    flash_tile.store %o -> %v[%b, %h, %row] via %r[%w] : !flash_tile.ring<2x64x64xbf16> : <64x256xbf16> -> <256xbf16>
    flash_tile.store sum %dq -> %acc[%b, %h, %row] turn(%turns[%i] is %n : memref<?xi32>) : <64x128xf32> -> <128xf32>}];
  let arguments = (ins FragType:$value, ViewType:$view, Index:$batch, Index:$head, Index:$row, Optional<Index>:$col,
                       Optional<RingType>:$ring, Optional<Index>:$it, Optional<Rows>:$turns, Optional<Index>:$place,
                       Optional<Index>:$turn, UnitAttr:$sum, UnitAttr:$kept);
  let assemblyFormat = [{ (`sum` $sum^)? (`kept` $kept^)? $value `->` $view `[` $batch `,` $head `,` $row `]` (`col` $col^)?
    (`via` $ring^ `[` $it `]` `:` type($ring))? (`turn` `(` $turns^ `[` $place `]` `is` $turn `:` type($turns) `)`)?
    attr-dict `:` type($value) `->` type($view) }];
  let builders = [OpBuilder<(ins "::mlir::Value":$value, "::mlir::Value":$view, "::mlir::Value":$batch, "::mlir::Value":$head,
                                 "::mlir::Value":$row)>];
  let hasVerifier = 1;
}

def KeepTurnOp : Tile_Op<"keep_turn", "turn"> {
  let summary = "waits until an element of turns is `turn`, lets the next `kept` store of its instance add, and passes the turn on";
  let meaning = [{
    Instance i of its role keeps the turns of instance i of the role that stores, one for each of its `kept` stores, in
    their order: so that neither the look at the turn nor the wait until the sum can be seen by other blocks holds up
    products.
  }];
  let example = "flash_tile.keep_turn %turns[%i] is %n : memref<?xi32>";
  let arguments = (ins Rows:$turns, Index:$place, Index:$turn);
  let assemblyFormat = "$turns `[` $place `]` `is` $turn attr-dict `:` type($turns)";
}

//===----------------------------------------------------------------------===//
// Multiplying
//===----------------------------------------------------------------------===//

def MmaOp : Tile_Op<"mma", "tensor"> {
  let summary = "starts acc + a * b in f32; results are in flight, in issue order";
  let meaning = [{
    a: tile or fragment, rows x k; or with `trans` a tile, k x rows. b: tile, k x cols, or with `trans` cols x k. Without
    acc: zero. acc is consumed.
  }];
  let example = [{%s = flash_tile.mma %q, %k trans : !flash_tile.tile<64x128xbf16>, <128x128xbf16> -> <64x128xf32>
    %o = flash_tile.mma %p, %v acc %o0 : !flash_tile.frag<64x128xf32> : !flash_tile.frag<64x128xbf16>, <128x128xbf16> -> <64x128xf32>}];
  let arguments = (ins AnyTypeOf<[TileType, FragType]>:$a, TileType:$b, Optional<FragType>:$acc, UnitAttr:$trans_b,
                       UnitAttr:$trans_a);
  let results = (outs FlightType:$result);
  let assemblyFormat = [{ $a (`trans` $trans_a^)? `,` $b (`trans` $trans_b^)? (`acc` $acc^ `:` type($acc))? attr-dict
    `:` type($a) `,` type($b) `->` type($result) }];
  let hasVerifier = 1;
}
def MmaWaitOp : Tile_Op<"mma_wait", "tensor"> {
  let summary = "blocks until this mma and all earlier ones of the instance are done";
  let example = "%s = flash_tile.mma_wait %f : <64x128xf32> -> <64x128xf32>";
  let arguments = (ins FlightType:$flight);
  let results = (outs FragType:$result);
  let assemblyFormat = "$flight attr-dict `:` type($flight) `->` type($result)";
  let hasVerifier = 1;
}

def InTurnOp : Tile_Op<"in_turn", "any"> {
  let summary = "runs the body while no other instance of the role is in its own";
  let meaning = [{
    The instances of a role enter one after the other, 0, 1, 2, ..., 0, 1, ...: each must enter equally often, and its
    next entry waits for all others'. So the products of one instance are issued while another computes between its
    own. `barriers` is the first of the named barriers, one an instance, written by flash-tile-assign. Outside
    roles it is always one's turn.
  }];
  let example = [{%s, %o = flash_tile.in_turn -> !flash_tile.flight<64x128xf32>, !flash_tile.flight<64x128xf32> {
      %x = flash_tile.mma %q, %k trans : !flash_tile.frag<64x64xbf16>, <128x64xbf16> -> <64x128xf32>
      %y = flash_tile.mma %p, %v acc %z : !flash_tile.frag<64x128xf32> : !flash_tile.frag<64x128xbf16>, <128x128xbf16> -> <64x128xf32>
      flash_tile.yield %x, %y : !flash_tile.flight<64x128xf32>, !flash_tile.flight<64x128xf32>
    }
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$barriers);
  let results = (outs Variadic<FlightType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword (`->` type($results)^)? $body";
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// On fragments: one implementation for every machine
//===----------------------------------------------------------------------===//

def CastOp : Tile_Op<"cast", "vector", [Pure]> {
  let summary = "round to nearest even";
  let example = "%p16 = flash_tile.cast %p : <64x128xf32> -> <64x128xbf16>";
  let arguments = (ins FragType:$value);
  let results = (outs FragType:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}
def MapOp : Tile_Op<"map", "vector"> {
  let summary = "an elementwise function of fragments; Mx1 operands broadcast along rows, 1xN along columns";
  let meaning = [{
    The region takes one scalar an operand and yields one; it holds only side-effect-free arith and math ops.
  }];
  let example = [{%y = flash_tile.map %s, %m : !flash_tile.frag<64x128xf32>, !flash_tile.frag<64x1xf32> -> <64x128xf32> {
    ^bb0(%x: f32, %r: f32):
      %z = arith.subf %x, %r : f32
      flash_tile.yield %z : f32
    }
  }];
  let arguments = (ins Variadic<FragType>:$inputs);
  let results = (outs FragType:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$inputs attr-dict-with-keyword `:` type($inputs) `->` type($result) $body";
  let hasRegionVerifier = 1;
}
def SumOp : Tile_Op<"sum", "vector", [Pure]> {
  let summary = "sums of rows, or of all";
  let example = "%d = flash_tile.sum %x : <64x128xf32> -> <64x1xf32>";
  let arguments = (ins FragType:$value);
  let results = (outs FragType:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}
def SplitRowsOp : Tile_Op<"split_rows", "vector", [Pure]> {
  let summary = "the rows of fragments as fragments of fewer rows";
  let meaning = [{
    Of each value in turn as many results as its rows make, the first rows first. It is the one way from the threads that have
    some rows to those that have others.
  }];
  let example = "%a, %b, %c, %d = flash_tile.split_rows %o, %m : !flash_tile.frag<2x128xf32>, !flash_tile.frag<2x1xf32>\n      -> !flash_tile.frag<1x128xf32>, !flash_tile.frag<1x128xf32>, !flash_tile.frag<1x1xf32>, !flash_tile.frag<1x1xf32>";
  let arguments = (ins Variadic<FragType>:$values);
  let results = (outs Variadic<FragType>:$results);
  let assemblyFormat = "$values attr-dict `:` type($values) `->` type($results)";
  let extraClassDeclaration = extraUnit # [{
    /// Results of each value.
    int64_t parts() { return getNumResults() / std::max<unsigned>(getNumOperands(), 1); }
  }];
  let hasVerifier = 1;
}
def MaskOp : Tile_Op<"mask", "vector", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "scores of invisible pairs become the mask value";
  let meaning = [{
    Element (r, c) belongs to query (row0 + r) / group and key col0 + c. The mask value is -2^100, so that
    x - x is 0 and no NaN guard is needed. With `trans` it belongs to key row0 + r and query col0 + c, and queries from
    the length on see nothing.
  }];
  let example = "%sm = flash_tile.mask %s by <causal> at[%row0, %col0] lengths(%lq, %lk) : <64x128xf32>";
  let arguments = (ins FragType:$value, Index:$row0, Index:$col0, Index:$len_q, Index:$len_k, Tile_MaskAttr:$mask,
                       DefaultValuedAttr<I64Attr, "1">:$group, UnitAttr:$trans);
  let results = (outs FragType:$result);
  let assemblyFormat = [{ $value `by` $mask `at` `[` $row0 `,` $col0 `]` `lengths` `(` $len_q `,` $len_k `)`
    (`trans` $trans^)? attr-dict `:` type($value) }];
  let hasVerifier = 1;
}
def SoftmaxStepOp : Tile_Op<"softmax_step", "vector",
    [Pure, AllTypesMatch<["s", "p"]>, AllTypesMatch<["m", "l", "m_next", "l_next", "alpha"]>]> {
  let summary = "one block of the running softmax: p, m', l' and the factor alpha for what was summed before";
  let meaning = [{
    With c = scale * log2(e); m and l are per row; l is the instance's partial sum until `finalize`.

    - `first`: m' = rowmax(s), alpha = 1 (m and l are ignored)
    - `online`: m' = max(m, rowmax(s))
    - `deferred`: m' = m, every row having seen a key, unless a share of the row's sum of p passes 2^13 (a share is what
      one lane holds, at most the row): then m' is raised so that its largest p is at most 1

    Always p = exp2(c*s - c*m'), l' = alpha*l + rowsum(p), alpha = exp2(c*m - c*m'); a row that has seen no key
    (m' at most half the mask value) keeps p = 0, l' = 0. Where a deferred p passes 2^100, l' is not finite and stays so
    (`overflowed`).
  }];
  let example = [{%p, %m1, %l1, %alpha = flash_tile.softmax_step online %s, %m, %l scale %scale : <64x128xf32>, <64x1xf32>}];
  let arguments = (ins SoftmaxAttr:$mode, FragType:$s, FragType:$m, FragType:$l, F32:$scale);
  let results = (outs FragType:$p, FragType:$m_next, FragType:$l_next, FragType:$alpha);
  let assemblyFormat = "`` $mode $s `,` $m `,` $l `scale` $scale attr-dict `:` type($s) `,` type($m)";
  let hasVerifier = 1;
}
def RescaleOp : Tile_Op<"rescale", "vector", [Pure, AllTypesMatch<["o", "result"]>]> {
  let summary = "o * alpha by rows; `rare`: alpha is nearly always 1, test first";
  let example = "%o1 = flash_tile.rescale %o, %alpha : <64x128xf32>, <64x1xf32>";
  let arguments = (ins FragType:$o, FragType:$alpha, UnitAttr:$rare);
  let results = (outs FragType:$result);
  let assemblyFormat = "$o `,` $alpha (`rare` $rare^)? attr-dict `:` type($o) `,` type($alpha)";
  let hasVerifier = 1;
}
def OverflowedOp : Tile_Op<"overflowed", "vector", [Pure]> {
  let summary = "whether a value of any row of the instance is not finite; the same answer in all its threads";
  let example = "%bad = flash_tile.overflowed %l : <64x1xf32>";
  let arguments = (ins FragType:$value);
  let results = (outs I1:$result);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}
def FinalizeOp : Tile_Op<"finalize", "vector",
    [Pure, AttrSizedOperandSegments, AllTypesMatch<["o", "result"]>, AllTypesMatch<["m", "l", "lse"]>]> {
  let summary = "o / l and the natural-log lse; rows without a key give 0 and -inf (or the sink's value)";
  let meaning = [{
    With `sink(%logits[head, row0])`, the logit of row r is that of query head head * group + (row0 + r) % group; it joins
    the denominator after both are measured against the larger of the two.
  }];
  let example = [{%o1, %lse = flash_tile.finalize %o, %m, %l scale %scale : <64x128xf32>, <64x1xf32>
    %o2, %lse2 = flash_tile.finalize %o, %m, %l scale %scale sink(%logits[%h, %row0] : memref<?xf32>) : <64x128xf32>, <64x1xf32>}];
  let arguments = (ins FragType:$o, FragType:$m, FragType:$l, F32:$scale, Optional<AnyMemRef>:$sink,
                       Optional<Index>:$head, Optional<Index>:$row0, DefaultValuedAttr<I64Attr, "1">:$group);
  let results = (outs FragType:$result, FragType:$lse);
  let assemblyFormat = [{ $o `,` $m `,` $l `scale` $scale
    (`sink` `(` $sink^ `[` $head `,` $row0 `]` `:` type($sink) `)`)? attr-dict `:` type($o) `,` type($m) }];
  let hasVerifier = 1;
}
def RotateOp : Tile_Op<"rotate", "vector",
    [Pure, AllTypesMatch<["value", "result"]>, AllTypesMatch<["cos", "sin"]>]> {
  let summary = "pairs of columns of a row turned by the angle of its position: a rotary embedding";
  let meaning = [{
    Row r has position `position + r`, or with `fixed` `position`: the row of cos and sin (`positions x pairs`). With
    x and y a pair and c and s its cosine and sine, x becomes `x c - y s` and y `x s + y c`, computed in f32 and rounded
    once. Pair i is columns 2i and 2i + 1 with `interleaved`, else i and i + pairs; columns from 2 pairs on stay. Rows
    whose position is no row of cos stay too.
  }];
  let example = "%y = flash_tile.rotate %x by(%cos, %sin : memref<?x32xbf16>) at %p {interleaved} : <16x128xbf16>";
  let arguments = (ins FragType:$value, AnyMemRef:$cos, AnyMemRef:$sin, Index:$position, UnitAttr:$interleaved, UnitAttr:$fixed);
  let results = (outs FragType:$result);
  let assemblyFormat = [{ $value `by` `(` $cos `,` $sin `:` type($cos) `)` `at` $position attr-dict `:` type($value) }];
  let hasVerifier = 1;
}
#endif // FLASH_TILE_TD
