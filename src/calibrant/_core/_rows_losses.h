/* Losses of training: what they need of each row of logits, and their gradient by the logits from
   their slopes in that. Once per instruction set, and there once for each type of logits. */

#ifndef LOSS_COLUMNS
#define LOSS_COLUMNS
/* A block has these columns of float64, with the label y and the top class t of each row. */
enum {
    NLL,        /* -log p_y */
    MISS,       /* 1 - p_y */
    CONFIDENCE, /* p_t */
    ENTROPY,
    BRIER,
    SPREAD, /* the mean of -log p over the classes */
    RIVAL,  /* the largest p strictly below p_y, or 0 */
    SUMMED, /* of these, sums come first */
    CORRECT = SUMMED,
    PREDICTED,    /* t */
    RIVAL_CLASS,  /* or -1 */
    DISTANCE,     /* the mean of z_t - z under p */
    TOP,          /* z_t */
    RAMP,         /* the sum of max(0, z_t - margin - z) over the classes, */
    RAMP_SQUARES, /* and of its square, in which z_t is held */
    VALUE,        /* of a loss */
    BY_NLL,       /* its slopes in the columns */
    BY_CONFIDENCE,
    BY_ENTROPY,
    BY_BRIER,
    BY_SPREAD,
    BY_RIVAL,
    BY_TOP,
    BY_RAMP,
    BY_RAMP_SQUARES,
    BLOCK_WIDTH
};
/* Which columns are wanted beside the first three, added up; or the ramps alone. */
enum { RIVALS = 1, ENTROPIES = 2, BRIERS = 4, SPREADS = 8, RAMPS = 16 };

typedef struct {
    double *at;
    int64_t step; /* from column to column, in entries */
} Block;

typedef struct {
    const int64_t *labels;
    Block block;
    int wanted;
    double margin; /* of the ramps */
} LossRows;

typedef struct {
    const char *by_value;
    char *out;
    int64_t by_value_step, out_step; /* from row to row, in bytes */
} LossGradient;

/* Of the penalty of all classes. */
typedef struct {
    const int64_t *labels;
    const uint8_t *valid; /* which rows count; NULL for all */
    double *classes;      /* a number for each class, and behind them how many rows count */
    double *top, *share;  /* of each row: its largest logit and its probability; 0 if not counted */
} ClassGaps;
#endif

/* exp(x) for x <= 0, to 0 where that is no normal number. */
INLINE vf NAME(exp_all_f)(vf x)
{
    vi gone = (vi)(x < -87.0f);
    return (vf)((vi)NAME(expf)(MAX_F(x, splat_f(-87.0f))) & ~gone);
}

/* The columns of up to DW rows from their sums over the classes but the top one, and from their
   logits minus the top one. */
INLINE void NAME(loss_finish_some)(const Block *b, int64_t first, int64_t rows)
{
    double part[RIVAL_CLASS + 1][DW];
    size_t bytes = (size_t)rows * sizeof(double);
    for (int c = 0; c <= RIVAL_CLASS; c++) {
        STORE_D(part[c], splat_d(0));
        memcpy(part[c], b->at + c * b->step + first, bytes);
    }
    vl correct = (vl)(LOAD_D(part[CORRECT]) > 0.0), alone = (vl)(LOAD_D(part[RIVAL_CLASS]) < 0.0);
    vd odds = LOAD_D(part[CONFIDENCE]), own = LOAD_D(part[NLL]);
    vd squares = LOAD_D(part[BRIER]), confidence = 1.0 / (1.0 + odds);
    vd log_norm = NAME(log1pd)(odds), label_odds = NAME(expd)(own);
    vd miss = SELECT_D(correct, odds, 1.0 + odds - label_odds);
    vd rest = SELECT_D(correct, squares, 1.0 + squares - label_odds * label_odds);
    vd rival = NAME(expd)(LOAD_D(part[RIVAL])) * confidence;
    STORE_D(part[NLL], log_norm - own);
    STORE_D(part[MISS], miss * confidence);
    STORE_D(part[CONFIDENCE], confidence);
    vd distance = confidence * LOAD_D(part[ENTROPY]);
    STORE_D(part[ENTROPY], log_norm + distance);
    STORE_D(part[BRIER], (miss * miss + rest) * (confidence * confidence));
    STORE_D(part[SPREAD], log_norm + LOAD_D(part[SPREAD]));
    STORE_D(part[RIVAL], SELECT_D(alone, splat_d(0), rival));
    for (int c = 0; c < SUMMED; c++)
        memcpy(b->at + c * b->step + first, part[c], bytes);
    STORE_D(part[0], distance);
    memcpy(b->at + DISTANCE * b->step + first, part[0], bytes);
}

/* The first row with a column that is not finite, as huge logits may give; else -1. */
INLINE int64_t NAME(loss_finish)(int64_t rows, const LossRows *l)
{
    const Block *b = &l->block;
    int64_t i = 0;
    int from = l->wanted == RAMPS ? TOP : NLL, to = l->wanted == RAMPS ? VALUE : SUMMED;
    if (l->wanted != RAMPS) {
        for (; i + DW <= rows; i += DW)
            NAME(loss_finish_some)(b, i, DW);
        if (i < rows)
            NAME(loss_finish_some)(b, i, rows - i);
    }
    for (int c = from; c < to; c++)
        for (i = 0; i < rows; i++)
            if (!(fabs(b->at[c * b->step + i]) <= DBL_MAX))
                return i;
    return -1;
}

#define REAL float
#define VR vf
#define VM vi /* masks */
#define LANE int32_t
#define WR FW
#define LOAD_R LOAD_F
#define STORE_R STORE_F
#define MAX_R MAX_F
#define SPLAT_R splat_f
#define EXP_R NAME(exp_all_f)
#define EQUAL_R(a, b) MASK_I((vi)((a) == (b)))
#define WHERE_R(m, a, b) SELECT_F(m, a, b)
#define LOWEST_R -FLT_MAX
#define KIND(x) NAME(x##_float)
#include "_rows_loss_rows.h"

#define REAL double
#define VR vd
#define VM vl
#define LANE int64_t
#define WR DW
#define LOAD_R LOAD_D
#define STORE_R STORE_D
#define MAX_R MAX_D
#define SPLAT_R splat_d
#define EXP_R NAME(expd)
#define EQUAL_R(a, b) MASK_L((vl)((a) == (b)))
#define WHERE_R(m, a, b) SELECT_D(m, a, b)
#define LOWEST_R -DBL_MAX
#define KIND(x) NAME(x##_double)
#include "_rows_loss_rows.h"

/* The first row with a value that is not finite, or -1. */
FUNCTION int64_t NAME(loss_columns)(const Scores *s, const LossRows *l)
{
    return s->type == DOUBLE ? NAME(loss_columns_double)(s, l) : NAME(loss_columns_float)(s, l);
}

FUNCTION void NAME(loss_gradient)(const Scores *s, const LossRows *l, const LossGradient *g)
{
    if (s->type == DOUBLE)
        NAME(loss_gradient_double)(s, l, g);
    else
        NAME(loss_gradient_float)(s, l, g);
}

FUNCTION int64_t NAME(class_gaps)(const Scores *s, const ClassGaps *c)
{
    return s->type == DOUBLE ? NAME(class_gaps_double)(s, c) : NAME(class_gaps_float)(s, c);
}

FUNCTION void NAME(class_gap_gradient)(const Scores *s, const ClassGaps *c, const LossGradient *g)
{
    if (s->type == DOUBLE)
        NAME(class_gap_gradient_double)(s, c, g);
    else
        NAME(class_gap_gradient_float)(s, c, g);
}
