// A CUDA driver whose kernels are run by whoever listens at the Unix socket that EMULATED_DRIVER names: it lets IREE's
// runtime compute without a GPU. Memory is the host's, everything is done at once and in the order of the calls, and
// what it does not know succeeds and does nothing, as in stub_driver.c. Launches, with the memory that their pointers
// lead into, go to the listener and come back; see emulated_driver.py for the messages.

#define cuGetProcAddress stub_get_proc_address
#include "stub_driver.c"
#undef cuGetProcAddress

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SHARED_MEMORY_PER_BLOCK = 8, SHARED_MEMORY_PER_BLOCK_OPTIN = 97 };  // attributes of a device
enum { OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500, LAUNCH_FAILED = 719, MAX_PARAMETERS = 80 };

// IREE calls from several threads: one at a time may talk to the listener, or change what memory there is.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define LOCKED(call)                    \
  do {                                  \
    pthread_mutex_lock(&lock);          \
    int result_of_call = (call);        \
    pthread_mutex_unlock(&lock);        \
    return result_of_call;              \
  } while (0)

// --- the connection ---

static int listener = -1;

static void transfer(void *data, size_t size, int out) {
  for (char *at = data; size;) {
    ssize_t done = out ? write(listener, at, size) : read(listener, at, size);
    if (done <= 0) {
      fprintf(stderr, "the emulator's connection is closed\n");
      exit(1);
    }
    at += done;
    size -= done;
  }
}

static void send_bytes(const void *data, size_t size) { transfer((void *)data, size, 1); }

static void send_number(uint64_t value) { send_bytes(&value, sizeof value); }

static uint64_t receive_number(void) {
  uint64_t value;
  transfer(&value, sizeof value, 0);
  return value;
}

static void connect_once(void) {
  if (listener >= 0) return;
  const char *path = getenv("EMULATED_DRIVER");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path) strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (listener < 0 || connect(listener, (struct sockaddr *)&address, sizeof address)) {
    fprintf(stderr, "nobody listens at EMULATED_DRIVER\n");
    exit(1);
  }
}

// --- memory: host memory, never given back, so that no address means two things ---

static struct block {
  char *start;
  size_t size;
} *blocks;
static size_t block_count;

static int remember_block(void *start, size_t size) {
  struct block *more = realloc(blocks, (block_count + 1) * sizeof *blocks);
  if (!start || !more) return OUT_OF_MEMORY;
  blocks = more;
  blocks[block_count++] = (struct block){start, size};
  return 0;
}

static int remember(void *start, size_t size) { LOCKED(remember_block(start, size)); }

static int emulated_allocate(void **pointer, size_t size) {
  *pointer = aligned_alloc(256, (size + 255) / 256 * 256 + 256);
  if (*pointer) memset(*pointer, 0xA5, size);  // what a device's memory holds is not zero
  return remember(*pointer, size);
}

static int host_register(void *start, size_t size) { return remember(start, size); }

static int forget_block(void *start) {
  for (size_t i = 0; i < block_count; ++i) {
    if (blocks[i].start == start) blocks[i] = blocks[--block_count];
  }
  return 0;
}

static int host_unregister(void *start) { LOCKED(forget_block(start)); }

static struct block *find(char *address) {
  for (size_t i = 0; i < block_count; ++i) {
    if (address >= blocks[i].start && address < blocks[i].start + blocks[i].size) return &blocks[i];
  }
  return NULL;
}

static int emulated_attribute(int *value, int which) {
  if (which == SHARED_MEMORY_PER_BLOCK || which == SHARED_MEMORY_PER_BLOCK_OPTIN) {
    *value = 227 * 1024;
    return 0;
  }
  return attribute(value, which);
}

static int copy(void *target, const void *source, size_t size) {
  memmove(target, source, size);
  return 0;
}

static int fill_8(uint8_t *target, uint8_t value, size_t count) {
  memset(target, value, count);
  return 0;
}

static int fill_16(uint16_t *target, uint16_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = value;
  return 0;
}

static int fill_32(uint32_t *target, uint32_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = value;
  return 0;
}

// --- kernels ---

struct function {
  uint64_t id;
  uint64_t count;
  uint64_t sizes[MAX_PARAMETERS];
};

static int load_module(void **module, const char *image) {
  connect_once();
  size_t size = strlen(image);  // PTX; there is no machine code to emulate
  send_bytes("M", 1);
  send_number(size);
  send_bytes(image, size);
  *module = (void *)receive_number();
  return *module ? 0 : INVALID_IMAGE;
}

static int emulated_load(void **module, const char *image) { LOCKED(load_module(module, image)); }

static int look_up(void **result, void *module, const char *symbol) {
  printf("function %s\n", symbol);
  send_bytes("F", 1);
  send_number((uint64_t)module);
  send_number(strlen(symbol));
  send_bytes(symbol, strlen(symbol));
  struct function *made = calloc(1, sizeof *made);
  if (!made) return OUT_OF_MEMORY;
  made->id = receive_number();
  made->count = receive_number();
  if (!made->id || made->count > MAX_PARAMETERS) return NOT_FOUND;
  transfer(made->sizes, made->count * sizeof *made->sizes, 0);
  *result = made;
  return 0;
}

static int emulated_function(void **result, void *module, const char *symbol) {
  LOCKED(look_up(result, module, symbol));
}

// The blocks that the pointers among the parameters lead into, each once.
static size_t reached(const struct function *kernel, void **parameters, struct block **found) {
  size_t count = 0;
  for (uint64_t i = 0; i < kernel->count; ++i) {
    struct block *block = kernel->sizes[i] == sizeof(void *) ? find(*(char **)parameters[i]) : NULL;
    size_t known = 0;
    while (known < count && found[known] != block) ++known;
    if (block && known == count) found[count++] = block;
  }
  return count;
}

static int run(struct function *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
               unsigned shared, void **parameters) {
  struct block *found[MAX_PARAMETERS];
  size_t count = reached(kernel, parameters, found);
  printf("launch %u %u %u block %u %u %u shared %u\n", gx, gy, gz, bx, by, bz, shared);
  send_bytes("L", 1);
  send_number(kernel->id);
  const unsigned sizes[] = {gx, gy, gz, bx, by, bz, shared};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) send_number(sizes[i]);
  for (uint64_t i = 0; i < kernel->count; ++i) send_bytes(parameters[i], kernel->sizes[i]);
  send_number(count);
  for (size_t i = 0; i < count; ++i) {
    send_number((uint64_t)found[i]->start);
    send_number(found[i]->size);
    send_bytes(found[i]->start, found[i]->size);
  }
  if (!receive_number()) return LAUNCH_FAILED;
  for (size_t i = 0; i < count; ++i) {  // what was not written comes not back: its memory may be read-only here
    if (receive_number()) transfer(found[i]->start, found[i]->size, 0);
  }
  return 0;
}

static int emulated_launch(struct function *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                           unsigned bz, unsigned shared, void *stream, void **parameters) {
  (void)stream;
  LOCKED(run(kernel, gx, gy, gz, bx, by, bz, shared, parameters));
}

static const struct {
  const char *name;
  void *address;
} emulated[] = {
    {"cuDeviceGetAttribute", emulated_attribute},
    {"cuMemAlloc", emulated_allocate},
    {"cuMemAllocManaged", emulated_allocate},
    {"cuMemAllocAsync", emulated_allocate},
    {"cuMemAllocFromPoolAsync", emulated_allocate},
    {"cuMemHostAlloc", emulated_allocate},
    {"cuMemHostRegister", host_register},
    {"cuMemHostUnregister", host_unregister},
    {"cuMemcpyAsync", copy},
    {"cuMemcpyHtoDAsync", copy},
    {"cuMemcpyDtoHAsync", copy},
    {"cuMemsetD8Async", fill_8},
    {"cuMemsetD16Async", fill_16},
    {"cuMemsetD32Async", fill_32},
    {"cuModuleLoadDataEx", emulated_load},
    {"cuModuleGetFunction", emulated_function},
    {"cuLaunchKernel", emulated_launch},
};

int cuGetProcAddress(const char *symbol, void **address, int api_version, uint64_t flags) {
  stub_get_proc_address(symbol, address, api_version, flags);
  if (!strcmp(symbol, "cuGetProcAddress")) *address = (void *)cuGetProcAddress;
  for (size_t i = 0; i < sizeof(emulated) / sizeof(emulated[0]); ++i) {
    if (!strcmp(symbol, emulated[i].name)) *address = emulated[i].address;
  }
  return 0;
}
