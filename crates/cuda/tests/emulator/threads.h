// A block's threads as fibers: enough of CUDA to run the kernels on a CPU, barriers and warp operations included.
//
// It sees indexing, masks, the depth of copy pipelines, barriers that not all threads reach, and missing ones: which warps stand still for a while
// is drawn by chance, so that others get far ahead. It sees no speed, and no races inside of a warp or between blocks, which run one after another. Asynchronous copies happen when they are waited for, not before; those that a kernel begins before it waits for
// the one in front of it bring what was there before that one ran.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define POISON(at, bytes)
#define UNPOISON(at, bytes)
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t i32;

#define __global__
#define __device__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define DEVICE static inline
#define LANES_ALL 0xffffffffu
#define KERNEL(name, Arguments, threads) KERNEL_THAT(false, name, Arguments)
#define EARLY_KERNEL(name, Arguments, threads) KERNEL_THAT(true, name, Arguments)
#define EARLY_KERNEL_OF_TWO(name, Arguments, threads) KERNEL_THAT(true, name, Arguments)
#define KERNEL_THAT(begins_early, name, Arguments)                                             \
    static void name##_body(const Arguments &a);                                               \
    extern "C" void name(const void *p) { name##_body(*(const Arguments *)p); }                \
    extern "C" const unsigned name##_bytes = sizeof(Arguments);                                \
    extern "C" const bool name##_early = begins_early;                                         \
    static void name##_body(const Arguments &a)
#define DYNAMIC_SHARED(name) char *name = emulator::shared

struct dim3 { unsigned x, y, z; };
struct uint4 { unsigned x, y, z, w; };
struct uint2 { unsigned x, y; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
static inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline float __uint_as_float(u32 u) { float f; memcpy(&f, &u, 4); return f; }
static inline u32 __float_as_uint(float f) { u32 u; memcpy(&u, &f, 4); return u; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline int __float2int_rn(float x) { return x != x ? 0 : (int)nearbyintf(x); }
template <class T> static inline T __ldcg(const T *p) { return *p; }
static inline u32 min(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 __byte_perm(u32 a, u32 b, u32 selector) {
    u64 bytes = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) r |= (u32)(bytes >> ((selector >> 4 * i & 7) * 8) & 0xff) << 8 * i;
    return r;
}
static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline void __threadfence() {}
template <class T> static inline T atomicAdd(T *p, T v) { T old = *p; *p += v; return old; }
static inline u32 atomicExch(u32 *p, u32 v) { u32 old = *p; *p = v; return old; }
static inline u64 atomicMin(u64 *p, u64 v) { u64 old = *p; if (v < old) *p = v; return old; }

namespace emulator {
enum Wait { NOTHING, WARP, BLOCK_OF_THREADS, EVENT };
struct Copy { void *to; const void *from; size_t bytes; bool valid, early; char found[16]; };
enum Pass { EARLY_PART, WHOLE };
static Pass pass = WHOLE;
// The copies that each thread of each block began before it waited for the kernel in front, with what they found.
typedef std::vector<std::vector<Copy>> EarlyCopies;
static EarlyCopies *early_copies;  // null where kernels don't overlap
static size_t block_number;
[[noreturn]] static void fail(const char *problem) { fprintf(stderr, "emulator: %s\n", problem); abort(); }

// A product of a warpgroup (`hopper.h`).
struct Product {
    float *d;
    const u32 *a;  // null: by descriptor
    u64 a_panel, b_panel;
    int columns;
    bool accumulate, transposed;
};
struct Fiber {
    void *stack_pointer = nullptr;
    std::unique_ptr<char[]> stack;
    bool done = false;
    bool waited = false;  // for the kernel in front
    size_t early = 0;     // copies that it began before
    Wait wait = NOTHING;
    dim3 index;
    u32 number;
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
    std::function<bool()> event;          // what it waits for
    std::vector<Product> products;        // of a warpgroup, under way
    std::vector<size_t> product_groups;   // how many of them each committed group ends after
    std::vector<u32> pieces;              // of shared memory that it or its copies read or wrote since its last proxy fence
};
struct Slots { alignas(16) char lane[32][64]; };
static const size_t STACK = 48 << 10;
static Fiber *current;
static dim3 block_index, block_size, grid_size;
static std::vector<Fiber> fibers;
static std::vector<Slots> warps;
static void *home;
static void (*body)(const void *);
static const void *arguments;
alignas(1024) static char shared[256 << 10];
static bool unfenced[sizeof shared / 16];  // pieces that copies wrote, before a proxy fence: products must not read them
static bool touched[sizeof shared / 16];      // pieces that threads read or wrote, before a proxy fence: TMA must not overwrite them
static u64 copies;                            // into shared memory so far

// Saves the callee-saved registers on this stack and continues on the other one.
extern "C" void ropeway_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.type ropeway_switch,@function\nropeway_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
#error "the emulator switches stacks on x86-64 only"
#endif
static void pause(Wait why) { current->wait = why; ropeway_switch(&current->stack_pointer, home); }
template <class Condition> static void wait_until(Condition condition) {
    if (condition()) return;
    current->event = condition;
    pause(EVENT);
}
[[noreturn]] static void leave() { current->done = true; for (;;) ropeway_switch(&current->stack_pointer, home); }
static void enter() { body(arguments), leave(); }
static void prepare(Fiber &fiber, u32 number) {
    fiber.number = number, fiber.index = {number, 0, 0};
    if (!fiber.stack) fiber.stack.reset(new char[STACK]);
    fiber.done = fiber.waited = false, fiber.early = 0, fiber.wait = NOTHING, fiber.groups.clear(), fiber.open.clear();
    fiber.products.clear(), fiber.product_groups.clear(), fiber.pieces.clear();
    uintptr_t top = ((uintptr_t)fiber.stack.get() + STACK) & ~(uintptr_t)15;
    void **sp = (void **)(top - 8);
    *--sp = (void *)enter;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    fiber.stack_pointer = sp;
}
// Lets the threads first .. last go on if all that are left wait for `why`.
static bool release(size_t first, size_t last, Wait why) {
    bool some = false;
    for (size_t i = first; i < last; i++)
        if (!fibers[i].done) { if (fibers[i].wait != why) return false; some = true; }
    for (size_t i = first; i < last; i++) fibers[i].wait = NOTHING;
    return some;
}
// Draws which warps stand still for a while: those that go on find what a missing barrier lets them overwrite or miss.
static u32 draw() {
    static u32 state = getenv("ROPEWAY_EMULATOR_SEED") ? (u32)atoi(getenv("ROPEWAY_EMULATOR_SEED")) * 2654435761u | 1 : 1;
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}
static const u32 TURNS = 32;  // for about as long
// Lets a warp's threads go on to where they wait next; whether any did.
static bool run_warp(size_t first, size_t last) {
    bool moved = false;
    for (size_t i = first; i < last; i++)
        if (!fibers[i].done && fibers[i].wait == NOTHING) { current = &fibers[i]; ropeway_switch(&home, current->stack_pointer); moved = true; }
    return moved;
}
static void run_block(u32 threads) {
    fibers.resize(threads), warps.resize((threads + 31) / 32);
    for (u32 i = 0; i < threads; i++) prepare(fibers[i], i);
    u32 standing = draw();  // a bit for each warp
    bool everyone = false;  // goes on, because none of the others could
    for (;;) {
        bool moved = false, left = false;
        for (size_t w = 0; w < warps.size(); w++) {
            const size_t first = w * 32, last = std::min<size_t>(threads, first + 32);
            if (everyone || !(standing >> w & 1)) moved |= run_warp(first, last) | release(first, last, WARP);
        }
        moved |= release(0, threads, BLOCK_OF_THREADS);
        for (Fiber &fiber : fibers)
            if (!fiber.done && fiber.wait == EVENT && fiber.event()) fiber.wait = NOTHING, moved = true;
        for (Fiber &fiber : fibers) left |= !fiber.done;
        if (!left) return;
        if (!moved && everyone) { fprintf(stderr, "emulator: threads of a block wait for different things\n"); abort(); }
        everyone = !moved;
        if (everyone || draw() % TURNS == 0) standing = draw();
    }
}
// A block has so many bytes of shared memory, none of them written. What lies beyond is an error under AddressSanitizer, else NaN for a while.
static void begin_shared(size_t bytes) {
    const size_t seen = std::min(bytes + 4096, sizeof shared);
    UNPOISON(shared, sizeof shared);
    memset(shared, 0xff, seen), memset(unfenced, 0, seen / 16), memset(touched, 0, seen / 16), copies++;
    POISON(shared + bytes, sizeof shared - bytes);
}
// The current thread wrote here: products must not read it before a proxy fence.
static void note_write(const void *to) {
    const u32 piece = ((const char *)to - shared) / 16;
    unfenced[piece] = true, touched[piece] = true, current->pieces.push_back(piece), copies++;
}
static void note_read(const void *from) {
    const u32 piece = ((const char *)from - shared) / 16;
    if (!touched[piece]) touched[piece] = true, current->pieces.push_back(piece);
}
template <class T> static void deposit(const T *values, int count) { memcpy(warps[current->number / 32].lane[current->number % 32], values, count * sizeof(T)); pause(WARP); }
template <class T> static const T *of_lane(u32 lane) { return (const T *)warps[current->number / 32].lane[lane]; }
}  // namespace emulator

static inline void grid_dependency_wait() {
    emulator::current->waited = true;
    if (emulator::pass == emulator::EARLY_PART) emulator::leave();
}
namespace emulator {
// A copy with what it finds, if the kernel in front was not waited for.
static Copy begun(Copy copy) {
    if (!current->waited && early_copies) {
        auto &known = (*early_copies)[block_number * block_size.x + current->number];
        copy.early = true;
        if (pass == EARLY_PART) {
            if (copy.valid) memcpy(copy.found, copy.from, copy.bytes);
            known.push_back(copy);
        } else {
            if (current->early >= known.size() || known[current->early].from != copy.from) fail("what is copied early depends on the kernel before");
            memcpy(copy.found, known[current->early++].found, 16);
        }
    }
    return copy;
}
static void write_copy(const Copy &copy) {
    if (copy.valid) memcpy(copy.to, copy.early ? copy.found : copy.from, copy.bytes); else memset(copy.to, 0, copy.bytes);
}
static void begin_copy(Copy copy) { current->open.push_back(begun(copy)); }
}  // namespace emulator

static void run_grid(void (*kernel)(const void *), const void *arguments, const unsigned *grid, unsigned threads, unsigned shared_bytes) {
    emulator::body = kernel, emulator::arguments = arguments, emulator::block_number = 0;
    emulator::grid_size = {grid[0], grid[1], grid[2]}, emulator::block_size = {threads, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                emulator::block_index = {x, y, z};
                emulator::begin_shared(shared_bytes);
                emulator::run_block(threads);
                emulator::block_number++;
            }
}
// What a kernel does before it waits for the one in front of it; then all of it, with what the first part gave, or null.
extern "C" void *ropeway_emulate_early(void (*kernel)(const void *), const void *arguments, const unsigned *grid, unsigned threads, unsigned shared_bytes) {
    auto *copies = new emulator::EarlyCopies((size_t)grid[0] * grid[1] * grid[2] * threads);
    emulator::early_copies = copies, emulator::pass = emulator::EARLY_PART;
    run_grid(kernel, arguments, grid, threads, shared_bytes);
    emulator::early_copies = nullptr, emulator::pass = emulator::WHOLE;
    return copies;
}
extern "C" void ropeway_emulate(void (*kernel)(const void *), const void *arguments, const unsigned *grid, unsigned threads, unsigned shared_bytes, void *early) {
    emulator::early_copies = (emulator::EarlyCopies *)early;
    run_grid(kernel, arguments, grid, threads, shared_bytes);
    emulator::early_copies = nullptr;
    delete (emulator::EarlyCopies *)early;
}
#define threadIdx (emulator::current->index)
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size

static inline void __syncthreads() { emulator::pause(emulator::BLOCK_OF_THREADS); }
static inline void __syncwarp() { emulator::pause(emulator::WARP); }
template <class T> static T __shfl_sync(u32, T v, int lane) { emulator::deposit(&v, 1); T r = *emulator::of_lane<T>(lane); emulator::pause(emulator::WARP); return r; }
template <class T> static T __shfl_xor_sync(u32, T v, int mask) { emulator::deposit(&v, 1); T r = *emulator::of_lane<T>((emulator::current->number % 32) ^ mask); emulator::pause(emulator::WARP); return r; }
static inline u32 __ballot_sync(u32, bool v) {
    u32 mine = v, votes = 0;
    emulator::deposit(&mine, 1);
    for (int lane = 0; lane < 32; lane++) votes |= *emulator::of_lane<u32>(lane) << lane;
    emulator::pause(emulator::WARP);
    return votes;
}

// --- the prelude's instructions ---
template <class Reduce> static u32 reduce_warp(u32 v, Reduce reduce) {
    emulator::deposit(&v, 1);
    u32 r = *emulator::of_lane<u32>(0);
    for (int lane = 1; lane < 32; lane++) r = reduce(r, *emulator::of_lane<u32>(lane));
    emulator::pause(emulator::WARP);
    return r;
}
static inline u32 warp_max(u32 v) { return reduce_warp(v, [](u32 a, u32 b) { return std::max(a, b); }); }
static inline u32 warp_min(u32 v) { return reduce_warp(v, [](u32 a, u32 b) { return std::min(a, b); }); }
static inline u32 warp_total(u32 v) { return reduce_warp(v, [](u32 a, u32 b) { return a + b; }); }
static inline void cp_async_16(void *to, const void *from, bool valid) { emulator::begin_copy({to, from, 16, valid}); }
static inline void cp_async_4(void *to, const void *from, bool valid) { emulator::begin_copy({to, from, 4, valid}); }
static inline void cp_async_16_if(void *to, const void *from, bool wanted) { if (wanted) cp_async_16(to, from, true); }
static inline void cp_async_commit_group() { auto &fiber = *emulator::current; fiber.groups.push_back(std::move(fiber.open)); fiber.open.clear(); }
template <int N> static void cp_async_wait_group() {
    auto &groups = emulator::current->groups;
    while (groups.size() > (size_t)N) {
        for (auto &copy : groups.front()) {
            emulator::write_copy(copy), emulator::note_write(copy.to);
        }
        groups.erase(groups.begin());
    }
}
static inline void load_matrices(u32 *r, const void *p, int count, bool transposed) {
    emulator::deposit(&p, 1);
    if (threadIdx.x % 32 < 8u * count) emulator::note_read(p);
    int lane = emulator::current->number % 32;
    for (int m = 0; m < count; m++) {
        u16 v[2];
        for (int e = 0; e < 2; e++) {
            int row = transposed ? lane % 4 * 2 + e : lane / 4, col = transposed ? lane / 4 : lane % 4 * 2 + e;
            memcpy(&v[e], (const char *)*emulator::of_lane<const void *>(m * 8 + row) + col * 2, 2);
        }
        r[m] = v[0] | (u32)v[1] << 16;
    }
    emulator::pause(emulator::WARP);
}
static inline void ldmatrix_x4(u32 *r, const void *p) { load_matrices(r, p, 4, false); }
static inline void ldmatrix_x4_trans(u32 *r, const void *p) { load_matrices(r, p, 4, true); }
static inline void ldmatrix_x2(u32 *r, const void *p) { load_matrices(r, p, 2, false); }
static inline void ldmatrix_x2_trans(u32 *r, const void *p) { load_matrices(r, p, 2, true); }
static inline void mma_m16n8k16(float *d, const u32 *a, const u32 *b) {
    auto half = [](u32 u, int e) { return __uint_as_float(e ? u & 0xffff0000u : u << 16); };
    u32 all[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    emulator::deposit(all, 6);
    int lane = emulator::current->number % 32;
    for (int e = 0; e < 4; e++) {
        int row = lane / 4 + e / 2 * 8, col = lane % 4 * 2 + e % 2;
        double sum = d[e];
        for (int k = 0; k < 16; k++) {
            const u32 *of_a = emulator::of_lane<u32>(row % 8 * 4 + k % 8 / 2), *of_b = emulator::of_lane<u32>(col * 4 + k % 8 / 2) + 4;
            sum += (double)half(of_a[row / 8 + k / 8 * 2], k % 2) * half(of_b[k / 8], k % 2);
        }
        d[e] = (float)sum;
    }
    emulator::pause(emulator::WARP);
}
static inline float exp2_approx(float x) { return exp2f(x); }
static inline float rcp_approx(float x) { return 1.0f / x; }
static inline u32 narrowed(float f) { u32 u = __float_as_uint(f); return f != f ? 0x7fffu : (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
static inline u32 pack_bf16x2(float a, float b) { return narrowed(a) | narrowed(b) << 16; }
// Rounded so that a second rounding gives what one alone would: towards zero, and an odd mantissa says that something was lost.
static inline float rounded_to_odd(double v) {
    float f = (float)v;
    if ((double)f == v || v != v) return f;
    if (fabs((double)f) > fabs(v)) f = nextafterf(f, 0.0f);
    return __uint_as_float(__float_as_uint(f) | 1);
}
static inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    auto one = [=](u32 mask, int shift) {
        auto value = [=](u32 pair) { return (double)__uint_as_float((pair & mask) << shift); };
        return rounded_to_odd(value(a) * value(b) + value(c));
    };
    return pack_bf16x2(one(0xffffu, 16), one(0xffff0000u, 0));
}
static inline u32 broadcast_low(u32 pair) { return pair << 16 | (pair & 0xffffu); }
static inline u32 broadcast_high(u32 pair) { return (pair & 0xffff0000u) | pair >> 16; }
static inline float half_to_float(u16 h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float v = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24);
    return h >> 15 ? -v : v;
}
static inline float low_f16(u32 pair) { return half_to_float((u16)pair); }
static inline float high_f16(u32 pair) { return half_to_float((u16)(pair >> 16)); }
#include "hopper.h"
