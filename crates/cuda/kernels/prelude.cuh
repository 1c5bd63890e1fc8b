// What all kernels are written in: number types, a warp's matrix instructions, asynchronous copies, and block-wide sums in a
// fixed order. NVRTC brings no headers before CUDA 13.3, so nothing is included.
//
// Every kernel takes one structure by value. It is declared beside the kernel and mirrored in Rust: `src/kernels/mod.rs`,
// `src/packed/kernels.rs`, `src/encoder/kernels.rs`. Under ROPEWAY_EMULATE the primitives come from `tests/emulator/threads.h`, and the same
// source runs on the CPU.
#pragma once

#ifndef ROPEWAY_EMULATE
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

// Kernels are launched with programmatic dependent launch from compute capability 9.0 on (`Stream::launch`). A KERNEL waits for the kernel before
// it in the stream (`griddepcontrol.wait`) before it does anything. An EARLY_KERNEL calls `grid_dependency_wait` itself; before that call it
// reads only what no kernel of its step writes: weights, the step's arrays, keys and values of earlier steps. Both let the next kernel's blocks start
// at once (`griddepcontrol.launch_dependents`). `blocks` goes to __launch_bounds__: registers are limited so that as many blocks fit on a multiprocessor.
#define KERNEL(name, Arguments, threads) KERNEL_THAT(grid_dependency_wait(), name, Arguments, threads, 1)
#define EARLY_KERNEL(name, Arguments, threads) KERNEL_THAT((void)0, name, Arguments, threads, 1)
#define EARLY_KERNEL_OF_TWO(name, Arguments, threads) KERNEL_THAT((void)0, name, Arguments, threads, 2)
#define KERNEL_THAT(begins, name, Arguments, threads, blocks)                                                 \
    DEVICE void name##_body(const Arguments &a);                                                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Arguments a) { \
        launch_dependent_grids(), begins, name##_body(a);                                                     \
    }                                                                                                         \
    DEVICE void name##_body(const Arguments &a)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) char name[]
#define DEVICE __device__ __forceinline__
#define LANES_ALL 0xffffffffu

#if __CUDA_ARCH__ >= 900
DEVICE void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE void launch_dependent_grids() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEVICE void grid_dependency_wait() {}
DEVICE void launch_dependent_grids() {}
#endif
DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// 16 bytes from global to shared memory; zeros where `valid` is false (then `from` is not read).
DEVICE void cp_async_16(void *to, const void *from, bool valid) {
    i32 bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
// The same with 4 bytes.
DEVICE void cp_async_4(void *to, const void *from, bool valid) {
    i32 bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
// 16 bytes where `wanted`; elsewhere nothing is written.
DEVICE void cp_async_16_if(void *to, const void *from, bool wanted) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16;}" ::"r"(shared_address(to)), "l"(from), "r"((u32)wanted) : "memory");
}
DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void cp_async_wait_group() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// Four (two) 8 x 8 matrices of bf16 from shared memory, a row per lane's address.
DEVICE void ldmatrix_x4(u32 *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
DEVICE void ldmatrix_x2(u32 *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
DEVICE void ldmatrix_x2_trans(u32 *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)) : "memory");
}
// d += a * b: 16 x 16 times 16 x 8, sums in f32.
DEVICE void mma_m16n8k16(float *d, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Over a warp.
DEVICE u32 warp_max(u32 v) {
    u32 r;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}
DEVICE u32 warp_min(u32 v) {
    u32 r;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}
DEVICE u32 warp_total(u32 v) {
    u32 r;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}
DEVICE float exp2_approx(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float rcp_approx(float x) {
    float y;
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two bf16, `a` in the low half.
DEVICE u32 pack_bf16x2(float a, float b) {
    u32 r;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}
// a * b + c for pairs of bf16, rounded once.
DEVICE u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// The low (high) 16 bits of a word, in both halves of the result.
DEVICE u32 broadcast_low(u32 pair) {
    u32 r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(r) : "r"(pair));
    return r;
}
DEVICE u32 broadcast_high(u32 pair) {
    u32 r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(r) : "r"(pair));
    return r;
}
// The low (high) half of a word, read as f16, as f32.
DEVICE float low_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(y) : "r"(pair));
    return y;
}
DEVICE float high_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(pair));
    return y;
}
#endif

// bf16 is the upper half of an f32.
typedef u16 bf16;
DEVICE float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x << 16); }
DEVICE bf16 narrow(float x) { return (bf16)(pack_bf16x2(x, 0.0f) & 0xffffu); }
// a + b and a - b for pairs of bf16, by fma: `add.bf16x2` needs sm_90, `fma.rn.bf16x2` sm_80.
DEVICE u32 add_bf16x2(u32 a, u32 b) { return fma_bf16x2(a, 0x3f803f80u, b); }
DEVICE u32 sub_bf16x2(u32 a, u32 b) { return fma_bf16x2(b, 0xbf80bf80u, a); }

DEVICE float minus_infinity() { return __uint_as_float(0xff800000u); }
DEVICE float plus_infinity() { return __uint_as_float(0x7f800000u); }

// Sums over a warp: every lane gets the same bits.
DEVICE float warp_sum(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v = __fadd_rn(v, __shfl_xor_sync(LANES_ALL, v, step));
    return v;
}

// Sum over a block of up to 1,024 threads, the same bits for every thread: lanes first, then warps.
DEVICE float block_sum(float v, float *scratch) {
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[warp] = v;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

// tanh by one exponential; exact at 0 and at the ends.
DEVICE float tanh_by_exp2(float x) {
    float e = exp2_approx(__fmul_rn(-2.885390082f, fabsf(x)));
    float t = __fmul_rn(__fsub_rn(1.0f, e), rcp_approx(__fadd_rn(1.0f, e)));
    return copysignf(t, x);
}
