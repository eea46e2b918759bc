/*===- Stubs.c - symbols that keep libflashc.so portable -------------------===*/
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

/* LLVM's Support library names zstd for compressed debug sections, which this library neither reads
   nor writes. */
#define STUB(name)                                                                                 \
  size_t name(void) { return (size_t)-1; }
STUB(ZSTD_compress)
STUB(ZSTD_compressBound)
STUB(ZSTD_decompress)
STUB(ZSTD_CCtx_setParameter)
STUB(ZSTD_compress2)
STUB(ZSTD_freeCCtx)
unsigned ZSTD_isError(size_t code) {
  (void)code;
  return 1;
}
const char *ZSTD_getErrorName(size_t code) {
  (void)code;
  return "zstd is not available";
}
void *ZSTD_createCCtx(void) { return NULL; }

/* glibc has arc4random since 2.36 only; LLVM uses it for the names of temporary files. */
uint32_t arc4random(void) {
  uint32_t r = 0;
  return getrandom(&r, sizeof r, 0) == sizeof r ? r : 0x9e3779b9u;
}
