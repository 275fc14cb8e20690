/* The rows of one type of logits: see _rows_losses.h, which defines REAL and its vectors. */

INLINE REAL KIND(top_lane)(VR x)
{
    REAL lanes[WR];
    STORE_R(lanes, x);
    for (int w = WR / 2; w; w >>= 1)
        for (int i = 0; i < w; i++)
            lanes[i] = lanes[i] > lanes[i + w] ? lanes[i] : lanes[i + w];
    return lanes[0];
}

INLINE double KIND(sum_lanes)(VR x)
{
    REAL lanes[WR];
    STORE_R(lanes, x);
    for (int w = WR / 2; w > 1; w >>= 1)
        for (int i = 0; i < w; i++)
            lanes[i] += lanes[i + w];
    return (double)lanes[0] + (double)lanes[1];
}

/* A row in whole vectors, the last of which may overlap with the one before. */
typedef struct {
    const REAL *z;
    int64_t classes, last; /* where the last vector begins */
    VM fresh;              /* its lanes that are not in the one before */
} KIND(Vectors);

/* Rows shorter than a vector are copied, and filled up. */
INLINE KIND(Vectors) KIND(vectors_of)(const REAL *z, int64_t classes, REAL *room)
{
    KIND(Vectors) v = {z, classes, classes - WR, {0}};
    LANE fresh[WR];
    if (classes < WR) {
        STORE_R(room, SPLAT_R(LOWEST_R));
        memcpy(room, z, (size_t)classes * sizeof *z);
        v.z = room;
        v.last = 0;
    }
    for (int i = 0; i < WR; i++)
        fresh[i] = -(classes < WR ? i < classes : i >= (WR - classes % WR) % WR);
    memcpy(&v.fresh, fresh, sizeof fresh);
    return v;
}

/* `each` for every vector at k, with the mask of its lanes that count. */
#define OVER_VECTORS(v, each) \
    do { \
        int64_t k = 0; \
        VM on = (VM){0} == (VM){0}; \
        for (; k < (v)->last; k += WR) { \
            each; \
        } \
        k = (v)->last; \
        on = (v)->fresh; \
        each; \
    } while (0)
#define KEPT(x) ((VR)((VM)(x) & on))

/* The first place of a value that is there. */
INLINE int64_t KIND(place_of)(const KIND(Vectors) *v, REAL value)
{
    OVER_VECTORS(v, {
        int found = EQUAL_R(LOAD_R(v->z + k), SPLAT_R(value));
        (void)on;
        if (found)
            return k + __builtin_ctz((unsigned)found);
    });
    return 0;
}

/* The sums of a row over the classes but the top one. */
INLINE void KIND(loss_sums)(const KIND(Vectors) *v, REAL largest, int64_t predicted, int wanted,
                            double *to, int64_t step)
{
    VR top = SPLAT_R(largest), zero = SPLAT_R(0);
    VR total = zero, squares = zero, weighted = zero, distance = zero;
    LANE lanes[WR];
    VM lane;
    for (int i = 0; i < WR; i++)
        lanes[i] = (LANE)(i - predicted);
    memcpy(&lane, lanes, sizeof lanes);
    OVER_VECTORS(v, {
        VR d = KEPT(top - LOAD_R(v->z + k));
        VR x = (VR)((VM)KEPT(EXP_R(-d)) & ~(VM)(lane + (LANE)k == 0));
        total += x;
        squares += x * x;
        weighted += x * d;
        distance += d;
    });
    to[CONFIDENCE * step] = KIND(sum_lanes)(total);
    to[BRIER * step] = wanted & BRIERS ? KIND(sum_lanes)(squares) : 0;
    to[ENTROPY * step] = wanted & ENTROPIES ? KIND(sum_lanes)(weighted) : 0;
    to[SPREAD * step] = wanted & SPREADS ? KIND(sum_lanes)(distance) / (double)v->classes : 0;
}

/* How far logits lie more than the margin below the top one. */
INLINE void KIND(loss_ramps)(const KIND(Vectors) *v, REAL limit, double *to, int64_t step)
{
    VR sum = SPLAT_R(0), squares = SPLAT_R(0);
    OVER_VECTORS(v, {
        VR x = KEPT(MAX_R(SPLAT_R(limit) - LOAD_R(v->z + k), SPLAT_R(0)));
        sum += x;
        squares += x * x;
    });
    to[RAMP * step] = KIND(sum_lanes)(sum);
    to[RAMP_SQUARES * step] = KIND(sum_lanes)(squares);
}

/* The class with the largest logit strictly below that of the label, or -1. */
INLINE int64_t KIND(rival)(const KIND(Vectors) *v, REAL own)
{
    VR most = SPLAT_R(LOWEST_R);
    OVER_VECTORS(v, {
        VR x = LOAD_R(v->z + k);
        (void)on;
        most = MAX_R(WHERE_R(x < SPLAT_R(own), x, SPLAT_R(LOWEST_R)), most);
    });
    REAL found = KIND(top_lane)(most);
    return found > LOWEST_R ? KIND(place_of)(v, found) : -1;
}

/* The largest logit of a row; 0 if one is not finite. */
INLINE int KIND(largest)(const KIND(Vectors) *v, REAL *top)
{
    VR most = SPLAT_R(LOWEST_R), zero = SPLAT_R(0);
    OVER_VECTORS(v, {
        VR x = LOAD_R(v->z + k);
        (void)on;
        most = MAX_R(x, most);
        zero += x * SPLAT_R(0); /* NaN from NaN and infinities */
    });
    *top = KIND(top_lane)(most);
    return EQUAL_R(zero, SPLAT_R(0)) == (1 << WR) - 1;
}

/* The sums of a row to their columns; 0 if a logit is not finite. */
INLINE int KIND(loss_row)(const KIND(Vectors) *v, const LossRows *l, int64_t i)
{
    double *to = l->block.at + i;
    int64_t step = l->block.step, label = l->labels[i], rival = -1;
    REAL top;
    if (!KIND(largest)(v, &top))
        return 0;
    int64_t predicted = KIND(place_of)(v, top);
    if (l->wanted & RIVALS)
        rival = KIND(rival)(v, v->z[label]);
    to[CORRECT * step] = label == predicted;
    to[PREDICTED * step] = (double)predicted;
    to[RIVAL_CLASS * step] = (double)rival;
    if (l->wanted == RAMPS) {
        to[TOP * step] = (double)top;
        KIND(loss_ramps)(v, top - (REAL)l->margin, to, step);
        return 1;
    }
    KIND(loss_sums)(v, top, predicted, l->wanted, to, step);
    to[NLL * step] = (double)v->z[label] - (double)top;
    to[RIVAL * step] = rival < 0 ? 0 : (double)v->z[rival] - (double)top;
    return 1;
}

FUNCTION int64_t KIND(loss_columns)(const Scores *s, const LossRows *l)
{
    REAL room[WR];
    for (int64_t i = 0; i < s->rows; i++) {
        const REAL *z = (const REAL *)(s->data + i * s->row_step);
        KIND(Vectors) v = KIND(vectors_of)(z, s->classes, room);
        if (!KIND(loss_row)(&v, l, i))
            return i;
    }
    int64_t bad = NAME(loss_finish)(s->rows, l);
    double *confidence = l->block.at + CONFIDENCE * l->block.step;
    for (int64_t i = 0; l->wanted != RAMPS && i < s->rows; i++)
        confidence[i] = (double)(REAL)confidence[i]; /* equal but for rounding is equal */
    return bad;
}

/* p (a + b d + q p) + e for each class, with d = top - z and p = c exp(-d). */
INLINE void KIND(loss_slopes)(const REAL *z, int64_t classes, REAL top, double c, double a,
                              double b, double q, double e, REAL *out)
{
    VR va = SPLAT_R(a * c), vb = SPLAT_R(b * c), vq = SPLAT_R(q * c * c), ve = SPLAT_R(e);
#define SLOPES(from, to) \
    do { \
        VR d = SPLAT_R(top) - LOAD_R(from), x = EXP_R(-d); \
        STORE_R(to, x * (va + vb * d + vq * x) + ve); \
    } while (0)
    if (classes < WR) {
        REAL part[WR];
        STORE_R(part, SPLAT_R(top));
        memcpy(part, z, (size_t)classes * sizeof *z);
        SLOPES(part, part);
        memcpy(out, part, (size_t)classes * sizeof *z);
        return;
    }
    for (int64_t k = 0; k + WR < classes; k += WR)
        SLOPES(z + k, out + k);
    SLOPES(z + classes - WR, out + classes - WR); /* some a second time */
#undef SLOPES
}

/* The gradient of a row of probabilities from the slopes. */
INLINE void KIND(probability_gradient)(const REAL *z, int64_t classes, int64_t label,
                                       const double *at, int64_t step, double by, REAL *out)
{
    int64_t predicted = (int64_t)at[PREDICTED * step], rival = (int64_t)at[RIVAL_CLASS * step];
    double by_nll = by * at[BY_NLL * step], by_confidence = by * at[BY_CONFIDENCE * step];
    double by_entropy = by * at[BY_ENTROPY * step], by_brier = 2 * by * at[BY_BRIER * step];
    double by_spread = by * at[BY_SPREAD * step], by_rival = by * at[BY_RIVAL * step];
    double confidence = at[CONFIDENCE * step], miss = at[MISS * step];
    double a = by_nll + by_spread - by_confidence * confidence -
               by_entropy * at[DISTANCE * step] - by_brier * (at[BRIER * step] - miss);
    if (rival >= 0)
        a -= by_rival * at[RIVAL * step];
    KIND(loss_slopes)(z, classes, z[predicted], confidence, a, by_entropy, by_brier,
                      -by_spread / (double)classes, out);
    out[label] -= (REAL)(by_nll + by_brier * (1 - miss));
    out[predicted] += (REAL)(by_confidence * confidence);
    if (rival >= 0)
        out[rival] += (REAL)(by_rival * at[RIVAL * step]);
}

/* The same of the ramps. */
INLINE void KIND(ramp_gradient)(const REAL *z, int64_t classes, REAL margin, const double *at,
                                int64_t step, double by, REAL *out)
{
    int64_t predicted = (int64_t)at[PREDICTED * step], count = 0;
    REAL limit = z[predicted] - margin, by_ramp = (REAL)(by * at[BY_RAMP * step]);
    REAL by_squares = (REAL)(2 * by * at[BY_RAMP_SQUARES * step]);
    for (int64_t k = 0; k < classes; k++) {
        REAL x = limit - z[k];
        count += x > 0;
        out[k] = x > 0 ? -(by_ramp + by_squares * x) : 0;
    }
    out[predicted] += (REAL)(by * at[BY_TOP * step]) + by_ramp * (REAL)count;
}

FUNCTION void KIND(loss_gradient)(const Scores *s, const LossRows *l, const LossGradient *g)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const REAL *z = (const REAL *)(s->data + i * s->row_step);
        REAL *out = (REAL *)(g->out + i * g->out_step);
        double by = (double)*(const REAL *)(g->by_value + i * g->by_value_step);
        const double *at = l->block.at + i;
        if (l->wanted == RAMPS)
            KIND(ramp_gradient)(z, s->classes, (REAL)l->margin, at, l->block.step, by, out);
        else
            KIND(probability_gradient)(z, s->classes, l->labels[i], at, l->block.step, by, out);
    }
}

/* --- the penalty of all classes: no curve of columns, its slopes are per class ----------------- */

/* exp(z - top) of a row to x, and their sum, or with slopes e of the classes that weighted by these.
   Both arrays have room for a whole vector. */
INLINE double KIND(row_odds)(const KIND(Vectors) *v, REAL top, const REAL *e, REAL *x)
{
    VR sum = SPLAT_R(0);
    OVER_VECTORS(v, {
        VR odds = EXP_R(LOAD_R(v->z + k) - SPLAT_R(top));
        STORE_R(x + k, odds); /* some a second time */
        sum += e ? KEPT(odds * LOAD_R(e + k)) : KEPT(odds);
    });
    return KIND(sum_lanes)(sum);
}

/* Add the probabilities of each class, minus how often it is the label. */
FUNCTION int64_t KIND(class_gaps)(const Scores *s, const ClassGaps *c)
{
    int64_t classes = s->classes;
    double *restrict gaps = c->classes;
    REAL part[WR], top, *restrict x = s->room;
    for (int64_t i = 0; i < s->rows; i++) {
        const REAL *z = (const REAL *)(s->data + i * s->row_step);
        KIND(Vectors) v = KIND(vectors_of)(z, classes, part);
        if (!KIND(largest)(&v, &top))
            return i;
        int counts = !c->valid || c->valid[i];
        double share = counts ? 1 / KIND(row_odds)(&v, top, NULL, x) : 0;
        c->top[i] = (double)top;
        c->share[i] = share;
        if (!counts)
            continue;
        for (int64_t k = 0; k < classes; k++)
            gaps[k] += share * (double)x[k];
        gaps[c->labels[i]]--;
        gaps[classes]++;
    }
    return -1;
}

/* p (e - the mean of e under p) for each class, with the slopes e of the classes. */
FUNCTION void KIND(class_gap_gradient)(const Scores *s, const ClassGaps *c, const LossGradient *g)
{
    int64_t classes = s->classes;
    REAL part[WR], *x = s->room, *e = x + padded_to(classes, RUN);
    for (int64_t k = 0; k < classes; k++)
        e[k] = (REAL)c->classes[k];
    for (int64_t i = 0; i < s->rows; i++) {
        const REAL *z = (const REAL *)(s->data + i * s->row_step);
        REAL *restrict out = (REAL *)(g->out + i * g->out_step);
        double by = (double)*(const REAL *)(g->by_value + i * g->by_value_step);
        KIND(Vectors) v = KIND(vectors_of)(z, classes, part);
        for (int64_t k = 0; k < classes; k += 64 / (int64_t)sizeof *out)
            __builtin_prefetch(out + k, 1); /* fetched while the exponentials are computed */
        REAL mean = (REAL)(c->share[i] * KIND(row_odds)(&v, (REAL)c->top[i], e, x));
        REAL share = (REAL)(by * c->share[i]);
        for (int64_t k = 0; k < classes; k++)
            out[k] = share * x[k] * (e[k] - mean);
    }
}

#undef REAL
#undef VR
#undef VM
#undef LANE
#undef OVER_VECTORS
#undef KEPT
#undef WR
#undef LOAD_R
#undef STORE_R
#undef MAX_R
#undef SPLAT_R
#undef EXP_R
#undef EQUAL_R
#undef WHERE_R
#undef LOWEST_R
#undef KIND
