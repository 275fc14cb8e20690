/* The sweeps over rows, compiled once per instruction set: _rows.c defines NAME, TARGET and VB,
   the bytes of a vector.

   Sums over the classes of a long row run over 16 lanes (8 in float64) whatever the machine has,
   P vectors side by side, and nothing is contracted: every instruction set gives the same bits. */

#define INLINE static inline __attribute__((always_inline)) TARGET
#define FUNCTION static TARGET
#define P (64 / VB)
#define FW (VB / 4)
#define DW (VB / 8)
#define EACH for (int u = 0; u < P; u++)

typedef float NAME(vf) __attribute__((vector_size(VB)));
typedef double NAME(vd) __attribute__((vector_size(VB)));
typedef int32_t NAME(vi) __attribute__((vector_size(VB)));
typedef int64_t NAME(vl) __attribute__((vector_size(VB)));
/* The same anywhere in memory. */
typedef float NAME(any_vf) __attribute__((vector_size(VB), aligned(4), may_alias));
typedef double NAME(any_vd) __attribute__((vector_size(VB), aligned(8), may_alias));
typedef int32_t NAME(any_vi) __attribute__((vector_size(VB), aligned(4), may_alias));
typedef int64_t NAME(any_vl) __attribute__((vector_size(VB), aligned(8), may_alias));
typedef float NAME(any_vh) __attribute__((vector_size(VB / 2), aligned(4), may_alias));

INLINE vi NAME(lanes)(void)
{
#if VB == 64
    return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif VB == 32
    return (vi){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (vi){0, 1, 2, 3};
#endif
}

/* --- exponential and logarithm --------------------------------------------------------------- */

/* exp(x) to 1e-7 relative for FAINTEST <= x <= 0; NaN need not stay NaN. */
INLINE vf NAME(expf)(vf x)
{
    vf t = FMA_F(x, splat_f(1.44269504f), splat_f(12582912.0f)); /* 1.5 * 2^23, as MAGIC */
    vf n = t - 12582912.0f;
    vf r = LESS_LN2(n, x);
    vf rr = r * r;
    vf low = FMA_F(r, splat_f(0.166665733642f), splat_f(0.499999999984f));
    vf high = FMA_F(r, splat_f(0.00836377676091f), splat_f(0.0416665516714f));
    high = FMA_F(rr, splat_f(0.00139267579622f), high);
    vf p = 1.0f + FMA_F(rr, FMA_F(rr, high, low), r);
    return (vf)((vi)p + ((vi)t << 23));
}

/* exp(x) to 3e-16 relative for x <= 0; 0 below LOWEST. */
INLINE vd NAME(expd)(vd x)
{
    vl low = x < LOWEST;
    vd c = MAX_D(splat_d(LOWEST), x);
    vd t = FMA_D(c, splat_d(1.4426950408889634), splat_d(MAGIC));
    vd n = t - MAGIC;
    vd r = FMA_D(n, splat_d(-0.6931471803691238), c);
    r = FMA_D(n, splat_d(-1.9082149292705877e-10), r);
    vd rr = r * r, r4 = rr * rr;
    vd q0 = FMA_D(r, splat_d(0.166666666666666675), splat_d(0.500000000000000113));
    vd q1 = FMA_D(r, splat_d(0.0083333333333297935), splat_d(0.0416666666666206386));
    vd q2 = FMA_D(r, splat_d(0.000198412698643805133), splat_d(0.00138888889189391678));
    vd q3 = FMA_D(r, splat_d(2.75572664186123037e-6), splat_d(0.0000248015186413959936));
    vd q4 = FMA_D(r, splat_d(2.51013469283503402e-8), splat_d(2.76213386691429238e-7));
    vd first = FMA_D(rr, q1, q0), second = FMA_D(rr, q3, q2);
    vd q = FMA_D(r4, FMA_D(r4, q4, second), first);
    vd p = 1.0 + FMA_D(rr, q, r);
    return (vd)(((vl)p + ((vl)t << 52)) & ~low);
}

/* log(x) + extra for normal x > 0; finite for 0. */
INLINE vd NAME(logd)(vd x, vd extra)
{
    vl bits = (vl)x;
    /* x = 2^k m with sqrt(1/2) <= m < sqrt(2) */
    vl k = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
    vd m = (vd)(bits - (k << 52));
    vd kd = (vd)(k + MAGIC_BITS) - MAGIC;
    vd f = m - 1.0, s = f / (2.0 + f), z = s * s;
    vd q = FMA_D(z, splat_d(0.0655036069177537753), splat_d(0.066337092982348081));
    q = FMA_D(q, z, splat_d(0.0769314526732961338));
    q = FMA_D(q, z, splat_d(0.0909089735044889713));
    q = FMA_D(q, z, splat_d(0.111111112002738787));
    q = FMA_D(q, z, splat_d(0.142857142853822251));
    q = FMA_D(q, z, splat_d(0.200000000000004706));
    q = FMA_D(q, z, splat_d(0.333333333333333332));
    vd tail = 2.0 * s * (z * q) + (kd * 1.9082149292705877e-10 + extra);
    return kd * 0.6931471803691238 + (2.0 * s + tail);
}

/* log(1 + x) for x >= 0, relative also for tiny x. */
INLINE vd NAME(log1pd)(vd x)
{
    vd u = 1.0 + x;
    vd lost = SELECT_D(x > 1e15, splat_d(0.0), (x - (u - 1.0)) / u);
    return NAME(logd)(u, lost);
}

/* --- from the sums of eight rows to their columns -------------------------------------------- */

/* Lanes `from` on of the eight rows; the columns go to `at`. Keeps the factor of their terms. */
INLINE void NAME(finish)(Eight *in, int from, const int64_t *right, double most,
                         const Columns *out, int64_t at)
{
    vd total = LOAD_D(in->total + from), gap = LOAD_D(in->gap + from);
    vl correct = LOAD_L(right + from);
    vd factor = NAME(expd)(gap);
    vd odds = factor * total;
    vd confidence = 1.0 / (1.0 + odds);
    vd log_norm = NAME(log1pd)(odds);
    vd label_log_odds = LOAD_D(in->label + from) - LOAD_D(in->top + from);
    vd label_odds = NAME(expd)(label_log_odds);
    vd squares = factor * factor * LOAD_D(in->squares + from);
    /* sum_j (p_j - [j = y])^2 = (1 - p_y)^2 + sum_{j != y} p_j^2, in odds p_j / p_t. */
    vd miss = SELECT_D(correct, odds, 1.0 + odds - label_odds);
    vd rest = SELECT_D(correct, squares, 1.0 + squares - label_odds * label_odds);
    vd moment = factor * (LOAD_D(in->weighted + from) + gap * total);
    vd entropy = log_norm - confidence * moment;
    entropy = MAX_D(splat_d(0.0), entropy);
    entropy = MIN_D(splat_d(most), entropy);
    STORE_D(in->factor + from, factor);
    STORE_D(out->odds + at, odds);
    STORE_D(out->confidence + at, confidence);
    STORE_D(out->label_log_prob + at, label_log_odds - log_norm);
    STORE_D(out->label_prob + at, label_odds * confidence);
    STORE_D(out->brier + at, (miss * miss + rest) * (confidence * confidence));
    STORE_D(out->entropy + at, entropy);
}

/* --- sums of one long row of logits ---------------------------------------------------------- */

/* Sixteen lanes of float32 over to eight of float64. */
INLINE void NAME(widen)(const vf *x, vd *sum)
{
    float lanes[16];
    EACH STORE_F(lanes + u * FW, x[u]);
    EACH sum[u] += WIDE(lanes + u * DW) + WIDE(lanes + 8 + u * DW);
}

INLINE double NAME(add_lanes)(const vd *sum)
{
    double v[8];
    EACH STORE_D(v + u * DW, sum[u]);
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/* The last, incomplete sixteen entries of a row, filled up. */
INLINE void NAME(get_tail_f)(const float *z, int64_t classes, float *tail)
{
    int64_t full = classes & ~(int64_t)15;
    if (full == classes)
        return;
    EACH STORE_F(tail + u * FW, splat_f(-INFINITY));
    memcpy(tail, z + full, (size_t)(classes - full) * sizeof *tail);
}

INLINE float NAME(largest)(vf x)
{
    float l[16], two[8];
    EACH STORE_F(l + u * FW, x);
    for (int i = 0; i < 8; i++)
        two[i] = l[i] > l[i + 8] ? l[i] : l[i + 8];
    for (int i = 0; i < 4; i++)
        two[i] = two[i] > two[i + 4] ? two[i] : two[i + 4];
    for (int i = 0; i < 2; i++)
        two[i] = two[i] > two[i + 2] ? two[i] : two[i + 2];
    return two[0] > two[1] ? two[0] : two[1];
}

/* The largest and the second largest of a row; 0 if it holds NaN. */
INLINE int NAME(largest_two)(const float *z, const float *tail, int64_t classes, float *top,
                             float *second)
{
    vf most[2 * P], next[2 * P], zero[2 * P];
    int64_t j = 0, full = classes & ~(int64_t)15;
    int odd = 0, ties = 0;
    for (int u = 0; u < 2 * P; u++)
        most[u] = next[u] = splat_f(-INFINITY), zero[u] = splat_f(0);
#define LOOK(block, u) \
    do { \
        vf x_ = LOAD_F(block); \
        next[u] = MAX_F(MIN_F(x_, most[u]), next[u]); \
        most[u] = MAX_F(x_, most[u]); \
        zero[u] = FMA_F(x_, splat_f(0), zero[u]); /* NaN after NaN, and after infinities */ \
    } while (0)
    for (; j + 32 <= classes; j += 32) {
        __builtin_prefetch(z + j + AHEAD);
        __builtin_prefetch(z + j + AHEAD + 16);
        for (int u = 0; u < 2 * P; u++)
            LOOK(z + j + u * FW, u);
    }
    if (j < full)
        EACH LOOK(z + j + u * FW, u);
#undef LOOK
    if (full < classes)
        EACH
        {
            vf x = LOAD_F(tail + u * FW);
            next[u] = MAX_F(MIN_F(x, most[u]), next[u]);
            most[u] = MAX_F(x, most[u]);
            odd |= MASK_I((vi)(x != x));
        }
    vf high = most[0], zeros = zero[0], other = splat_f(-INFINITY);
    for (int u = 1; u < 2 * P; u++) {
        high = MAX_F(most[u], high);
        zeros += zero[u];
    }
    *top = NAME(largest)(high);
    for (int u = 0; u < 2 * P; u++) {
        vi mine = (vi)(most[u] == splat_f(*top));
        ties += __builtin_popcount((unsigned)MASK_I(mine));
        other = MAX_F(SELECT_F(mine, next[u], most[u]), other);
    }
    *second = ties > 1 ? *top : NAME(largest)(other);
    if (odd)
        return 0;
    if (MASK_I((vi)(zeros != splat_f(0))))
        for (int64_t j = 0; j < classes; j++)
            if (z[j] != z[j])
                return 0;
    return 1;
}

/* The first class with this logit, which some class has. */
INLINE int64_t NAME(first_equal)(const float *z, int64_t classes, float top)
{
    int64_t at = 0;
    for (; at + 64 <= classes; at += 64) {
        vi found = (vi)(LOAD_F(z + at) == splat_f(top));
        for (int u = 1; u < 4 * P; u++)
            found |= (vi)(LOAD_F(z + at + u * FW) == splat_f(top));
        if (MASK_I(found))
            break;
    }
    for (; at + FW <= classes; at += FW) {
        int found = MASK_I((vi)(LOAD_F(z + at) == splat_f(top)));
        if (found)
            return at + __builtin_ctz((unsigned)found);
    }
    while (z[at] != top)
        at++;
    return at;
}

/* Predicted class and runner-up's logit of a row; 0 if the row is bad. */
INLINE int NAME(check_f)(const float *z, int64_t classes, int64_t *predicted, float *second)
{
    float tail[16], top;
    NAME(get_tail_f)(z, classes, tail);
    if (!NAME(largest_two)(z, tail, classes, &top, second) || !(top - top == 0))
        return 0;
    *predicted = NAME(first_equal)(z, classes, top);
    return 1;
}

INLINE int NAME(check_d)(const double *z, int64_t classes, int64_t *predicted)
{
    int64_t at = 0;
    for (int64_t j = 0; j < classes; j++) {
        if (z[j] != z[j])
            return 0;
        if (z[j] > z[at])
            at = j;
    }
    *predicted = at;
    return z[at] - z[at] == 0;
}

/* First row with NaN, +inf, or nothing finite; many classes. */
FUNCTION int64_t NAME(check_wide)(const Scores *s)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const char *row = floats_of(s, i);
        int64_t predicted;
        float second;
        int fine = s->type == DOUBLE
                       ? NAME(check_d)((const double *)row, s->classes, &predicted)
                       : NAME(check_f)((const float *)row, s->classes, &predicted, &second);
        if (!fine)
            return i;
    }
    return -1;
}

/* Sums of terms in float32, and in float64 for those of earlier runs. */
typedef struct {
    vf t[P], s[P], w[P];
    vd total[P], squares[P], weighted[P];
} NAME(Running);

/* Sixteen logits of a row. */
INLINE void NAME(add_terms)(int keep, const float *z, vf base, NAME(Running) *r, float *kept)
{
    EACH
    {
        vf x = MAX_F(splat_f(FAINTEST), LOAD_F(z + u * FW) - base);
        vf e = NAME(expf)(x);
        if (keep)
            STORE_F(kept + u * FW, e);
        r->t[u] += e;
        r->s[u] = FMA_F(e, e, r->s[u]);
        r->w[u] = FMA_F(e, x, r->w[u]);
    }
}

INLINE void NAME(widen_moments)(NAME(Running) *r)
{
    NAME(widen)(r->s, r->squares);
    NAME(widen)(r->w, r->weighted);
    EACH r->s[u] = r->w[u] = splat_f(0);
}

/* In float32 relative to the runner-up, whose own term is exactly 1; `kept` are the terms. The
   sixteen logits around the predicted class are read from a copy without it, and no branch depends
   on where it is: a wrong guess costs as much as a dozen vectors. */
INLINE void NAME(sums_f)(int keep, const float *z, int64_t classes, int64_t at, float base,
                         Sums *out, float *kept)
{
    float tail[16], patched[16];
    int64_t full = classes & ~(int64_t)15, skip = at & ~(int64_t)15, j = 0;
    NAME(Running) r;
    *out = (Sums){.top = z[at]};
    if (base == -INFINITY) { /* no other class has a probability */
        if (keep)
            memset(kept, 0, (size_t)((classes + 15) & ~(int64_t)15) * sizeof *kept);
        return;
    }
    NAME(get_tail_f)(z, classes, tail);
    EACH
    {
        vi predicted = (vi)(NAME(lanes)() + u * FW == (int32_t)(at - skip));
        vf x = LOAD_F((skip == full ? tail : z + skip) + u * FW);
        STORE_F(patched + u * FW, SELECT_F(predicted, splat_f(-INFINITY), x));
        r.t[u] = r.s[u] = r.w[u] = splat_f(0);
        r.total[u] = r.squares[u] = r.weighted[u] = splat_d(0);
    }
    uintptr_t to_patched = (uintptr_t)patched - (uintptr_t)(z + skip);
#define BLOCK(j) ((const float *)((uintptr_t)(z + (j)) + (to_patched & -(uintptr_t)((j) == skip))))
    for (; j + RUN <= full; j += RUN) {
        EACH r.t[u] = splat_f(0);
#pragma GCC unroll 4
        for (int64_t i = j; i < j + RUN; i += 16) {
            __builtin_prefetch(z + i + AHEAD);
            NAME(add_terms)(keep, BLOCK(i), splat_f(base), &r, keep ? kept + i : NULL);
        }
        NAME(widen)(r.t, r.total);
        if (!((j + RUN) & (4 * RUN - 1)))
            NAME(widen_moments)(&r);
    }
    EACH r.t[u] = splat_f(0);
    for (; j < full; j += 16) {
        __builtin_prefetch(z + j + AHEAD);
        NAME(add_terms)(keep, BLOCK(j), splat_f(base), &r, keep ? kept + j : NULL);
    }
    if (full < classes)
        NAME(add_terms)(keep, skip == full ? patched : tail, splat_f(base), &r,
                        keep ? kept + full : NULL);
#undef BLOCK
    NAME(widen)(r.t, r.total);
    NAME(widen_moments)(&r);
    out->gap = (double)base - (double)z[at];
    out->total = NAME(add_lanes)(r.total);
    out->squares = NAME(add_lanes)(r.squares);
    out->weighted = NAME(add_lanes)(r.weighted);
}

/* In float64 relative to the top. */
FUNCTION void NAME(sums_d)(const double *z, int64_t classes, int64_t at, Sums *out)
{
    double tail[8], patched[8], top = z[at];
    int64_t full = classes & ~(int64_t)7, skip = at & ~(int64_t)7;
    vd total[P], squares[P], weighted[P];
    for (int l = 0; l < 8; l++)
        tail[l] = full + l < classes ? z[full + l] : -INFINITY;
    memcpy(patched, skip == full ? tail : z + skip, sizeof patched);
    patched[at - skip] = -INFINITY;
    EACH total[u] = squares[u] = weighted[u] = splat_d(0);
    for (int64_t j = 0; j < classes; j += 8) {
        const double *block = j == skip ? patched : j == full ? tail : z + j;
        EACH
        {
            vd x = LOAD_D(block + u * DW) - top;
            vd e = NAME(expd)(x);
            total[u] += e;
            squares[u] = FMA_D(e, e, squares[u]);
            weighted[u] = FMA_D(e, MAX_D(splat_d(LOWEST), x), weighted[u]);
        }
    }
    *out = (Sums){.top = top};
    out->total = NAME(add_lanes)(total);
    out->squares = NAME(add_lanes)(squares);
    out->weighted = NAME(add_lanes)(weighted);
}

INLINE double NAME(exp1)(double x)
{
    double lanes[8];
    STORE_D(lanes, NAME(expd)(splat_d(x)));
    return lanes[0];
}

/* The classes in the mask, from class k of a row on, counted one by one. */
FUNCTION void NAME(count_above)(const Scores *s, int64_t row, int64_t k, unsigned mask,
                                const Columns *c, const Table *t)
{
    double top = logit_at(s, row, c->predicted[row]);
    for (; mask; mask &= mask - 1) {
        int64_t one = k + __builtin_ctz(mask);
        count_entry(t, one, NAME(exp1)(logit_at(s, row, one) - top) * c->confidence[row]);
    }
}

/* The classes of up to four rows of float32 terms from `row` on: first bins in 32 bits, those above
   them one by one. Rows that are not there have a scale of 0. */
INLINE void NAME(count_four)(const Scores *s, int64_t row, const float *const *kept,
                             const float *scale, const Columns *c, int32_t *first, const Table *t)
{
    vf limit = splat_f((float)(UNITS / (double)t->bins * (1 - SLACK)));
    for (int64_t k = 0; k < s->classes; k += FW) {
        vf p[4];
        vi sum = {0}, above = {0};
        for (int r = 0; r < 4; r++) {
            p[r] = LOAD_F(kept[r] + k) * scale[r];
            above |= (vi)(p[r] > limit);
        }
        if (MASK_I(above))
            for (int r = 0; r < 4; r++) {
                unsigned mask = (unsigned)MASK_I((vi)(p[r] > limit));
                if (mask)
                    NAME(count_above)(s, row + r, k, mask, c, t);
                p[r] = (vf)((vi)p[r] & ~(vi)(p[r] > limit));
            }
        for (int r = 0; r < 4; r++)
            sum += __builtin_convertvector(p[r] + 0.5f, vi);
        STORE_I(first + k, LOAD_I(first + k) + sum);
    }
}

/* First bins of a few rows, in 32 bits, on their way to 64. */
typedef struct {
    int64_t *sums, padded, held;
    int32_t *recent;
} NAME(First);

INLINE void NAME(flush)(NAME(First) *f)
{
    for (int64_t k = 0; k < f->padded; k++)
        f->sums[k] += f->recent[k];
    memset(f->recent, 0, (size_t)f->padded * sizeof *f->recent);
    f->held = 0;
}

/* The classes of eight rows of terms, `count` of them real, and their predicted classes. */
INLINE void NAME(count_eight)(const Scores *s, int64_t start, int64_t count, const float *kept,
                              const double *factor, const Columns *c, NAME(First) *f,
                              const Table *t)
{
    int64_t step = t->bins < 4 ? 1 : 4, most = t->bins < 1024 ? t->bins : 1024;
    for (int64_t i = 0; i < count; i += step) {
        const float *terms[4];
        float scale[4];
        for (int64_t r = 0; r < 4; r++) {
            int there = r < step && i + r < count;
            terms[r] = kept + (there ? i + r : i) * f->padded;
            scale[r] = there ? (float)(factor[i + r] * c->confidence[start + i + r] * UNITS) : 0;
        }
        if (f->held + step > most)
            NAME(flush)(f);
        f->held += step;
        NAME(count_four)(s, start + i, terms, scale, c, f->recent, t);
    }
    for (int64_t i = start; i < start + count; i++)
        count_entry(t, c->predicted[i], c->confidence[i]);
}

/* Columns of long rows; the first bad row, or -1. A row is checked, added up and, with a table, in
   float32 counted while it is in the cache: memory is read once. `room` holds eight rows of terms
   and the first bins. */
FUNCTION int64_t NAME(logits_wide)(const Scores *s, const int64_t *labels, const Columns *out,
                                   const Table *t)
{
    double most = log((double)s->classes);
    int64_t padded = (s->classes + 31) & ~(int64_t)31;
    float *kept = t ? (float *)((char *)s->room + s->room_used) : NULL;
    NAME(First) first = {.padded = padded};
    if (t) {
        first.sums = (int64_t *)(kept + 8 * padded);
        first.recent = (int32_t *)(first.sums + padded);
        memset(first.sums, 0, (size_t)padded * (sizeof *first.sums + sizeof *first.recent));
    }
    for (int64_t start = 0; start < s->rows; start += 8) {
        Eight e = {.total = {0}};
        int64_t count = s->rows - start < 8 ? s->rows - start : 8, right[8] = {0};
        Columns few = count == 8 ? columns_at(out, start) : spare_columns(&e);
        for (int64_t i = 0; i < count; i++) {
            const char *row = floats_of(s, start + i);
            const float *z = (const float *)row;
            int64_t predicted;
            float second;
            Sums sums;
            if (s->type == DOUBLE ? !NAME(check_d)((const double *)row, s->classes, &predicted)
                                  : !NAME(check_f)(z, s->classes, &predicted, &second))
                return start + i;
            if (s->type == DOUBLE)
                NAME(sums_d)((const double *)row, s->classes, predicted, &sums);
            else if (t)
                NAME(sums_f)(1, z, s->classes, predicted, second, &sums, kept + i * padded);
            else
                NAME(sums_f)(0, z, s->classes, predicted, second, &sums, NULL);
            int64_t label = labels ? labels[start + i] : predicted;
            right[i] = -(label == predicted);
            out->predicted[start + i] = predicted;
            out->correct[start + i] = label == predicted;
            e.top[i] = sums.top;
            e.gap[i] = sums.gap;
            e.total[i] = sums.total;
            e.squares[i] = sums.squares;
            e.weighted[i] = sums.weighted;
            e.label[i] = entry(s, row, label);
        }
        EACH NAME(finish)(&e, u * DW, right, most, &few, u * DW);
        if (count < 8)
            copy_columns(out, start, &few, count);
        if (t)
            NAME(count_eight)(s, start, count, kept, e.factor, out, &first, t);
        for (int64_t i = start; t && i < start + count; i++)
            count_label(t, labels[i], out->label_prob[i]);
    }
    if (t)
        NAME(flush)(&first);
    for (int64_t k = 0; t && k < s->classes; k++)
        t->units[k * t->bins] += first.sums[k];
    return -1;
}

/* --- rows of few classes, DW at a time ------------------------------------------------------- */

INLINE double NAME(read)(int type, const char *at)
{
    return type == FLOAT    ? (double)*(const float *)at
           : type == DOUBLE ? *(const double *)at
                            : (double)half_to_float(*(const uint16_t *)at);
}

INLINE void NAME(turn_as)(int type, const Scores *s, int64_t start, int64_t count, vd *x)
{
    const char *at = s->data + start * s->row_step;
    int64_t step[DW];
    for (int i = 0; i < DW; i++)
        step[i] = (i < count ? i : count - 1) * s->row_step;
    for (int64_t k = 0; k < s->classes; k++, at += s->class_step) {
#define READ(i) NAME(read)(type, at + step[i])
#if VB == 64
        x[k] = (vd){READ(0), READ(1), READ(2), READ(3), READ(4), READ(5), READ(6), READ(7)};
#elif VB == 32
        x[k] = (vd){READ(0), READ(1), READ(2), READ(3)};
#else
        x[k] = (vd){READ(0), READ(1)};
#endif
#undef READ
    }
}

/* Some rows on their side, (K, DW), in float64; past the end the last row again. */
INLINE void NAME(turn)(const Scores *s, int64_t start, int64_t count, vd *x)
{
    const char *at = s->data + start * s->row_step;
    if (count == DW && s->type == FLOAT && s->row_step == sizeof(float)) {
        for (int64_t k = 0; k < s->classes; k++)
            x[k] = WIDE((const float *)(at + k * s->class_step));
    } else if (count == DW && s->type == DOUBLE && s->row_step == sizeof(double)) {
        for (int64_t k = 0; k < s->classes; k++)
            x[k] = LOAD_D((const double *)(at + k * s->class_step));
    } else if (s->type == FLOAT) {
        NAME(turn_as)(FLOAT, s, start, count, x);
    } else if (s->type == DOUBLE) {
        NAME(turn_as)(DOUBLE, s, start, count, x);
    } else {
        NAME(turn_as)(HALF, s, start, count, x);
    }
}

INLINE void NAME(top_of)(const vd *x, int64_t classes, vd *top, vl *predicted)
{
    *top = x[0];
    for (int64_t k = 1; k < classes; k++)
        *top = MAX_D(x[k], *top);
    *predicted = splat_l(0);
    for (int64_t k = classes - 1; k >= 0; k--)
        *predicted = SELECT_L(x[k] == *top, splat_l(k), *predicted);
}

/* The first of `count` lanes that is NaN, or -1. */
INLINE int64_t NAME(first_nan)(vd x, int64_t count)
{
    int mask = MASK_L((vl)(x != x));
    for (int64_t i = 0; mask && i < count; i++)
        if (mask >> i & 1)
            return i;
    return -1;
}

/* The lanes of the rows that are there. */
INLINE vl NAME(lanes_below)(int64_t count)
{
    int64_t there[8];
    for (int64_t i = 0; i < DW; i++)
        there[i] = -(i < count);
    return LOAD_L(there);
}

/* Class k of DW rows, in units: first bins side by side, the few above them in a list, so that no
   branch depends on the data. */
INLINE void NAME(bin_lanes)(vd scaled, int64_t k, vd limit, vl *first, Listed *list)
{
    vl above = (vl)(scaled > limit);
    unsigned mask = (unsigned)MASK_L(above);
    first[k] += ROUNDED((vd)((vl)scaled & ~above));
    LIST_D(list->scaled + list->count, scaled, mask);
    STORE_I(list->of + list->count, (vi){0} + (int32_t)k);
    list->count += __builtin_popcount(mask);
}

INLINE void NAME(count_listed)(const Listed *list, const Table *t)
{
    const Table to = *t;
    for (int64_t i = 0; i < list->count; i++)
        count_units(&to, list->of[i], list->scaled[i]);
}

INLINE vd NAME(first_limit)(const Table *t)
{
    return splat_d(UNITS / (double)t->bins * (1 - SLACK));
}

/* Classes of DW rows of probabilities. */
INLINE void NAME(count_narrow)(const vd *p, int64_t classes, vl there, vl *first, const Table *t)
{
    Listed list;
    list.count = 0;
    for (int64_t k = 0; k < classes; k++)
        NAME(bin_lanes)((vd)((vl)(p[k] * UNITS) & there), k, NAME(first_limit)(t), first, &list);
    NAME(count_listed)(&list, t);
}

INLINE void NAME(add_first)(const vl *first, int64_t classes, const Table *t)
{
    for (int64_t k = 0; k < classes; k++)
        for (int i = 0; i < DW; i++)
            t->units[k * t->bins] += first[k][i];
}

FUNCTION int64_t NAME(logits_narrow)(const Scores *s, const int64_t *labels, const Columns *out,
                                     const Table *t)
{
    double most = log((double)s->classes);
    vd x[NARROW];
    vl first[NARROW];
    for (int64_t k = 0; k < s->classes; k++)
        first[k] = splat_l(0);
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW, found[8], right[8], bad;
        Eight e;
        Columns few = count == DW ? columns_at(out, start) : spare_columns(&e);
        vd top, total = splat_d(0), squares = total, weighted = total;
        vl predicted;
        NAME(turn)(s, start, count, x);
        NAME(top_of)(x, s->classes, &top, &predicted);
        STORE_L(found, predicted);
        for (int64_t i = 0; i < DW; i++) {
            int64_t label = labels && i < count ? labels[start + i] : found[i];
            e.label[i] = ((const double *)x)[DW * label + i];
            right[i] = -(label == found[i]);
        }
        for (int64_t k = 0; k < s->classes; k++) {
            vd d = x[k] - top, whole = NAME(expd)(d);
            vd p = (vd)((vl)whole & ~(vl)(predicted == splat_l(k)));
            x[k] = whole;
            total += p;
            squares = FMA_D(p, p, squares);
            weighted = FMA_D(p, MAX_D(splat_d(LOWEST), d), weighted);
        }
        bad = NAME(first_nan)(weighted + (top - top), count); /* infinite tops, too */
        if (bad >= 0)
            return start + bad;
        STORE_D(e.top, top);
        STORE_D(e.gap, splat_d(0));
        STORE_D(e.total, total);
        STORE_D(e.squares, squares);
        STORE_D(e.weighted, weighted);
        NAME(finish)(&e, 0, right, most, &few, 0);
        if (count < DW)
            copy_columns(out, start, &few, count);
        for (int64_t i = 0; i < count; i++) {
            out->predicted[start + i] = found[i];
            out->correct[start + i] = right[i] != 0;
        }
        if (!t)
            continue;
        for (int64_t k = 0; k < s->classes; k++)
            x[k] = MIN_D(splat_d(1), x[k] * LOAD_D(few.confidence));
        NAME(count_narrow)(x, s->classes, NAME(lanes_below)(count), first, t);
        for (int64_t i = 0; i < count; i++)
            count_label(t, labels[start + i], few.label_prob[i]);
    }
    if (t)
        NAME(add_first)(first, s->classes, t);
    return -1;
}

/* First row with NaN, +inf, or nothing finite; few classes. */
FUNCTION int64_t NAME(check_narrow)(const Scores *s)
{
    vd x[NARROW];
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW, bad;
        NAME(turn)(s, start, count, x);
        vd top = x[0];
        vl nan = (vl)(x[0] != x[0]);
        for (int64_t k = 1; k < s->classes; k++) {
            top = MAX_D(x[k], top);
            nan |= (vl)(x[k] != x[k]);
        }
        bad = NAME(first_nan)(SELECT_D(nan, splat_d(NAN), top - top), count);
        if (bad >= 0)
            return start + bad;
    }
    return -1;
}
