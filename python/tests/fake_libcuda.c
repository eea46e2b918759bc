/* A CUDA driver that launches nothing and remembers everything: what test_launch.py looks at. */
#include <stdint.h>
#include <string.h>

typedef int CUresult;

struct map { /* the arguments of one cuTensorMapEncodeTiled */
  int type;
  uint32_t rank;
  void *address;
  uint64_t sizes[5], strides[5];
  uint32_t box[5], steps[5];
  int interleave, swizzle, promotion, fill;
};

struct {
  /* what a test may set */
  int major, minor, multiprocessors;
  void *context; /* the current one; 0: none */
  int context_device;
  unsigned long long context_id;
  int parameters, parameter_bytes[64], skip; /* of the kernel after the next `skip` ones */
  int fail_load;
  unsigned long long capture; /* the sequence a stream is captured in; 0: none */
  int clusters;               /* that run at once */
  /* what it may look at */
  int loads, is_cubin, launches, pushes, pops, maps, shared_limit;
  unsigned grid[3], block[3], shared;
  void *stream;
  unsigned char values[64][128];
  struct map map[64];
  struct launch {
    unsigned blocks, threads;
    int attribute; /* -1: none */
  } launch[4];
} fake = {9, 0, 132};

CUresult cuInit(unsigned f) { return 0; }
CUresult cuGetErrorString(CUresult r, const char **s) { return *s = "the fake driver refused", 0; }
CUresult cuDeviceGet(int *d, int n) { return *d = n, n == 2 ? 101 : 0; }
CUresult cuDeviceGetAttribute(int *v, int attribute, int device) {
  *v = attribute == 75   ? fake.major
       : attribute == 76 ? fake.minor
       : attribute == 16 ? fake.multiprocessors
                         : -1;
  return 0;
}
CUresult cuCtxGetCurrent(void **c) { return *c = fake.context, 0; }
CUresult cuCtxGetDevice(int *d) { return *d = fake.context_device, fake.context ? 0 : 201; }
CUresult cuCtxGetId(void *c, unsigned long long *id) { return *id = fake.context_id, 0; }
CUresult cuCtxPushCurrent_v2(void *c) { return fake.pushes++, 0; }
CUresult cuCtxPopCurrent_v2(void **c) { return fake.pops++, 0; }
CUresult cuDevicePrimaryCtxRetain(void **c, int device) { return *c = &fake, 0; }
CUresult cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values) {
  fake.loads++;
  fake.is_cubin = memcmp(image, "\177ELF", 4) == 0;
  if (fake.fail_load)
    strcpy(values[0], "line 7: nonsense");
  return *m = &fake, fake.fail_load ? 218 : 0;
}
CUresult cuModuleGetFunction(void **f, void *m, const char *name) {
  return *f = &fake, strncmp(name, "flash_attention", 15) ? 500 : 0;
}
CUresult cuModuleGetGlobal_v2(void **p, size_t *bytes, void *m, const char *name) {
  return *p = &fake, *bytes = 4100, strcmp(name, "flash_counters") ? 500 : 0;
}
CUresult cuFuncSetAttribute(void *f, int attribute, int value) {
  return fake.shared_limit = value, attribute == 8 ? 0 : 1;
}

CUresult cuTensorMapEncodeTiled(uint64_t *into, int type, uint32_t rank, void *address,
                                const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *steps, int interleave, int swizzle, int promotion,
                                int fill) {
  struct map *m = &fake.map[fake.maps];
  *m = (struct map){.type = type,
                    .rank = rank,
                    .address = address,
                    .interleave = interleave,
                    .swizzle = swizzle,
                    .promotion = promotion,
                    .fill = fill};
  for (uint32_t i = 0; i < rank; i++) {
    m->sizes[i] = sizes[i], m->box[i] = box[i], m->steps[i] = steps[i];
    if (i + 1 < rank)
      m->strides[i] = strides[i];
    if (!sizes[i] || (i + 1 < rank && (!strides[i] || strides[i] % 16)))
      return 1; /* as the real one does */
  }
  into[0] = fake.maps++;
  return !address; /* the real one takes it, and the kernel dies */
}

CUresult cuStreamGetId(void *stream, unsigned long long *id) {
  return fake.capture ? 900 /* as the real one does */ : (*id = (uintptr_t)stream, 0);
}
CUresult cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void *g, void *d,
                                   void *n) {
  return *status = !!fake.capture, *id = fake.capture, 0;
}

struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct attribute {
    int kind, value[17];
  } *attributes;
  unsigned count;
};
CUresult cuOccupancyMaxActiveClusters(int *n, void *f, const struct config *c) {
  return *n = fake.clusters, c->grid[0] == 2 && c->shared == fake.shared_limit ? 0 : 1;
}
CUresult cuLaunchKernelEx(const struct config *c, void *f, void **parameters, void **extra) {
  fake.launch[fake.launches++ % 4] =
      (struct launch){c->grid[0], c->block[0], c->count ? c->attributes->kind : -1};
  memcpy(fake.grid, c->grid, sizeof c->grid);
  memcpy(fake.block, c->block, sizeof c->block);
  fake.shared = c->shared, fake.stream = c->stream;
  if (fake.skip-- > 0)
    return 0;
  for (int i = 0; i < fake.parameters; i++)
    memcpy(fake.values[i], parameters[i], fake.parameter_bytes[i]);
  return 0;
}
