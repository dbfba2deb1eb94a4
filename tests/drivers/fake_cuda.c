/* A libcuda.so without a GPU, for tests.
 *
 * It has the entry points that aotkern uses, with NVIDIA's names, signatures and error codes (cuda.h of CUDA 13). It
 * models devices, each with a primary context, and a stack of contexts for each thread; modules and functions belong to
 * the context they were loaded in. It writes down what happened. fake_* are the test's own controls.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
       INVALID_HANDLE = 400, NOT_FOUND = 500, TOO_LARGE = 720, CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906 };
enum { MAX_DEVICES = 8, MAX_STREAMS = 8, DEFAULT_SHARED = 49152, OPT_IN = 232448 };

typedef struct { int device; } Context;
typedef struct { Context *context; int loaded; } Module;
typedef struct { Module *module; int dynamic, wide; char name[256]; } Function;
typedef struct { int id, pad; unsigned value[16]; } Attribute;
typedef struct { unsigned grid[3], block[3], shared; void *stream; Attribute *attributes; unsigned count; } Config;

static Context contexts[MAX_DEVICES];
static int device_count, capability = 90, static_shared, resident = 2;
static _Thread_local Context *stack[16];
static _Thread_local int depth, capture_mode;
static uintptr_t captured[MAX_STREAMS];
static char fail_operation[64], *log_text;
static int fail_code;
static size_t log_size;
static FILE *log_file;

static void note(void) {
  if (!log_file) log_file = open_memstream(&log_text, &log_size);
}
#define LOG(...) do { note(); fprintf(log_file, __VA_ARGS__); fflush(log_file); } while (0)

EXPORT void fake_reset(int devices) {
  device_count = devices, depth = capture_mode = fail_code = static_shared = 0, resident = 2;
  for (int i = 0; i < MAX_DEVICES; i++) contexts[i].device = i;
  memset(captured, 0, sizeof captured);
  if (log_file) { fclose(log_file); free(log_text); }
  log_file = NULL;
}
EXPORT void fake_fail(const char *operation, int code) {
  snprintf(fail_operation, sizeof fail_operation, "%s", operation);
  fail_code = code;
}
EXPORT void fake_static_shared(int bytes) { static_shared = bytes; }
EXPORT void fake_capture(uintptr_t stream, int on) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (on ? !captured[i] : captured[i] == stream) { captured[i] = on ? stream : 0; return; }
}
EXPORT const char *fake_log(void) { note(); fflush(log_file); return log_text; }

static int failing(const char *operation) {
  if (!fail_code || strcmp(operation, fail_operation)) return 0;
  int code = fail_code;
  fail_code = 0;
  return code;
}
#define ENTER(name) do { int code_ = failing(name); if (code_) return code_; } while (0)
static Context *current(void) { return depth ? stack[depth - 1] : NULL; }

EXPORT int cuInit(unsigned flags) { ENTER("cuInit"); return flags ? INVALID_VALUE : SUCCESS; }
EXPORT int cuDeviceGetCount(int *count) { ENTER("cuDeviceGetCount"); *count = device_count; return SUCCESS; }
EXPORT int cuDeviceGet(int *device, int ordinal) {
  ENTER("cuDeviceGet");
  if (ordinal < 0 || ordinal >= device_count) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}
EXPORT int cuDeviceGetName(char *name, int size, int device) {
  ENTER("cuDeviceGetName");
  snprintf(name, size, "NVIDIA (fake) %d", device);
  return SUCCESS;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER("cuDeviceGetAttribute");
  if (device >= device_count) return INVALID_DEVICE;
  switch (attribute) {
    case 5: *value = 2147483647; return SUCCESS;
    case 6: case 7: *value = 65535; return SUCCESS;
    case 16: *value = 132; return SUCCESS;
    case 75: *value = capability / 10; return SUCCESS;
    case 76: *value = capability % 10; return SUCCESS;
    case 97: *value = OPT_IN; return SUCCESS;
  }
  return INVALID_VALUE;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  LOG("retain %d\n", device);
  *context = &contexts[device];
  return SUCCESS;
}
EXPORT int cuCtxGetCurrent(void **context) { ENTER("cuCtxGetCurrent"); *context = current(); return SUCCESS; }
EXPORT int cuCtxGetDevice(int *device) {
  ENTER("cuCtxGetDevice");
  if (!current()) return INVALID_CONTEXT;
  *device = current()->device;
  return SUCCESS;
}
EXPORT int cuCtxPushCurrent_v2(void *context) {
  ENTER("cuCtxPushCurrent_v2");
  stack[depth++] = context;
  LOG("push %d\n", current()->device);
  return SUCCESS;
}
EXPORT int cuCtxPopCurrent_v2(void **context) {
  ENTER("cuCtxPopCurrent_v2");
  if (!depth) return INVALID_CONTEXT;
  *context = stack[--depth];
  LOG("pop\n");
  return SUCCESS;
}
EXPORT int cuModuleLoadData(void **module, const void *image) {
  ENTER("cuModuleLoadData");
  if (!current()) return INVALID_CONTEXT;
  if (memcmp(image, "\x7f" "ELF", 4) || ((const uint8_t *)image)[18] != 190) return INVALID_IMAGE;
  for (int i = 0; i < MAX_STREAMS; i++)
    if (captured[i] && capture_mode != 2) return CAPTURE_UNSUPPORTED;
  Module *made = calloc(1, sizeof *made);
  made->context = current(), made->loaded = 1;
  LOG("load device=%d\n", current()->device);
  *module = made;
  return SUCCESS;
}
EXPORT int cuModuleUnload(void *module) {
  ENTER("cuModuleUnload");
  ((Module *)module)->loaded = 0;
  LOG("unload\n");
  return SUCCESS;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
  ENTER("cuModuleGetFunction");
  if (!strcmp(name, "missing")) return NOT_FOUND;
  Function *made = calloc(1, sizeof *made);
  made->module = module, made->dynamic = DEFAULT_SHARED;
  snprintf(made->name, sizeof made->name, "%s", name);
  *function = made;
  return SUCCESS;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
  ENTER("cuFuncGetAttribute");
  (void)function;
  *value = attribute == 1 ? static_shared : 0;
  return SUCCESS;
}
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  Function *f = function;
  if (attribute == 8 && value + static_shared > OPT_IN) return INVALID_VALUE;
  if (attribute == 8) f->dynamic = value;
  if (attribute == 14) f->wide = value;
  LOG("attribute %d=%d device=%d\n", attribute, value, f->module->context->device);
  return SUCCESS;
}

static int launch(const char *kind, Function *f, const unsigned *grid, const unsigned *block, unsigned shared,
                  void *stream, void **params, void **extra) {
  if (!f->module->loaded || f->module->context != current()) return INVALID_HANDLE;
  if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID_VALUE;
  if (!grid[0] || !grid[1] || !grid[2] || block[1] != 1 || block[2] != 1 || (int)shared > f->dynamic)
    return INVALID_VALUE;
  LOG("%s device=%d kernel=%s grid=%u,%u,%u block=%u shared=%u stream=%#lx", kind, current()->device, f->name, grid[0],
      grid[1], grid[2], block[0], shared, (unsigned long)stream);
  LOG(" args=");
  for (size_t i = 0; i < *(size_t *)extra[3]; i++) LOG("%02x", ((uint8_t *)extra[1])[i]);
  return SUCCESS;
}
EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
  ENTER("cuLaunchKernel");
  unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  int code = launch("launch", function, grid, block, shared, stream, params, extra);
  if (!code) LOG("\n");
  return code;
}
EXPORT int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra) {
  ENTER("cuLaunchKernelEx");
  const Config *c = config;
  for (unsigned i = 0; i < c->count; i++)
    if (c->attributes[i].id == 4 && (c->grid[0] % c->attributes[i].value[0] || c->attributes[i].value[0] > 16))
      return INVALID_VALUE;
  int code = launch("extended", function, c->grid, c->block, c->shared, c->stream, params, extra);
  for (unsigned i = 0; !code && i < c->count; i++) LOG(" %d=%u", c->attributes[i].id, c->attributes[i].value[0]);
  if (!code) LOG("\n");
  return code;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (!function || threads < 1 || shared > OPT_IN) return INVALID_VALUE;
  *blocks = resident;
  return SUCCESS;
}
EXPORT int cuStreamIsCapturing(void *stream, int *status) {
  ENTER("cuStreamIsCapturing");
  *status = 0;
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (captured[i] && !stream) return CAPTURE_IMPLICIT;
    if (captured[i] && captured[i] == (uintptr_t)stream) *status = 1;
  }
  return SUCCESS;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  ENTER("cuThreadExchangeStreamCaptureMode");
  int before = capture_mode;
  capture_mode = *mode, *mode = before;
  return SUCCESS;
}
EXPORT int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
  ENTER("cuMemAllocAsync");
  *address = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
  LOG("malloc device=%d size=%zu stream=%#lx\n", current()->device, size, (unsigned long)stream);
  return SUCCESS;
}
EXPORT int cuMemFreeAsync(uint64_t address, void *stream) {
  ENTER("cuMemFreeAsync");
  free((void *)(uintptr_t)address);
  LOG("free device=%d stream=%#lx\n", current()->device, (unsigned long)stream);
  return SUCCESS;
}
EXPORT int cuGetErrorName(int code, const char **name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return SUCCESS;
}
