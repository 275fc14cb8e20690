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
typedef uint32_t NAME(vu) __attribute__((vector_size(VB))); /* for sums that may wrap around */
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

/* exp(x) of several vectors, step by step, to 2.3e-7 relative for FAINTEST <= x <= LARGEST; NaN need
   not stay NaN. Where a vector can look up its lanes, 2^(1/8) is the base of a short polynomial. */
#define EACH_OF for (int i = 0; i < count; i++)
INLINE void NAME(expfs)(int count, const vf *x, vf *out)
{
    vf t[4], r[4], p[4];
#ifdef EIGHTHS
    vf power[4];
    EACH_OF t[i] = FMA_F(x[i], splat_f(11.5415603f), splat_f(12582912.0f)); /* 1.5 * 2^23 */
    EACH_OF r[i] = t[i] - 12582912.0f;
    EACH_OF power[i] = (vf)((vu)EIGHTHS((vi)t[i]) + ((vu)t[i] << 20));
    EACH_OF r[i] = FMA_F(r[i], splat_f(-0.0866433978f), x[i]);
    EACH_OF p[i] = FMA_F(r[i], splat_f(0.166666672f), splat_f(0.500064671f));
    EACH_OF p[i] = FMA_F(r[i] * r[i], p[i], r[i]);
    EACH_OF out[i] = FMA_F(power[i], p[i], power[i]);
#else
    EACH_OF t[i] = FMA_F(x[i], splat_f(1.44269504f), splat_f(12582912.0f));
    EACH_OF r[i] = t[i] - 12582912.0f;
    EACH_OF r[i] = LESS_LN2(r[i], x[i]);
    EACH_OF p[i] = FMA_F(r[i], splat_f(0.00139267579622f), splat_f(0.00836377676091f));
    EACH_OF p[i] = FMA_F(r[i], p[i], splat_f(0.0416665516714f));
    EACH_OF p[i] = FMA_F(r[i], p[i], splat_f(0.166665733642f));
    EACH_OF p[i] = FMA_F(r[i], p[i], splat_f(0.499999999984f));
    EACH_OF p[i] = FMA_F(r[i], p[i], splat_f(1.0f));
    EACH_OF p[i] = FMA_F(r[i], p[i], splat_f(1.0f));
    EACH_OF out[i] = (vf)((vu)p[i] + ((vu)t[i] << 23));
#endif
}
#undef EACH_OF

INLINE vf NAME(expf)(vf x)
{
    vf e;
    NAME(expfs)(1, &x, &e);
    return e;
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

/* The largest of some logits, in which NaN is passed over; -inf if there are none. */
FUNCTION float NAME(most_of)(const float *z, int64_t count)
{
    vf most[2 * P];
    int64_t j = 0;
    for (int u = 0; u < 2 * P; u++)
        most[u] = splat_f(-INFINITY);
    for (; j + 32 <= count; j += 32)
        for (int u = 0; u < 2 * P; u++)
            most[u] = MAX_F(LOAD_F(z + j + u * FW), most[u]);
    for (int u = 1; u < 2 * P; u++)
        most[0] = MAX_F(most[u], most[0]);
    float top = NAME(largest)(most[0]);
    for (; j < count; j++)
        top = z[j] > top ? z[j] : top;
    return top;
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

/* Whether a row has a largest logit and no NaN. */
INLINE int NAME(check_f)(const float *z, int64_t classes)
{
    float top;
    int64_t j = 0, full = classes & ~(int64_t)15;
    vf most[2 * P], zero[2 * P];
    for (int u = 0; u < 2 * P; u++)
        most[u] = splat_f(-INFINITY), zero[u] = splat_f(0);
    for (; j + 32 <= full; j += 32) {
        FETCH(z + j);
        FETCH(z + j + 16);
        for (int u = 0; u < 2 * P; u++) {
            vf x = LOAD_F(z + j + u * FW);
            most[u] = MAX_F(x, most[u]);
            zero[u] = FMA_F(x, splat_f(0), zero[u]); /* NaN after NaN, and after infinities */
        }
    }
    for (int u = 1; u < 2 * P; u++) {
        most[0] = MAX_F(most[u], most[0]);
        zero[0] += zero[u];
    }
    top = NAME(largest)(most[0]);
    if (MASK_I((vi)(zero[0] != splat_f(0))) && has_nan(z, j))
        return 0;
    for (int64_t k = j; k < classes; k++)
        top = z[k] > top ? z[k] : top;
    return top - top == 0 && !has_nan(z + j, classes - j);
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
        int fine = s->type == DOUBLE ? NAME(check_d)((const double *)row, s->classes, &predicted)
                                     : NAME(check_f)((const float *)row, s->classes);
        if (!fine)
            return i;
    }
    return -1;
}

/* Sums of terms: squares and moments in float32, and in float64 those of earlier runs; the largest
   sum of four terms. */
typedef struct {
    vf t[P], s[P], w[P], peak[P];
    vd total[P], squares[P], weighted[P];
} NAME(Running);

INLINE void NAME(widen_moments)(NAME(Running) *r)
{
    NAME(widen)(r->s, r->squares);
    NAME(widen)(r->w, r->weighted);
    EACH r->s[u] = r->w[u] = splat_f(0);
}

/* How a row is added up: terms are exp(logit - base), or exp(logit) without a base. Moments are added
   up about the top: `centre` is the top less the base, and cancels nothing later. */
typedef struct {
    int based, keep;
    float base, centre;
} NAME(Way);

/* A run of four times sixteen logits, while the same classes of the row after it are looked at. The
   four advance together, step by step: a processor that sees one of these chains at a time mostly
   waits for it. */
INLINE void NAME(add_run)(NAME(Way) way, const float *const *block, const float *const *after,
                          NAME(Running) *r, vf *most, float *kept)
{
    NAME(widen)(r->t, r->total);
    EACH
    {
        vf x[4], e[4];
        for (int b = 0; b < 4; b++) {
            vf z = LOAD_F(block[b] + u * FW), *lane = most + (b & 1) * P + u;
            x[b] = MAX_F(splat_f(FAINTEST), way.based ? z - way.base : z);
            *lane = MAX_F(LOAD_F(after[b] + u * FW), *lane);
        }
        NAME(expfs)(4, x, e);
        for (int b = 0; way.keep && b < 4; b++)
            STORE_F(kept + 16 * b + u * FW, e[b]);
        r->t[u] = (e[0] + e[1]) + (e[2] + e[3]);
        if (way.keep)
            r->peak[u] = MAX_F(r->t[u], r->peak[u]);
        for (int b = 0; b < 4; b++) {
            r->s[u] = FMA_F(e[b], e[b], r->s[u]);
            r->w[u] = FMA_F(e[b], x[b] - way.centre, r->w[u]);
        }
    }
}

/* A row of which only the predicted class has a probability; or that has NaN. */
INLINE void NAME(sums_of_one)(const float *z, int64_t classes, Sums *out, float *kept)
{
    if (kept)
        memset(kept, 0, (size_t)padded_to(classes, RUN) * sizeof *kept);
    if (has_nan(z, classes))
        out->weighted = NAN;
}

/* The largest of all lanes, and which lanes have it: lane l has the classes l, l + 32, … */
INLINE Top NAME(top_of_lanes)(const vf *most)
{
    vf high = most[0];
    Top top = {.lanes = 0};
    for (int u = 1; u < 2 * P; u++)
        high = MAX_F(most[u], high);
    top.logit = NAME(largest)(high);
    for (int u = 0; u < 2 * P; u++)
        top.lanes |= (uint32_t)MASK_I((vi)(most[u] == splat_f(top.logit))) << u * FW;
    return top;
}

/* Sums in float32, and the top of the row `after`; `kept` are the terms. The weighted sum is NaN if
   a logit is.

   The sixteen logits around the predicted class are read from a copy without it, and no branch
   depends on where it is: a wrong guess costs as much as a dozen vectors. */
INLINE Top NAME(sums_f)(NAME(Way) way, const float *z, const float *after, int64_t classes,
                        int64_t at, Sums *out, float *kept)
{
    float ends[4][16], *tail = ends[0], *patched = ends[1], *none = ends[2], *last = ends[3];
    int64_t full = classes & ~(int64_t)15, skip = at & ~(int64_t)15, j = 0;
    const float *block[4], *next[4];
    NAME(Running) r;
    vf most[2 * P];
    NAME(get_tail_f)(z, classes, tail);
    NAME(get_tail_f)(after, classes, last);
    EACH
    {
        vi predicted = (vi)(NAME(lanes)() + u * FW == (int32_t)(at - skip));
        vf x = LOAD_F((skip == full ? tail : z + skip) + u * FW);
        STORE_F(patched + u * FW, SELECT_F(predicted, splat_f(-INFINITY), x));
        STORE_F(none + u * FW, splat_f(-INFINITY));
        most[u] = most[P + u] = splat_f(-INFINITY);
        r.t[u] = r.s[u] = r.w[u] = r.peak[u] = splat_f(0);
        r.total[u] = r.squares[u] = r.weighted[u] = splat_d(0);
    }
    uintptr_t to_patched = (uintptr_t)patched - (uintptr_t)(z + skip);
#define BLOCK(j) ((const float *)((uintptr_t)(z + (j)) + (to_patched & -(uintptr_t)((j) == skip))))
    for (; j + RUN <= full; j += RUN) {
        for (int b = 0; b < 4; b++) {
            FETCH(after + j + 16 * b);
            block[b] = BLOCK(j + 16 * b);
            next[b] = after + j + 16 * b;
        }
        NAME(add_run)(way, block, next, &r, most, way.keep ? kept + j : NULL);
        if (!((j + RUN) & (4 * RUN - 1)))
            NAME(widen_moments)(&r);
    }
    if (j < classes) {
        for (int b = 0; b < 4; b++) {
            int64_t k = j + 16 * b;
            FETCH(after + k);
            block[b] = k < full ? BLOCK(k) : k >= classes ? none : skip == full ? patched : tail;
            next[b] = k < full ? after + k : k >= classes ? none : last;
        }
        NAME(add_run)(way, block, next, &r, most, way.keep ? kept + j : NULL);
    }
#undef BLOCK
    NAME(widen)(r.t, r.total);
    NAME(widen_moments)(&r);
    out->gap = (double)way.base - (double)z[at];
    out->total = NAME(add_lanes)(r.total);
    out->squares = NAME(add_lanes)(r.squares);
    out->weighted = NAME(add_lanes)(r.weighted) + (double)way.centre * out->total;
    for (int u = 1; way.keep && u < P; u++)
        r.peak[0] = MAX_F(r.peak[u], r.peak[0]);
    out->peak = way.keep ? NAME(largest)(r.peak[0]) : 0;
    return NAME(top_of_lanes)(most);
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

/* Take out of a row of terms the classes above the first bin, and count them one by one. They are
   few: four vectors at a time are looked at as one. */
FUNCTION void NAME(take_above)(const Scores *s, int64_t row, float *kept, float scale, float limit,
                               const Columns *c, const Table *t)
{
    for (int64_t k = 0; k < s->classes; k += 4 * FW) {
        vf most = MAX_F(MAX_F(LOAD_F(kept + k), LOAD_F(kept + k + FW)),
                        MAX_F(LOAD_F(kept + k + 2 * FW), LOAD_F(kept + k + 3 * FW)));
        if (!ABOVE_F(most * scale, splat_f(limit)))
            continue;
        for (int64_t v = k; v < k + 4 * FW; v += FW) {
            vf x = LOAD_F(kept + v);
            vi above = (vi)(x * scale > splat_f(limit));
            unsigned mask = (unsigned)MASK_I(above);
            if (mask) {
                NAME(count_above)(s, row, v, mask, c, t);
                STORE_F(kept + v, (vf)((vi)x & ~above));
            }
        }
    }
}

/* First bins of four rows of terms, in 32 bits. */
INLINE void NAME(count_first)(const float *const *kept, const float *scale, int64_t classes,
                              int32_t *first)
{
    for (int64_t k = 0; k < classes; k += FW) {
        vu sum = (vu)LOAD_I(first + k);
        for (int r = 0; r < 4; r++) {
            vf units = FMA_F(LOAD_F(kept[r] + k), splat_f(scale[r]), splat_f(0.5f));
            sum += (vu)__builtin_convertvector(units, vi);
        }
        STORE_I(first + k, (vi)sum);
    }
}

/* First bins of a few rows, in 32 bits without a sign, on their way to 64. */
typedef struct {
    int64_t *sums, padded, held;
    int32_t *recent;
} NAME(First);

INLINE void NAME(flush)(NAME(First) *f)
{
    for (int64_t k = 0; k < f->padded; k++)
        f->sums[k] += (uint32_t)f->recent[k];
    memset(f->recent, 0, (size_t)f->padded * sizeof *f->recent);
    f->held = 0;
}

/* The classes of up to eight rows of terms, and their predicted classes. No term is larger than the
   peak: most rows have nothing above the first bin. */
INLINE void NAME(count_rows)(const Scores *s, int64_t start, int64_t count, float *kept,
                             const Eight *e, const Columns *c, NAME(First) *f, const Table *t)
{
    int64_t most = 4 * (t->bins < 1024 ? t->bins : 1024) - 1, step = most < 4 ? 1 : 4;
    float limit = (float)(UNITS / (double)t->bins * (1 - SLACK)), scale[8];
    for (int64_t i = 0; i < count; i++) {
        scale[i] = (float)(e->factor[i] * c->confidence[start + i] * UNITS);
        if (scale[i] * (float)e->peak[i] > limit)
            NAME(take_above)(s, start + i, kept + i * f->padded, scale[i], limit, c, t);
        count_entry(t, c->predicted[start + i], c->confidence[start + i]);
    }
    for (int64_t i = 0; i < count; i += step) {
        const float *terms[4];
        float scales[4];
        for (int64_t r = 0; r < 4; r++) {
            int there = r < step && i + r < count;
            terms[r] = kept + (there ? i + r : i) * f->padded;
            scales[r] = there ? scale[i + r] : 0;
        }
        if (f->held + step > most)
            NAME(flush)(f);
        f->held += step;
        NAME(count_first)(terms, scales, s->classes, f->recent);
    }
}

/* Where a sweep over long rows is: the row, and its top, found while the one before it was added
   up. */
typedef struct {
    const char *row;
    Top top;
} NAME(Place);

INLINE NAME(Place) NAME(first_place)(const Scores *s)
{
    NAME(Place) p = {.row = s->rows ? floats_of(s, 0) : NULL};
    if (s->rows && s->type != DOUBLE)
        p.top = (Top){NAME(most_of)((const float *)p.row, s->classes), ~(uint32_t)0};
    return p;
}

/* The first class with the top logit. Where one lane has it, only the classes of that lane are
   looked at, all of them, last to first: no branch depends on where it is. */
INLINE int64_t NAME(first_of)(const float *z, int64_t classes, Top top)
{
    if (top.lanes & (top.lanes - 1) || top.logit == 0) /* zeros of both signs are equal */
        return NAME(first_equal)(z, classes, top.logit);
    int64_t lane = __builtin_ctz(top.lanes), at = lane;
    int32_t logit, one;
    memcpy(&logit, &top.logit, sizeof logit);
    for (int64_t k = lane + ((classes - 1 - lane) & -(int64_t)32); k >= lane; k -= 32) {
        memcpy(&one, z + k, sizeof one);
        at = one == logit ? k : at;
    }
    return at;
}

/* Relative to the runner-up, whose own term is exactly 1. */
FUNCTION Top NAME(sums_from_second)(const float *z, const float *after, int64_t classes, int64_t at,
                                    Sums *out, float *kept)
{
    float before = NAME(most_of)(z, at), behind = NAME(most_of)(z + at + 1, classes - at - 1);
    float second = before > behind ? before : behind;
    NAME(Way) way = {1, kept != NULL, second, z[at] - second};
    *out = (Sums){.top = z[at]};
    if (second == -INFINITY) {
        NAME(sums_of_one)(z, classes, out, kept);
        return (Top){NAME(most_of)(after, classes), ~(uint32_t)0};
    }
    return NAME(sums_f)(way, z, after, classes, at, out, kept);
}

/* Check and add up row i, and go to the next; 0 if it is bad.

   Nearly all rows need no base: their terms are well inside float32, and so many times the terms
   that FAINTEST stands for that these do not count. */
INLINE int NAME(sums_of)(const Scores *s, int64_t i, NAME(Place) *p, int64_t *predicted, Sums *sums,
                         float *kept)
{
    const char *row = p->row, *after = i + 1 < s->rows ? floats_of(s, i + 1) : row;
    const float *z = (const float *)row, *next = (const float *)after;
    Top top = p->top;
    p->row = after;
    if (s->type == DOUBLE) {
        if (!NAME(check_d)((const double *)row, s->classes, predicted))
            return 0;
        NAME(sums_d)((const double *)row, s->classes, *predicted, sums);
        return 1;
    }
    if (!(top.logit - top.logit == 0))
        return 0;
    *predicted = NAME(first_of)(z, s->classes, top);
    sums->top = top.logit;
    if (top.logit <= LARGEST) {
        const NAME(Way) way = {.centre = top.logit}, keeping = {.keep = 1, .centre = top.logit};
        p->top = kept ? NAME(sums_f)(keeping, z, next, s->classes, *predicted, sums, kept)
                      : NAME(sums_f)(way, z, next, s->classes, *predicted, sums, NULL);
    }
    if (!(top.logit <= LARGEST && sums->total >= SPARSE * (double)s->classes))
        p->top = NAME(sums_from_second)(z, next, s->classes, *predicted, sums, kept);
    return sums->weighted == sums->weighted;
}

/* Columns of long rows; the first bad row, or -1. A row is checked, added up and, with a table, in
   float32 counted while it is in the cache: memory is read once. `room` holds eight rows of terms, as
   many as are turned into columns at once, and the first bins. */
FUNCTION int64_t NAME(logits_wide)(const Scores *s, const int64_t *labels, const Columns *out,
                                   const Table *t)
{
    double most = log((double)s->classes);
    int64_t padded = padded_to(s->classes, RUN);
    float *kept = t ? (float *)((char *)s->room + s->room_used) : NULL;
    NAME(First) first = {.padded = padded};
    NAME(Place) place = NAME(first_place)(s);
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
            const char *row = place.row;
            int64_t predicted;
            Sums sums;
            if (!NAME(sums_of)(s, start + i, &place, &predicted, &sums, t ? kept + i * padded : NULL))
                return start + i;
            int64_t label = labels ? labels[start + i] : predicted;
            if (t)
                fetch_cells(t, predicted, label);
            right[i] = -(label == predicted);
            out->predicted[start + i] = predicted;
            out->correct[start + i] = label == predicted;
            put_sums(&e, i, &sums, entry(s, row, label));
        }
        EACH NAME(finish)(&e, u * DW, right, most, &few, u * DW);
        if (count < 8)
            copy_columns(out, start, &few, count);
        if (t)
            NAME(count_rows)(s, start, count, kept, &e, out, &first, t);
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
                            : (double)short_to_float(type, at);
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
    } else if (s->type == BRAIN) {
        NAME(turn_as)(BRAIN, s, start, count, x);
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
