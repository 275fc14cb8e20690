/* Compiled twins of the row sweeps: the NumPy code in row_sweeps.py is the reference.

   One call handles one chunk of rows without the interpreter lock; threads come from the caller.
   Every buffer is checked here before a pointer is used. Needs the vector extensions of GCC or
   Clang; where this file does not compile, the package is installed without it. */

#if !defined(__GNUC__)
#error "needs the vector extensions of GCC or Clang; the NumPy implementation serves instead"
#endif

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi"
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* Vectors have the width of the instruction set: the names are those of the set being compiled. */
#define vf NAME(vf)
#define vd NAME(vd)
#define vi NAME(vi)
#define vu NAME(vu)
#define vl NAME(vl)
#define LOAD_F(p) (*(const NAME(any_vf) *)(p))
#define LOAD_D(p) (*(const NAME(any_vd) *)(p))
#define LOAD_I(p) (*(const NAME(any_vi) *)(p))
#define LOAD_L(p) (*(const NAME(any_vl) *)(p))
#define STORE_F(p, x) (*(NAME(any_vf) *)(p) = (x))
#define STORE_D(p, x) (*(NAME(any_vd) *)(p) = (x))
#define STORE_I(p, x) (*(NAME(any_vi) *)(p) = (x))
#define STORE_L(p, x) (*(NAME(any_vl) *)(p) = (x))
#define GENERIC_WIDE(p) __builtin_convertvector(*(const NAME(any_vh) *)(p), vd)
#define splat_f(x) ((float)(x) - (vf){0})
#define splat_d(x) ((double)(x) - (vd){0})
#define splat_l(x) ((int64_t)(x) + (vl){0})
#define SELECT_F(m, a, b) ((vf)(((vi)(a) & (vi)(m)) | ((vi)(b) & ~(vi)(m))))
#define SELECT_D(m, a, b) ((vd)(((vl)(a) & (vl)(m)) | ((vl)(b) & ~(vl)(m))))
#define SELECT_L(m, a, b) (((a) & (vl)(m)) | ((b) & ~(vl)(m)))
#define MAGIC 6755399441055744.0 /* 1.5 * 2^52: added to x, its low bits are x rounded */
#define MAGIC_BITS 0x4338000000000000LL
#define ROUNDED(x) ((vl)((x) + MAGIC) - MAGIC_BITS)

enum { HALF, BRAIN, FLOAT, DOUBLE }; /* float16, bfloat16, float32, float64 */
#define NARROW 32              /* classes up to which rows are swept eight at a time */
#define EXACT 8                /* classes up to which sums are in float64 */
#define TILE 128               /* rows that are laid out class by class at a time */
#define CROWDED 1024           /* bytes: classes a multiple of this apart share lines of the cache */
#define LOWEST -708.0          /* exp of less is 0 */
#define FAINTEST -43.0f        /* terms below exp of this do not change a float32 sum */
#define LARGEST 40.0f          /* squares of exp of this, added up, are well inside float32 */
#define SPARSE 1e-10           /* sums of this much per class are a billion times exp(FAINTEST) */
#define RUN 64                 /* float32 sums this long go over to float64: equal terms round alike */
#ifndef AHEAD
#define AHEAD 2048 /* floats to fetch ahead: rows lie in several pages, where the machine stops */
#endif
/* Into the second cache: the terms of eight rows leave little room in the first. */
#define FETCH(at) __builtin_prefetch((at) + AHEAD, 0, 2)
#define FAINT 1e-6             /* sums of other classes below this are added up on their own */
#define SUM_TOLERANCE 1e-3     /* of rows of probabilities */
#define UNITS 1073741824.0     /* classwise probabilities are multiples of 2^-30 */
#define SLACK 1e-6             /* this close below the first edge, float32 is not trusted */
#define EDGE 1e-9              /* closer to an edge, values are compared with the edge itself */
#define MOST_CLASSES 1000000000
#define HALF_UNITS 67108864.0  /* 2^26: values are summed as high * 2^-26 + low * 2^-52 */
#define MOST_TERM 1024.0       /* of such a sum: 2^27 of them cannot overflow */
#define SERIES_FROM 64.0       /* harmonic numbers of fractions from here on are a series */

typedef struct {
    const char *data;
    int64_t rows, classes, row_step, class_step, room_used;
    int type;
    void *room; /* for two rows of 16 bits as floats, then for the first bins */
} Scores;

typedef struct {
    int64_t *predicted;
    uint8_t *correct;
    double *odds, *confidence, *label_log_prob, *label_prob, *brier, *entropy;
} Columns;

typedef struct {
    double top, gap, total, squares, weighted, peak;
} Sums;

/* The largest logit of a row, and the lanes that have it. */
typedef struct {
    float logit;
    uint32_t lanes;
} Top;

/* The sums of eight rows, and room for their columns. */
typedef struct {
    double top[8], gap[8], factor[8], total[8], squares[8], weighted[8], peak[8], label[8],
        spare[6][8];
} Eight;

typedef struct {
    const double *total; /* NULL for logits */
    const int64_t *labels, *predicted;
    const double *confidence, *label_prob;
} Known;

typedef struct {
    int64_t bins, *count, *units, *hits;
} Table;

/* Probabilities in units above the first bin, and their classes. */
typedef struct {
    double scaled[NARROW * 8 + 8];
    int32_t of[NARROW * 8 + 16];
    int64_t count;
} Listed;

typedef struct {
    double *log_total, *mean, *variance;
} Tempered;

/* Factors of cells (classes, bins), and the slope in the first bin. */
typedef struct {
    const double *factor;
    int64_t bins;
    double slope, middle, least;
} Tilt;

/* Of an affine map of the logits; the last five have room for whole vectors. */
typedef struct {
    const double *shift, *weight;
    double *scale, *bias, *slope, *offset, *room;
} Affine;

static inline Columns spare_columns(Eight *e)
{
    Columns c = {NULL, NULL, e->spare[0], e->spare[1], e->spare[2], e->spare[3], e->spare[4],
                 e->spare[5]};
    return c;
}

static inline void put_sums(Eight *e, int64_t i, const Sums *from, double label)
{
    e->top[i] = from->top;
    e->gap[i] = from->gap;
    e->total[i] = from->total;
    e->squares[i] = from->squares;
    e->weighted[i] = from->weighted;
    e->peak[i] = from->peak;
    e->label[i] = label;
}

static inline Columns columns_at(const Columns *c, int64_t at)
{
    Columns from = {c->predicted + at,      c->correct + at,    c->odds + at,  c->confidence + at,
                    c->label_log_prob + at, c->label_prob + at, c->brier + at, c->entropy + at};
    return from;
}

static inline void copy_columns(const Columns *to, int64_t at, const Columns *from, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(double);
    memcpy(to->odds + at, from->odds, bytes);
    memcpy(to->confidence + at, from->confidence, bytes);
    memcpy(to->label_log_prob + at, from->label_log_prob, bytes);
    memcpy(to->label_prob + at, from->label_prob, bytes);
    memcpy(to->brier + at, from->brier, bytes);
    memcpy(to->entropy + at, from->entropy, bytes);
}

static inline float half_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 5192296858534827628530496329220096.0f; /* 2^112: the exponents' offset */
    memcpy(&bits, &value, sizeof bits);
    bits |= (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float brain_to_float(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An entry of 16 bits. */
static inline float short_to_float(int type, const char *at)
{
    uint16_t bits = *(const uint16_t *)at;
    return type == BRAIN ? brain_to_float(bits) : half_to_float(bits);
}

static void shorts_to_floats(int type, const uint16_t *from, float *to, int64_t count)
{
    if (type == BRAIN)
        for (int64_t j = 0; j < count; j++)
            to[j] = brain_to_float(from[j]);
    else
        for (int64_t j = 0; j < count; j++)
            to[j] = half_to_float(from[j]);
}

/* A multiple of a power of two. */
static inline int64_t padded_to(int64_t count, int64_t of) { return (count + of - 1) & -of; }

/* A long row as floats or doubles. Of 16 bits, the row before it is still there. */
static inline const char *floats_of(const Scores *s, int64_t row)
{
    const char *at = s->data + row * s->row_step;
    if (s->type >= FLOAT)
        return at;
    float *to = (float *)s->room + (row & 1) * padded_to(s->classes, RUN);
    shorts_to_floats(s->type, (const uint16_t *)at, to, s->classes);
    return (const char *)to;
}

static inline int has_nan(const float *z, int64_t count)
{
    int found = 0;
    for (int64_t j = 0; j < count; j++)
        found |= z[j] != z[j];
    return found;
}

static inline double entry(const Scores *s, const char *row, int64_t k)
{
    return s->type == DOUBLE ? ((const double *)row)[k] : (double)((const float *)row)[k];
}

/* A logit where it lies. */
static inline double logit_at(const Scores *s, int64_t row, int64_t k)
{
    const char *at = s->data + row * s->row_step + k * s->class_step;
    return s->type == DOUBLE  ? *(const double *)at
           : s->type == FLOAT ? (double)*(const float *)at
                              : (double)short_to_float(s->type, at);
}

static inline double least(double a, double b) { return a < b ? a : b; }

static inline double nearest(double x) { return (x + MAGIC) - MAGIC; }

/* Equal-width bin of a value: (lo, hi], with 0 in the first bin. */
static inline int64_t width_index(double value, int64_t bins)
{
    double scaled = value * (double)bins, near = nearest(scaled);
    int64_t index = (int64_t)near - (scaled <= near);
    if (fabs(scaled - near) < EDGE * (double)bins)
        index = (int64_t)near - (value <= near / (double)bins);
    return index < 0 ? 0 : index < bins ? index : bins - 1;
}

static inline void count_entry(const Table *t, int64_t k, double value)
{
    int64_t cell = k * t->bins + width_index(value, t->bins);
    t->count[cell]++;
    t->units[cell] += (int64_t)nearest(value * UNITS);
}

/* The same for a probability in units. */
static inline void count_units(const Table *t, int64_t k, double scaled)
{
    int64_t cell = k * t->bins + width_index(scaled * (1 / UNITS), t->bins);
    t->count[cell]++;
    t->units[cell] += (int64_t)nearest(scaled);
}

static inline void count_label(const Table *t, int64_t label, double label_prob)
{
    t->hits[label * t->bins + width_index(label_prob, t->bins)]++;
}

/* The cells that a row will be counted in, ahead of time: large tables lie outside the first cache. */
static inline void fetch_cells(const Table *t, int64_t predicted, int64_t label)
{
    for (int64_t bin = 0; bin < t->bins; bin += 8) {
        __builtin_prefetch(t->count + predicted * t->bins + bin, 1);
        __builtin_prefetch(t->units + predicted * t->bins + bin, 1);
        __builtin_prefetch(t->hits + label * t->bins + bin, 1);
    }
}

/* Samples and sums of confidence by cell; wrong and correct samples side by side. */
typedef struct {
    int64_t cells, *count, *whole, *part;
    int bits; /* the sums are whole multiples of 2^-bits */
} Histogram;

static inline void add_sample(const Histogram *h, int64_t at, double confidence)
{
    int64_t unit = (int64_t)1 << h->bits;
    int64_t sum = h->part[at] + __builtin_llrint(confidence * (double)unit);
    h->count[at]++;
    h->whole[at] += sum >> h->bits;
    h->part[at] = sum & (unit - 1);
}

/* Cells are the leading bits of the odds in float32, from `first` on, `drop` bits left out. */
static inline int64_t odds_cell(double odds, int32_t first, int drop, int64_t cells)
{
    float narrow = (float)odds;
    int32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    int64_t cell = (int64_t)(bits >> drop) - first;
    return cell < 0 ? 0 : cell < cells ? cell : cells - 1;
}

static void add_by_odds(const Histogram *h, int64_t rows, const double *odds,
                        const double *confidence, const uint8_t *correct, int32_t first, int drop)
{
    for (int64_t i = 0; i < rows; i++)
        add_sample(h, 2 * odds_cell(odds[i], first, drop, h->cells) + (correct[i] != 0),
                   confidence[i]);
}

/* --- the sweeps, once per instruction set ---------------------------------------------------- */

#define GENERIC_ABOVE_F(a, b) MASK_I((vi)((a) > (b)))
#define GENERIC_MAX_F(a, b) SELECT_F((a) > (b), a, b) /* b where either is NaN, as on x86 */
#define GENERIC_MIN_F(a, b) SELECT_F((a) < (b), a, b)
#define GENERIC_MAX_D(a, b) SELECT_D((a) > (b), a, b)
#define GENERIC_MIN_D(a, b) SELECT_D((a) < (b), a, b)
/* The lanes of x that are in the mask, one after the other; may write as many as x has. */
#define GENERIC_LIST_D(to, x, mask) \
    do { \
        double *at_ = (to); \
        for (int i_ = 0; i_ < DW; at_ += (mask) >> i_ & 1, i_++) \
            *at_ = (x)[i_]; \
    } while (0)

#define GENERIC_LIST_I(to, x, mask) \
    do { \
        vi lanes_ = (x); \
        int32_t *at_ = (to); \
        for (int i_ = 0; i_ < FW; at_ += (mask) >> i_ & 1, i_++) \
            *at_ = lanes_[i_]; \
    } while (0)

/* x - n ln 2 for whole n; where products are rounded, in two steps, of which the first is exact. */
#define FUSED_LESS_LN2(n, x) FMA_F(n, splat_f(-0.693147182f), x)
#define ROUNDED_LESS_LN2(n, x) \
    FMA_F(n, splat_f(-1.4286068203094173e-06f), FMA_F(n, splat_f(-0.693145751953125f), x))

#if defined(__aarch64__)
#define LESS_LN2 FUSED_LESS_LN2
#else
#define LESS_LN2 ROUNDED_LESS_LN2
#endif
#define ABOVE_F GENERIC_ABOVE_F
#define LIST_D GENERIC_LIST_D
#define LIST_I GENERIC_LIST_I
#define WIDE GENERIC_WIDE
#if defined(__x86_64__)
#include <immintrin.h>
#define FMA_F(a, b, c) ((a) * (b) + (c))
#define FMA_D(a, b, c) ((a) * (b) + (c))
#define MAX_F(a, b) ((vf)_mm_max_ps((__m128)(a), (__m128)(b)))
#define MIN_F(a, b) ((vf)_mm_min_ps((__m128)(a), (__m128)(b)))
#define MAX_D(a, b) ((vd)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define MIN_D(a, b) ((vd)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#define WHOLE_F(x) ((vi)_mm_cvtps_epi32((__m128)(x))) /* rounded to even, not up */
#define MASK_I(m) _mm_movemask_ps((__m128)(m))
#define MASK_L(m) _mm_movemask_pd((__m128d)(m))
#else
#if defined(__aarch64__)
#include <arm_neon.h>
#define FMA_F(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define FMA_D(a, b, c) ((vd)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#define WHOLE_F(x) ((vi)vcvtnq_s32_f32((float32x4_t)(x)))
#else
#define FMA_F(a, b, c) ((a) * (b) + (c))
#define FMA_D(a, b, c) ((a) * (b) + (c))
#define WHOLE_F(x) __builtin_convertvector((x) + 0.5f, vi)
#endif
#define MAX_F GENERIC_MAX_F
#define MIN_F GENERIC_MIN_F
#define MAX_D GENERIC_MAX_D
#define MIN_D GENERIC_MIN_D
static inline int bits_of_lanes(const int32_t *lanes, int64_t any)
{
    return any ? (lanes[0] & 1) | (lanes[1] & 2) | (lanes[2] & 4) | (lanes[3] & 8) : 0;
}
#define MASK_I(m) \
    ({ \
        vi lanes_ = (m); \
        vl any_ = (vl)lanes_; \
        int32_t each_[4]; \
        STORE_I(each_, lanes_); \
        bits_of_lanes(each_, any_[0] | any_[1]); \
    })
#define MASK_L(m) ((int)(((m)[0] & 1) | ((m)[1] & 2)))
#endif

#define NAME(x) x##_base
#define TARGET
#define VB 16
#include "_rows_sweeps.h"
#include "_rows_few.h"
#include "_rows_affine.h"
#include "_rows_losses.h"
#include "_rows_streams.h"
#include "_rows_tilts.h"
#include "_rows_tables.h"
#undef NAME
#undef TARGET
#undef VB

#if defined(__x86_64__) && !defined(CALIBRANT_BASELINE)
#define CLONES 1

#undef FMA_F
#undef FMA_D
#undef MAX_F
#undef MIN_F
#undef MAX_D
#undef MIN_D
#undef MASK_I
#undef WHOLE_F
#undef MASK_L
#undef LIST_D
#undef LIST_I
#undef WIDE
#define WIDE(p) ((vd)_mm256_cvtps_pd(_mm_loadu_ps(p))) /* GCC converts two halves */
/* The bits of 2^(k/8) less k << 20, for the last bits k of each lane. */
static const int32_t POWERS[16] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                   0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7,
                                   0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                   0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
#define EIGHTHS(k) \
    ((vi)_mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)POWERS), (__m256i)(k)))
/* Halves of four float64 lanes, those in the mask first. */
static const int32_t CHOSEN[16][8] = {
    {0}, {0, 1}, {2, 3}, {0, 1, 2, 3}, {4, 5}, {0, 1, 4, 5}, {2, 3, 4, 5}, {0, 1, 2, 3, 4, 5},
    {6, 7}, {0, 1, 6, 7}, {2, 3, 6, 7}, {0, 1, 2, 3, 6, 7}, {4, 5, 6, 7}, {0, 1, 4, 5, 6, 7},
    {2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}};
#define LIST_D(to, x, mask) \
    STORE_D(to, (vd)_mm256_permutevar8x32_epi32( \
                    (__m256i)(x), _mm256_loadu_si256((const __m256i *)CHOSEN[mask])))
/* The same of eight lanes of 32 bits, half by half. */
static const int32_t CHOSEN_OF_4[16][4] = {
    {0}, {0}, {1}, {0, 1}, {2}, {0, 2}, {1, 2}, {0, 1, 2},
    {3}, {0, 3}, {1, 3}, {0, 1, 3}, {2, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
#define LIST_4(to, x, mask) \
    _mm_storeu_ps((float *)(to), \
                  _mm_permutevar_ps(x, _mm_loadu_si128((const __m128i *)CHOSEN_OF_4[mask])))
#define LIST_I(to, x, mask) \
    do { \
        __m256 lanes_ = (__m256)(x); \
        LIST_4(to, _mm256_castps256_ps128(lanes_), (mask) & 15); \
        LIST_4((to) + __builtin_popcount((mask) & 15), _mm256_extractf128_ps(lanes_, 1), \
               (mask) >> 4); \
    } while (0)
#define FMA_F(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FMA_D(a, b, c) ((vd)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define MAX_F(a, b) ((vf)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define MIN_F(a, b) ((vf)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MAX_D(a, b) ((vd)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MIN_D(a, b) ((vd)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define WHOLE_F(x) ((vi)_mm256_cvtps_epi32((__m256)(x)))
#define MASK_I(m) _mm256_movemask_ps((__m256)(m))
#define MASK_L(m) _mm256_movemask_pd((__m256d)(m))

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define VB 32
#include "_rows_sweeps.h"
#include "_rows_few.h"
#include "_rows_affine.h"
#include "_rows_losses.h"
#include "_rows_streams.h"
#include "_rows_tilts.h"
#include "_rows_tables.h"
#undef NAME
#undef TARGET
#undef VB

#undef FMA_F
#undef FMA_D
#undef MAX_F
#undef MIN_F
#undef MAX_D
#undef MIN_D
#undef MASK_I
#undef WHOLE_F
#undef ABOVE_F
#undef MASK_L
#undef LIST_D
#undef LIST_I
#undef WIDE
#undef EIGHTHS
#define EIGHTHS(k) ((vi)_mm512_permutexvar_epi32((__m512i)(k), _mm512_loadu_si512(POWERS)))
#define WIDE(p) ((vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)))
#define LIST_D(to, x, mask) STORE_D(to, (vd)_mm512_maskz_compress_pd((__mmask8)(mask), (__m512d)(x)))
#define LIST_I(to, x, mask) \
    STORE_I(to, (vi)_mm512_maskz_compress_epi32((__mmask16)(mask), (__m512i)(x)))
#define FMA_F(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FMA_D(a, b, c) ((vd)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define MAX_F(a, b) ((vf)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define MIN_F(a, b) ((vf)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MAX_D(a, b) ((vd)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define MIN_D(a, b) ((vd)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define ABOVE_F(a, b) ((int)_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_GT_OQ))
#define WHOLE_F(x) ((vi)_mm512_cvtps_epi32((__m512)(x)))
#define MASK_I(m) ((int)_mm512_movepi32_mask((__m512i)(m)))
#define MASK_L(m) ((int)_mm512_movepi64_mask((__m512i)(m)))

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("fma,avx512f,avx512dq,avx512bw,avx512vl")))
#define VB 64
#include "_rows_sweeps.h"
#include "_rows_few.h"
#include "_rows_affine.h"
#include "_rows_losses.h"
#include "_rows_streams.h"
#include "_rows_tilts.h"
#include "_rows_tables.h"
#undef NAME
#undef TARGET
#undef VB
#endif

enum { BASE, AVX2, AVX512 };
static int level = BASE;

#ifdef CLONES
#define CALL(f, ...) \
    (level == AVX512 ? f##_avx512(__VA_ARGS__) \
     : level == AVX2 ? f##_avx2(__VA_ARGS__) \
                     : f##_base(__VA_ARGS__))
#else
#define CALL(f, ...) f##_base(__VA_ARGS__)
#endif

static int best_level(void)
{
#ifdef CLONES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return AVX2;
#endif
    return BASE;
}

#include "_rows_draws.h"
#include "_rows_ranks.h"

/* --- buffers --------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer views[20];
    int count;
} Held;

static void release(Held *held)
{
    for (int k = 0; k < held->count; k++)
        PyBuffer_Release(&held->views[k]);
    held->count = 0;
}

static Py_buffer *hold(Held *held, PyObject *object, int flags)
{
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, flags | PyBUF_STRIDES | PyBUF_FORMAT))
        return NULL;
    held->count++;
    return view;
}

/* A dense column of `length` entries, of one of the formats; NULL with an error set. */
static void *column(Held *held, PyObject *object, const char *name, const char *formats,
                    Py_ssize_t size, int64_t length, int writable)
{
    Py_buffer *view = hold(held, object, writable ? PyBUF_WRITABLE : 0);
    if (!view)
        return NULL;
    const char *format = view->format ? view->format : "B";
    if (strlen(format) != 1 || !strchr(formats, format[0]) || view->itemsize != size ||
        view->ndim != 1 || view->shape[0] != length ||
        (length > 1 && view->strides[0] != size) || (uintptr_t)view->buf % (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s must be a dense column of %lld entries", name,
                     (long long)length);
        return NULL;
    }
    return view->buf;
}

#define DOUBLES(object, name, writable) \
    column(held, object, name, "d", sizeof(double), s->rows, writable)
#define WHOLE(object, name, length, writable) \
    column(held, object, name, "lq", sizeof(int64_t), length, writable)

/* The matrix (N, K): any steps with few classes, dense rows with many. `extra` bytes per class.
   Whole numbers of 16 bits are bfloat16, which buffers have no name for. */
static int matrix(Held *held, PyObject *object, Scores *s, size_t extra)
{
    Py_buffer *view = hold(held, object, 0);
    if (!view)
        return 0;
    const char *format = view->format ? view->format : "B";
    char kind = strlen(format) == 1 ? format[0] : '?';
    Py_ssize_t size = kind == 'e' || kind == 'H' ? 2 : kind == 'f' ? 4 : 8;
    int known = kind == 'e' || kind == 'H' || kind == 'f' || kind == 'd';
    if (!known || view->itemsize != size || view->ndim != 2 || view->shape[1] < 1 ||
        view->shape[1] > MOST_CLASSES || (uintptr_t)view->buf % (size_t)size ||
        view->strides[0] % size || view->strides[1] % size ||
        (view->shape[1] > NARROW && view->strides[1] != size)) {
        PyErr_SetString(PyExc_ValueError,
                        "scores must be an aligned matrix of floats, with dense rows");
        return 0;
    }
    s->data = view->buf;
    s->rows = view->shape[0];
    s->classes = view->shape[1];
    s->row_step = view->strides[0];
    s->class_step = view->strides[1];
    s->type = kind == 'e' ? HALF : kind == 'H' ? BRAIN : kind == 'f' ? FLOAT : DOUBLE;
    size_t padded = (size_t)padded_to(s->classes, RUN);
    s->room_used = s->type < FLOAT ? (int64_t)(2 * padded * sizeof(float)) : 0;
    s->room = malloc((size_t)s->room_used + padded * extra + 64);
    if (!s->room) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

static int in_range(const int64_t *classes, const Scores *s, const char *name)
{
    for (int64_t i = 0; i < s->rows; i++)
        if (classes[i] < 0 || classes[i] >= s->classes) {
            PyErr_Format(PyExc_ValueError, "%s must lie in 0 ... K - 1", name);
            return 0;
        }
    return 1;
}

static int label_column(Held *held, PyObject *object, const Scores *s, const int64_t **labels)
{
    *labels = NULL;
    if (object == Py_None)
        return 1;
    *labels = WHOLE(object, "labels", s->rows, 0);
    return *labels && in_range(*labels, s, "labels");
}

static int missing_labels(void)
{
    PyErr_SetString(PyExc_ValueError, "labels must be given");
    return 0;
}

static int columns(Held *held, PyObject **given, const Scores *s, Columns *out)
{
    return (out->predicted = WHOLE(given[0], "predicted", s->rows, 1)) &&
           (out->correct = column(held, given[1], "correct", "?", 1, s->rows, 1)) &&
           (out->odds = DOUBLES(given[2], "odds", 1)) &&
           (out->confidence = DOUBLES(given[3], "confidence", 1)) &&
           (out->label_log_prob = DOUBLES(given[4], "label_log_prob", 1)) &&
           (out->label_prob = DOUBLES(given[5], "label_prob", 1)) &&
           (out->brier = DOUBLES(given[6], "brier", 1)) &&
           (out->entropy = DOUBLES(given[7], "entropy", 1));
}

static PyObject *done(Held *held, Scores *s, int fine, int64_t answer)
{
    release(held);
    free(s->room);
    return fine ? PyLong_FromLongLong((long long)answer) : NULL;
}

/* Buffers and scores of one call; `done` lets go of them. */
#define HELD_WHILE_CALLED \
    Held store = {.count = 0}, *held = &store; \
    Scores scores = {0}, *s = &scores; \
    (void)self
/* Other threads of the interpreter run meanwhile. */
#define UNLOCKED(...) \
    do { \
        Py_BEGIN_ALLOW_THREADS \
        __VA_ARGS__; \
        Py_END_ALLOW_THREADS \
    } while (0)

/* --- what Python calls ----------------------------------------------------------------------- */

static int tables(Held *held, PyObject **given, const Scores *s, long long bins, Table *t)
{
    if (bins < 1 || bins > MOST_CLASSES) {
        PyErr_SetString(PyExc_ValueError, "bins must be at least 1");
        return 0;
    }
    t->bins = bins;
    return (t->count = WHOLE(given[0], "count", s->classes * bins, 1)) &&
           (t->units = WHOLE(given[1], "units", s->classes * bins, 1)) &&
           (t->hits = WHOLE(given[2], "hits", s->classes * bins, 1));
}

/* Returns the first bad row, or -1. */
static int64_t sweep_logits(const Scores *s, const int64_t *labels, const Columns *out,
                            const Table *t)
{
    if (s->classes <= NARROW)
        return s->type == DOUBLE || s->classes <= EXACT ? CALL(logits_narrow, s, labels, out, t)
                                                        : CALL(logits_few, s, labels, out, t);
    int at_once = t && s->type != DOUBLE;
    int64_t bad = CALL(logits_wide, s, labels, out, at_once ? t : NULL);
    if (t && !at_once && bad < 0) {
        Known known = {NULL, labels, out->predicted, out->confidence, out->label_prob};
        CALL(cells_d, s, &known, t);
    }
    return bad;
}

PyDoc_STRVAR(logits_doc,
             "logits(scores, labels, *columns, bins, count, units, hits): check the rows and fill "
             "their\ncolumns; with bins > 0 also add to the tables (K * bins,). First bad row or -1.");

static PyObject *rows_logits(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    Columns out;
    Table t;
    PyObject *matrix_, *labels_, *o[8], *tables_[3];
    const int64_t *labels;
    long long bins;
    int64_t bad = -1;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOLOOO", &matrix_, &labels_, o, o + 1, o + 2, o + 3, o + 4,
                          o + 5, o + 6, o + 7, &bins, tables_, tables_ + 1, tables_ + 2))
        return NULL;
    int fine = matrix(held, matrix_, s, bins ? 11 * sizeof(float) : 0) &&
               label_column(held, labels_, s, &labels) && columns(held, o, s, &out);
    if (fine && bins)
        fine = labels ? tables(held, tables_, s, bins, &t) : missing_labels();
    if (fine) {
        UNLOCKED(bad = sweep_logits(s, labels, &out, bins ? &t : NULL));
    }
    return done(held, s, fine, bad);
}

PyDoc_STRVAR(check_logits_doc, "check_logits(scores): first bad row, or -1.");

static PyObject *rows_check_logits(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_;
    int64_t bad = -1;
    if (!PyArg_ParseTuple(args, "O", &matrix_))
        return NULL;
    int fine = matrix(held, matrix_, s, 0);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        bad = s->classes > NARROW ? CALL(check_wide, s)
              : s->row_step == sizeof(float) && s->type == FLOAT ? CALL(check_few, s)
                                                                 : CALL(check_narrow, s);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, bad);
}

PyDoc_STRVAR(check_probs_doc, "check_probs(scores, sums, predicted): first bad row, or -1.");

static PyObject *rows_check_probs(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *sums_, *predicted_;
    double *sums = NULL;
    int64_t *predicted = NULL, bad = -1;
    if (!PyArg_ParseTuple(args, "OOO", &matrix_, &sums_, &predicted_))
        return NULL;
    int fine = matrix(held, matrix_, s, 0) && (sums = DOUBLES(sums_, "sums", 1)) &&
               (predicted = WHOLE(predicted_, "predicted", s->rows, 1));
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        bad = s->classes > NARROW ? CALL(check_probs_wide, s, sums, predicted)
                                  : CALL(check_probs_narrow, s, sums, predicted);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, bad);
}

PyDoc_STRVAR(probs_doc, "probs(scores, total, labels, *columns): fill the columns of checked rows.\n\n"
                        "With many classes, `predicted` is given.");

static PyObject *rows_probs(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    Columns out;
    PyObject *matrix_, *total_, *labels_, *o[8];
    const int64_t *labels;
    const double *total = NULL;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOO", &matrix_, &total_, &labels_, o, o + 1, o + 2, o + 3,
                          o + 4, o + 5, o + 6, o + 7))
        return NULL;
    int fine = matrix(held, matrix_, s, 0) && (total = DOUBLES(total_, "total", 0)) &&
               label_column(held, labels_, s, &labels) && columns(held, o, s, &out) &&
               (s->classes <= NARROW || in_range(out.predicted, s, "predicted"));
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        if (s->classes > NARROW)
            CALL(probs_wide, s, total, labels, &out);
        else
            CALL(probs_narrow, s, total, labels, &out);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(cells_doc,
             "cells(scores, total, labels, predicted, confidence, label_prob, bins, count, units, "
             "hits):\nadd rows of probabilities to the tables (K * bins,).");

static PyObject *rows_cells(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *total_, *o[4], *tables_[3];
    Known known = {0};
    Table t;
    long long bins;
    if (!PyArg_ParseTuple(args, "OOOOOOLOOO", &matrix_, &total_, o, o + 1, o + 2, o + 3, &bins,
                          tables_, tables_ + 1, tables_ + 2))
        return NULL;
    int fine = matrix(held, matrix_, s, sizeof(int64_t)) &&
               label_column(held, o[0], s, &known.labels) &&
               (known.labels || missing_labels()) &&
               (known.predicted = WHOLE(o[1], "predicted", s->rows, 0)) &&
               in_range(known.predicted, s, "predicted") &&
               (known.confidence = DOUBLES(o[2], "confidence", 0)) &&
               (known.label_prob = DOUBLES(o[3], "label_prob", 0)) &&
               (known.total = DOUBLES(total_, "total", 0)) &&
               tables(held, tables_, s, bins, &t);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        if (s->classes > NARROW)
            CALL(cells_d, s, &known, &t);
        else
            CALL(cells_narrow, s, &known, &t);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(tempered_doc, "tempered(scores, top, beta, exact, log_total, mean, variance): of each "
                           "row\nat inverse temperature beta > 0, relative to its top.");

static PyObject *rows_tempered(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *top_, *o[3];
    const double *top = NULL;
    Tempered out;
    double beta;
    int exact;
    if (!PyArg_ParseTuple(args, "OOdpOOO", &matrix_, &top_, &beta, &exact, o, o + 1, o + 2))
        return NULL;
    int fine = matrix(held, matrix_, s, 0) && (top = DOUBLES(top_, "top", 0)) &&
               (out.log_total = DOUBLES(o[0], "log_total", 1)) &&
               (out.mean = DOUBLES(o[1], "mean", 1)) &&
               (out.variance = DOUBLES(o[2], "variance", 1));
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        if (s->classes > NARROW)
            CALL(tempered_wide, s, top, beta, exact, &out);
        else
            CALL(tempered_narrow, s, beta, &out);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

/* Columns of samples are counted by the first one. */
static int column_rows(PyObject *object, Scores *s)
{
    Py_ssize_t rows = PyObject_Size(object);
    s->rows = rows;
    return rows >= 0;
}

static int histogram(Held *held, PyObject **given, int bits, Histogram *h)
{
    Py_ssize_t size = PyObject_Size(given[0]);
    if (size < 2 || size % 2 || bits < 1 || bits > 60) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "count must have two entries per cell");
        return 0;
    }
    h->cells = size / 2;
    h->bits = bits;
    return (h->count = WHOLE(given[0], "count", size, 1)) &&
           (h->whole = WHOLE(given[1], "whole", size, 1)) &&
           (h->part = WHOLE(given[2], "part", size, 1));
}

PyDoc_STRVAR(add_by_width_doc,
             "add_by_width(confidence, correct, bits, count, whole, part): count samples by "
             "equal-width\nbin.");

static PyObject *rows_add_by_width(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[2], *tables_[3];
    const double *confidence = NULL;
    const uint8_t *correct = NULL;
    Histogram h;
    int bits;
    if (!PyArg_ParseTuple(args, "OOiOOO", o, o + 1, &bits, tables_, tables_ + 1, tables_ + 2))
        return NULL;
    int fine = column_rows(o[0], s) && (confidence = DOUBLES(o[0], "confidence", 0)) &&
               (correct = column(held, o[1], "correct", "?", 1, s->rows, 0)) &&
               histogram(held, tables_, bits, &h);
    if (fine) {
        UNLOCKED(CALL(add_by_width, &h, s->rows, confidence, correct));
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(add_by_odds_doc, "add_by_odds(odds, confidence, correct, first, drop, bits, count, "
                              "whole, part): count\nsamples by the leading bits of their odds in float32.");

static PyObject *rows_add_by_odds(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3], *tables_[3];
    const double *odds = NULL, *confidence = NULL;
    const uint8_t *correct = NULL;
    int first, drop, bits;
    Histogram h;
    if (!PyArg_ParseTuple(args, "OOOiiiOOO", o, o + 1, o + 2, &first, &drop, &bits, tables_,
                          tables_ + 1, tables_ + 2))
        return NULL;
    if (drop < 0 || drop > 31) {
        PyErr_SetString(PyExc_ValueError, "drop must lie in 0 ... 31");
        return NULL;
    }
    int fine = column_rows(o[0], s) && (odds = DOUBLES(o[0], "odds", 0)) &&
               (confidence = DOUBLES(o[1], "confidence", 0)) &&
               (correct = column(held, o[2], "correct", "?", 1, s->rows, 0)) &&
               histogram(held, tables_, bits, &h);
    if (fine) {
        UNLOCKED(add_by_odds(&h, s->rows, odds, confidence, correct, first, drop));
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(add_by_cell_doc, "add_by_cell(cell, confidence, bits, count, whole, part): count samples "
                              "by their place in the\ntables.");

static PyObject *rows_add_by_cell(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[2], *tables_[3];
    const int32_t *cell = NULL;
    const double *confidence = NULL;
    int bits;
    Histogram h;
    if (!PyArg_ParseTuple(args, "OOiOOO", o, o + 1, &bits, tables_, tables_ + 1, tables_ + 2))
        return NULL;
    int fine = column_rows(o[0], s) &&
               (cell = column(held, o[0], "cell", "il", sizeof(int32_t), s->rows, 0)) &&
               (confidence = DOUBLES(o[1], "confidence", 0)) && histogram(held, tables_, bits, &h);
    int64_t bad = 0;
    for (int64_t i = 0; fine && i < s->rows; i++)
        bad |= cell[i] | (2 * h.cells - 1 - cell[i]);
    if (fine && bad < 0) {
        PyErr_SetString(PyExc_ValueError, "cell must lie inside of the tables");
        fine = 0;
    }
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < s->rows; i++)
            add_sample(&h, cell[i], confidence[i]);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(exact_sum_doc,
             "exact_sum(column, sums): add the values to two sums, in units of 2^-26 and 2^-52;\n0 where a term is too large, and the sums then mean nothing.");

static PyObject *rows_exact_sum(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *column_, *sums_;
    const double *values = NULL;
    int64_t *sums = NULL, whole = 0;
    if (!PyArg_ParseTuple(args, "OO", &column_, &sums_))
        return NULL;
    int fine = column_rows(column_, s) && (values = DOUBLES(column_, "column", 0)) &&
               (sums = WHOLE(sums_, "sums", 2, 1));
    if (fine && s->rows > MOST_CLASSES / 8) {
        PyErr_SetString(PyExc_ValueError, "column must be shorter");
        fine = 0;
    }
    if (fine) {
        UNLOCKED(whole = CALL(exact_sum, values, s->rows, sums));
    }
    return done(held, s, fine, whole);
}

PyDoc_STRVAR(draw_labels_doc,
             "draw_labels(classes, draws, cells, cell, upper, lot, choice, strengths, changes): "
             "count the cells\nof labels drawn from three populations, and how they change.");

static PyObject *rows_draw_labels(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[6];
    long long classes, draws, cells;
    Draws d = {0};
    if (!PyArg_ParseTuple(args, "LLLOOOOOO", &classes, &draws, &cells, o, o + 1, o + 2, o + 3,
                          o + 4, o + 5))
        return NULL;
    Py_ssize_t entries = PyObject_Size(o[0]), strengths = PyObject_Size(o[4]);
    if (PyErr_Occurred())
        return NULL;
    if (classes < 1 || draws < 1 || cells < 1 || classes > MOST_CLASSES || draws > MOST_CLASSES ||
        cells > MOST_CLASSES || entries % classes || strengths > MOST_CLASSES / draws) {
        PyErr_SetString(PyExc_ValueError, "sizes must be at least 1, and those of the arrays");
        return NULL;
    }
    int64_t rows = entries / classes, size = rows * draws;
    d = (Draws){rows, classes, draws, strengths, cells, 0};
    int fine =
        (d.cell = WHOLE(o[0], "cell", entries, 0)) &&
        (d.upper = column(held, o[1], "upper", "d", sizeof(double), 3 * entries, 0)) &&
        (d.lot = column(held, o[2], "lot", "d", sizeof(double), size, 0)) &&
        (d.choice = column(held, o[3], "choice", "d", sizeof(double), size, 0)) &&
        (d.strength = column(held, o[4], "strengths", "d", sizeof(double), strengths, 0)) &&
        (d.changes = column(held, o[5], "changes", "f", sizeof(float), strengths * draws * cells,
                            1));
    for (Py_ssize_t i = 0; fine && i < entries; i++)
        if (d.cell[i] < 0 || d.cell[i] >= cells) {
            PyErr_SetString(PyExc_ValueError, "cell must lie in 0 ... cells - 1");
            fine = 0;
        }
    for (int64_t i = 0; fine && i < size; i++)
        if (!(d.lot[i] >= 0 && d.lot[i] < 1)) {
            PyErr_SetString(PyExc_ValueError, "lot must lie in [0, 1)");
            fine = 0;
        }
    Guide g = {.parts = guide_parts(classes)};
    size_t first = (size_t)(3 * draws) * sizeof(int64_t);
    if (fine && !(s->room = malloc(first + (size_t)(3 * g.parts) * sizeof *g.first))) {
        PyErr_NoMemory();
        fine = 0;
    }
    if (fine && strengths) {
        g.first = (int32_t *)((char *)s->room + first);
        UNLOCKED(draw_labels(&d, &g, s->room));
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(rank_sums_doc,
             "rank_sums(resamples, count, hits, recall, harmonic, sums): of each resample, hits, "
             "misses, and\nthe sums of ROC area, of both precisions, of risk, and misses kept.");

static PyObject *rows_rank_sums(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[4];
    const double *count = NULL, *hits = NULL, *table = NULL;
    double recall, *sums = NULL;
    long long resamples;
    const int64_t width = sizeof(Ranks) / sizeof(double);
    if (!PyArg_ParseTuple(args, "LOOdOO", &resamples, o, o + 1, &recall, o + 2, o + 3))
        return NULL;
    Py_ssize_t length = PyObject_Size(o[2]);
    if (!column_rows(o[0], s) || length < 0)
        return NULL;
    if (resamples < 1 || resamples > MOST_CLASSES || s->rows % resamples || length <= SERIES_FROM) {
        PyErr_SetString(PyExc_ValueError, "sizes must be at least 1, and those of the arrays");
        return NULL;
    }
    int64_t size = s->rows / resamples;
    int fine = (count = DOUBLES(o[0], "count", 0)) && (hits = DOUBLES(o[1], "hits", 0)) &&
               (table = column(held, o[2], "harmonic", "d", sizeof(double), length, 0)) &&
               (sums = column(held, o[3], "sums", "d", sizeof(double), resamples * width, 1));
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < resamples; i++) {
            Ranks r = rank_sums(size, count + i * size, hits + i * size, recall, table, length);
            memcpy(sums + i * width, &r, sizeof r);
        }
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(width_bins_doc, "width_bins(values, bins, out): the equal-width bin of each value.");

static PyObject *rows_width_bins(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *values_, *out_;
    const double *values = NULL;
    int64_t *out = NULL;
    long long bins;
    if (!PyArg_ParseTuple(args, "OLO", &values_, &bins, &out_))
        return NULL;
    int fine = column_rows(values_, s) && (values = DOUBLES(values_, "values", 0)) &&
               (out = WHOLE(out_, "out", s->rows, 1));
    if (fine && (bins < 1 || bins > MOST_CLASSES)) {
        PyErr_SetString(PyExc_ValueError, "bins must be at least 1");
        fine = 0;
    }
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < s->rows; i++)
            out[i] = width_index(values[i], bins);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

#include "_rows_simulated.h"
#include "_rows_clusters.h"
#include "_rows_slabs.h"
#include "_rows_fits.h"
#include "_rows_curves.h"
#include "_rows_objectives.h"

static const char *const LEVELS[] = {"baseline", "avx2", "avx512"};

PyDoc_STRVAR(instructions_doc, "instructions(name=None): the instruction set in use; set it, if the "
                               "machine has it.");

static PyObject *rows_instructions(PyObject *self, PyObject *args)
{
    const char *name = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "|z", &name))
        return NULL;
    if (name) {
        int wanted = 0;
        while (wanted <= AVX512 && strcmp(LEVELS[wanted], name))
            wanted++;
        if (wanted > best_level()) {
            PyErr_Format(PyExc_ValueError, "%s is not available", name);
            return NULL;
        }
        level = wanted;
    }
    return PyUnicode_FromString(LEVELS[level]);
}

static PyMethodDef methods[] = {
    {"logits", rows_logits, METH_VARARGS, logits_doc},
    {"check_logits", rows_check_logits, METH_VARARGS, check_logits_doc},
    {"check_probs", rows_check_probs, METH_VARARGS, check_probs_doc},
    {"probs", rows_probs, METH_VARARGS, probs_doc},
    {"cells", rows_cells, METH_VARARGS, cells_doc},
    {"tempered", rows_tempered, METH_VARARGS, tempered_doc},
    {"add_by_width", rows_add_by_width, METH_VARARGS, add_by_width_doc},
    {"add_by_odds", rows_add_by_odds, METH_VARARGS, add_by_odds_doc},
    {"add_by_cell", rows_add_by_cell, METH_VARARGS, add_by_cell_doc},
    {"top", rows_top, METH_VARARGS, top_doc},
    {"add_slab", rows_add_slab, METH_VARARGS, add_slab_doc},
    {"add_by_cluster", rows_add_by_cluster, METH_VARARGS, add_by_cluster_doc},
    {"affine", rows_affine, METH_VARARGS, affine_doc},
    {"affine_losses", rows_affine_losses, METH_VARARGS, affine_losses_doc},
    {"loss_columns", rows_loss_columns, METH_VARARGS, loss_columns_doc},
    {"loss_value", rows_loss_value, METH_VARARGS, loss_value_doc},
    {"loss_gradient", rows_loss_gradient, METH_VARARGS, loss_gradient_doc},
    {"class_gaps", rows_class_gaps, METH_VARARGS, class_gaps_doc},
    {"class_slopes", rows_class_slopes, METH_VARARGS, class_slopes_doc},
    {"class_gap_gradient", rows_class_gap_gradient, METH_VARARGS, class_gap_gradient_doc},
    {"exact_sum", rows_exact_sum, METH_VARARGS, exact_sum_doc},
    {"draw_labels", rows_draw_labels, METH_VARARGS, draw_labels_doc},
    {"rank_sums", rows_rank_sums, METH_VARARGS, rank_sums_doc},
    {"width_bins", rows_width_bins, METH_VARARGS, width_bins_doc},
    {"count_draws", rows_count_draws, METH_VARARGS, count_draws_doc},
    {"draw_outcomes", rows_draw_outcomes, METH_VARARGS, draw_outcomes_doc},
    {"sum_bins", rows_sum_bins, METH_VARARGS, sum_bins_doc},
    {"sum_cells", rows_sum_cells, METH_VARARGS, sum_cells_doc},
    {"row_cells", rows_row_cells, METH_VARARGS, row_cells_doc},
    {"tilted", rows_tilted, METH_VARARGS, tilted_doc},
    {"instructions", rows_instructions, METH_VARARGS, instructions_doc},
    {NULL, NULL, 0, NULL},
};

static int on_load(PyObject *module)
{
    (void)module;
    level = best_level();
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)on_load}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rows",
    .m_doc = "Compiled sweeps over rows of scores.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
