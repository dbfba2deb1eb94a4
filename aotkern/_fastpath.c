/* The hot path of a launch: read the arguments, choose the variant, pack, call the driver.
 *
 * It repeats in C what aotkern/loader/kernel.py does, for calls that need nothing unusual, and makes no rule of its own:
 * the table of assumptions comes from aotkern.dispatch, the layout of the argument buffer from aotkern.abi, and the
 * driver's function from aotkern.drivers. Whatever it does not know (another kind of argument, a miss, a variant that is
 * not loaded, a hook, a thread with another current device) it hands to the Python function `slow`, which then does the
 * whole call. So it may decline any call, and must not serve one otherwise than Python would.
 *
 * Tensors are read through the DLPack C exchange API (dlpack.h 1.3), which torch 2.10 and later offer on the type. Only
 * Python's stable ABI is used, so that one build serves every Python from 3.10 on.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETERS = 128, MAX_BUFFER = 4096, CACHED_TYPES = 8 };

/* ---- The parts of dlpack.h that are needed ------------------------------------------------------------------------ */

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct {
  uint32_t major, minor;
  void *previous, *allocate, *from_object, *to_object;
  int (*read)(void *object, DLTensor *out);
  int (*current_stream)(int device_type, int32_t device_id, void **out);
} Exchange;

enum { DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };

/* ---- Values ------------------------------------------------------------------------------------------------------- */

/* What an argument, or a constant of a variant, can be. */
typedef enum { V_NONE, V_BOOL, V_INT, V_FLOAT, V_TEXT, V_TENSOR } Kind;

/* Small, as are Test and Slot: a launch finds cold caches, where a line more costs more than arithmetic. */
typedef struct {
  uint8_t kind;
  uint8_t negative;   /* V_INT: `bits` is two's complement */
  uint8_t small;      /* V_TENSOR: the storage is known to be at most 2 GiB - 1 */
  uint32_t element;   /* V_TENSOR: DLPack's type code << 8 | bits */
  union {
    uint64_t bits;    /* V_INT and V_BOOL: the number; V_TENSOR: the address */
    double number;    /* V_FLOAT */
    PyObject *text;   /* V_TEXT, borrowed */
  };
} Value;

/* An assumption about one argument; see aotkern.dispatch.Test. */
typedef enum { T_CONSTANT, T_POINTER, T_INTEGER, T_FLOAT, T_BOOL } TestKind;
enum { DIVISIBLE = 1, SMALL = 2, ANNOTATED = 4 };

typedef struct {
  uint8_t kind, flags;
  uint32_t element;
  int64_t low;
  uint64_t high;
  const uint64_t *variants; /* `words` words: a bit for each variant that assumes this */
  Value constant;
} Test;

typedef struct {
  /* Tests that differ in DIVISIBLE and SMALL alone, of at most 64 variants, are all answered by one look at `classes`;
   * `plain` is the kind of value that they are about, and V_NONE for other tests. */
  uint8_t plain, needs_storage;
  uint32_t element;
  int64_t low;
  uint64_t high;
  uint64_t classes[4]; /* by what holds of a value, DIVISIBLE | SMALL: the variants that assume no more */
  PyObject *fallback; /* the default, or NULL */
  PyObject *name; /* borrowed from `held` */
  Test *tests;
  int count;
} Parameter;

/* How one parameter is written into the buffer. */
typedef enum { W_BITS, W_FP16, W_BF16, W_FP32, W_FP64 } Write;
typedef struct { uint16_t parameter, offset; uint8_t spare_bits, write; } Slot; /* of 64 bits */

typedef int (*LaunchFunction)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                              void **, void **);
typedef int (*CurrentFunction)(void *);

/* A variant that is loaded on a device. */
typedef struct Ready {
  struct Ready *next;
  int device;
  void *function;
  LaunchFunction launch;
  CurrentFunction current;
  uint64_t expected;
  void *end;
  unsigned threads, shared;
  uint64_t limits[3];
  Slot *slots;
  int slot_count;
  size_t size;
} Ready;

typedef struct {
  PyObject_HEAD
  PyObject *held; /* the tuple that everything borrowed here belongs to */
  PyObject *slow, *fail, *capsule_of; /* borrowed from `held` */
  PyObject *enter, *exit;
  Parameter *parameters, *options;
  int parameter_count, option_count, variant_count, words, device_type;
  uint64_t *masks; /* all bit sets, one allocation */
  const uint64_t **families;
  Ready **ready;
  unsigned long long *launches, empty;
  struct { PyTypeObject *type; const Exchange *exchange; } types[CACHED_TYPES];
  int type_count;
  struct Bound *spare;
} Kernel;

typedef struct Bound {
  PyObject_HEAD
  Kernel *kernel;
  PyObject *grid;
  int is_fixed;
  uint64_t fixed[3];
} Bound;

static PyTypeObject *bound_type;

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

/* 1: read; 0: not for the fast path. Never leaves an exception. */
static inline int read_integer(PyObject *object, Value *out) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  out->kind = V_INT, out->bits = (uint64_t)number, out->negative = number < 0;
  if (!overflow) return 1;
  if (overflow < 0) return 0;
  out->bits = PyLong_AsUnsignedLongLong(object), out->negative = 0;
  return PyErr_Occurred() ? PyErr_Clear(), 0 : 1;
}

/* The same, for whatever has no memory of its own. */
static inline int read_plain(PyObject *object, Value *out) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == &PyLong_Type) return read_integer(object, out);
  if (type == &PyFloat_Type) {
    out->kind = V_FLOAT, out->number = PyFloat_AsDouble(object);
  } else if (type == &PyBool_Type) {
    out->kind = V_BOOL, out->bits = object == Py_True, out->negative = 0;
  } else if (object == Py_None) {
    out->kind = V_NONE;
  } else if (type == &PyUnicode_Type) {
    out->kind = V_TEXT, out->text = object;
  } else {
    return 0;
  }
  return 1;
}

/* The exchange API of a type; NULL when it has none that may be used. The answer is remembered. */
static const Exchange *exchange_of(Kernel *self, PyTypeObject *type) {
  for (int i = 0; i < self->type_count; i++)
    if (self->types[i].type == type) return self->types[i].exchange;
  const Exchange *exchange = NULL;
  PyObject *capsule = PyObject_CallFunctionObjArgs(self->capsule_of, (PyObject *)type, NULL);
  if (capsule && capsule != Py_None) exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (exchange && (exchange->major != 1 || !exchange->read || !exchange->current_stream)) exchange = NULL;
  PyErr_Clear();
  Py_XDECREF(capsule);
  if (self->type_count < CACHED_TYPES) {
    Py_INCREF((PyObject *)type); /* a type that is gone could leave its address to another */
    self->types[self->type_count].type = type;
    self->types[self->type_count++].exchange = exchange;
  }
  return exchange;
}

/* Whether the whole storage behind a tensor is at most 2 GiB - 1; -1 when it does not say. */
static int has_small_storage(PyObject *tensor) {
  PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
  PyObject *size = storage ? PyObject_CallMethod(storage, "nbytes", NULL) : NULL;
  long long bytes = size ? PyLong_AsLongLong(size) : -1;
  Py_XDECREF(storage);
  Py_XDECREF(size);
  if (PyErr_Occurred()) return PyErr_Clear(), -1;
  return bytes <= 0x7fffffffLL;
}

/* Where the tensors of a call are, and whose current stream counts. */
typedef struct { int found, device; const Exchange *exchange; } Place;

static int read_tensor(Kernel *self, PyObject *object, int needs_storage, Value *out, Place *place) {
  const Exchange *exchange = exchange_of(self, Py_TYPE(object));
  DLTensor tensor;
  if (!exchange) return 0;
  if (exchange->read(object, &tensor)) return PyErr_Clear(), 0;
  if (tensor.lanes != 1) return 0;
  out->kind = V_TENSOR;
  out->element = (uint32_t)tensor.code << 8 | tensor.bits;
  out->bits = (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset;
  out->small = 0;
  if (tensor.device_type == self->device_type) {
    if (place->found && place->device != tensor.device_id) return 0;
    place->found = 1, place->device = tensor.device_id, place->exchange = exchange;
  } else if (tensor.device_type != DL_CUDA_HOST && tensor.device_type != DL_ROCM_HOST) {
    return 0;
  }
  if (needs_storage) {
    int small = has_small_storage(object);
    if (small < 0) return 0;
    out->small = small;
  }
  return 1;
}

/* ---- Choosing ----------------------------------------------------------------------------------------------------- */

static int same_constant(const Value *built, const Value *given) {
  if (built->kind != given->kind) return 0;
  switch (built->kind) {
    case V_NONE: return 1;
    case V_BOOL: return built->bits == given->bits;
    case V_INT: return built->bits == given->bits && built->negative == given->negative;
    case V_FLOAT: /* by bits, so that -0.0 is not 0.0, and a NaN finds itself */
      return !memcmp(&built->number, &given->number, sizeof(double));
    case V_TEXT: return PyUnicode_Compare(built->text, given->text) == 0;
    case V_TENSOR: return 0;
  }
  return 0;
}

static inline int within_range(const Value *value, int64_t low, uint64_t high) {
  return value->negative ? (int64_t)value->bits >= low : value->bits <= high;
}

/* aotkern.dispatch.refusals, for one assumption. */
static int holds(const Test *test, const Value *value) {
  int annotated = test->flags & ANNOTATED;
  switch (test->kind) {
    case T_CONSTANT: return same_constant(&test->constant, value);
    case T_POINTER:
      return value->kind == V_TENSOR && value->element == test->element &&
             (!(test->flags & DIVISIBLE) || value->bits % 16 == 0) && (!(test->flags & SMALL) || value->small);
    case T_INTEGER:
      return (value->kind == V_INT || (annotated && value->kind == V_BOOL)) &&
             within_range(value, test->low, test->high) && (!(test->flags & DIVISIBLE) || value->bits % 16 == 0);
    case T_FLOAT: return value->kind == V_FLOAT || (annotated && (value->kind == V_INT || value->kind == V_BOOL));
    case T_BOOL: return value->kind == V_BOOL || (annotated && value->kind == V_INT && value->bits <= 1);
  }
  return 0;
}

static void narrow_by_tests(const Parameter *parameter, const Value *value, uint64_t *alive, int words) {
  uint64_t kept[words];
  memset(kept, 0, sizeof kept);
  for (int i = 0; i < parameter->count; i++)
    if (holds(&parameter->tests[i], value))
      for (int w = 0; w < words; w++) kept[w] |= parameter->tests[i].variants[w];
  for (int w = 0; w < words; w++) alive[w] &= kept[w];
}

/* Leave alive only the variants one of whose assumptions about this argument holds. */
static inline void narrow(const Parameter *parameter, const Value *value, uint64_t *alive, int words) {
  int divisible = !(value->bits & 15); /* DIVISIBLE, of an integer or a tensor */
  if (parameter->plain == V_INT && value->kind == V_INT && within_range(value, parameter->low, parameter->high))
    *alive &= parameter->classes[divisible];
  else if (parameter->plain == V_TENSOR && value->kind == V_TENSOR && value->element == parameter->element)
    *alive &= parameter->classes[divisible | (value->small ? SMALL : 0)];
  else
    narrow_by_tests(parameter, value, alive, words);
}

/* The first variant alive, or -1 when there is none or when others differ from it in options only. */
static int best(const Kernel *self, const uint64_t *alive) {
  for (int w = 0; w < self->words; w++) {
    if (!alive[w]) continue;
    int index = 64 * w + __builtin_ctzll(alive[w]);
    for (int v = 0; v < self->words; v++) {
      uint64_t rivals = alive[v] & self->families[index][v];
      if (v == w) rivals &= rivals - 1;
      if (rivals) return -1;
    }
    return index;
  }
  return -1;
}

/* ---- Packing ------------------------------------------------------------------------------------------------------ */

/* IEEE binary16, rounded to nearest even; what overflows is infinite. */
static uint16_t half_of(double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 48) & 0x8000;
  double magnitude = fabs(number);
  if (isnan(number)) return sign | 0x7e00;
  if (magnitude >= 65520.0) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | (uint16_t)nearbyint(magnitude * 0x1p24); /* 2^10 carries into the exponent */
  int exponent;
  double fraction = frexp(magnitude, &exponent); /* in [1/2, 1) */
  return sign | (uint16_t)(((exponent + 13) << 10) + (int)nearbyint(fraction * 0x1p11));
}

static double number_of(const Value *value) {
  if (value->kind == V_FLOAT) return value->number;
  return value->negative ? (double)(int64_t)value->bits : (double)value->bits;
}

/* What is written of a number that goes into a parameter of a floating type. */
static uint64_t float_bits(const Value *value, Write write) {
  double number = number_of(value);
  if (write == W_FP16) return half_of(number);
  uint64_t bits;
  memcpy(&bits, &number, sizeof number);
  if (write == W_FP64) return bits;
  float single = (float)number;
  uint32_t word;
  memcpy(&word, &single, sizeof word);
  return write == W_BF16 ? word >> 16 : word;
}

/* Eight bytes are written whatever the size, since that takes no branch: what is too much is zero, and as the slots
 * ascend, the next one's. */
static inline void pack(const Slot *slot, const Value *value, unsigned char *buffer) {
  uint64_t bits = slot->write == W_BITS ? value->bits : float_bits(value, (Write)slot->write);
  bits &= ~0ULL >> slot->spare_bits; /* the low bytes: these GPUs are in little endian machines only */
  memcpy(buffer + slot->offset, &bits, sizeof bits);
}

/* ---- The call ----------------------------------------------------------------------------------------------------- */

/* Names are interned on both sides as a rule, so that the pointer tells; parameters before `from` are not looked at. */
static inline int index_by_pointer(const Parameter *parameters, int from, int count, PyObject *name) {
  for (int i = from; i < count; i++)
    if (parameters[i].name == name) return i;
  return -1;
}

static int index_by_text(const Parameter *parameters, int count, PyObject *name) {
  for (int i = 0; i < count; i++)
    if (PyUnicode_Compare(parameters[i].name, name) == 0) return i;
  return -1;
}

/* A stream named by its handle; objects that have one are for Python. */
static int read_stream(PyObject *object, void **out) {
  Value value;
  if (!PyLong_CheckExact(object) || !read_integer(object, &value) || value.negative) return 0;
  if (value.bits > 2 && value.bits < 4096) return 0;
  *out = (void *)(uintptr_t)value.bits;
  return 1;
}

/* Objects that a call holds until it is done. */
typedef struct { int count; PyObject *objects[MAX_PARAMETERS]; } Held;

/* An argument that was given by name; see bind_arguments. */
static int bind_named(Kernel *self, int given, PyObject *name, PyObject *object, PyObject **bound, Held *held,
                      uint64_t *alive, void **stream, int *has_stream) {
  int option = -1, index = index_by_pointer(self->parameters, given, self->parameter_count, name);
  if (index < 0) option = index_by_pointer(self->options, 0, self->option_count, name);
  if (index < 0 && option < 0) {
    if (!PyUnicode_Check(name)) return 0; /* `**{b"x": 1}`, which Python lets through to a call in C */
    index = index_by_text(self->parameters, self->parameter_count, name);
  }
  if (index >= 0) {
    if (bound[index]) return 0;
    held->objects[held->count++] = bound[index] = Py_NewRef(object);
    return 1;
  }
  if (option < 0) option = index_by_text(self->options, self->option_count, name);
  if (option >= 0) {
    Value value;
    if (!read_plain(object, &value)) return 0;
    narrow(&self->options[option], &value, alive, self->words);
    return 1;
  }
  if (PyUnicode_CompareWithASCIIString(name, "stream") || !read_stream(object, stream)) return 0;
  *has_stream = 1;
  return 1;
}

/* Put arguments in order; options narrow `alive`. 1: bound; 0: not for the fast path.
 *
 * What was given by position belongs to `args`, and defaults to the kernel: nobody can change these. What was given by
 * name is held here and noted in `held`, because code of the caller may run later and reach the dictionary. */
static inline int bind_arguments(Kernel *self, PyObject *args, PyObject *kwargs, PyObject **bound, Held *held,
                                 uint64_t *alive, void **stream, int *has_stream) {
  Py_ssize_t given = PyTuple_Size(args);
  for (int i = 0; i < given; i++) bound[i] = PyTuple_GetItem(args, i);
  for (int i = (int)given; i < self->parameter_count; i++) bound[i] = NULL;
  PyObject *name, *object;
  for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &object);)
    if (!bind_named(self, (int)given, name, object, bound, held, alive, stream, has_stream)) return 0;
  for (int i = (int)given; i < self->parameter_count; i++)
    if (!bound[i] && !(bound[i] = self->parameters[i].fallback)) return 0;
  return 1;
}

static int read_extent(PyObject *object, uint64_t *out) {
  Value value;
  if (!PyLong_CheckExact(object) || !read_integer(object, &value) || value.negative) return 0;
  *out = value.bits;
  return 1;
}

static int read_grid(PyObject *grid, uint64_t *out) {
  out[0] = out[1] = out[2] = 1;
  if (PyLong_CheckExact(grid)) return read_extent(grid, out);
  if (!PyTuple_Check(grid) || PyTuple_Size(grid) < 1 || PyTuple_Size(grid) > 3) return 0;
  for (int i = 0; i < PyTuple_Size(grid); i++)
    if (!read_extent(PyTuple_GetItem(grid, i), &out[i])) return 0;
  return 1;
}

/* The grid of this call: 1 found, 0 not for the fast path, -1 the caller's function raised. What that function returned
 * is left in `made` for a call that is declined, so that the function runs once. */
static int find_grid(Bound *self, PyObject **bound, uint64_t *out, PyObject **made) {
  if (self->is_fixed) return memcpy(out, self->fixed, sizeof self->fixed), 1;
  if (!PyCallable_Check(self->grid)) return 0;
  PyObject *named = PyDict_New();
  for (int i = 0; named && i < self->kernel->parameter_count; i++)
    if (PyDict_SetItem(named, self->kernel->parameters[i].name, bound[i])) Py_CLEAR(named);
  PyObject *grid = named ? PyObject_CallFunctionObjArgs(self->grid, named, NULL) : NULL;
  Py_XDECREF(named);
  if (!grid) return -1;
  *made = grid;
  return read_grid(grid, out);
}

static Ready *ready_on(const Kernel *self, int variant, int device) {
  Ready *ready = self->ready[variant];
  while (ready && ready->device != device) ready = ready->next;
  return ready;
}

static int within(const Ready *ready, const uint64_t *grid) {
  return grid[0] <= ready->limits[0] && grid[1] <= ready->limits[1] && grid[2] <= ready->limits[2];
}

/* The driver's error code; 0 for a launch that succeeded. */
static int launch(const Ready *ready, const uint64_t *grid, const Value *values, void *stream) {
  _Alignas(16) unsigned char buffer[MAX_BUFFER + 8];
  size_t size = ready->size;
  memset(buffer, 0, size);
  for (const Slot *slot = ready->slots, *end = slot + ready->slot_count; slot < end; slot++)
    pack(slot, &values[slot->parameter], buffer);
  void *extra[] = {(void *)1, buffer, (void *)2, &size, ready->end};
  PyThreadState *thread = PyEval_SaveThread();
  int code = ready->launch(ready->function, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], ready->threads, 1,
                           1, ready->shared, stream, NULL, extra);
  PyEval_RestoreThread(thread);
  return code;
}

static int is_current(const Ready *ready) {
  uint64_t current = 0; /* hipGetDevice writes four bytes, cuCtxGetCurrent eight */
  return ready->current(&current) == 0 && current == ready->expected;
}

/* What is left of a call whose arguments are bound; see try_launch. */
static inline __attribute__((always_inline)) int launch_bound(Bound *self, PyObject **bound, uint64_t *alive, void *stream, int has_stream, PyObject **made) {
  Kernel *kernel = self->kernel;
  Value values[MAX_PARAMETERS];
  uint64_t grid[3];
  Place place = {0, 0, NULL};
  int found = find_grid(self, bound, grid, made);
  if (found <= 0) return found;
  if (!grid[0] || !grid[1] || !grid[2]) return kernel->empty++, 1;
  const Parameter *parameter = kernel->parameters;
  for (int i = 0, count = kernel->parameter_count; i < count; i++, parameter++) {
    if (!read_plain(bound[i], &values[i]) &&
        !read_tensor(kernel, bound[i], parameter->needs_storage, &values[i], &place))
      return 0;
    narrow(parameter, &values[i], alive, kernel->words);
  }
  int variant = best(kernel, alive);
  if (variant < 0 || !place.found) return 0;
  const Ready *ready = ready_on(kernel, variant, place.device);
  if (!ready || !within(ready, grid) || !is_current(ready)) return 0;
  if (!has_stream && place.exchange->current_stream(kernel->device_type, place.device, &stream))
    return PyErr_Clear(), 0;
  int code = launch(ready, grid, values, stream);
  if (!code) return kernel->launches[variant]++, 1;
  Py_XDECREF(PyObject_CallFunction(kernel->fail, "iii", code, variant, place.device));
  if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "the driver's error %d was lost", code);
  return -1;
}

/* The whole call: 1 launched (or nothing to launch), 0 not for the fast path, -1 an exception is set. */
static int try_launch(Bound *self, PyObject *args, PyObject *kwargs, PyObject **made) {
  Kernel *kernel = self->kernel;
  PyObject *bound[MAX_PARAMETERS];
  uint64_t alive[kernel->words];
  void *stream = NULL;
  int has_stream = 0, done = 0;
  Held held;
  held.count = 0;
  Py_ssize_t given = PyTuple_Size(args);
  if (PyList_Size(kernel->enter) || PyList_Size(kernel->exit) || given > kernel->parameter_count) return 0;
  for (int w = 0; w < kernel->words; w++) alive[w] = ~0ULL;
  if (kernel->variant_count % 64) alive[kernel->words - 1] >>= 64 - kernel->variant_count % 64;
  if (bind_arguments(kernel, args, kwargs, bound, &held, alive, &stream, &has_stream))
    done = launch_bound(self, bound, alive, stream, has_stream, made);
  for (int i = 0; i < held.count; i++) Py_DECREF(held.objects[i]);
  return done;
}

/* Python itself holds the keywords of a call to a Python function to be strings; here nobody has. */
static int are_names(PyObject *kwargs) {
  PyObject *name;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, NULL);)
    if (!PyUnicode_Check(name)) return PyErr_SetString(PyExc_TypeError, "keywords must be strings"), 0;
  return 1;
}

static PyObject *bound_call(Bound *self, PyObject *args, PyObject *kwargs) {
  PyObject *made = NULL, *result = NULL;
  int done = try_launch(self, args, kwargs, &made);
  if (done > 0) {
    Py_XDECREF(made);
    Py_RETURN_NONE;
  }
  if (done == 0 && (!kwargs || are_names(kwargs))) {
    PyObject *named = kwargs ? Py_NewRef(kwargs) : PyDict_New();
    PyObject *grid = made && !PyCallable_Check(made) ? made : self->grid;
    result = named ? PyObject_CallFunctionObjArgs(self->kernel->slow, grid, args, named, NULL) : NULL;
    Py_XDECREF(named);
  }
  Py_XDECREF(made);
  return result;
}

static int bound_traverse(Bound *self, visitproc visit, void *arg) {
  Py_VISIT((PyObject *)Py_TYPE(self));
  Py_VISIT((PyObject *)self->kernel);
  Py_VISIT(self->grid);
  return 0;
}

/* A grid that is always the same numbers, and that refers to nothing else. */
static int is_constant(const Bound *self) {
  return self->is_fixed && (PyTuple_CheckExact(self->grid) || PyLong_CheckExact(self->grid));
}

/* `kernel[grid](...)` drops one of these with each launch, so the kernel keeps one, for the next; the grid stays with
 * it when it is constant, because the next launch from there mostly has the same. */
static void bound_dealloc(Bound *self) {
  PyTypeObject *type = Py_TYPE(self);
  Kernel *kernel = self->kernel;
  PyObject_GC_UnTrack(self);
  if (!is_constant(self)) Py_CLEAR(self->grid); /* may run anything, and may fill the kernel's place */
  if (kernel->spare) {
    Py_XDECREF(self->grid);
    PyObject_GC_Del(self);
  } else {
    kernel->spare = self;
  }
  Py_DECREF((PyObject *)kernel);
  Py_DECREF((PyObject *)type);
}

/* ---- Making a kernel ---------------------------------------------------------------------------------------------- */

/* Copy a bit set that Python gives as little endian bytes. */
static const uint64_t *take_mask(Kernel *self, PyObject *bytes, uint64_t **free_words) {
  char *data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(bytes, &data, &size)) return NULL;
  if (size != (Py_ssize_t)(self->words * sizeof(uint64_t))) {
    PyErr_SetString(PyExc_ValueError, "a bit set of another size than the table's");
    return NULL;
  }
  uint64_t *mask = *free_words;
  memcpy(mask, data, size);
  *free_words += self->words;
  return mask;
}

/* (kind, flags, element, low, high, constant, variants) */
static int take_test(Kernel *self, PyObject *row, Test *test, uint64_t **free_words) {
  int kind, flags;
  unsigned element;
  long long low;
  unsigned long long high;
  PyObject *constant, *variants;
  if (!PyArg_ParseTuple(row, "iiILKOO", &kind, &flags, &element, &low, &high, &constant, &variants)) return -1;
  test->kind = (uint8_t)kind, test->flags = (uint8_t)flags;
  test->element = element, test->low = low, test->high = high;
  if (test->kind == T_CONSTANT && !read_plain(constant, &test->constant))
    test->constant.kind = V_TENSOR; /* a dtype or a function: equal to nothing that is read here */
  test->variants = take_mask(self, variants, free_words);
  return test->variants ? 0 : -1;
}

/* Sum up tests that differ in DIVISIBLE and SMALL alone. */
static void sum_up(const Kernel *self, Parameter *parameter) {
  const Test *one = parameter->tests;
  if (self->words != 1 || !parameter->count || (one->kind != T_INTEGER && one->kind != T_POINTER)) return;
  for (int i = 0; i < parameter->count; i++) {
    const Test *test = &parameter->tests[i];
    if (test->kind != one->kind || test->element != one->element || test->low != one->low || test->high != one->high)
      return;
  }
  for (int held = 0; held < 4; held++)
    for (int i = 0; i < parameter->count; i++)
      if (!(parameter->tests[i].flags & (DIVISIBLE | SMALL) & ~held))
        parameter->classes[held] |= *parameter->tests[i].variants;
  parameter->element = one->element, parameter->low = one->low, parameter->high = one->high;
  parameter->plain = one->kind == T_INTEGER ? V_INT : V_TENSOR;
}

/* (name, has_default, default, tests) */
static int take_parameter(Kernel *self, PyObject *row, Parameter *out, uint64_t **free_words) {
  PyObject *tests, *fallback;
  int has_default;
  if (!PyArg_ParseTuple(row, "UpOO!", &out->name, &has_default, &fallback, &PyTuple_Type, &tests)) return -1;
  out->fallback = has_default ? fallback : NULL;
  out->tests = calloc(PyTuple_Size(tests) + 1, sizeof(Test));
  if (!out->tests) return PyErr_NoMemory(), -1;
  for (; out->count < PyTuple_Size(tests); out->count++) {
    if (take_test(self, PyTuple_GetItem(tests, out->count), &out->tests[out->count], free_words)) return -1;
    out->needs_storage |= out->tests[out->count].flags & SMALL;
  }
  sum_up(self, out);
  return 0;
}

static Py_ssize_t count_tests(PyObject *rows) {
  Py_ssize_t total = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(rows); i++) {
    PyObject *row = PyTuple_GetItem(rows, i);
    PyObject *tests = PyTuple_Check(row) && PyTuple_Size(row) == 4 ? PyTuple_GetItem(row, 3) : NULL;
    total += tests && PyTuple_Check(tests) ? PyTuple_Size(tests) : 0;
  }
  return total;
}

static int kernel_fill(Kernel *self, PyObject *parameters, PyObject *options, PyObject *families) {
  self->parameter_count = (int)PyTuple_Size(parameters);
  self->option_count = (int)PyTuple_Size(options);
  self->variant_count = (int)PyTuple_Size(families);
  self->words = (self->variant_count + 63) / 64;
  if (self->parameter_count > MAX_PARAMETERS || self->variant_count < 1 || self->words > 4096) {
    PyErr_SetString(PyExc_ValueError, "too many parameters or variants for the fast path");
    return -1;
  }
  Py_ssize_t sets = count_tests(parameters) + count_tests(options) + self->variant_count;
  self->masks = calloc(sets * self->words, sizeof(uint64_t));
  self->parameters = calloc(self->parameter_count + 1, sizeof(Parameter));
  self->options = calloc(self->option_count + 1, sizeof(Parameter));
  self->families = calloc(self->variant_count, sizeof(uint64_t *));
  self->ready = calloc(self->variant_count, sizeof(Ready *));
  self->launches = calloc(self->variant_count, sizeof(unsigned long long));
  if (!self->masks || !self->parameters || !self->options || !self->families || !self->ready || !self->launches)
    return PyErr_NoMemory(), -1;
  uint64_t *free_words = self->masks;
  for (int i = 0; i < self->parameter_count; i++)
    if (take_parameter(self, PyTuple_GetItem(parameters, i), &self->parameters[i], &free_words)) return -1;
  for (int i = 0; i < self->option_count; i++)
    if (take_parameter(self, PyTuple_GetItem(options, i), &self->options[i], &free_words)) return -1;
  for (int i = 0; i < self->variant_count; i++)
    if (!(self->families[i] = take_mask(self, PyTuple_GetItem(families, i), &free_words))) return -1;
  return 0;
}

/* Kernel(slow, fail, capsule_of, enter, exit, device_type, parameters, options, families) */
static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *slow, *fail, *capsule_of, *enter, *leave, *parameters, *options, *families;
  int device_type;
  if (kwargs && PyDict_Size(kwargs)) return PyErr_SetString(PyExc_TypeError, "no keywords"), NULL;
  if (!PyArg_ParseTuple(args, "OOOO!O!iO!O!O!", &slow, &fail, &capsule_of, &PyList_Type, &enter, &PyList_Type, &leave,
                        &device_type, &PyTuple_Type, &parameters, &PyTuple_Type, &options, &PyTuple_Type, &families))
    return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Kernel *self = (Kernel *)allocate(type, 0);
  if (!self) return NULL;
  PyObject_GC_UnTrack(self); /* nobody may find it before it is whole: numbers are read through `__index__` */
  self->held = Py_NewRef(args);
  self->slow = slow, self->fail = fail, self->capsule_of = capsule_of, self->enter = Py_NewRef(enter), self->exit = Py_NewRef(leave);
  self->device_type = device_type;
  if (kernel_fill(self, parameters, options, families)) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int kernel_traverse(Kernel *self, visitproc visit, void *arg) {
  Py_VISIT((PyObject *)Py_TYPE(self));
  Py_VISIT(self->held);
  Py_VISIT(self->enter);
  Py_VISIT(self->exit);
  for (int i = 0; i < self->type_count; i++) Py_VISIT((PyObject *)self->types[i].type);
  return 0;
}

static void free_parameters(Parameter *parameters, int count) {
  for (int i = 0; parameters && i < count; i++) free(parameters[i].tests);
  free(parameters);
}

static void kernel_dealloc(Kernel *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  for (int i = 0; i < self->type_count; i++) Py_DECREF((PyObject *)self->types[i].type);
  for (int i = 0; self->ready && i < self->variant_count; i++)
    for (Ready *ready = self->ready[i], *next; ready; ready = next) {
      next = ready->next;
      free(ready->slots);
      free(ready);
    }
  if (self->spare) {
    Py_XDECREF(self->spare->grid);
    PyObject_GC_Del(self->spare);
  }
  free_parameters(self->parameters, self->parameter_count);
  free_parameters(self->options, self->option_count);
  free(self->masks), free(self->families), free(self->ready), free(self->launches);
  Py_XDECREF(self->held);
  Py_XDECREF(self->enter);
  Py_XDECREF(self->exit);
  PyObject_GC_Del(self);
  Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(bind_doc, "bind(grid): what launches on this grid.");
static PyObject *kernel_bind(Kernel *self, PyObject *grid) {
  Bound *bound = self->spare;
  PyObject *before = NULL;
  if (bound) {
    self->spare = NULL;
    PyObject_Init((PyObject *)bound, bound_type);
    before = bound->grid;
  } else if (!(bound = PyObject_GC_New(Bound, bound_type))) {
    return NULL;
  }
  bound->kernel = (Kernel *)Py_NewRef((PyObject *)self);
  if (before != grid) {
    bound->grid = Py_NewRef(grid);
    bound->is_fixed = read_grid(grid, bound->fixed);
    Py_XDECREF(before);
  }
  PyObject_GC_Track(bound);
  return (PyObject *)bound;
}

static int by_offset(const void *one, const void *other) {
  return (int)((const Slot *)one)->offset - (int)((const Slot *)other)->offset;
}

static int take_slots(Kernel *self, PyObject *rows, Ready *ready) {
  ready->slot_count = (int)PyTuple_Size(rows);
  ready->slots = calloc(ready->slot_count + 1, sizeof(Slot));
  if (!ready->slots) return PyErr_NoMemory(), -1;
  for (int i = 0; i < ready->slot_count; i++) {
    Slot *slot = &ready->slots[i];
    int parameter, offset, size, write;
    PyObject *row = PyTuple_GetItem(rows, i);
    if (!PyArg_ParseTuple(row, "iiii", &parameter, &offset, &size, &write)) return -1;
    if (parameter < 0 || parameter >= self->parameter_count || offset < 0 || size < 1 || size > 8 ||
        (size_t)offset + size > ready->size)
      return PyErr_SetString(PyExc_ValueError, "a slot outside the buffer"), -1;
    slot->parameter = (uint16_t)parameter, slot->offset = (uint16_t)offset;
    slot->spare_bits = (uint8_t)(64 - 8 * size), slot->write = (uint8_t)write;
  }
  qsort(ready->slots, ready->slot_count, sizeof(Slot), by_offset);
  return 0;
}

PyDoc_STRVAR(offer_doc,
             "offer(variant, device, function, threads, shared, limits, slots, size, launch, current, expected, end): "
             "a variant that is loaded on a device, and how to launch it.");
static PyObject *kernel_offer(Kernel *self, PyObject *args) {
  int variant;
  Ready found = {0};
  unsigned long long function, launch_address, current_address, expected, end;
  Py_ssize_t size;
  PyObject *slots;
  if (!PyArg_ParseTuple(args, "iiKII(KKK)O!nKKKK", &variant, &found.device, &function, &found.threads, &found.shared,
                        &found.limits[0], &found.limits[1], &found.limits[2], &PyTuple_Type, &slots, &size,
                        &launch_address, &current_address, &expected, &end))
    return NULL;
  if (variant < 0 || variant >= self->variant_count || size < 0 || size > MAX_BUFFER)
    return PyErr_SetString(PyExc_ValueError, "no such variant, or too large a buffer"), NULL;
  if (ready_on(self, variant, found.device)) Py_RETURN_NONE;
  found.size = (size_t)size, found.expected = expected;
  found.function = (void *)(uintptr_t)function, found.end = (void *)(uintptr_t)end;
  found.launch = (LaunchFunction)(uintptr_t)launch_address;
  found.current = (CurrentFunction)(uintptr_t)current_address;
  Ready *ready = malloc(sizeof *ready);
  if (!ready) return PyErr_NoMemory();
  if (take_slots(self, slots, &found)) {
    free(found.slots), free(ready);
    return NULL;
  }
  *ready = found;
  ready->next = self->ready[variant];
  self->ready[variant] = ready;
  Py_RETURN_NONE;
}

PyDoc_STRVAR(observe_doc, "observe(enter, exit): the lists of launch hooks from now on.");
static PyObject *kernel_observe(Kernel *self, PyObject *args) {
  PyObject *enter, *leave, *before[2] = {self->enter, self->exit};
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &enter, &PyList_Type, &leave)) return NULL;
  self->enter = Py_NewRef(enter), self->exit = Py_NewRef(leave);
  Py_DECREF(before[0]);
  Py_DECREF(before[1]);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(counted_doc, "counted(): launches of each variant, and calls with an empty grid.");
static PyObject *kernel_counted(Kernel *self, PyObject *ignored) {
  (void)ignored;
  PyObject *launches = PyTuple_New(self->variant_count);
  for (int i = 0; launches && i < self->variant_count; i++)
    if (PyTuple_SetItem(launches, i, PyLong_FromUnsignedLongLong(self->launches[i]))) Py_CLEAR(launches);
  return launches ? Py_BuildValue("(NK)", launches, self->empty) : NULL;
}

/* ---- The module --------------------------------------------------------------------------------------------------- */

static PyMethodDef kernel_methods[] = {
    {"bind", (PyCFunction)kernel_bind, METH_O, bind_doc},
    {"offer", (PyCFunction)kernel_offer, METH_VARARGS, offer_doc},
    {"observe", (PyCFunction)kernel_observe, METH_VARARGS, observe_doc},
    {"counted", (PyCFunction)kernel_counted, METH_NOARGS, counted_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "A kernel that launches by itself where nothing unusual is asked."},
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_methods, kernel_methods},
    {0, NULL},
};
static PyType_Spec kernel_spec = {"aotkern._fastpath.Kernel", sizeof(Kernel), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, kernel_slots};

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, "A kernel with a grid: call it to launch."},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_call, bound_call},
    {0, NULL},
};
static PyType_Spec bound_spec = {"aotkern._fastpath.Bound", sizeof(Bound), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
                                     Py_TPFLAGS_DISALLOW_INSTANTIATION, /* `Kernel.bind` makes them */
                                 bound_slots};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_fastpath", "The hot path of a launch in C; see aotkern/loader/native.py.", -1, NULL,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fastpath(void) {
  PyObject *module = PyModule_Create(&module_definition);
  PyObject *kernel = module ? PyType_FromSpec(&kernel_spec) : NULL;
  bound_type = kernel ? (PyTypeObject *)PyType_FromSpec(&bound_spec) : NULL;
  if (!bound_type || PyModule_AddObject(module, "Kernel", kernel)) {
    Py_XDECREF(kernel);
    Py_XDECREF(module);
    return NULL;
  }
  return module;
}
