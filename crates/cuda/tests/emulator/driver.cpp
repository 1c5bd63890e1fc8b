// The part of the CUDA driver that `src/driver/` uses, on the CPU: memory is the host's, streams run at once, a captured graph is a
// list of what to do. A module is a shared library that `compiler.cpp` made of the kernels. A kernel is held back until the next thing
// is done in its context, so that one that may begin early does so before it.
#include <dlfcn.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

typedef int Result;
typedef uint64_t Address;
struct Module { void *library; };
struct Function { Module *module; void (*kernel)(const void *); unsigned bytes; bool early; };
struct Event { std::chrono::steady_clock::time_point passed; };
typedef std::vector<std::function<void()>> Graph;
static thread_local Graph *capturing;

// If the file that ROPEWAY_EMULATED_LOSS names exists, the next context that is waited for is lost (error 700) for good, and the file is removed.
// If it begins with `a` (always), it stays, and later contexts are lost, too; with `p` (process), the process gets no new context.
struct Context { bool lost; };
static thread_local Context *current;
static thread_local std::function<void()> held_back;
static std::atomic<bool> refused;
// Runs the kernel that is held back.
static void flush() {
    if (!held_back) return;
    auto kernel = std::move(held_back);
    held_back = nullptr;
    kernel();
}
static void queue(std::function<void()> what) { if (capturing) capturing->push_back(what); else what(); }
static void act(std::function<void()> what) { queue([=] { flush(); what(); }); }
static Result status() {
    flush();
    const char *loss = getenv("ROPEWAY_EMULATED_LOSS");
    FILE *file = loss && !current->lost ? fopen(loss, "r") : nullptr;
    if (file) {
        current->lost = true;
        const int how = fgetc(file);
        if (how == 'p') refused = true;
        if (how != 'a') unlink(loss);
        fclose(file);
    }
    return current->lost ? 700 : 0;
}
// Bytes of device memory: what is written in the file that ROPEWAY_EMULATED_MEMORY names, else 512 MiB.
static size_t memory() {
    const char *name = getenv("ROPEWAY_EMULATED_MEMORY");
    FILE *file = name ? fopen(name, "r") : nullptr;
    unsigned long long bytes = 512ull << 20;
    if (file) {
        if (fscanf(file, "%llu", &bytes) != 1) bytes = 0;
        fclose(file);
    }
    return bytes;
}

// Capability and bytes of shared memory: what is written in the file that ROPEWAY_EMULATED_CARD names, else a Hopper's.
struct Card { int capability, shared; };
static Card card() {
    const char *name = getenv("ROPEWAY_EMULATED_CARD");
    FILE *file = name ? fopen(name, "r") : nullptr;
    Card card = {90, 232448};
    if (file) {
        if (fscanf(file, "%d %d", &card.capability, &card.shared) != 2) card = {0, 0};
        fclose(file);
    }
    return card;
}

// A thread that has entered no context can do nothing.
#define NEEDS_A_CONTEXT if (!current) return 201

extern "C" {
Result cuInit(unsigned) { return 0; }
Result cuDriverGetVersion(int *version) { *version = 13000; return 0; }
Result cuDeviceGetCount(int *count) { *count = 1; return 0; }
Result cuDeviceGet(int *device, int index) { *device = index; return index == 0 ? 0 : 101; }
Result cuDeviceGetName(char *name, int bytes, int) { snprintf(name, bytes, "emulated GPU"); return 0; }
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    *value = attribute == 75 ? card().capability / 10 : attribute == 76 ? card().capability % 10 : attribute == 16 ? 3 : attribute == 97 ? card().shared : 0;
    return 0;
}
Result cuCtxCreate_v2(void **context, unsigned, int) { if (refused) return 700; *context = current = new Context{false}; return 0; }
Result cuCtxPopCurrent_v2(void **context) { *context = current; current = nullptr; return 0; }
Result cuCtxDestroy_v2(void *context) { if (context == current) current = nullptr; delete (Context *)context; return 0; }
Result cuCtxSetCurrent(void *context) { current = (Context *)context; return 0; }
Result cuMemGetInfo_v2(size_t *free, size_t *total) { NEEDS_A_CONTEXT; if (current->lost) return 700; *free = *total = memory(); return 0; }
Result cuMemAlloc_v2(Address *address, size_t bytes) { NEEDS_A_CONTEXT;
    void *p = nullptr;
    if (posix_memalign(&p, 256, bytes ? bytes : 1)) return 2;
    memset(p, 0xff, bytes);  // what was not written is NaN
    *address = (Address)p;
    return 0;
}
Result cuMemFree_v2(Address address) { flush(); free((void *)address); return 0; }
Result cuMemHostAlloc(void **p, size_t bytes, unsigned) { NEEDS_A_CONTEXT; return posix_memalign(p, 256, bytes ? bytes : 1) ? 2 : 0; }
Result cuMemFreeHost(void *p) { flush(); free(p); return 0; }
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *) { NEEDS_A_CONTEXT; act([=] { memcpy((void *)to, from, bytes); }); return 0; }
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *) { NEEDS_A_CONTEXT; act([=] { memcpy(to, (void *)from, bytes); }); return 0; }
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *) { act([=] { memcpy((void *)to, (void *)from, bytes); }); return 0; }
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void *) { NEEDS_A_CONTEXT; act([=] { memset((void *)to, value, bytes); }); return 0; }
Result cuStreamCreate(void **stream, unsigned) { NEEDS_A_CONTEXT; *stream = (void *)1; return 0; }
Result cuStreamDestroy_v2(void *) { return 0; }
Result cuStreamSynchronize(void *) { return status(); }
Result cuStreamBeginCapture_v2(void *, int) { capturing = new Graph; return 0; }
Result cuStreamEndCapture(void *, void **graph) { *graph = capturing; capturing = nullptr; return 0; }
Result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) { *executable = new Graph(*(Graph *)graph); return 0; }
Result cuGraphLaunch(void *executable, void *) { NEEDS_A_CONTEXT; for (auto &what : *(Graph *)executable) what(); return 0; }
Result cuGraphExecDestroy(void *executable) { delete (Graph *)executable; return 0; }
Result cuGraphDestroy(void *graph) { delete (Graph *)graph; return 0; }
Result cuEventCreate(void **event, unsigned) { NEEDS_A_CONTEXT; *event = new Event; return 0; }
Result cuEventDestroy_v2(void *event) { delete (Event *)event; return 0; }
Result cuEventRecord(void *event, void *) { act([=] { ((Event *)event)->passed = std::chrono::steady_clock::now(); }); return 0; }
Result cuEventSynchronize(void *) { return status(); }
Result cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    auto passed = ((Event *)end)->passed - ((Event *)begin)->passed;
    *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
    return 0;
}
Result cuModuleLoadData(void **module, const void *image) { NEEDS_A_CONTEXT;
    // The image is a shared library with its length in front.
    uint64_t bytes;
    memcpy(&bytes, image, 8);
    std::string path = "/tmp/ropeway-emulated-XXXXXX";
    int file = mkstemp(&path[0]);
    if (file < 0 || write(file, (const char *)image + 8, bytes) != (ssize_t)bytes) return 300;
    close(file);
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    unlink(path.c_str());
    if (!library) { fprintf(stderr, "emulator: %s\n", dlerror()); return 300; }
    *module = new Module{library};
    return 0;
}
Result cuModuleUnload(void *module) { flush(); delete (Module *)module; return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    Module *m = (Module *)module;
    auto kernel = (void (*)(const void *))dlsym(m->library, name);
    auto bytes = (const unsigned *)dlsym(m->library, (std::string(name) + "_bytes").c_str());
    auto early = (const bool *)dlsym(m->library, (std::string(name) + "_early").c_str());
    if (!kernel || !bytes || !early) return 500;
    *function = new Function{m, kernel, *bytes, *early};
    return 0;
}
Result cuFuncSetAttribute(void *, int, int) { return 0; }
// The size of a function's only parameter, as the driver tells it.
Result cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
    if (index != 0) return 1;
    *offset = 0, *bytes = ((Function *)function)->bytes;
    return 0;
}
struct LaunchConfig { unsigned grid[3], block[3], shared; void *stream; const void *attributes; unsigned attribute_count; };
Result cuLaunchKernelEx(const LaunchConfig *config, void *function, void **parameters, void **) { NEEDS_A_CONTEXT;
    Function *f = (Function *)function;
    if (config->shared > (unsigned)card().shared) return 1;
    const unsigned gx = config->grid[0], gy = config->grid[1], gz = config->grid[2], threads = config->block[0], shared = config->shared;
    const std::string arguments((const char *)parameters[0], f->bytes);
    typedef void (*Kernel)(const void *);
    auto begin = (void *(*)(Kernel, const void *, const unsigned *, unsigned, unsigned))dlsym(f->module->library, "ropeway_emulate_early");
    auto emulate = (void (*)(Kernel, const void *, const unsigned *, unsigned, unsigned, void *))dlsym(f->module->library, "ropeway_emulate");
    const bool early = f->early && config->attribute_count > 0;
    queue([=] {
        const unsigned grid[3] = {gx, gy, gz};
        void *begun = early ? begin(f->kernel, arguments.data(), grid, threads, shared) : nullptr;
        flush();
        held_back = [=] { const unsigned grid[3] = {gx, gy, gz}; emulate(f->kernel, arguments.data(), grid, threads, shared, begun); };
    });
    return 0;
}
// Leaves what `emulator::Matrix` of `hopper.h` names.
Result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, Address base, const uint64_t *sizes, const uint64_t *strides, const unsigned *box, const unsigned *steps, int, int swizzle, int, int) {
    if (type != 9 || rank != 2 || swizzle != 3 || (Address)map % 64 || base % 16 || strides[0] % 16 || steps[0] != 1 || steps[1] != 1) return 1;
    const uint64_t words[5] = {base, sizes[0], sizes[1], strides[0], box[0] | (uint64_t)box[1] << 32};
    memset(map, 0, 128), memcpy(map, words, sizeof words);
    return 0;
}
Result cuGetErrorString(Result, const char **text) { *text = "an error of the emulator"; return 0; }
}
