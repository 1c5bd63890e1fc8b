// From rows of logits to tokens, with the semantics of `ropeway-cpu`'s sampling: bias, penalties, allowed tokens and mask, then
// temperature, top-k, typical-p, top-p, min-p, and a draw by the number that seed and position decide.
//
//   partial_argmax  a block per (8 stretches, row): softcap; each stretch's largest logit, its first token, and whether all are usable
//   adjust          a block per row that is adjusted: its logits, changed, into a second buffer, and their peak
//   sample_tokens   a block per row: the token, its log-probability, the likeliest alternatives
//
// A weight is exp((logit - most) / temperature) as a whole number of 2^-40: sums of whole numbers come out the same in any order,
// so that filters are found by counting (a radix selection over the order of candidates, eight bits at a time) and need no sort.
// A row's result depends on that row, its parameters and its history only.

#define STRETCH 1024
#define ARGMAX_STRETCHES 8
#define SAMPLE_THREADS 1024
#define MOST_ALTERNATIVES 128
#define UNIT 1099511627776.0f  // 2^40
#define NO_TOKEN 0xffffffffu
#define SAMPLED_LAST_STEP 0x80000000u

#define ROW_OK 0u
#define ROW_NOT_FINITE 1u
#define ROW_NOTHING_ALLOWED 2u

// How a row is to be treated; mirrored in `src/sampling.rs`.
struct RowParams {
    u64 seed, position;
    float inverse_temperature;  // 0: the first largest logit
    float top_p, min_p, typical_p;
    float repetition, presence, frequency;
    u32 top_k;              // 0: all
    u32 bias, biases;       // [token, bits of the value] pairs in `words`
    u32 repeated, repeats;  // tokens that the repetition penalty looks at; SAMPLED_LAST_STEP marks one of the step before
    u32 counted, counts;    // tokens that the other penalties look at
    u32 allowed, alloweds;  // the only tokens that may be chosen; NO_TOKEN: no such list
    u32 mask;               // where the row's mask begins in `words`; NO_TOKEN: none
    u32 adjusted;           // its row in the second buffer; NO_TOKEN: nothing is changed
    u32 scored;             // report this token instead of choosing; NO_TOKEN: choose
    u32 alternatives;       // NO_TOKEN: no log-probabilities
};
struct Peak {
    float logit;
    u32 token;  // the first that reaches it; NO_TOKEN: NaN or plus infinity is among them
};
struct Outcome {
    u32 token, status;
    float logprob;
    u32 alternatives;
};
struct Alternative {
    u32 token;
    float logprob;
};
struct Sample {
    float *logits;             // [rows][vocab]
    float *adjusted_logits;    // [rows][vocab]
    const RowParams *rows;
    const u32 *words;          // lists of all rows
    const u32 *adjusted_rows;  // rows that are adjusted
    u32 *marks;                // [blocks of adjust][vocab], zero between launches
    Peak *peaks;               // [rows][stretches]
    Peak *adjusted_peaks;      // [rows]
    const u32 *chosen_before;
    u32 *chosen;            // [rows]: for the step after
    Outcome *outcomes;      // [rows]
    Alternative *alternatives;  // [rows][MOST_ALTERNATIVES]
    u32 vocab, stretches, adjusted;
    float cap;              // 0: none
};

DEVICE Peak higher(Peak a, Peak b) {
    if (a.token == NO_TOKEN || b.token == NO_TOKEN) return {0.0f, NO_TOKEN};
    if (a.logit != b.logit) return a.logit > b.logit ? a : b;
    return a.token < b.token ? a : b;
}
DEVICE Peak warp_peak(Peak p) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float logit = __shfl_xor_sync(LANES_ALL, p.logit, step);
        u32 token = __shfl_xor_sync(LANES_ALL, p.token, step);
        p = higher(p, {logit, token});
    }
    return p;
}
DEVICE Peak block_peak(Peak p, Peak *scratch) {
    p = warp_peak(p);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = p;
    __syncthreads();
    p = scratch[0];
    for (u32 w = 1; w < blockDim.x / 32; w++) p = higher(p, scratch[w]);
    return p;
}
DEVICE Peak peak_of(float logit, u32 token) { return {logit, logit < plus_infinity() ? token : NO_TOKEN}; }

#define NO_PEAK Peak{minus_infinity(), 0xfffffffeu}
// Adds a token after all those that a thread's peak has seen.
DEVICE void add_to_peak(Peak &p, bool &usable, float logit, u32 token) {
    usable = usable && logit < plus_infinity();
    if (logit > p.logit || token < p.token && logit == p.logit) p = {logit, token};
}
DEVICE float capped(float logit, const Sample &a) { return __fmul_rn(a.cap, tanh_by_exp2(__fdiv_rn(logit, a.cap))); }
// What a lane has of a stretch, 16 bytes at a time. Half of its loads are asked for at once.
DEVICE Peak argmax_fours(const Sample &a, float4 *logits, u32 first) {
    const u32 lane = threadIdx.x % 32;
    Peak p = NO_PEAK;
    bool usable = true;
#pragma unroll
    for (u32 part = 0; part < STRETCH / 128; part += 4) {
        float4 v[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) v[i] = logits[(part + i) * 32 + lane];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 at = (part + i) * 32 + lane, token = first + at * 4;
            if (a.cap != 0.0f) v[i] = {capped(v[i].x, a), capped(v[i].y, a), capped(v[i].z, a), capped(v[i].w, a)}, logits[at] = v[i];
            add_to_peak(p, usable, v[i].x, token), add_to_peak(p, usable, v[i].y, token + 1);
            add_to_peak(p, usable, v[i].z, token + 2), add_to_peak(p, usable, v[i].w, token + 3);
        }
    }
    return usable ? p : Peak{0.0f, NO_TOKEN};
}
DEVICE Peak argmax_ones(const Sample &a, float *logits, u32 first, u32 end) {
    Peak p = NO_PEAK;
    bool usable = true;
#pragma unroll 8
    for (u32 t = first + threadIdx.x % 32; t < end; t += 32) {
        if (a.cap != 0.0f) logits[t] = capped(logits[t], a);
        add_to_peak(p, usable, logits[t], t);
    }
    return usable ? p : Peak{0.0f, NO_TOKEN};
}
KERNEL(partial_argmax, Sample, ARGMAX_STRETCHES * 32) {
    const u32 row = blockIdx.y, stretch = blockIdx.x * ARGMAX_STRETCHES + threadIdx.x / 32;
    if (stretch >= a.stretches) return;
    float *logits = a.logits + (u64)row * a.vocab;
    const u32 first = stretch * STRETCH, end = min(first + STRETCH, a.vocab);
    const bool fours = a.vocab % 4 == 0 && end == first + STRETCH;
    const Peak p = warp_peak(fours ? argmax_fours(a, (float4 *)(logits + first), first) : argmax_ones(a, logits, first, end));
    if (threadIdx.x % 32 == 0) a.peaks[(u64)row * a.stretches + stretch] = p;
}

// NaN becomes minus infinity, which is never chosen; plus infinity becomes the largest finite number.
DEVICE float settled(float logit) { return logit != logit ? minus_infinity() : fminf(logit, 3.4028235e38f); }
DEVICE u32 listed(const Sample &a, u32 at) {
    u32 token = a.words[at];
    return token & SAMPLED_LAST_STEP ? a.chosen_before[token & ~SAMPLED_LAST_STEP] : token;
}
DEVICE void mark(const Sample &a, u32 *marks, u32 first, u32 count) {
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        u32 token = listed(a, first + i);
        if (token < a.vocab) atomicAdd(&marks[token], 1u);
    }
    __syncthreads();
}
// A token may be listed several times: the thread of its first entry applies all of them, in their order.
DEVICE void add_biases(const Sample &a, const RowParams &row, float *logits) {
    const u32 *list = a.words + row.bias;
    for (u32 i = threadIdx.x; i < row.biases; i += blockDim.x) {
        u32 token = list[2 * i];
        bool first = token < a.vocab;
        for (u32 j = 0; j < i && first; j++) first = list[2 * j] != token;
        for (u32 j = i; j < row.biases && first; j++)
            if (list[2 * j] == token) logits[token] = settled(__fadd_rn(logits[token], __uint_as_float(list[2 * j + 1])));
    }
    __syncthreads();
}
DEVICE void penalise(const Sample &a, const RowParams &row, float *logits, u32 *marks) {
    mark(a, marks, row.repeated, row.repeats);
    for (u32 i = threadIdx.x; i < row.repeats; i += blockDim.x) {
        u32 token = listed(a, row.repeated + i);
        if (token >= a.vocab || atomicExch(&marks[token], 0u) == 0) continue;
        float logit = logits[token];
        logits[token] = settled(logit > 0.0f ? __fdiv_rn(logit, row.repetition) : __fmul_rn(logit, row.repetition));
    }
    __syncthreads();
    mark(a, marks, row.counted, row.counts);
    for (u32 i = threadIdx.x; i < row.counts; i += blockDim.x) {
        u32 token = listed(a, row.counted + i);
        u32 count = token < a.vocab ? atomicExch(&marks[token], 0u) : 0;
        if (count == 0) continue;
        float less = __fmul_rn((float)count, row.frequency);
        logits[token] = settled(__fsub_rn(__fsub_rn(logits[token], less), row.presence));
    }
    __syncthreads();
}
KERNEL(adjust, Sample, SAMPLE_THREADS) {
    __shared__ Peak scratch[32];
    u32 *marks = a.marks + (u64)blockIdx.x * a.vocab;
#pragma unroll 1
    for (u32 pick = blockIdx.x; pick < a.adjusted; pick += gridDim.x) {
        const u32 index = a.adjusted_rows[pick];
        const RowParams row = a.rows[index];
        const float *raw = a.logits + (u64)index * a.vocab;
        float *logits = a.adjusted_logits + (u64)row.adjusted * a.vocab;
        for (u32 t = threadIdx.x; t < a.vocab; t += blockDim.x) logits[t] = raw[t];
        __syncthreads();
        add_biases(a, row, logits);
        penalise(a, row, logits, marks);
        const bool restricted = row.allowed != NO_TOKEN;
        if (restricted) mark(a, marks, row.allowed, row.alloweds);
        Peak p = {minus_infinity(), 0xfffffffeu};
        for (u32 t = threadIdx.x; t < a.vocab; t += blockDim.x) {
            bool out = row.mask != NO_TOKEN && !(a.words[row.mask + t / 32] >> (t % 32) & 1);
            if (restricted) {
                out |= marks[t] == 0;
                marks[t] = 0;
            }
            if (out) logits[t] = minus_infinity();
            p = higher(p, peak_of(logits[t], t));
        }
        p = block_peak(p, scratch);
        if (threadIdx.x == 0) a.adjusted_peaks[index] = p;
        __syncthreads();
    }
}

// --- weights as whole numbers ---

// exp by the polynomial of the CPU's kernels, operation by operation.
DEVICE float exponential(float x) {
    const float magic = 12582912.0f;
    float y = __fmul_rn(x, 1.4426950408889634f);
    y = y < -127.0f ? -127.0f : y;
    y = y > 128.0f ? 128.0f : y;
    float shifted = __fadd_rn(y, magic);
    i32 n = (i32)__float_as_uint(shifted) - (i32)__float_as_uint(magic);
    float f = __fsub_rn(y, __fsub_rn(shifted, magic)), p = 1.3264727e-3f;
    p = __fadd_rn(__fmul_rn(p, f), 9.671513e-3f);
    p = __fadd_rn(__fmul_rn(p, f), 5.5507337e-2f);
    p = __fadd_rn(__fmul_rn(p, f), 2.4022242e-1f);
    p = __fadd_rn(__fmul_rn(p, f), 6.93147e-1f);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f);
    i32 half = n >> 1;
    return __fmul_rn(__fmul_rn(p, __uint_as_float((u32)(half + 127) << 23)), __uint_as_float((u32)(n - half + 127) << 23));
}
// A row's logits under a temperature, with the thresholds of the filters applied so far.
struct Candidates {
    const float *logits;
    u32 vocab;
    float most, inverse_temperature;
    u64 by_logit;             // keys below are out
    u64 by_typical;           // likewise, by closeness to the expected surprise
    float least;              // weights below are out
    double log_total, entropy;
    bool typical;
};
DEVICE float exponent(const Candidates &c, float logit) { return __fmul_rn(__fsub_rn(logit, c.most), c.inverse_temperature); }
DEVICE float weight(const Candidates &c, float logit) {
    float e = exponent(c, logit);
    return e < -87.0f ? 0.0f : exponential(e);
}
DEVICE u64 mass(float weight) { return (u64)__fmul_rn(weight, UNIT); }
// Larger is preferred, the lower token among equals.
DEVICE u64 key(float rank, u32 token) {
    u32 bits = __float_as_uint(rank);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | (0xffffffffu - token);
}
DEVICE u32 token_of(u64 key) { return 0xffffffffu - (u32)key; }
DEVICE u64 typical_key(const Candidates &c, u32 token) {
    double surprise = c.log_total - (double)exponent(c, c.logits[token]);
    return key(-(float)fabs(surprise - c.entropy), token);
}
DEVICE bool kept(const Candidates &c, u32 token) {
    float logit = c.logits[token];
    if (!(logit > minus_infinity()) || key(logit, token) < c.by_logit) return false;
    if (c.least > 0.0f && weight(c, logit) < c.least) return false;
    return !c.typical || typical_key(c, token) >= c.by_typical;
}

// What a selection adds up, and in which order it looks at candidates.
#define BY_LOGIT 0
#define BY_TYPICAL 1
#define BY_TOKEN 2
struct Selection {
    int order;
    bool count;   // add up ones instead of masses
    bool beyond;  // the sum must pass the goal, not only reach it
    u64 goal;
};
struct Histogram {
    u64 bins[256];
    u64 sum;
    u32 digit, found;
    u64 best;
};
DEVICE u64 ordered(const Candidates &c, int order, u32 token) {
    if (order == BY_LOGIT) return key(c.logits[token], token);
    if (order == BY_TYPICAL) return typical_key(c, token);
    return (u64)(0xffffffffu - token);
}
// The key of the candidate at which the sum, from the most preferred on, reaches the goal; 0 where it never does.
DEVICE u64 select(const Candidates &c, const Selection &s, Histogram &h) {
    u64 prefix = 0, before = 0;
#pragma unroll 1
    for (int shift = s.order == BY_TOKEN ? 24 : 56; shift >= 0; shift -= 8) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < 256; i += blockDim.x) h.bins[i] = 0;
        __syncthreads();
        // A thread's neighbours often fall into one bin: it adds them up before it asks for the bin.
        u32 bin = 0;
        u64 pending = 0;
        for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x) {
            if (!kept(c, t)) continue;
            u64 k = ordered(c, s.order, t);
            if (shift < 56 && k >> (shift + 8) != prefix) continue;
            u32 digit = (u32)(k >> shift & 255);
            if (digit != bin && pending) atomicAdd(&h.bins[bin], pending), pending = 0;
            bin = digit;
            pending += s.count ? 1 : mass(weight(c, c.logits[t]));
        }
        if (pending) atomicAdd(&h.bins[bin], pending);
        __syncthreads();
        if (threadIdx.x == 0) {
            h.sum = before, h.found = 0;
            for (int d = 255; d >= 0 && !h.found; d--) {
                u64 after = h.sum + h.bins[d];
                if (h.bins[d] && (s.beyond ? after > s.goal : after >= s.goal)) h.digit = d, h.found = 1;
                else h.sum = after;
            }
        }
        __syncthreads();
        if (!h.found) return 0;
        prefix = prefix << 8 | h.digit, before = h.sum;
    }
    return prefix;
}
DEVICE u64 total(const Candidates &c, Histogram &h) {
    __syncthreads();
    if (threadIdx.x == 0) h.sum = 0;
    __syncthreads();
    u64 mine = 0;
    for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x)
        if (kept(c, t)) mine += mass(weight(c, c.logits[t]));
    atomicAdd(&h.sum, mine);
    __syncthreads();
    return h.sum;
}
// The least preferred candidate there is, by an order.
DEVICE u64 last(const Candidates &c, int order, Histogram &h) {
    __syncthreads();
    if (threadIdx.x == 0) h.best = ~0ull;
    __syncthreads();
    for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x)
        if (kept(c, t) && mass(weight(c, c.logits[t]))) atomicMin(&h.best, ordered(c, order, t));
    __syncthreads();
    return h.best;
}
DEVICE float heaviest(const Candidates &c, Peak *scratch) {
    Peak p = {minus_infinity(), 0xfffffffeu};
    for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x)
        if (kept(c, t)) p = higher(p, {c.logits[t], t});
    return weight(c, block_peak(p, scratch).logit);
}
DEVICE double block_total(double v, double *scratch) {
    __syncthreads();
    scratch[threadIdx.x] = v;
    __syncthreads();
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();
    }
    return scratch[0];
}
DEVICE void measure_surprise(Candidates &c, u64 all, double *scratch) {
    double sum = (double)all / (double)UNIT, mine = 0.0;
    c.log_total = log(sum);
    for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x) {
        float w = kept(c, t) ? weight(c, c.logits[t]) : 0.0f;
        if (w > 0.0f) mine += (double)w / sum * (c.log_total - (double)exponent(c, c.logits[t]));
    }
    c.entropy = block_total(mine, scratch);
}

// Philox4x32-10 of (seed, position): a number in 0 <= x < 1, uniform to 53 bits.
DEVICE double uniform(u64 seed, u64 position) {
    u32 x[4] = {(u32)position, (u32)(position >> 32), 0, 0}, k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        u64 p = 0xD2511F53ull * x[0], q = 0xCD9E8D57ull * x[2];
        u32 y[4] = {(u32)(q >> 32) ^ x[1] ^ k0, (u32)q, (u32)(p >> 32) ^ x[3] ^ k1, (u32)p};
        for (int j = 0; j < 4; j++) x[j] = y[j];
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)(((u64)x[0] << 32 | x[1]) >> 11) / 9007199254740992.0;
}

DEVICE u32 draw(const Sample &a, const RowParams &row, Candidates &c, Histogram &h, Peak *scratch, double *sums) {
    int order = BY_TOKEN;
    u64 all = 0;
    if (row.top_k > 0 && row.top_k < a.vocab) {
        c.by_logit = select(c, {BY_LOGIT, true, false, row.top_k}, h);
        order = BY_LOGIT;
    }
    if (row.typical_p < 1.0f) {
        all = total(c, h);
        measure_surprise(c, all, sums);
        u64 least = select(c, {BY_TYPICAL, false, false, (u64)((double)row.typical_p * (double)all)}, h);
        c.by_typical = least, c.typical = true;
        order = BY_TYPICAL;
    }
    if (row.top_p < 1.0f) {
        all = total(c, h);
        u64 least = select(c, {BY_LOGIT, false, false, (u64)((double)row.top_p * (double)all)}, h);
        c.by_logit = c.by_logit > least ? c.by_logit : least;
        order = BY_LOGIT;
    }
    if (row.min_p > 0.0f) c.least = __fmul_rn(fminf(row.min_p, 1.0f), heaviest(c, scratch));
    all = total(c, h);
    u64 goal = (u64)(uniform(row.seed, row.position) * (double)all);
    u64 found = select(c, {order, false, true, goal}, h);
    if (found == 0) found = last(c, order, h);  // rounding left a remainder
    return token_of(found);
}

// The likeliest tokens under the model's own distribution.
DEVICE u32 list_alternatives(const Candidates &c, u32 count, float normaliser, Alternative *out, Histogram &h, u64 *keys) {
    count = min(min(count, c.vocab), (u32)MOST_ALTERNATIVES);
    if (count == 0) return 0;
    u64 least = select(c, {BY_LOGIT, true, false, count}, h);
    __syncthreads();
    if (threadIdx.x == 0) h.found = 0;
    __syncthreads();
    for (u32 t = threadIdx.x; t < c.vocab; t += blockDim.x)
        if (c.logits[t] > minus_infinity() && key(c.logits[t], t) >= least) keys[atomicAdd(&h.found, 1u) % MOST_ALTERNATIVES] = key(c.logits[t], t);
    __syncthreads();
    const u32 found = min(h.found, count);
    for (u32 i = threadIdx.x; i < found; i += blockDim.x) {
        u32 rank = 0;
        for (u32 j = 0; j < found; j++) rank += keys[j] > keys[i];
        out[rank] = {token_of(keys[i]), __fsub_rn(c.logits[token_of(keys[i])], normaliser)};
    }
    return found;
}

KERNEL(sample_tokens, Sample, SAMPLE_THREADS) {
    __shared__ Peak scratch[32];
    __shared__ Histogram h;
    __shared__ double sums[SAMPLE_THREADS];
    const u32 index = blockIdx.x;
    const RowParams row = a.rows[index];
    Peak own = {minus_infinity(), 0xfffffffeu};
    for (u32 s = threadIdx.x; s < a.stretches; s += blockDim.x) own = higher(own, a.peaks[(u64)index * a.stretches + s]);
    own = block_peak(own, scratch);
    Outcome out = {0, ROW_OK, 0.0f, 0};
    const bool usable = own.token != NO_TOKEN && own.logit > minus_infinity();
    Peak peak = usable && row.adjusted != NO_TOKEN ? a.adjusted_peaks[index] : own;
    const float *raw = a.logits + (u64)index * a.vocab;
    if (!usable) {
        out.status = ROW_NOT_FINITE;
    } else if (row.scored != NO_TOKEN) {
        out.token = row.scored;
    } else if (!(peak.logit > minus_infinity())) {
        out.status = ROW_NOTHING_ALLOWED;
    } else if (row.inverse_temperature == 0.0f || row.top_k == 1) {
        out.token = peak.token;
    } else {
        const float *logits = row.adjusted != NO_TOKEN ? a.adjusted_logits + (u64)row.adjusted * a.vocab : raw;
        Candidates c = {logits, a.vocab, peak.logit, row.inverse_temperature, 0, 0, 0.0f, 0.0, 0.0, false};
        out.token = draw(a, row, c, h, scratch, sums);
    }
    if (out.status == ROW_OK && row.alternatives != NO_TOKEN) {
        Candidates c = {raw, a.vocab, own.logit, 1.0f, 0, 0, 0.0f, 0.0, 0.0, false};
        float normaliser = __fadd_rn(own.logit, (float)log((double)total(c, h) / (double)UNIT));
        out.logprob = out.token < a.vocab ? __fsub_rn(raw[out.token], normaliser) : minus_infinity();
        out.alternatives = list_alternatives(c, row.alternatives, normaliser, a.alternatives + (u64)index * MOST_ALTERNATIVES, h, (u64 *)sums);
    }
    if (threadIdx.x == 0) {
        a.outcomes[index] = out;
        a.chosen[index] = out.token;
    }
}
