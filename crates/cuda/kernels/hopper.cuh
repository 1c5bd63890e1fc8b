// What Hopper (sm_90a alone) has beyond the prelude: products of a warpgroup (wgmma), barriers in shared memory (mbarrier), TMA,
// barriers by number, and registers that move between warpgroups. Under ROPEWAY_EMULATE all of it comes from `tests/emulator/hopper.h`.
//
// A warpgroup is four warps, the first of which is a multiple of four. Its product is D[64][N] (+)= A[64][16] * B[16][N], bf16 into f32.
// - D and an A in registers lie as in the prelude's `mma_m16n8k16`: warp w has the rows 16 w .. 16 w + 15, and of every eight columns j a thread
//   has d[j][0], d[j][1] in row lane / 4 and d[j][2], d[j][3] eight rows below, columns lane % 4 * 2 and the next.
// - Matrices in shared memory are panels: rows of 128 bytes (64 values), eight rows to a pattern of 1,024 bytes that begins at a multiple
//   of 1,024. The 16-byte piece p of row r lies at piece p ^ (r % 8) of its row: address bits 4 to 6 are xored with bits 7 to 9.
// - Rows along N or M, 16 inputs side by side ("K-major", A and B of q . k): eight rows further is `stride` bytes on; the next 16 inputs
//   begin 32 bytes on in the same row. `leading` is not used.
// - Rows along the inputs, outputs side by side ("MN-major", the transposed B of weighted values): eight inputs further is `stride` bytes
//   on, 64 outputs further `leading` bytes.
// - Products run behind the thread's back: D may be touched, and an A in registers or a panel overwritten, only after they were waited for.
//   `wgmma_fence` comes before the first of them and after every write to their registers.
// - They read shared memory by another path ("the async proxy") than copies and stores write it: whoever wrote passes `fence_proxy_async`
//   between its writes and the barrier that tells others of them.
#pragma once

DEVICE u64 wgmma_descriptor(const void *at, u32 leading, u32 stride) {
    return (u64)(shared_address(at) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}
// The descriptor of a matrix that begins so many bytes further on.
DEVICE u64 advance_descriptor(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

#ifndef ROPEWAY_EMULATE
#define DYNAMIC_PANELS(name) extern __shared__ __align__(1024) char name[]

// A matrix in global memory as TMA knows it, made by the driver (`src/driver/tensor.rs`).
struct alignas(64) TensorMap {
    u64 words[16];
};

#define RESULTS_4(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define RESULTS_16(d) RESULTS_4((d)[0]), RESULTS_4((d)[1]), RESULTS_4((d)[2]), RESULTS_4((d)[3])
// d[t][j] is the column group t * 4 + j: 128 columns. A and B are K-major panels.
DEVICE void wgmma_ss(float (&d)[4][4][4], u64 a, u64 b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}"
        : RESULTS_16(d[0]), RESULTS_16(d[1]), RESULTS_16(d[2]), RESULTS_16(d[3])
        : "l"(a), "l"(b), "r"((i32)accumulate));
}
// 64 columns. A is in registers, B an MN-major panel.
DEVICE void wgmma_rs_transposed(float (&d)[8][4], const u32 (&a)[4], u64 b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
        : RESULTS_16(d), RESULTS_16(d + 4)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((i32)accumulate));
}
#define RESULTS_64(d) RESULTS_16(d), RESULTS_16((d) + 4), RESULTS_16((d) + 8), RESULTS_16((d) + 12)
#define COMMA ,
#define PLACES_4 "%0,%1,%2,%3"
#define PLACES_8 PLACES_4 ",%4,%5,%6,%7"
#define PLACES_16 PLACES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define PLACES_32 PLACES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PLACES_64 PLACES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PLACES_128                                                                                                                                               \
    PLACES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                 \
              "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// So many columns are added to d. A is in registers, B a K-major panel.
#define WGMMA_RS_ADD(columns, places, operands, b_place, results)                      \
    DEVICE void wgmma_rs_add(float (&d)[columns / 8][4], const u32 (&a)[4], u64 b) {   \
        asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                        \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 " \
                     "{" places "}, {" operands "}, " b_place ", p, 1, 1, 0;\n}"       \
                     : results                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));            \
    }
WGMMA_RS_ADD(8, PLACES_4, "%4,%5,%6,%7", "%8", RESULTS_4(d[0]))
WGMMA_RS_ADD(16, PLACES_8, "%8,%9,%10,%11", "%12", RESULTS_4(d[0]) COMMA RESULTS_4(d[1]))
WGMMA_RS_ADD(32, PLACES_16, "%16,%17,%18,%19", "%20", RESULTS_16(d))
WGMMA_RS_ADD(64, PLACES_32, "%32,%33,%34,%35", "%36", RESULTS_16(d) COMMA RESULTS_16(d + 4))
WGMMA_RS_ADD(128, PLACES_64, "%64,%65,%66,%67", "%68", RESULTS_64(d))
WGMMA_RS_ADD(256, PLACES_128, "%128,%129,%130,%131", "%132", RESULTS_64(d) COMMA RESULTS_64((d + 16)))
// The same with A in a K-major panel.
#define WGMMA_SS_ADD(columns, places, a_place, b_place, results)                       \
    DEVICE void wgmma_ss_add(float (&d)[columns / 8][4], u64 a, u64 b) {               \
        asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                        \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 " \
                     "{" places "}, " a_place ", " b_place ", p, 1, 1, 0, 0;\n}"       \
                     : results                                                         \
                     : "l"(a), "l"(b));                                                \
    }
WGMMA_SS_ADD(64, PLACES_32, "%32", "%33", RESULTS_16(d) COMMA RESULTS_16(d + 4))
WGMMA_SS_ADD(128, PLACES_64, "%64", "%65", RESULTS_64(d))
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most N committed groups are under way.
template <int N> DEVICE void wgmma_wait_group() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Marks registers as changed, after a wait: to the compiler, a product's results are ready as soon as it is issued.
template <int N> DEVICE void wgmma_hold_results(float (&d)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; j++) asm volatile("" : RESULTS_4(d[j])::"memory");
}

// Keeps the registers of an A operand until here: to the compiler it is done with once its product is issued.
template <int N> DEVICE void wgmma_hold_operands(u32 (&a)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}

// Writes 16 bytes of a panel.
DEVICE void write_piece(void *to, uint4 piece) { *(uint4 *)to = piece; }

DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier of `count` arrivals; its phases are counted from 0. The wait with parity 1 passes before phase 0 is complete.
DEVICE void mbarrier_init(u64 *barrier, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory"); }
DEVICE void mbarrier_arrive(u64 *barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"); }
DEVICE void mbarrier_wait(u64 *barrier, u32 parity) {
    u32 passed;
    do asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                    : "=r"(passed)
                    : "r"(shared_address(barrier)), "r"(parity)
                    : "memory");
    while (!passed);
}

// This thread's arrival at a barrier whose phase is complete only when so many more bytes have come, too.
DEVICE void mbarrier_arrive_expect_tx(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Begins to copy the map's box at (column, row) into shared memory, in panels' order of pieces. Its bytes count at the barrier, and products may
// read them after it without `fence_proxy_async`: TMA writes by their path.
DEVICE void tma_load(void *to, const TensorMap &map, u32 column, u32 row, u64 *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)), "l"(&map),
                 "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}

// Barriers by number, 1 to 15: `threads` of them arrive, and those that wait go on when all have.
DEVICE void named_barrier_sync(u32 number, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
DEVICE void named_barrier_arrive(u32 number, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// threadIdx.x, which the compiler does not keep.
DEVICE u32 reread_thread_index() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
// A value that the compiler knows nothing of: a constant added to it becomes part of an address.
DEVICE u32 opaque(u32 value) {
    asm volatile("" : "+r"(value));
    return value;
}
// The warpgroup's threads give registers back, or wait for more of them.
template <int N> DEVICE void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
#endif
