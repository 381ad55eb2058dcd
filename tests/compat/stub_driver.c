// A CUDA driver without a device: enough of libcuda for IREE's runtime to open a device, load an executable and launch.
// It prints what it is asked for, one line each, and computes nothing.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int succeed(void) { return 0; }

static int one(int *value) {
  *value = 1;
  return 0;
}

static int device(int *value) {
  *value = 0;
  return 0;
}

static int name(char *text, int size) {
  strncpy(text, "stub", size);
  return 0;
}

static int uuid(char *bytes) {
  memset(bytes, 1, 16);
  return 0;
}

// Large enough for every limit that is asked for.
static int attribute(int *value, int which) {
  (void)which;
  *value = 1024;
  return 0;
}

static int version(int *value) {
  *value = 13000;
  return 0;
}

static int handle(void **value) {
  *value = malloc(64);
  return 0;
}

static int allocate(void **pointer, size_t size) {
  *pointer = calloc(1, size ? size : 1);
  return 0;
}

static int same_pointer(void **target, void *source) {
  *target = source;
  return 0;
}

static int load(void **module) {
  printf("load\n");
  return handle(module);
}

static int function(void **function, void *module, const char *symbol) {
  (void)module;
  printf("function %s\n", symbol);
  return handle(function);
}

static int function_attribute(void *function, int which, int value) {
  (void)function;
  printf("attribute %d %d\n", which, value);
  return 0;
}

static int launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared) {
  (void)function;
  printf("launch %u %u %u block %u %u %u shared %u\n", gx, gy, gz, bx, by, bz, shared);
  return 0;
}

static int text(int error, const char **value) {
  (void)error;
  *value = "stub";
  return 0;
}

static const struct {
  const char *name;
  void *address;
} known[] = {
    {"cuDeviceGetCount", one},           {"cuDeviceGet", device},
    {"cuDeviceGetName", name},           {"cuDeviceGetUuid", uuid},
    {"cuDeviceGetAttribute", attribute}, {"cuDriverGetVersion", version},
    {"cuDevicePrimaryCtxRetain", handle}, {"cuCtxGetCurrent", handle},
    {"cuStreamCreate", handle},          {"cuEventCreate", handle},
    {"cuMemAlloc", allocate},            {"cuMemAllocManaged", allocate},
    {"cuMemAllocAsync", allocate},       {"cuMemAllocFromPoolAsync", allocate},
    {"cuMemHostAlloc", allocate},        {"cuMemHostGetDevicePointer", same_pointer},
    {"cuMemPoolCreate", handle},         {"cuDeviceGetDefaultMemPool", handle},
    {"cuGraphCreate", handle},           {"cuModuleLoadDataEx", load},
    {"cuModuleGetFunction", function},   {"cuFuncSetAttribute", function_attribute},
    {"cuLaunchKernel", launch},          {"cuGetErrorName", text},
    {"cuGetErrorString", text},
};

int cuGetProcAddress(const char *symbol, void **address, int api_version, uint64_t flags) {
  (void)api_version;
  (void)flags;
  setvbuf(stdout, NULL, _IOLBF, 0);
  *address = strcmp(symbol, "cuGetProcAddress") ? (void *)succeed : (void *)cuGetProcAddress;
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
    if (!strcmp(symbol, known[i].name)) *address = known[i].address;
  }
  return 0;
}
