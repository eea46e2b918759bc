//===- Cuda.cpp - loads and launches kernels through libcuda --------------===//
#include "flash/Runtime/Cuda.h"
#include "flash/Schedule/WorkOrder.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <map>

using namespace flash;
using namespace flash::cuda;

//===----------------------------------------------------------------------===//
// The driver: the few types and functions of cuda.h that a launch needs
//===----------------------------------------------------------------------===//

namespace {

using Result = int; // CUresult; 0 is success

/// CUtensorMap: opaque, 128 bytes, passed by value.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// CUlaunchAttribute.
struct LaunchAttribute {
  int kind, padding;
  union {
    char size[64];
    int value;
  };
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

// Enumerators of cuda.h, whose values are part of the driver's ABI.
enum { computeCapabilityMajor = 75, computeCapabilityMinor = 76, multiprocessorCount = 16 };
enum { maxDynamicSharedBytes = 8 };
enum { jitErrorLog = 5, jitErrorLogBytes = 6 };
enum { mapFloat16 = 6, mapBfloat16 = 9 };
enum { programmaticSerialization = 6 };
// The L2 cache fetches no more than a box asks for: measured 5 % faster where keys are streamed
// once than with 256 bytes at a time, and within 1 % of that elsewhere (one row of 36 gains 4 %).
enum { interleaveNone = 0, swizzle128B = 3, promotionNone = 0, fillZeros = 0 };

struct Driver {
  std::string whyNot; // empty when it works
  Result (*init)(unsigned);
  Result (*errorString)(Result, const char **);
  Result (*deviceGet)(int *, int);
  Result (*deviceAttribute)(int *, int, int);
  Result (*contextCurrent)(void **);
  Result (*contextDevice)(int *);
  Result (*contextId)(void *, unsigned long long *);
  Result (*contextPush)(void *);
  Result (*contextPop)(void **);
  Result (*primaryRetain)(void **, int);
  Result (*moduleLoad)(void **, const void *, unsigned, int *, void **);
  Result (*moduleFunction)(void **, void *, const char *);
  Result (*moduleGlobal)(void **, size_t *, void *, const char *);
  Result (*functionAttribute)(void *, int, int);
  Result (*encodeTiled)(TensorMap *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                        const uint32_t *, const uint32_t *, int, int, int, int);
  Result (*streamId)(void *, unsigned long long *);
  Result (*captureOf)(void *, int *, uint64_t *, void *, void *, void *);
  Result (*launch)(const LaunchConfig *, void *, void **, void **);
  Result (*maxClusters)(int *, void *, const LaunchConfig *);

  Driver();
  Failure failed(const char *what, Result result) const {
    const char *text = nullptr;
    errorString(result, &text);
    return internal(std::string(what) + " failed: " + (text ? text : "unknown error") + " (" +
                    std::to_string(result) + ")");
  }
};

Driver::Driver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    whyNot = "no CUDA driver here: libcuda.so.1 was not found; use target cpu";
    return;
  }
  auto load = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (!function && whyNot.empty())
      whyNot = std::string("the CUDA driver has no ") + name + "; it must be of CUDA 12 or newer";
  };
  load(init, "cuInit");
  load(errorString, "cuGetErrorString");
  load(deviceGet, "cuDeviceGet");
  load(deviceAttribute, "cuDeviceGetAttribute");
  load(contextCurrent, "cuCtxGetCurrent");
  load(contextDevice, "cuCtxGetDevice");
  load(contextId, "cuCtxGetId");
  load(contextPush, "cuCtxPushCurrent_v2");
  load(contextPop, "cuCtxPopCurrent_v2");
  load(primaryRetain, "cuDevicePrimaryCtxRetain");
  load(moduleLoad, "cuModuleLoadDataEx");
  load(moduleFunction, "cuModuleGetFunction");
  load(moduleGlobal, "cuModuleGetGlobal_v2");
  load(functionAttribute, "cuFuncSetAttribute");
  load(encodeTiled, "cuTensorMapEncodeTiled");
  load(streamId, "cuStreamGetId");
  load(captureOf, "cuStreamGetCaptureInfo_v2");
  load(launch, "cuLaunchKernelEx");
  load(maxClusters, "cuOccupancyMaxActiveClusters");
  if (!whyNot.empty())
    return;
  if (Result r = init(0)) // again and again is fine
    whyNot = failed("cuInit", r).sentence;
}

const Driver &driver() {
  static const Driver d;
  return d;
}

/// What is known of a device, asked once.
struct Device {
  int handle = 0, major = 0, minor = 0, multiprocessors = 0;
  void *primary = nullptr; // retained when first needed, for good
};

Or<Device *> deviceOf(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  const Driver &d = driver();
  if (!d.whyNot.empty())
    return internal(d.whyNot);
  std::lock_guard<std::mutex> lock(mutex);
  auto [at, isNew] = devices.try_emplace(ordinal);
  Device &device = at->second;
  if (isNew) {
    Result r = d.deviceGet(&device.handle, ordinal);
    if (!r)
      r = d.deviceAttribute(&device.major, computeCapabilityMajor, device.handle);
    if (!r)
      r = d.deviceAttribute(&device.minor, computeCapabilityMinor, device.handle);
    if (!r)
      r = d.deviceAttribute(&device.multiprocessors, multiprocessorCount, device.handle);
    if (r) {
      devices.erase(at);
      return d.failed("asking for the CUDA device", r);
    }
  }
  return &device;
}

/// Makes a context of the device current for a while: the current one if it is the device's, else
/// the primary one.
class Current {
public:
  Outcome enter(int ordinal) {
    const Driver &d = driver();
    Or<Device *> found = deviceOf(ordinal);
    if (auto *failure = std::get_if<Failure>(&found))
      return *failure;
    Device &device = *std::get<Device *>(found);
    void *context = nullptr;
    int handle = -1;
    d.contextCurrent(&context);
    if (context && (d.contextDevice(&handle) || handle != device.handle))
      context = nullptr;
    if (!context) {
      static std::mutex mutex;
      std::lock_guard<std::mutex> lock(mutex);
      if (!device.primary)
        if (Result r = d.primaryRetain(&device.primary, device.handle))
          return d.failed("taking the device's primary context", r);
      context = device.primary;
      if (Result r = d.contextPush(context))
        return d.failed("entering the device's primary context", r);
      pushed = true;
    }
    if (Result r = d.contextId(context, &id))
      return d.failed("asking for the context", r);
    return {};
  }
  ~Current() {
    void *popped;
    if (pushed)
      driver().contextPop(&popped);
  }
  unsigned long long id = 0;

private:
  bool pushed = false;
};

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

// PTX ISA, 5.5.3 (tensor maps): address and strides are multiples of 16 bytes, strides below 2^40,
// sizes at most 2^32; our stores are 16 bytes wide too.
constexpr int64_t wide = 16;
constexpr int64_t maxMapStride = int64_t(1) << 40;

bool isEmpty(const FlashTensor &t) {
  return std::any_of(t.size, t.size + t.rank, [](int64_t n) { return n == 0; });
}

/// The sentence for a tensor that 16-byte accesses cannot reach.
std::optional<std::string> whyNotWide(std::string_view name, const FlashTensor &t, int64_t bytes) {
  std::string of = "expected " + std::string(name) + "'s ";
  if (uintptr_t(t.data) % wide)
    return of + "address (" + std::to_string(uintptr_t(t.data)) +
           ") to be a multiple of 16 bytes; copy it to a tensor of its own";
  for (int64_t i = 0; i + 1 < t.rank; ++i) {
    if (t.size[i] <= 1)
      continue;
    if (t.stride[i] * bytes % wide || t.stride[i] < 0)
      return of + "stride " + std::to_string(i) + " (" + std::to_string(t.stride[i] * bytes) +
             " bytes) to be a multiple of 16 bytes; copy it to a contiguous tensor";
    if (t.stride[i] * bytes >= maxMapStride)
      return of + "stride " + std::to_string(i) + " (" + std::to_string(t.stride[i] * bytes) +
             " bytes) to be below 2^40 bytes; copy it to a contiguous tensor";
  }
  return std::nullopt;
}

/// The map of [b, s, h, d], or [s, h, d], as (d, s, h, b), boxes of one 128-byte panel of `rows`
/// rows; of packed heads as (d, head of the group, s, h / group, b), where such neighbours are
/// rows. The kernel never loads from an empty tensor, but its map must be a valid one: sizes of 1
/// at `standIn`.
Outcome encode(TensorMap &map, std::string_view name, const FlashTensor &t,
               schedule::ElementType element, int64_t rows, int64_t group, void *standIn) {
  const int64_t bytes = schedule::elementBytes(element);
  const bool empty = isEmpty(t);
  struct Dimension {
    int64_t size, stride, box;
  };
  const int64_t d = t.rank - 1, h = d - 1, s = h - 1;
  std::vector<Dimension> dims = {{t.size[d], 1, 128 / bytes},
                                 {t.size[s], t.stride[s], std::max<int64_t>(rows / group, 1)},
                                 {t.size[h] / group, t.stride[h] * group, 1},
                                 {s ? t.size[0] : 1, t.stride[0], 1}};
  if (group > 1)
    dims.insert(dims.begin() + 1, {group, t.stride[h], group});
  constexpr size_t most = 5;
  uint64_t sizes[most], strides[most - 1];
  uint32_t box[most], steps[most];
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t n = empty && i > 0 ? 1 : dims[i].size;
    sizes[i] = uint64_t(n), box[i] = uint32_t(dims[i].box), steps[i] = 1;
    if (i && n > 1 && dims[i].stride == 0)
      return invalid(std::string(name) + " repeats itself (a stride is 0), " +
                     (name == operandName(Operand::o)
                          ? "so that rows would be stored over each other; give each its own place"
                          : "which this kernel's tma cannot read; compile with transfer gather"));
    // A dimension of one is never stepped along; its stride may be anything, so it gets a valid
    // one.
    if (i)
      strides[i - 1] = uint64_t(n <= 1 ? wide : dims[i].stride * bytes);
  }
  const int type = element == schedule::ElementType::f16 ? mapFloat16 : mapBfloat16;
  if (Result r = driver().encodeTiled(&map, type, uint32_t(dims.size()), empty ? standIn : t.data,
                                      sizes, strides, box, steps, interleaveNone, swizzle128B,
                                      promotionNone, fillZeros))
    return driver().failed("describing a tensor to the copy engine", r);
  return {};
}

} // namespace

//===----------------------------------------------------------------------===//
// Launching
//===----------------------------------------------------------------------===//

Capability::Capability(std::string_view target) {
  for (char c : target)
    if (c >= '0' && c <= '9')
      major = major * 10 + (c - '0');
  minor = major % 10, major /= 10;
  only = target.back() == 'a';
}

Or<int64_t> flash::cuda::multiprocessors(int ordinal, Capability needed) {
  Or<Device *> found = deviceOf(ordinal);
  if (auto *failure = std::get_if<Failure>(&found))
    return *failure;
  const Device &device = *std::get<Device *>(found);
  const std::pair has(device.major, device.minor), needs(needed.major, needed.minor);
  if (needed.only ? has != needs : has < needs)
    return invalid("expected a device of compute capability " + std::to_string(needed.major) + "." +
                   std::to_string(needed.minor) + (needed.only ? "" : " or later") + ", device " +
                   std::to_string(ordinal) + " has " + std::to_string(device.major) + "." +
                   std::to_string(device.minor));
  return int64_t(device.multiprocessors);
}

static LaunchConfig configOf(const Kernel &kernel, int64_t blocks, void *stream) {
  // A cluster's size is part of the code.
  return {
      unsigned(blocks), 1,       1, unsigned(kernel.threads), 1, 1, unsigned(kernel.sharedBytes),
      stream,           nullptr, 0};
}

Or<Loaded::Function> Loaded::functionOf(size_t number, unsigned long long context, int ordinal) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Module &m : modules)
    if (m.context == context)
      return m.functions[number];
  Or<Device *> found = deviceOf(ordinal);
  if (auto *failure = std::get_if<Failure>(&found))
    return *failure;
  const bool isKin = std::get<Device *>(found)->major == of.major;
  const std::string &image = isKin && !cubin.empty() ? cubin : ptx;
  const Driver &d = driver();
  char log[2048] = "";
  int options[] = {jitErrorLog, jitErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  void *module = nullptr;
  // A module is never unloaded: its context may be gone by then, and takes it along.
  if (Result r = d.moduleLoad(&module, image.c_str(), 2, options, values)) {
    Failure failure = d.failed("loading the kernel", r);
    if (*log)
      failure.sentence += std::string(": ") + log;
    return failure;
  }
  Module loaded{context, module, {}};
  for (const Kernel &kernel : kernels) {
    Function &function = loaded.functions.emplace_back();
    if (Result r = d.moduleFunction(&function.handle, module, kernel.name.c_str()))
      return d.failed("finding the kernel in its module", r);
    if (Result r =
            d.functionAttribute(function.handle, maxDynamicSharedBytes, int(kernel.sharedBytes)))
      return d.failed("asking for the kernel's shared memory", r);
    if (kernel.cluster == 1)
      continue;
    int clusters = 0;
    LaunchConfig config = configOf(kernel, kernel.cluster, nullptr);
    if (Result r = d.maxClusters(&clusters, function.handle, &config))
      return d.failed("asking how many clusters run at once", r);
    if (clusters < 1)
      return invalid("the device runs no " + std::to_string(kernel.cluster) +
                     " blocks of this kernel side by side; leave multicast out");
    function.clusters = clusters;
  }
  modules.push_back(std::move(loaded));
  return modules.back().functions[number];
}

/// The counter of a launch in `stream`. Launches of one stream follow each other, and each leaves
/// its counter at 0, so a stream has one for good; captured launches run when their graph does, so
/// each capture has its own for each of its streams. (Nothing orders two executable copies of one
/// graph: they must not run at once.) Where all are given away, or nobody knows what runs beside
/// the launch, the blocks do without. A kernel that dies takes its context along, counters
/// included.
static int32_t counterOf(void *stream) {
  static std::mutex mutex;
  static std::map<std::pair<unsigned long long, uint64_t>, int32_t> counters;
  constexpr int32_t none = schedule::workCounters;
  constexpr uintptr_t perThread = 2; // CU_STREAM_PER_THREAD: one handle for many streams
  unsigned long long id = 0;
  uint64_t capture = 0;
  int status = 0;
  if (uintptr_t(stream) == perThread ||
      driver().captureOf(stream, &status, &capture, nullptr, nullptr, nullptr))
    return none;
  if (status) // asking for the id would end the capture; within one, handles tell streams apart
    id = uintptr_t(stream);
  else if (driver().streamId(stream, &id))
    return none;
  std::lock_guard<std::mutex> lock(mutex);
  auto key = std::pair(id, status ? capture : 0);
  auto found = counters.find(key);
  if (found == counters.end())
    found = counters.emplace(key, std::min<size_t>(counters.size(), none)).first;
  return found->second;
}

Or<Loaded::Bytes> Loaded::counters(int device) {
  Current current;
  if (auto failure = current.enter(device))
    return *failure;
  Bytes found;
  auto counts = [](const Kernel &kernel) {
    return std::any_of(kernel.params.begin(), kernel.params.end(),
                       [](const Param &p) { return p.kind == Param::counter; });
  };
  std::lock_guard<std::mutex> lock(mutex);
  if (std::any_of(kernels.begin(), kernels.end(), counts))
    for (const Module &m : modules)
      if (m.context == current.id)
        if (Result r =
                driver().moduleGlobal(&found.data, &found.size, m.handle, schedule::countersName))
          return driver().failed("finding the counters in their module", r);
  return found;
}

Outcome Loaded::launch(size_t number, const Operands &operands, const Launch &launch) {
  const Kernel &kernel = kernels[number];
  constexpr size_t most = 64, mostMaps = 16;
  const int64_t bytes = schedule::elementBytes(element);
  const size_t count = kernel.params.size();
  const size_t maps = std::count_if(kernel.params.begin(), kernel.params.end(),
                                    [](const Param &p) { return p.kind == Param::tensorMap; });
  if (count > most || maps > mostMaps)
    return internal("the kernel has more parameters than the launcher takes");
  if (launch.blocks > std::numeric_limits<int>::max())
    return invalid("the problem has " + std::to_string(launch.blocks) +
                   " tiles, more than one launch holds; split the batch");
  for (Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o, Operand::kNew,
                          Operand::vNew, Operand::dO, Operand::dq, Operand::dk, Operand::dv}) {
    const FlashTensor *t = operands[operand];
    if (!t || isEmpty(*t))
      continue;
    if (auto why = whyNotWide(operandName(operand), *t, bytes))
      return invalid(*why);
  }

  Current current;
  if (auto failure = current.enter(launch.device))
    return failure;
  Or<Function> found = functionOf(number, current.id, launch.device);
  if (auto *failure = std::get_if<Failure>(&found))
    return *failure;
  const Function &function = std::get<Function>(found);
  // Not every multiprocessor need have a neighbour: no more clusters than run at once.
  const int64_t blocks = kernel.cluster > 1
                             ? std::min(launch.blocks, function.clusters * kernel.cluster)
                             : launch.blocks;

  // Queries or keys there are, or nothing is launched that copies by maps.
  const FlashTensor *q = operands[Operand::q], *k = operands[Operand::k];
  void *standIn = q && !isEmpty(*q) ? q->data : k ? k->data : nullptr;
  TensorMap map[mostMaps];
  uint64_t values[most];
  void *arguments[most];
  size_t nextMap = 0;
  auto put = [&](size_t at, auto value) {
    static_assert(sizeof value <= sizeof values[0]);
    std::memcpy(&values[at], &value, sizeof value);
    arguments[at] = &values[at];
  };
  for (size_t i = 0; i < count; ++i) {
    const Param &p = kernel.params[i];
    const FlashTensor *t = operands[p.operand];
    if (!t)
      return invalid("the call has no " + std::string(operandName(p.operand)));
    switch (p.kind) {
    case Param::tensorMap:
      if (auto failure =
              encode(map[nextMap], operandName(p.operand), *t, element, p.rows, p.group, standIn))
        return failure;
      arguments[i] = &map[nextMap++];
      break;
    case Param::pointer:
      put(i, t->data);
      break;
    case Param::size:
      put(i, int32_t(t->size[p.dim]));
      break;
    case Param::stride:
      put(i, t->stride[p.dim]);
      break;
    case Param::scale:
      put(i, launch.scalars.scale);
      break;
    case Param::softcap:
      put(i, launch.scalars.softcap);
      break;
    case Param::section:
      put(i, int32_t(launch.section));
      break;
    case Param::longest:
      put(i, int32_t(launch.scalars.max_seqlen_q));
      break;
    case Param::appended:
      put(i, int32_t(operands[Operand::kNew] ? operands[Operand::kNew]->size[1] : 0));
      break;
    case Param::maxSplits:
      put(i, int32_t(launch.splits));
      break;
    case Param::sms:
      put(i, int32_t(launch.sms));
      break;
    case Param::counter:
      put(i, counterOf(launch.stream));
      break;
    }
  }
  LaunchAttribute overlap{programmaticSerialization, 0, {}};
  overlap.value = 1;
  LaunchConfig config = configOf(kernel, blocks, launch.stream);
  config.attributes = &overlap;
  config.attributeCount = kernel.follows && !launch.first;
  if (Result r = driver().launch(&config, function.handle, arguments, nullptr))
    return driver().failed("launching the kernel", r);
  return {};
}
