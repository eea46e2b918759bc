//===- Tile.cpp - types and verifiers of the flash_tile dialect -----------===//
#include "flash/Tile.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

static ParseResult parseShape(AsmParser &parser, SmallVector<int64_t> &shape, Type &element) {
  return failure(parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
                 parser.parseType(element));
}
static void printShape(AsmPrinter &printer, ArrayRef<int64_t> shape, Type element) {
  for (int64_t size : shape)
    printer << size << 'x';
  printer << element;
}

/// Regions with commas between. Where one fails, those before it go while ops outside may hold
/// forward references into them; the parser drops such references for the failing region only.
static ParseResult parseBodies(OpAsmParser &parser,
                               SmallVectorImpl<std::unique_ptr<Region>> &bodies) {
  ParseResult result = parser.parseCommaSeparatedList(
      [&] { return parser.parseRegion(*bodies.emplace_back(std::make_unique<Region>())); });
  if (failed(result))
    for (const std::unique_ptr<Region> &body : bodies)
      body->walk([](Block *block) { block->dropAllDefinedValueUses(); });
  return result;
}
static void printBodies(OpAsmPrinter &printer, Operation *, RegionRange bodies) {
  llvm::interleaveComma(bodies, printer, [&](Region *body) { printer.printRegion(*body); });
}

#include "flash/TileDialect.cpp.inc"
#include "flash/TileEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "flash/TileTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "flash/TileAttrs.cpp.inc"
#include "flash/TileInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "flash/TileOps.cpp.inc"

using namespace flash::tile;

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "flash/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flash/TileAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "flash/TileOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

template <typename T>
static LogicalResult checkShape(function_ref<InFlightDiagnostic()> emitError,
                                ArrayRef<int64_t> shape, Type element) {
  if (static_cast<int64_t>(shape.size()) != T::kRank)
    return emitError() << T::getMnemonic() << " needs " << T::kRank << " sizes, has "
                       << shape.size();
  for (int64_t size : shape)
    if (size <= 0)
      return emitError() << T::getMnemonic() << " needs positive sizes, has " << size;
  int64_t elements = 1; // addressed with 32 bits on a GPU
  for (int64_t size : shape)
    if (llvm::MulOverflow(elements, size, elements) || elements > INT32_MAX)
      return emitError() << T::getMnemonic() << " needs at most " << INT32_MAX << " elements";
  bool mayBeI32 = std::is_same_v<T, RingType>;
  if (!isa<FloatType>(element) && !(mayBeI32 && element.isSignlessInteger(32)))
    return emitError() << T::getMnemonic() << " needs a float element type"
                       << (mayBeI32 ? " or i32" : "") << ", has " << element;
  return success();
}
LogicalResult ViewType::verify(function_ref<InFlightDiagnostic()> e, ArrayRef<int64_t> s, Type t) {
  return checkShape<ViewType>(e, s, t);
}
LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> e, ArrayRef<int64_t> s, Type t) {
  return checkShape<RingType>(e, s, t);
}
LogicalResult TileType::verify(function_ref<InFlightDiagnostic()> e, ArrayRef<int64_t> s, Type t) {
  return checkShape<TileType>(e, s, t);
}
LogicalResult FragType::verify(function_ref<InFlightDiagnostic()> e, ArrayRef<int64_t> s, Type t) {
  return checkShape<FragType>(e, s, t);
}
LogicalResult FlightType::verify(function_ref<InFlightDiagnostic()> e, ArrayRef<int64_t> s,
                                 Type t) {
  return checkShape<FlightType>(e, s, t);
}

//===----------------------------------------------------------------------===//
// Declarations, work and roles
//===----------------------------------------------------------------------===//

static LogicalResult hasGroup(Operation *op, int64_t group) {
  if (group >= 1)
    return success();
  return op->emitOpError() << "needs a positive group, has " << group;
}
void ViewOp::build(OpBuilder &builder, OperationState &state, Type view, Value source,
                   int64_t group, bool partial) {
  build(builder, state, view, source, Value(), Value(), Value(), Value(), Value(), Value(), group,
        partial, /*padded=*/1, /*once=*/false, /*cells=*/false);
}
LogicalResult ViewOp::verify() {
  auto memref = cast<MemRefType>(getSource().getType());
  int64_t cols = getView().getType().getShape()[0];
  int64_t rank = (cols > 1 ? 4 : 3) + getPartial();
  const bool bare = isBare() && cols == 1 && !getPartial();
  if (!bare && memref.getRank() != rank && memref.getRank() != rank - 1)
    return emitOpError() << "needs a memref of rank " << rank << " for " << getView().getType()
                         << (getPartial() ? " of partials" : "") << ", or " << rank - 1
                         << " where all is one batch, has " << memref;
  if (memref.getElementType() != getView().getType().getElementType())
    return emitOpError() << "needs memref and view of one element type, has " << memref << " and "
                         << getView().getType();
  if (cols > 1 && memref.getShape().back() != cols)
    return emitOpError() << "needs a memref of " << cols << " columns, has " << memref;
  if (!memref.isStrided() || (cols > 1 && memref.getStridesAndOffset().first.back() != 1))
    return emitOpError() << "needs a strided memref with contiguous rows, has " << memref;
  for (Value table : getOperands().drop_front())
    if (auto type = dyn_cast<MemRefType>(table.getType()))
      if (!type.isStrided() || type.getStridesAndOffset().first.back() != 1)
        return emitOpError() << "needs tables with contiguous elements, has " << type;
  if (getCuSeqlens() && hasBatch())
    return emitOpError() << "needs a memref without a batch for cu_seqlens, has " << memref;
  if (getAppended() && !getSeqused())
    return emitOpError("needs seqused besides appended: rows are appended behind it");
  if (getPageTable() && !getSeqused())
    return emitOpError("needs seqused besides page_table: pages say nothing of lengths");
  if (getPageTable() && (!hasBatch() || getPartial() || cols == 1))
    return emitOpError() << "needs a memref of pages x page size x heads x columns for "
                            "page_table, has "
                         << memref;
  if (static_cast<int64_t>(getPadded()) < 1)
    return emitOpError() << "needs rows padded to a positive number, has "
                         << static_cast<int64_t>(getPadded());
  if (getCells() && (cols % 8 || getPadded() % 16 || !memref.getElementType().isF32()))
    return emitOpError()
           << "needs f32 columns in eights and rows padded to sixteens for cells, has "
           << getView().getType() << " padded to " << static_cast<int64_t>(getPadded());
  for (Operation *user : getView().getUsers())
    if (auto store = dyn_cast<StoreOp>(user);
        getCells() && !isa<LoadOp, LengthOp>(user) && !(store && store.getSum()))
      return emitOpError("needs cells to be loaded or added to, nothing else");
  if (getBatchIdx() && !hasBatch() && !getCuSeqlens())
    return emitOpError() << "needs several sequences for batch_idx, has " << memref;
  return hasGroup(*this, getGroup());
}
LogicalResult RingOp::verify() {
  int64_t writers = getWriters(), releases = getReleases();
  if (writers < 1 || releases < 1)
    return emitOpError() << "needs positive writers and releases, has " << writers << " and "
                         << releases;
  const int64_t cluster = getCluster(), rows = getRing().getType().getShape()[1];
  if (cluster < 1 || (isa<FloatType>(getRing().getType().getElementType()) && rows % cluster))
    return emitOpError() << "needs a cluster that divides its " << rows << " rows, has " << cluster;
  int64_t offset = getOffset().value_or(0), barriers = getBarriers().value_or(0);
  if (offset < 0 || barriers < 0)
    return emitOpError("needs offset and barriers of at least 0");
  if (getWith() && getWith().getType().getShape()[0] != getRing().getType().getShape()[0])
    return emitOpError() << "needs as many stages as the ring it is with, has "
                         << getRing().getType() << " with " << getWith().getType();
  return success();
}
bool RingOp::isStaging() {
  return llvm::any_of(getRing().getUsers(), [](Operation *user) { return isa<StoreOp>(user); });
}
LogicalResult BlockRangeOp::verify() {
  if (static_cast<int64_t>(getRows()) < 1 || static_cast<int64_t>(getBlock()) < 1)
    return emitOpError("needs positive rows and block");
  if (getQueries() && (getEveryRow() || getGroup() != 1))
    return emitOpError("asks for queries: it has no every_row and no group");
  return hasGroup(*this, getGroup());
}
LogicalResult SplatOp::verify() {
  if (getValue().getType() != getResult().getType().getElementType())
    return emitOpError() << "needs a fragment of the value's type, has " << getResult().getType()
                         << " of " << getValue().getType();
  return success();
}
LogicalResult ForWorkOp::verify() {
  if (static_cast<int64_t>(getCluster()) < 1)
    return emitOpError() << "needs a positive cluster, has " << static_cast<int64_t>(getCluster());
  if (getPacked() && getCluster() > 1)
    return emitOpError(
        "needs tiles of one sequence in a cluster, counts those of packed sequences");
  if (getPacked() && schedule::parseOrder(getOrder()) != schedule::WorkOrder::varlenDynamic)
    return emitOpError() << "needs order varlen_dynamic for packed sequences, has " << getOrder();
  if (getSchedule() && (getPacked() || getCluster() > 1 ||
                        schedule::parseOrder(getOrder()) != schedule::WorkOrder::varlenDynamic))
    return emitOpError("needs order varlen_dynamic and single blocks for a schedule, which says "
                       "where all tiles are, packed or not");
  if (static_cast<bool>(getPacked()) != getTile().has_value() || getTile().value_or(1) < 1)
    return emitOpError("needs packed and a positive tile together or none of them");
  if (failed(hasGroup(*this, getGroup())))
    return failure();
  if (!getRing())
    return getTakes() ? emitOpError("takes tiles and has no ring to hand them on by `via`")
                      : success();
  RingType type = getRing().getType();
  if (!type.getElementType().isInteger(32) || type.getShape()[1] != 1 || type.getShape()[2] != 1)
    return emitOpError("needs a ring of single i32 to hand on tiles, has ") << type;
  auto roles = dyn_cast<RolesOp>((*this)->getParentOp());
  if (!roles)
    return emitOpError("hands on tiles by a ring and stands in no role");
  int64_t takers = 0;
  for (Operation *user : getRing().getUsers()) {
    if (user->getParentOp() != roles)
      return emitOpError("needs all loops of its ring in one flash_tile.roles");
    unsigned number = user->getParentRegion()->getRegionNumber();
    auto role = number < roles.getRoles().size() ? dyn_cast<RoleAttr>(roles.getRoles()[number])
                                                 : RoleAttr();
    if (auto work = dyn_cast<ForWorkOp>(user); work && work.getTakes())
      takers += role ? role.getInstances() : 1;
  }
  if (takers != 1)
    return emitOpError("needs one loop that takes the tiles of its ring, there are ") << takers;
  return success();
}
LogicalResult ForWorkOp::verifyRegions() {
  Block &body = getBody().front();
  TypeRange carried = getInits().getTypes();
  if (body.getNumArguments() != 4 + carried.size())
    return emitOpError("body needs 4 coordinates and ")
           << carried.size() << " carried values, has " << body.getNumArguments() << " arguments";
  for (unsigned i = 0; i < 4; ++i)
    if (!body.getArgument(i).getType().isIndex())
      return emitOpError("body needs coordinates of type index, has ")
             << body.getArgument(i).getType();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield)
    return emitOpError("body needs to end in flash_tile.yield");
  if (yield.getOperandTypes() != carried || getResultTypes() != carried ||
      !llvm::equal(llvm::drop_begin(body.getArgumentTypes(), 4), carried))
    return emitOpError(
        "carried values, block arguments, yielded values and results need the same types");
  return success();
}
LogicalResult TotalOp::verifyRegions() {
  Block &body = getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (body.getNumArguments() != 1 || !body.getArgument(0).getType().isIndex() || !yield ||
      yield.getOperandTypes() != getResultTypes())
    return emitOpError("body needs one index and to yield a value for each total");
  return success();
}
LogicalResult RolesOp::verifyRegions() {
  if (getRoles().size() != getBodies().size())
    return emitOpError("needs one region a role, has ")
           << getBodies().size() << " regions and " << getRoles().size() << " roles";
  for (auto [attr, region] : llvm::zip(getRoles(), getBodies())) {
    auto role = dyn_cast<RoleAttr>(attr);
    if (!role)
      return emitOpError("needs #flash_tile.role attributes, has ") << attr;
    if (role.getInstances() < 1 || role.getWarps() < 1)
      return emitOpError() << "role " << role.getName() << " needs positive instances and warps";
    if (region.getNumArguments() != 1 || !region.getArgument(0).getType().isIndex())
      return emitOpError() << "role " << role.getName()
                           << " needs one block argument, its instance's number";
    UnitOpInterface stranger;
    Operation *captor = nullptr;
    region.walk([&](Operation *op) {
      auto unit = dyn_cast<UnitOpInterface>(op);
      if (unit && unit.getUnit() != Unit::any &&
          !llvm::is_contained(role.getUnits(), unit.getUnit()))
        stranger = unit;
      for (Value operand : op->getOperands())
        if (isa<FragType, FlightType, TileType>(operand.getType()) &&
            !region.isAncestor(operand.getParentRegion()))
          captor = op;
    });
    if (stranger)
      return emitOpError() << "role " << role.getName() << " may not execute "
                           << stranger->getName().getStringRef() << ", which is a "
                           << stringifyUnit(stranger.getUnit()) << " op";
    if (captor)
      return emitOpError() << "role " << role.getName()
                           << " may not use a fragment, flight or tile from outside, "
                           << captor->getName().getStringRef() << " does";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

/// Slots of one row, which a column fills.
static bool isOneRow(RingType ring) { return ring.getShape()[1] == 1; }

LogicalResult WriteOp::verify() {
  ArrayRef<int64_t> slot = getRing().getType().getShape().drop_front();
  ArrayRef<int64_t> shape = getValue().getType().getShape();
  if (shape[1] != slot[1] || shape[0] > slot[0] ||
      getValue().getType().getElementType() != getRing().getType().getElementType())
    return emitOpError("needs a fragment of the slots' columns and element type and at most their "
                       "rows, has ")
           << getValue().getType() << " for " << getRing().getType();
  return success();
}
LogicalResult FillOp::verify() {
  if (getRing().getType().getElementType() != getView().getType().getElementType())
    return emitOpError("needs view and ring of one element type, has ")
           << getView().getType() << " and " << getRing().getType();
  const bool alongRow = isOneRow(getRing().getType()) && getView().getType().getShape()[0] == 1;
  if (!alongRow && getView().getType().getShape()[0] > getRing().getType().getShape()[2])
    return emitOpError("needs slots as wide as the view, has ")
           << getRing().getType() << " for " << getView().getType();
  return success();
}
LogicalResult WaitOp::verify() {
  RingType ring = getRing().getType();
  if (getTile().getType().getShape() != ring.getShape().drop_front() ||
      getTile().getType().getElementType() != ring.getElementType())
    return emitOpError("needs a tile of the ring's slot type, has ")
           << getTile().getType() << " of " << ring;
  return success();
}

MmaOp flash::tile::mmaOf(Value flight) {
  if (auto turn = flight.getDefiningOp<InTurnOp>())
    flight = turn.getBody().front().getTerminator()->getOperand(
        cast<OpResult>(flight).getResultNumber());
  return flight.getDefiningOp<MmaOp>();
}

/// The op itself, or the in_turn around it.
static Operation *outOfTurn(Operation *op) {
  auto turn = dyn_cast<InTurnOp>(op->getParentOp());
  return turn ? turn.getOperation() : op;
}

/// An mma has settled at `at` if an mma_wait on it, or on a later mma of the same block, stands
/// between.
static bool isSettled(MmaOp mma, Operation *at) {
  Operation *from = outOfTurn(mma);
  for (Operation *op = from->getNextNode(); op && op != at; op = op->getNextNode())
    if (auto wait = dyn_cast<MmaWaitOp>(op)) {
      MmaOp def = mmaOf(wait.getFlight());
      Operation *other = def ? outOfTurn(def) : nullptr;
      if (other && (other->getBlock() != from->getBlock() ||
                    !(other == from ? def->isBeforeInBlock(mma) : other->isBeforeInBlock(from))))
        return true;
    }
  return false;
}
LogicalResult ReleaseOp::verify() {
  if (!isa<FloatType>(getRing().getType().getElementType()))
    return emitOpError("releases a ring of ordinals, which only for_work may");
  for (Operation *user : getRing().getUsers()) {
    auto wait = dyn_cast<WaitOp>(user);
    if (!wait || wait.getIt() != getIt())
      continue;
    SmallVector<Operation *> readers(wait.getTile().getUsers());
    for (Operation *reader : wait.getTile().getUsers())
      if (auto slice = dyn_cast<SliceOp>(reader))
        llvm::append_range(readers, slice.getResult().getUsers());
    for (Operation *reader : readers) {
      Operation *place = outOfTurn(reader);
      if (place->getBlock() != (*this)->getBlock())
        continue;
      if ((*this)->isBeforeInBlock(place))
        return emitOpError("releases a tile that is read afterwards");
      auto mma = dyn_cast<MmaOp>(reader);
      if (mma && !isSettled(mma, *this)) {
        InFlightDiagnostic d = emitOpError(
            "releases a tile that an mma in flight still reads; put its mma_wait before");
        d.attachNote(mma.getLoc()) << "the mma";
        return d;
      }
    }
  }
  return success();
}
LogicalResult SliceOp::verify() {
  TileType from = getTile().getType(), to = getResult().getType();
  if ((getRow() ? from.getShape()[0] < to.getShape()[0] : from.getShape()[0] != to.getShape()[0]) ||
      from.getShape()[1] < to.getShape()[1] || from.getElementType() != to.getElementType())
    return emitOpError(
               "needs a slice of the tile's rows and element type, no wider than the tile, has ")
           << to << " of " << from;
  return success();
}
LogicalResult ReadOp::verify() {
  TileType tile = getTile().getType();
  FragType frag = getResult().getType();
  if (tile.getShape() != frag.getShape() || tile.getElementType() != frag.getElementType())
    return emitOpError() << "needs a fragment of the tile's shape and element type, has " << frag
                         << " of " << tile;
  return success();
}
LogicalResult LoadOp::verify() {
  if (getResult().getType().getElementType() != getView().getType().getElementType())
    return emitOpError("needs view and fragment of one element type, has ")
           << getView().getType() << " and " << getResult().getType();
  const int64_t aside = getAside(), rows = getResult().getType().getShape()[0];
  if (aside < 1 || rows % aside)
    return emitOpError() << "needs parts aside that divide its " << rows << " rows, has " << aside;
  if (aside > 1 && !getLeft())
    return emitOpError("needs to know how many parts are left where it reads several aside");
  if (auto view = getView().getDefiningOp<ViewOp>(); getLeft() && view && !view.getPartial())
    return emitOpError("reads parts, which a partial view has; its view is of another tensor");
  return success();
}
void LoadOp::build(OpBuilder &b, OperationState &state, Type type, Value view, Value batch,
                   Value head, Value row) {
  build(b, state, type, view, batch, head, row, /*left=*/Value(), /*aside=*/1);
}
LogicalResult StoreOp::verify() {
  if (getValue().getType().getElementType() != getView().getType().getElementType())
    return emitOpError("needs fragment and view of one element type, has ")
           << getValue().getType() << " and " << getView().getType();
  if (getSum() && !getValue().getType().getElementType().isF32())
    return emitOpError("adds in f32, has ") << getValue().getType();
  if (getSum() && getView().getType().getShape()[0] == 1)
    return emitOpError("adds to rows of several columns, has ") << getView().getType();
  if ((getTurns() || getKept()) && !getSum())
    return emitOpError("needs sum besides a turn: what is not added needs no order");
  if (getTurns() && getKept())
    return emitOpError("waits for a turn that another role keeps");
  if (!getRing())
    return success();
  RingType ring = getRing().getType();
  FragType value = getValue().getType();
  if (ring.getElementType() != value.getElementType() ||
      ring.getShape()[1] != value.getShape()[0] || ring.getShape()[2] > value.getShape()[1])
    return emitOpError(
               "needs slots of the fragment's rows and element type, no wider than it, has ")
           << ring << " for " << value;
  for (Operation *user : getRing().getUsers())
    if (!isa<StoreOp>(user))
      return emitOpError("needs a ring that only stores use, its ring has a ")
             << user->getName().getStringRef();
  return success();
}
void StoreOp::build(OpBuilder &b, OperationState &state, Value value, Value view, Value batch,
                    Value head, Value row) {
  build(b, state, value, view, batch, head, row, /*col=*/Value(), /*ring=*/Value(), /*it=*/Value(),
        /*turns=*/Value(), /*place=*/Value(), /*turn=*/Value(), /*sum=*/UnitAttr(),
        /*kept=*/UnitAttr());
}

//===----------------------------------------------------------------------===//
// Multiplying
//===----------------------------------------------------------------------===//

LogicalResult MmaOp::verify() {
  auto shaped = [](Type t) -> std::pair<ArrayRef<int64_t>, Type> {
    if (auto tile = dyn_cast<TileType>(t))
      return {tile.getShape(), tile.getElementType()};
    auto frag = cast<FragType>(t);
    return {frag.getShape(), frag.getElementType()};
  };
  auto [a, aElement] = shaped(getA().getType());
  auto [b, bElement] = shaped(getB().getType());
  FlightType result = getResult().getType();
  int64_t kb = b[getTransB()], n = b[!getTransB()];
  int64_t ka = a[!getTransA()], m = a[getTransA()];
  if (getTransA() && !isa<TileType>(getA().getType()))
    return emitOpError("needs a tile as transposed a, has ") << getA().getType();
  if (aElement != bElement)
    return emitOpError("needs operands of one element type, has ")
           << aElement << " and " << bElement;
  if (ka != kb)
    return emitOpError("contracts ") << ka << " with " << kb;
  if (m != result.getShape()[0] || n != result.getShape()[1])
    return emitOpError("gives ") << m << "x" << n << ", its type says " << result.getShape()[0]
                                 << "x" << result.getShape()[1];
  if (!result.getElementType().isF32())
    return emitOpError("accumulates in f32, its type says ") << result.getElementType();
  if (getAcc() && (getAcc().getType().getShape() != result.getShape() ||
                   !getAcc().getType().getElementType().isF32()))
    return emitOpError("needs acc of the result's shape and element type, has ")
           << getAcc().getType();
  return success();
}
LogicalResult MmaWaitOp::verify() {
  if (!mmaOf(getFlight()))
    return emitOpError("needs the flight of an mma in the same region, has a block argument or "
                       "another op's result");
  FlightType flight = getFlight().getType();
  if (flight.getShape() != getResult().getType().getShape() ||
      flight.getElementType() != getResult().getType().getElementType())
    return emitOpError("needs a fragment of the flight's shape and element type, has ")
           << getResult().getType() << " of " << flight;
  return success();
}

LogicalResult InTurnOp::verifyRegions() {
  Block &body = getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (body.getNumArguments() || !yield || yield.getOperandTypes() != getResultTypes())
    return emitOpError("needs a body without arguments that yields its results");
  if ((*this)->getParentOfType<InTurnOp>())
    return emitOpError("may not stand in another in_turn, which has the turn until its end");
  return success();
}

//===----------------------------------------------------------------------===//
// On fragments
//===----------------------------------------------------------------------===//

/// Scores, sums and statistics are f32: the mask value and exponents need its range.
static LogicalResult areF32(Operation *op, ArrayRef<FragType> types) {
  for (FragType type : types)
    if (!type.getElementType().isF32())
      return op->emitOpError() << "needs fragments of f32, has " << type;
  return success();
}

/// Demands that `statistic` is one value a row of `frag`.
static LogicalResult isRowStatistic(Operation *op, FragType statistic, FragType frag) {
  if (statistic.getShape()[0] == frag.getShape()[0] && statistic.getShape()[1] == 1)
    return success();
  return op->emitOpError("needs one value a row of ") << frag << ", has " << statistic;
}
LogicalResult CastOp::verify() {
  if (getValue().getType().getShape() != getResult().getType().getShape())
    return emitOpError("needs fragments of one shape, has ")
           << getValue().getType() << " and " << getResult().getType();
  return success();
}
LogicalResult MapOp::verifyRegions() {
  Block &body = getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield || yield.getNumOperands() != 1 ||
      yield.getOperand(0).getType() != getResult().getType().getElementType())
    return emitOpError("needs a region that yields one ") << getResult().getType().getElementType();
  if (body.getNumArguments() != getInputs().size())
    return emitOpError("needs one block argument an input, has ")
           << body.getNumArguments() << " for " << getInputs().size();
  for (auto [input, argument] : llvm::zip(getInputs(), body.getArguments())) {
    auto type = cast<FragType>(input.getType());
    if (argument.getType() != type.getElementType())
      return emitOpError("needs a block argument of type ")
             << type.getElementType() << ", has " << argument.getType();
    ArrayRef<int64_t> shape = type.getShape(), whole = getResult().getType().getShape();
    if (shape != whole && !(shape[0] == 1 && shape[1] == whole[1]) &&
        failed(isRowStatistic(*this, type, getResult().getType())))
      return failure();
  }
  for (Operation &op : body.without_terminator())
    if (!isMemoryEffectFree(&op) || op.getNumRegions())
      return emitOpError("region may hold pure scalar ops only, has ")
             << op.getName().getStringRef();
  return success();
}
LogicalResult SumOp::verify() {
  ArrayRef<int64_t> from = getValue().getType().getShape(), to = getResult().getType().getShape();
  if (failed(areF32(*this, {getValue().getType(), getResult().getType()})))
    return failure();
  if (to[1] != 1 || (to[0] != from[0] && to[0] != 1))
    return emitOpError("gives one value a row, or one of all, its type says ")
           << getResult().getType() << " of " << getValue().getType();
  return success();
}
LogicalResult SplitRowsOp::verify() {
  const int64_t parts = this->parts();
  if (parts < 1 || parts * getNumOperands() != getNumResults())
    return emitOpError() << "needs as many results of each value, has " << getNumResults() << " of "
                         << getNumOperands();
  for (auto [i, result] : llvm::enumerate(getResults().getTypes())) {
    auto from = cast<FragType>(getValues()[i / parts].getType()), to = cast<FragType>(result);
    if (failed(areF32(*this, from)))
      return failure();
    if (to.getElementType() != from.getElementType() || to.getShape()[1] != from.getShape()[1] ||
        to.getShape()[0] * parts != from.getShape()[0])
      return emitOpError() << "needs " << parts << " results of equal rows from " << from
                           << ", has one of " << to;
  }
  return success();
}
LogicalResult MaskOp::verify() {
  if (failed(areF32(*this, getValue().getType())))
    return failure();
  if (getTrans() && getGroup() != 1)
    return emitOpError("packs no heads where rows are keys, has a group of ")
           << static_cast<int64_t>(getGroup());
  return hasGroup(*this, getGroup());
}
LogicalResult SoftmaxStepOp::verify() {
  if (failed(areF32(*this, {getS().getType(), getM().getType()})))
    return failure();
  return isRowStatistic(*this, getM().getType(), getS().getType());
}
LogicalResult RescaleOp::verify() {
  if (failed(areF32(*this, {getO().getType(), getAlpha().getType()})))
    return failure();
  return isRowStatistic(*this, getAlpha().getType(), getO().getType());
}
LogicalResult FinalizeOp::verify() {
  if (getSink()) {
    auto sink = cast<MemRefType>(getSink().getType());
    if (sink.getRank() != 1 || !sink.getElementType().isF32() || !sink.isStrided())
      return emitOpError("needs the sink's logits as a strided memref<?xf32>, has ") << sink;
  }
  if (static_cast<bool>(getSink()) != static_cast<bool>(getHead()) ||
      static_cast<bool>(getSink()) != static_cast<bool>(getRow0()))
    return emitOpError("needs sink, head and row0 together or none of them");
  if (failed(areF32(*this, {getO().getType(), getM().getType()})) ||
      failed(hasGroup(*this, getGroup())))
    return failure();
  return isRowStatistic(*this, getM().getType(), getO().getType());
}
LogicalResult RotateOp::verify() {
  auto cos = cast<MemRefType>(getCos().getType());
  FragType type = getValue().getType();
  if (cos.getRank() != 2 || cos.isDynamicDim(1) || !cos.isStrided() ||
      cos.getStridesAndOffset().first.back() != 1)
    return emitOpError("needs cos and sin of positions x a known number of contiguous pairs, has ")
           << cos;
  if (cos.getElementType() != type.getElementType())
    return emitOpError("needs cos and fragment of one element type, has ")
           << cos << " and " << type;
  if (2 * cos.getDimSize(1) > type.getShape()[1])
    return emitOpError("needs a fragment at least twice as wide as cos, has ")
           << type << " and " << cos;
  return success();
}
