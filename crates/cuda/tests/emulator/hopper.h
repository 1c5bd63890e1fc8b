// Hopper's instructions as `kernels/hopper.cuh` names them. Products read their operands and write their results when they are waited for,
// not before; descriptors are decoded and panels read as the hardware is documented to do. A product that reads what a thread copied
// or wrote without a proxy fence ends the program; so does TMA that overwrites what a thread read or wrote without one.
#pragma once

#define DYNAMIC_PANELS(name) char *name = emulator::shared

struct alignas(64) TensorMap { u64 words[16]; };

namespace emulator {
// Address, without the swizzle, of the value at (row, input) of a matrix; `row` counts along M or N.
static u32 offset(u64 descriptor, u32 row, u32 input, bool transposed) {
    const u32 start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    if (transposed) return start + row % 64 * 2 + row / 64 * leading + input % 8 * 128 + input / 8 * stride;
    return start + row % 8 * 128 + row / 8 * stride + input * 2;
}
static double read_panel(u64 descriptor, u32 row, u32 input, bool transposed) {
    u32 at = offset(descriptor, row, input, transposed);
    at ^= (at >> 7 & 7) << 4;
    if (at >= sizeof shared) fail("a product reads beyond shared memory");
    if (unfenced[at / 16]) fail("a product reads what was copied, without a proxy fence");
    u16 half;
    memcpy(&half, shared + at, 2);
    return __uint_as_float((u32)half << 16);
}
// A matrix of 16 inputs, input by input; decoded once for all threads, until something is copied into shared memory.
typedef double Inputs[16];
static const Inputs *matrix(u64 descriptor, u32 rows, bool transposed) {
    static std::map<u64, std::unique_ptr<Inputs[]>> known;
    static u64 version;
    if (version != copies) known.clear(), version = copies;
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) fail("only swizzles of 128 bytes without a base offset are known");
    auto &values = known[descriptor];
    if (!values) {
        values.reset(new Inputs[rows]);
        for (u32 row = 0; row < rows; row++)
            for (u32 input = 0; input < 16; input++) values[row][input] = read_panel(descriptor, row, input, transposed);
    }
    return values.get();
}
// The value of A at a row of this warp, from the registers of the lane that has it.
static float register_value(u32 first, size_t product, u32 row, u32 input) {
    const u32 pair = fibers[first + row % 8 * 4 + input % 8 / 2].products[product].a[row / 8 + input / 8 * 2];
    return __uint_as_float(input % 2 ? pair & 0xffff0000u : pair << 16);
}
// This thread's results: two rows of a quarter of the columns.
static void compute(size_t index) {
    const Product &p = current->products[index];
    const u32 lane = current->number % 32, first = current->number - lane, warp_row = current->number / 32 % 4 * 16;
    const Inputs *panel = p.a ? nullptr : matrix(p.a_panel, 64, false), *b = matrix(p.b_panel, p.columns, p.transposed);
    Inputs a[2];
    for (u32 h = 0; h < 2; h++)
        for (u32 k = 0; k < 16; k++) a[h][k] = p.a ? register_value(first, index, lane / 4 + h * 8, k) : panel[warp_row + lane / 4 + h * 8][k];
    for (int j = 0; j < p.columns / 8; j++)
        for (int e = 0; e < 4; e++) {
            const Inputs &row = a[e / 2], &column = b[j * 8 + lane % 4 * 2 + e % 2];
            double sum = p.accumulate ? p.d[j * 4 + e] : 0.0;
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            p.d[j * 4 + e] = (float)sum;
        }
}
// An mbarrier, in its eight bytes of shared memory; what TMA brings for it, and the bytes that are waited for.
struct Barrier { u16 count, pending; u32 phase; };
struct Expected { i32 bytes; std::vector<Copy> pieces; };
static std::map<u64 *, Expected> expected;
static void complete(u64 *at) {
    auto &barrier = *(Barrier *)at;
    if (barrier.pending == 0 && expected[at].bytes == 0) barrier.pending = barrier.count, barrier.phase++;
}
static void arrival(u64 *at) { ((Barrier *)at)->pending--, complete(at); }
// What `cuTensorMapEncodeTiled` of `driver.cpp` leaves in a map: two dimensions of bf16, and pieces swizzled by 128 bytes.
struct Matrix { const char *base; u64 columns, rows, stride; u32 box_columns, box_rows; };
static void begin_box(char *box, const void *map, u32 column, u32 row, u64 *at) {
    Matrix m;
    memcpy(&m, map, sizeof m);
    if (((box - shared) & 1023) != 0 || m.box_columns * 2 != 128) fail("boxes are panels of 128 bytes that begin at multiples of 1,024");
    for (u32 r = 0; r < m.box_rows; r++)
        for (u32 p = 0; p < 8; p++) {
            const bool in = row + r < m.rows && column + p * 8 < m.columns;
            if (touched[(box - shared) / 16 + r * 8 + p]) fail("TMA overwrites what was read or written, without a proxy fence");
            expected[at].pieces.push_back(begun({box + r * 128 + (p ^ r % 8) * 16, m.base + (row + r) * m.stride + (column + p * 8) * 2, 16, in}));
        }
}
// Copies take their time: they are done when somebody waits for them.
static void bring_boxes(u64 *at) {
    Expected &here = expected[at];
    if (here.pieces.empty()) return;
    for (const Copy &piece : here.pieces) write_copy(piece), unfenced[((char *)piece.to - shared) / 16] = false, here.bytes -= (i32)piece.bytes;
    here.pieces.clear(), copies++, complete(at);
}
struct Numbered { u32 arrived, generation; };
static Numbered numbered[16];
static void numbered_arrival(u32 number, u32 threads) {
    Numbered &barrier = numbered[number];
    if (++barrier.arrived == threads) barrier.arrived = 0, barrier.generation++;
}
}  // namespace emulator

static inline u32 shared_address(const void *p) { return (u32)((const char *)p - emulator::shared); }
static inline void wgmma_ss(float (&d)[4][4][4], u64 a, u64 b, bool accumulate) {
    emulator::current->products.push_back({&d[0][0][0], nullptr, a, b, 128, accumulate, false});
}
static inline void wgmma_rs_transposed(float (&d)[8][4], const u32 (&a)[4], u64 b, bool accumulate) {
    emulator::current->products.push_back({&d[0][0], a, 0, b, 64, accumulate, true});
}
template <int N> static void wgmma_rs_add(float (&d)[N][4], const u32 (&a)[4], u64 b) {
    emulator::current->products.push_back({&d[0][0], a, 0, b, N * 8, true, false});
}
template <int N> static void wgmma_ss_add(float (&d)[N][4], u64 a, u64 b) {
    emulator::current->products.push_back({&d[0][0], nullptr, a, b, N * 8, true, false});
}
static inline void wgmma_fence() { emulator::pause(emulator::WARP); }
static inline void wgmma_commit_group() { emulator::current->product_groups.push_back(emulator::current->products.size()); }
template <int N> static void wgmma_wait_group() {
    auto &fiber = *emulator::current;
    // They take their time: who overwrites an operand too early is done before.
    for (int i = 0; i < 16; i++) emulator::pause(emulator::WARP);
    if (fiber.product_groups.size() <= (size_t)N) return;
    const size_t groups = fiber.product_groups.size() - N, ends = fiber.product_groups[groups - 1];
    for (size_t i = 0; i < ends; i++) emulator::compute(i);
    emulator::pause(emulator::WARP);
    fiber.products.erase(fiber.products.begin(), fiber.products.begin() + ends);
    fiber.product_groups.erase(fiber.product_groups.begin(), fiber.product_groups.begin() + groups);
    for (size_t &end : fiber.product_groups) end -= ends;
    emulator::pause(emulator::WARP);
}
template <int N> static void wgmma_hold_results(float (&)[N][4]) {}
template <int N> static inline void wgmma_hold_operands(u32 (&)[N][4]) {}
static inline void write_piece(void *to, uint4 piece) { memcpy(to, &piece, 16), emulator::note_write(to); }
static inline void fence_proxy_async() {
    for (u32 piece : emulator::current->pieces) emulator::unfenced[piece] = emulator::touched[piece] = false;
    emulator::current->pieces.clear();
}

static inline void mbarrier_init(u64 *barrier, u32 count) { *(emulator::Barrier *)barrier = {(u16)count, (u16)count, 0}, emulator::expected.erase(barrier); }
static inline void mbarrier_arrive(u64 *at) { emulator::arrival(at); }
static inline void mbarrier_arrive_expect_tx(u64 *at, u32 bytes) {
    emulator::expected[at].bytes += bytes;
    emulator::arrival(at);
}
static inline void tma_load(void *to, const TensorMap &map, u32 column, u32 row, u64 *barrier) {
    emulator::begin_box((char *)to, &map, column, row, barrier);
}
static inline void mbarrier_wait(u64 *barrier, u32 parity) {
    emulator::wait_until([=] {
        emulator::bring_boxes(barrier);
        return ((emulator::Barrier *)barrier)->phase % 2 != parity;
    });
}
static inline void named_barrier_arrive(u32 number, u32 threads) { emulator::numbered_arrival(number, threads); }
static inline void named_barrier_sync(u32 number, u32 threads) {
    const u32 generation = emulator::numbered[number].generation;
    emulator::numbered_arrival(number, threads);
    emulator::wait_until([=] { return emulator::numbered[number].generation != generation; });
}
static inline u32 opaque(u32 value) { return value; }
static inline u32 reread_thread_index() { return threadIdx.x; }
template <int N> static void setmaxnreg_dec() {}
template <int N> static void setmaxnreg_inc() {}
