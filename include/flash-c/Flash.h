/*===- Flash.h - the C API of libflashc.so ---------------------------------===*/
#ifndef FLASH_C_FLASH_H
#define FLASH_C_FLASH_H

#define FLASH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the compiler, "major.minor.patch"; static storage. */
FLASH_API const char *flash_version(void);

#ifdef __cplusplus
}
#endif

#endif /* FLASH_C_FLASH_H */
