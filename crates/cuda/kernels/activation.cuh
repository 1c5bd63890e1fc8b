// The non-linearities of MLPs.
#define SILU 0u
#define GELU_TANH 1u
#define GELU 2u
DEVICE float activated(float x, u32 kind) {
    if (kind == SILU) return __fmul_rn(x, rcp_approx(__fadd_rn(1.0f, exp2_approx(__fmul_rn(-1.442695041f, x)))));
    if (kind == GELU_TANH) {
        float inner = __fmul_rn(0.7978846f, __fmaf_rn(__fmul_rn(__fmul_rn(0.044715f, x), x), x, x));
        return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanh_by_exp2(inner)));
    }
    return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.70710678f))));
}
