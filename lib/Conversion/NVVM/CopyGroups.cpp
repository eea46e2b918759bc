//===- CopyGroups.cpp - how many copies may be pending at a wait ----------===//
#include "CopyGroups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace flash::nvvm {

/// A branch that holds fills and the arithmetic for them, and gives nothing.
static bool isGuard(scf::IfOp branch) {
  if (branch.getNumResults() || branch.elseBlock() ||
      branch.thenBlock()->getOps<tile::FillOp>().empty())
    return false;
  return llvm::all_of(branch.thenBlock()->without_terminator(), [](Operation &inner) {
    return isa<tile::FillOp>(inner) || (inner.getNumRegions() == 0 && isPure(&inner));
  });
}

DenseMap<Operation *, Value> liftGuards(func::FuncOp kernel) {
  DenseMap<Operation *, Value> conditions;
  SmallVector<scf::IfOp> guards;
  kernel.walk([&](scf::IfOp branch) {
    if (isGuard(branch))
      guards.push_back(branch);
  });
  for (scf::IfOp guard : guards) {
    for (Operation &op : llvm::make_early_inc_range(guard.thenBlock()->without_terminator())) {
      op.moveBefore(guard);
      if (isa<tile::FillOp>(op))
        conditions[&op] = guard.getCondition();
    }
    guard.erase();
  }
  return conditions;
}

namespace {

/// A sum of values and a constant.
struct Ordinal {
  llvm::SmallMapVector<Value, int64_t, 4> terms;
  int64_t constant = 0;

  void add(Value value, int64_t times = 1) {
    APInt number;
    if (matchPattern(value, m_ConstantInt(&number))) {
      constant += times * number.getSExtValue();
      return;
    }
    Operation *op = value.getDefiningOp();
    if (isa_and_nonnull<arith::AddIOp, arith::SubIOp>(op)) {
      add(op->getOperand(0), times);
      add(op->getOperand(1), isa<arith::SubIOp>(op) ? -times : times);
      return;
    }
    if (int64_t &count = terms[value]; (count += times) == 0)
      terms.erase(value);
  }
  /// Puts `to` plus `more` in the place of `from`; says whether that occurs.
  bool replace(Value from, Value to, int64_t more = 0) {
    auto at = terms.find(from);
    if (at == terms.end())
      return false;
    const int64_t times = at->second;
    terms.erase(from);
    add(to, times);
    constant += times * more;
    return true;
  }
  bool operator==(const Ordinal &other) const {
    return constant == other.constant && terms.size() == other.terms.size() &&
           llvm::all_of(terms,
                        [&](auto &term) { return other.terms.lookup(term.first) == term.second; });
  }
};

Ordinal ordinalOf(Value it) {
  Ordinal ordinal;
  ordinal.add(it);
  return ordinal;
}

/// The walk back from a wait.
class Walk {
public:
  explicit Walk(Value ring) : ring(ring) {}

  /// The least groups from the fill of `target` to the place before `op` in `block`.
  unsigned before(Block *block, Operation *op, Ordinal target, unsigned groups, unsigned rounds) {
    for (Operation *at = op ? op->getPrevNode() : &block->back(); at; at = at->getPrevNode()) {
      bool isFound = false;
      if (auto fill = dyn_cast<tile::FillOp>(at)) {
        isFound = passes(fill, target, groups);
      } else if (auto loop = dyn_cast<scf::ForOp>(at); loop && holdsFill(loop)) {
        // It ran, and its last round was that of the upper bound less 1; or it did not.
        unsigned ran = 0;
        Ordinal inLoop = target;
        if (inLoop.replace(loop.getUpperBound(), loop.getInductionVar(), 1) && step1(loop))
          ran = before(loop.getBody(), nullptr, inLoop, groups, rounds);
        if (ran == 0)
          return 0;
        target.replace(loop.getUpperBound(), loop.getLowerBound());
        return std::min(ran, before(block, at, target, groups, rounds));
      }
      if (isFound)
        return groups;
    }
    Operation *parent = block->getParentOp();
    if (isa<scf::IfOp>(parent))
      return before(parent->getBlock(), parent, target, groups, rounds);
    auto loop = dyn_cast<scf::ForOp>(parent);
    if (!loop || !step1(loop) || rounds == mostRounds)
      return 0;
    Ordinal first = target, again = target;
    first.replace(loop.getInductionVar(), loop.getLowerBound());
    again.replace(loop.getInductionVar(), loop.getInductionVar(), 1);
    for (auto [inside, init, next] :
         llvm::zip(loop.getRegionIterArgs(), loop.getInits(), loop.getYieldedValues())) {
      first.replace(inside, init);
      again.replace(inside, next);
    }
    return std::min(before(loop->getBlock(), loop, first, groups, rounds),
                    before(block, nullptr, again, groups, rounds + 1));
  }

private:
  static constexpr unsigned mostRounds = 16; ///< more than a ring has stages

  bool passes(tile::FillOp fill, const Ordinal &target, unsigned &groups) {
    if (fill.getRing() == ring && ordinalOf(fill.getIt()) == target)
      return true;
    ++groups;
    return false;
  }
  static bool step1(scf::ForOp loop) { return matchPattern(loop.getStep(), m_One()); }
  static bool holdsFill(scf::ForOp loop) {
    return loop->walk([](tile::FillOp) { return WalkResult::interrupt(); }).wasInterrupted();
  }

  Value ring;
};

} // namespace

unsigned pendingAt(tile::WaitOp wait) {
  return Walk(wait.getRing()).before(wait->getBlock(), wait, ordinalOf(wait.getIt()), 0, 0);
}

bool isWritten(Value ring) {
  return llvm::any_of(ring.getUsers(), [](Operation *user) { return isa<tile::WriteOp>(user); });
}

bool isCovered(tile::WaitOp wait, const DenseMap<Operation *, unsigned> &pending) {
  Value ring = wait.getRing();
  auto gives = [&](Operation *op) {
    return op
        ->walk([&](Operation *inner) {
          auto fill = dyn_cast<tile::FillOp>(inner);
          auto write = dyn_cast<tile::WriteOp>(inner);
          return (fill && fill.getRing() == ring) || (write && write.getRing() == ring)
                     ? WalkResult::interrupt()
                     : WalkResult::advance();
        })
        .wasInterrupted();
  };
  for (Operation *at = wait->getPrevNode(); at && !gives(at); at = at->getPrevNode())
    if (auto other = dyn_cast<tile::WaitOp>(at); other && !other.getAgain()) {
      if (isWritten(ring))
        return true;
      if (isWritten(other.getRing())) // waits for no copies
        continue;
      const unsigned left = pending.lookup(other);
      if (left == 0 ||
          left <= Walk(ring).before(other->getBlock(), other, ordinalOf(wait.getIt()), 0, 0))
        return true;
    }
  return false;
}

bool isBehindWait(Operation *fill, Value ring) {
  /// Whether `wait` is for another slot than that filled: their ordinals differ by a number.
  auto isElsewhere = [&](tile::WaitOp wait) {
    auto copy = dyn_cast<tile::FillOp>(fill);
    const int64_t stages = cast<tile::RingType>(ring.getType()).getShape()[0];
    if (!copy || stages == 1)
      return false;
    Ordinal filled = ordinalOf(copy.getIt()), read = ordinalOf(wait.getIt());
    const int64_t apart = filled.constant - read.constant;
    read.constant = filled.constant;
    return filled == read && apart % stages;
  };
  auto isOfRing = [&](Value value) {
    if (!isa<tile::TileType>(value.getType()))
      return false;
    while (auto slice = value.getDefiningOp<tile::SliceOp>())
      value = slice.getTile();
    auto wait = value.getDefiningOp<tile::WaitOp>();
    return !wait || (wait.getRing() == ring && !isElsewhere(wait));
  };
  auto reads = [&](Operation *op) {
    return op
        ->walk([&](Operation *inner) {
          return !isa<tile::SliceOp>(inner) && llvm::any_of(inner->getOperands(), isOfRing)
                     ? WalkResult::interrupt()
                     : WalkResult::advance();
        })
        .wasInterrupted();
  };
  for (Operation *op = fill; !isa<func::FuncOp>(op); op = op->getParentOp()) {
    for (Operation *at = op->getPrevNode(); at; at = at->getPrevNode()) {
      if (auto wait = dyn_cast<tile::WaitOp>(at); wait && !wait.getAgain())
        return true;
      if (reads(at))
        return false;
      if (auto other = dyn_cast<tile::FillOp>(at); other && !isBehindWait(at, other.getRing()))
        return true; // there the warps meet
    }
    if (!isa<scf::IfOp, func::FuncOp>(op->getParentOp())) // a loop's last round may read
      return false;
  }
  return true;
}

} // namespace flash::nvvm
