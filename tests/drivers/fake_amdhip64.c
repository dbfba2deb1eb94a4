/* A libamdhip64.so without a GPU, for tests.
 *
 * It has the entry points that aotkern uses, with AMD's names, signatures and error codes (hip/hip_runtime_api.h of
 * ROCm 7.1). It models devices with their architectures and features, reads the kernel's descriptor out of each code
 * object, holds every argument buffer against it, and writes down what happened. fake_* are the test's own controls.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY = 209,
       INVALID_HANDLE = 400, NOT_FOUND = 500, TOO_LARGE = 720, CAPTURE_UNSUPPORTED = 900, CONFIGURATION = 9 };
enum { MAX_DEVICES = 8, MAX_STREAMS = 8 };
#define MAGIC_MODULE 0x4d4f44554c45ULL
#define MAGIC_FUNCTION 0x46554e43ULL

typedef struct { char name[256], arch[256]; int units, shared, mach; } Device;
typedef struct { uint64_t magic; int device; const uint8_t *image; int loaded; } Module;
typedef struct { uint64_t magic; Module *module; uint32_t kernarg, visible; char name[256]; } Function;

static Device devices[MAX_DEVICES];
static int device_count, resident = 2;
static _Thread_local int current, capture_mode;
static uintptr_t captured[MAX_STREAMS];
static char fail_operation[64];
static int fail_code, fail_after;
static char *log_text;
static size_t log_size;
static FILE *log_file;

static void note(void) {
  if (!log_file) log_file = open_memstream(&log_text, &log_size);
}
#define LOG(...) do { note(); fprintf(log_file, __VA_ARGS__); fflush(log_file); } while (0)

EXPORT void fake_reset(void) {
  device_count = current = capture_mode = fail_code = 0;
  resident = 2;
  memset(captured, 0, sizeof captured);
  if (log_file) { fclose(log_file); free(log_text); }
  log_file = NULL;
}
EXPORT void fake_device(const char *arch, int mach, int units, int shared) {
  Device *d = &devices[device_count++];
  snprintf(d->name, sizeof d->name, "AMD Instinct (fake)");
  snprintf(d->arch, sizeof d->arch, "%s", arch);
  d->mach = mach, d->units = units, d->shared = shared;
}
EXPORT void fake_fail(const char *operation, int code, int after) {
  snprintf(fail_operation, sizeof fail_operation, "%s", operation);
  fail_code = code, fail_after = after;
}
EXPORT void fake_resident(int blocks) { resident = blocks; }
EXPORT void fake_capture(uintptr_t stream, int on) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (on ? !captured[i] : captured[i] == stream) { captured[i] = on ? stream : 0; return; }
}
EXPORT const char *fake_log(void) { note(); fflush(log_file); return log_text; }

static int failing(const char *operation) {
  if (!fail_code || strcmp(operation, fail_operation) || fail_after-- > 0) return 0;
  int code = fail_code;
  fail_code = 0;
  return code;
}
#define ENTER(name) do { int code_ = failing(name); if (code_) return code_; } while (0)

EXPORT int hipInit(unsigned flags) { ENTER("hipInit"); return flags ? INVALID_VALUE : SUCCESS; }
EXPORT int hipGetDeviceCount(int *count) {
  ENTER("hipGetDeviceCount");
  *count = device_count;
  return device_count ? SUCCESS : NO_DEVICE;
}
EXPORT int hipGetDevice(int *device) { ENTER("hipGetDevice"); *device = current; return SUCCESS; }
EXPORT int hipSetDevice(int device) {
  ENTER("hipSetDevice");
  if (device < 0 || device >= device_count) return INVALID_DEVICE;
  LOG("set %d\n", device);
  current = device;
  return SUCCESS;
}
EXPORT int hipGetDevicePropertiesR0600(void *properties, int device) {
  ENTER("hipGetDevicePropertiesR0600");
  if (device < 0 || device >= device_count) return INVALID_DEVICE;
  memset(properties, 0, 1472);
  memcpy(properties, devices[device].name, 256);
  memcpy((char *)properties + 1160, devices[device].arch, 256);
  return SUCCESS;
}
EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER("hipDeviceGetAttribute");
  if (device < 0 || device >= device_count) return INVALID_DEVICE;
  switch (attribute) {
    case 29: *value = 2147483647; return SUCCESS;
    case 30: case 31: *value = 65536; return SUCCESS;
    case 63: *value = devices[device].units; return SUCCESS;
    case 74: *value = devices[device].shared; return SUCCESS;
  }
  return INVALID_VALUE;
}

static uint64_t read_le(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  memcpy(&value, at, bytes);
  return value;
}

/* The size of the kernel argument segment out of the descriptor `symbol.kd`, or -1. */
static int64_t kernarg_size(const uint8_t *elf, const char *symbol) {
  const uint8_t *sections = elf + read_le(elf + 40, 8);
  int count = read_le(elf + 60, 2);
  char wanted[256];
  snprintf(wanted, sizeof wanted, "%s.kd", symbol);
  for (int i = 0; i < count; i++) {
    const uint8_t *s = sections + 64 * i;
    if (read_le(s + 4, 4) != 11) continue; /* SHT_DYNSYM */
    const uint8_t *names = elf + read_le(sections + 64 * read_le(s + 40, 4) + 24, 8);
    for (uint64_t at = 0; at < read_le(s + 32, 8); at += 24) {
      const uint8_t *sym = elf + read_le(s + 24, 8) + at;
      if (strcmp((const char *)names + read_le(sym, 4), wanted)) continue;
      const uint8_t *home = sections + 64 * read_le(sym + 6, 2);
      return read_le(elf + read_le(home + 24, 8) + read_le(sym + 8, 8) - read_le(home + 16, 8) + 8, 4);
    }
  }
  return -1;
}

/* Where hidden arguments begin, which HIP's runtime fills in itself: the least ".offset" before a "hidden_" kind in the
   note, whose maps LLVM sorts by key; the whole segment when there are none. */
static int64_t visible_size(const uint8_t *elf, int64_t kernarg) {
  const uint8_t *sections = elf + read_le(elf + 40, 8);
  for (int i = 0; i < (int)read_le(elf + 60, 2); i++) {
    const uint8_t *s = sections + 64 * i;
    if (read_le(s + 4, 4) != 7) continue; /* SHT_NOTE */
    const uint8_t *at = elf + read_le(s + 24, 8), *end = at + read_le(s + 32, 8);
    int64_t offset = -1;
    for (; at + 8 < end; at++) {
      if (!memcmp(at, "\xa7.offset", 8)) {
        const uint8_t *v = at + 8;
        offset = v[0] < 0x80 ? v[0] : v[0] == 0xcc ? v[1] : v[0] == 0xcd ? v[1] << 8 | v[2] : -1;
      }
      if (!memcmp(at, "hidden_", 7) && offset >= 0) return offset;
    }
  }
  return kernarg;
}

EXPORT int hipModuleLoadData(void **module, const void *image) {
  ENTER("hipModuleLoadData");
  const uint8_t *elf = image;
  if (memcmp(elf, "\x7f" "ELF", 4) || read_le(elf + 18, 2) != 224) return INVALID_IMAGE;
  if ((int)read_le(elf + 48, 1) != devices[current].mach) return NO_BINARY;
  for (int i = 0; i < MAX_STREAMS; i++)
    if (captured[i] && capture_mode != 2) return CAPTURE_UNSUPPORTED;
  Module *made = calloc(1, sizeof *made);
  made->magic = MAGIC_MODULE, made->device = current, made->image = image, made->loaded = 1;
  LOG("load device=%d\n", current);
  *module = made;
  return SUCCESS;
}
EXPORT int hipModuleUnload(void *module) {
  ENTER("hipModuleUnload");
  Module *m = module;
  if (!m || m->magic != MAGIC_MODULE || !m->loaded) return INVALID_HANDLE;
  m->loaded = 0;
  LOG("unload device=%d\n", m->device);
  return SUCCESS;
}
EXPORT int hipModuleGetFunction(void **function, void *module, const char *name) {
  ENTER("hipModuleGetFunction");
  Module *m = module;
  int64_t size = kernarg_size(m->image, name);
  if (size < 0) return NOT_FOUND;
  Function *made = calloc(1, sizeof *made);
  made->magic = MAGIC_FUNCTION, made->module = m, made->kernarg = size, made->visible = visible_size(m->image, size);
  snprintf(made->name, sizeof made->name, "%s", name);
  *function = made;
  return SUCCESS;
}

static int check_launch(Function *f, unsigned gx, unsigned bx, unsigned shared) {
  if (!f || f->magic != MAGIC_FUNCTION || !f->module->loaded || f->module->device != current) return INVALID_HANDLE;
  if (!gx || !bx || bx > 1024 || (uint64_t)gx * bx > 0xffffffffu) return CONFIGURATION;
  return (int)shared > devices[current].shared ? INVALID_VALUE : SUCCESS;
}
static void log_launch(const char *kind, Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned shared, void *stream) {
  LOG("%s device=%d kernel=%s grid=%u,%u,%u block=%u shared=%u stream=%#lx args=", kind, current, f->name, gx, gy, gz,
      bx, shared, (unsigned long)stream);
}
EXPORT int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  ENTER("hipModuleLaunchKernel");
  Function *f = function;
  int code = check_launch(f, gx, bx, shared);
  if (code) return code;
  if (params || !extra || by != 1 || bz != 1) return INVALID_VALUE;
  if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) return INVALID_VALUE;
  const uint8_t *buffer = extra[1];
  size_t size = *(size_t *)extra[3];
  if ((uintptr_t)buffer % 8 || size > f->visible) return INVALID_VALUE;
  log_launch("launch", f, gx, gy, gz, bx, shared, stream);
  for (size_t i = 0; i < size; i++) LOG("%02x", buffer[i]);
  LOG("\n");
  return SUCCESS;
}
EXPORT int hipModuleLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                            unsigned by, unsigned bz, unsigned shared, void *stream, void **params) {
  ENTER("hipModuleLaunchCooperativeKernel");
  Function *f = function;
  int code = check_launch(f, gx, bx, shared);
  if (code) return code;
  if (!params || by != 1 || bz != 1) return INVALID_VALUE;
  if ((uint64_t)gx * gy * gz > (uint64_t)resident * devices[current].units) return TOO_LARGE;
  log_launch("cooperative", f, gx, gy, gz, bx, shared, stream);
  LOG("%016lx\n", (unsigned long)read_le(params[0], 8));
  return SUCCESS;
}
EXPORT int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  ENTER("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
  Function *f = function;
  if (f->magic != MAGIC_FUNCTION || threads <= 0 || shared > 1 << 20) return INVALID_VALUE;
  *blocks = resident;
  return SUCCESS;
}
EXPORT int hipStreamIsCapturing(void *stream, int *status) {
  ENTER("hipStreamIsCapturing");
  *status = 0;
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (captured[i] && !stream) return 906;
    if (captured[i] && captured[i] == (uintptr_t)stream) *status = 1;
  }
  return SUCCESS;
}
EXPORT int hipThreadExchangeStreamCaptureMode(int *mode) {
  ENTER("hipThreadExchangeStreamCaptureMode");
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return SUCCESS;
}
EXPORT int hipMallocAsync(void **address, size_t size, void *stream) {
  ENTER("hipMallocAsync");
  *address = aligned_alloc(256, (size + 255) / 256 * 256);
  LOG("malloc device=%d size=%zu stream=%#lx\n", current, size, (unsigned long)stream);
  return SUCCESS;
}
EXPORT int hipFreeAsync(void *address, void *stream) {
  ENTER("hipFreeAsync");
  free(address);
  LOG("free device=%d stream=%#lx\n", current, (unsigned long)stream);
  return SUCCESS;
}
EXPORT const char *hipGetErrorName(int code) {
  switch (code) {
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 9: return "hipErrorInvalidConfiguration";
    case 100: return "hipErrorNoDevice";
    case 200: return "hipErrorInvalidImage";
    case 209: return "hipErrorNoBinaryForGpu";
    case 400: return "hipErrorInvalidHandle";
    case 500: return "hipErrorNotFound";
    case 719: return "hipErrorLaunchFailure";
    case 720: return "hipErrorCooperativeLaunchTooLarge";
    case 900: return "hipErrorStreamCaptureUnsupported";
  }
  return "hipErrorUnknown";
}
