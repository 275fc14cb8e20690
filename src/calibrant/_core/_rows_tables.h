/* Probabilities, classwise tables and temperatures: the second half of _rows_sweeps.h. */

/* DW entries of a row of floats or doubles from entry j on, in float64. */
INLINE vd NAME(get)(int type, const char *row, int64_t j)
{
    if (type == DOUBLE)
        return LOAD_D((const double *)row + j);
    return WIDE((const float *)row + j);
}

/* The last, incomplete eight entries of a row, filled up. */
INLINE void NAME(get_tail)(int type, const char *row, int64_t classes, double filler, double *tail)
{
    int64_t full = classes & ~(int64_t)7;
    for (int l = 0; l < 8; l++)
        tail[l] = full + l >= classes ? filler
                  : type == DOUBLE    ? ((const double *)row)[full + l]
                                      : (double)((const float *)row)[full + l];
}

/* The eight entries around class `at`, with `filler` in its place. */
INLINE void NAME(get_patched)(int type, const char *row, const double *tail, int64_t classes,
                              int64_t at, double filler, double *patched)
{
    int64_t skip = at & ~(int64_t)7;
    for (int l = 0; l < 8; l++)
        patched[l] = skip + 8 > classes ? tail[l]
                     : type == DOUBLE   ? ((const double *)row)[skip + l]
                                        : (double)((const float *)row)[skip + l];
    patched[at - skip] = filler;
}

/* Part u of the eight entries from class j on; class `at` and what lies past the end are filled. */
#define BLOCK(type, row, j) \
    ((j) == skip         ? (vd)LOAD_D(patched + u * DW) \
     : (j) + 8 > classes ? (vd)LOAD_D(tail + u * DW) \
                         : NAME(get)(type, row, (j) + u * DW))

/* --- probabilities: sums and predicted classes ----------------------------------------------- */

INLINE int NAME(check_row)(int type, const char *row, int64_t classes, double *sum, int64_t *top)
{
    const int64_t skip = -1;
    double high[8], low[8], tail[8], *patched = tail, largest = -INFINITY;
    vd total[P], most[P], least[P];
    EACH total[u] = splat_d(0), most[u] = splat_d(-INFINITY), least[u] = splat_d(INFINITY);
    NAME(get_tail)(type, row, classes, 0, tail);
    for (int64_t j = 0; j < classes; j += 8)
        EACH
        {
            vd x = BLOCK(type, row, j);
            total[u] += x;
            most[u] = MAX_D(x, most[u]);
            least[u] = MIN_D(x, least[u]);
        }
    EACH STORE_D(high + u * DW, most[u]);
    EACH STORE_D(low + u * DW, least[u]);
    *sum = NAME(add_lanes)(total);
    for (int l = 0; l < 8; l++) {
        if (low[l] < 0)
            return 0;
        largest = high[l] > largest ? high[l] : largest;
    }
    if (!(fabs(*sum - 1) <= SUM_TOLERANCE))
        return 0;
    int64_t j = 0;
    if (type == DOUBLE)
        while (((const double *)row)[j] != largest)
            j++;
    else
        while (((const float *)row)[j] != (float)largest)
            j++;
    *top = j;
    return 1;
}

FUNCTION int64_t NAME(check_probs_wide)(const Scores *s, double *sums, int64_t *predicted)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const char *row = floats_of(s, i);
        int fine = s->type == DOUBLE
                       ? NAME(check_row)(DOUBLE, row, s->classes, sums + i, predicted + i)
                       : NAME(check_row)(FLOAT, row, s->classes, sums + i, predicted + i);
        if (!fine)
            return i;
    }
    return -1;
}

FUNCTION int64_t NAME(check_probs_narrow)(const Scores *s, double *sums, int64_t *predicted)
{
    vd x[NARROW];
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW;
        double total[8], low[8];
        int64_t found[8];
        vd top;
        vl first;
        NAME(turn)(s, start, count, x);
        NAME(top_of)(x, s->classes, &top, &first);
        STORE_L(found, first);
        vd sum = x[0], least = x[0];
        for (int64_t k = 1; k < s->classes; k++) {
            sum += x[k];
            least = MIN_D(x[k], least);
        }
        STORE_D(total, sum);
        STORE_D(low, least);
        for (int64_t i = 0; i < count; i++) {
            sums[start + i] = total[i];
            predicted[start + i] = found[i];
            if (low[i] < 0 || !(fabs(total[i] - 1) <= SUM_TOLERANCE))
                return start + i;
        }
    }
    return -1;
}

/* --- probabilities: columns ------------------------------------------------------------------ */

/* top is the confidence, total the sum of the others, weighted their sum of p log p. */
INLINE void NAME(finish_probs)(const Eight *in, int from, const int64_t *right, double most,
                               const Columns *out)
{
    vd confidence = LOAD_D(in->top + from), rest = LOAD_D(in->total + from);
    vd label = LOAD_D(in->label + from), squares = LOAD_D(in->squares + from);
    vl correct = LOAD_L(right + from);
    vd miss = SELECT_D(correct, rest, 1.0 - label);
    vd others = SELECT_D(correct, squares, confidence * confidence + squares - label * label);
    vd doubt = 1.0 - confidence;
    vd weighted = LOAD_D(in->weighted + from) + confidence * NAME(logd)(confidence, splat_d(0));
    vd entropy = MAX_D(splat_d(0.0), -weighted);
    STORE_D(out->odds + from, SELECT_D(doubt < FAINT, rest, doubt) / confidence);
    STORE_D(out->confidence + from, confidence);
    STORE_D(out->label_prob + from, label);
    STORE_D(out->brier + from, miss * miss + others);
    STORE_D(out->entropy + from, MIN_D(splat_d(most), entropy));
    STORE_D(out->label_log_prob + from, NAME(logd)(label, splat_d(0)));
    for (int i = from; i < from + DW; i++)
        if (!(in->label[i] >= DBL_MIN))
            out->label_log_prob[i] = log(in->label[i]);
}

INLINE void NAME(probs_row)(int type, const char *row, int64_t classes, double sum,
                            int64_t predicted, Eight *e, int64_t i)
{
    double tail[8], patched[8];
    int64_t skip = predicted & ~(int64_t)7;
    vd entropy[P], rest[P], squares[P];
    EACH entropy[u] = rest[u] = squares[u] = splat_d(0);
    NAME(get_tail)(type, row, classes, 0, tail);
    NAME(get_patched)(type, row, tail, classes, predicted, 0, patched);
    for (int64_t j = 0; j < classes; j += 8)
        EACH
        {
            vd p = BLOCK(type, row, j);
            if (sum != 1)
                p = p / sum;
            p = MIN_D(splat_d(1), p);
            entropy[u] = FMA_D(p, NAME(logd)(p, splat_d(0)), entropy[u]);
            rest[u] += p;
            squares[u] = FMA_D(p, p, squares[u]);
        }
    e->weighted[i] = NAME(add_lanes)(entropy);
    e->total[i] = NAME(add_lanes)(rest);
    e->squares[i] = NAME(add_lanes)(squares);
}

FUNCTION void NAME(probs_wide)(const Scores *s, const double *total, const int64_t *labels,
                               const Columns *out)
{
    double most = log((double)s->classes);
    for (int64_t start = 0; start < s->rows; start += 8) {
        int64_t count = s->rows - start < 8 ? s->rows - start : 8, right[8] = {0};
        Eight e;
        Columns few = spare_columns(&e);
        for (int64_t i = 0; i < 8; i++)
            e.top[i] = e.label[i] = 1, e.total[i] = e.squares[i] = e.weighted[i] = 0;
        for (int64_t i = 0; i < count; i++) {
            const char *row = floats_of(s, start + i);
            int64_t predicted = out->predicted[start + i];
            int64_t label = labels ? labels[start + i] : predicted;
            double sum = total[start + i];
            if (s->type == DOUBLE)
                NAME(probs_row)(DOUBLE, row, s->classes, sum, predicted, &e, i);
            else
                NAME(probs_row)(FLOAT, row, s->classes, sum, predicted, &e, i);
            e.top[i] = least(entry(s, row, predicted) / sum, 1);
            e.label[i] = least(entry(s, row, label) / sum, 1);
            right[i] = -(label == predicted);
            out->correct[start + i] = label == predicted;
        }
        EACH NAME(finish_probs)(&e, u * DW, right, most, &few);
        copy_columns(out, start, &few, count);
    }
}

FUNCTION void NAME(probs_narrow)(const Scores *s, const double *total, const int64_t *labels,
                                 const Columns *out)
{
    double most = log((double)s->classes);
    vd x[NARROW];
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW, found[8], right[8];
        double sums[8];
        Eight e;
        Columns few = spare_columns(&e);
        vd top, rest = splat_d(0), squares = rest, entropy = rest;
        vl predicted;
        for (int64_t i = 0; i < DW; i++)
            sums[i] = total[start + (i < count ? i : count - 1)];
        NAME(turn)(s, start, count, x);
        NAME(top_of)(x, s->classes, &top, &predicted);
        STORE_L(found, predicted);
        for (int64_t k = 0; k < s->classes; k++) {
            vd p = x[k] = MIN_D(splat_d(1), x[k] / LOAD_D(sums));
            p = (vd)((vl)p & ~(vl)(predicted == splat_l(k)));
            entropy = FMA_D(p, NAME(logd)(p, splat_d(0)), entropy);
            rest += p;
            squares = FMA_D(p, p, squares);
        }
        for (int64_t i = 0; i < DW; i++) {
            int64_t label = labels && i < count ? labels[start + i] : found[i];
            e.label[i] = ((const double *)x)[DW * label + i];
            e.top[i] = ((const double *)x)[DW * found[i] + i];
            right[i] = -(label == found[i]);
        }
        STORE_D(e.total, rest);
        STORE_D(e.squares, squares);
        STORE_D(e.weighted, entropy);
        NAME(finish_probs)(&e, 0, right, most, &few);
        copy_columns(out, start, &few, count);
        for (int64_t i = 0; i < count; i++) {
            out->predicted[start + i] = found[i];
            out->correct[start + i] = right[i] != 0;
        }
    }
}

/* --- classwise tables ------------------------------------------------------------------------ */

INLINE void NAME(cells_row)(int type, const char *row, const Scores *s, const Known *known,
                            int64_t i, int64_t *first, const Table *t)
{
    int64_t classes = s->classes, at = known->predicted[i], skip = at & ~(int64_t)7;
    double confidence = known->confidence[i], sum = known->total ? known->total[i] : 1;
    double top = entry(s, row, at), limit = UNITS / (double)t->bins * (1 - SLACK);
    double filler = known->total ? 0 : -INFINITY, tail[8], patched[8], values[8];
    NAME(get_tail)(type, row, classes, filler, tail);
    NAME(get_patched)(type, row, tail, classes, at, filler, patched);
    for (int64_t j = 0; j < classes; j += 8)
        EACH
        {
            vd x = BLOCK(type, row, j), p = x;
            if (!known->total)
                p = NAME(expd)(x - top) * confidence;
            else if (sum != 1)
                p = x / sum;
            p = MIN_D(splat_d(1), p);
            vd scaled = p * UNITS;
            vl above = (vl)(scaled > splat_d(limit));
            int mask = MASK_L(above);
            int64_t k = j + u * DW;
            if (mask)
                STORE_D(values, p);
            for (; mask; mask &= mask - 1) {
                int lane = __builtin_ctz((unsigned)mask);
                count_entry(t, k + lane, values[lane]);
            }
            scaled = (vd)((vl)scaled & ~above);
            STORE_L(first + k, LOAD_L(first + k) + ROUNDED(scaled));
        }
    count_entry(t, at, confidence);
    count_label(t, known->labels[i], known->label_prob[i]);
}

FUNCTION void NAME(cells_d)(const Scores *s, const Known *known, const Table *t)
{
    int64_t *first = (int64_t *)((char *)s->room + s->room_used);
    memset(first, 0, (size_t)((s->classes + 7) & ~(int64_t)7) * sizeof *first);
    for (int64_t i = 0; i < s->rows; i++) {
        const char *row = floats_of(s, i);
        if (s->type == DOUBLE)
            NAME(cells_row)(DOUBLE, row, s, known, i, first, t);
        else
            NAME(cells_row)(FLOAT, row, s, known, i, first, t);
    }
    for (int64_t k = 0; k < s->classes; k++)
        t->units[k * t->bins] += first[k];
}

/* Of probabilities. */
FUNCTION void NAME(cells_narrow)(const Scores *s, const Known *known, const Table *t)
{
    vd x[NARROW];
    vl first[NARROW];
    for (int64_t k = 0; k < s->classes; k++)
        first[k] = splat_l(0);
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW;
        double total[8];
        for (int64_t i = 0; i < DW; i++)
            total[i] = known->total[start + (i < count ? i : count - 1)];
        NAME(turn)(s, start, count, x);
        for (int64_t k = 0; k < s->classes; k++)
            x[k] = MIN_D(splat_d(1), x[k] / LOAD_D(total));
        NAME(count_narrow)(x, s->classes, NAME(lanes_below)(count), first, t);
        for (int64_t i = 0; i < count; i++)
            count_label(t, known->labels[start + i], known->label_prob[start + i]);
    }
    NAME(add_first)(first, s->classes, t);
}

/* --- sums at another temperature ------------------------------------------------------------- */

INLINE void NAME(finish_tempered)(const Eight *e, int from, double beta, const Tempered *out,
                                  int64_t at, int64_t count)
{
    double lanes[3][8];
    vd top = LOAD_D(e->top + from), total = LOAD_D(e->total + from);
    vd mean = LOAD_D(e->weighted + from) / total;
    vd spread = LOAD_D(e->squares + from) / total - mean * mean;
    STORE_D(lanes[0], NAME(logd)(total, splat_d(0)) + beta * top);
    STORE_D(lanes[1], mean + top);
    STORE_D(lanes[2], MAX_D(splat_d(0), spread));
    for (int64_t i = 0; i < DW && from + i < count; i++) {
        out->log_total[at + from + i] = lanes[0][i];
        out->mean[at + from + i] = lanes[1][i];
        out->variance[at + from + i] = lanes[2][i];
    }
}

INLINE void NAME(tempered_f)(const float *z, int64_t classes, float beta, float top, Eight *e,
                             int64_t i)
{
    float tail[16], none[16];
    int64_t full = classes & ~(int64_t)15;
    vd total[P], weighted[P], squares[P];
    vf faint = splat_f(FAINTEST), low = splat_f(-1e30f);
    NAME(get_tail_f)(z, classes, tail);
    EACH total[u] = weighted[u] = squares[u] = splat_d(0);
    EACH STORE_F(none + u * FW, splat_f(-INFINITY));
    for (int64_t j = 0; j < classes; j += RUN) {
        const float *block[4];
        vf t[P], w[P], s[P];
        for (int b = 0; b < 4; b++) {
            int64_t k = j + 16 * b;
            __builtin_prefetch(z + k + 2 * AHEAD);
            block[b] = k < full ? z + k : k < classes ? tail : none;
        }
        EACH
        {
            vf d[4], x[4], p[4];
            for (int b = 0; b < 4; b++) {
                d[b] = MAX_F(low, LOAD_F(block[b] + u * FW) - top);
                x[b] = MAX_F(faint, d[b] * beta);
            }
            NAME(expfs)(4, x, p);
            t[u] = w[u] = s[u] = splat_f(0);
            for (int b = 0; b < 4; b++) {
                p[b] = (vf)((vi)p[b] & ~(vi)(x[b] == faint));
                vf first = p[b] * d[b];
                t[u] += p[b];
                w[u] += first;
                s[u] = FMA_F(first, d[b], s[u]);
            }
        }
        NAME(widen)(t, total);
        NAME(widen)(w, weighted);
        NAME(widen)(s, squares);
    }
    e->total[i] = NAME(add_lanes)(total);
    e->weighted[i] = NAME(add_lanes)(weighted);
    e->squares[i] = NAME(add_lanes)(squares);
}

INLINE void NAME(tempered_d)(int type, const char *row, int64_t classes, double beta, double top,
                             Eight *e, int64_t i)
{
    const int64_t skip = -1;
    double tail[8], *patched = tail;
    vd total[P], weighted[P], squares[P], low = splat_d(LOWEST / beta);
    EACH total[u] = weighted[u] = squares[u] = splat_d(0);
    NAME(get_tail)(type, row, classes, -INFINITY, tail);
    for (int64_t j = 0; j < classes; j += 8)
        EACH
        {
            vd d = BLOCK(type, row, j) - top;
            vd p = NAME(expd)(d * beta);
            d = MAX_D(low, d);
            vd first = p * d;
            total[u] += p;
            weighted[u] += first;
            squares[u] = FMA_D(first, d, squares[u]);
        }
    e->total[i] = NAME(add_lanes)(total);
    e->weighted[i] = NAME(add_lanes)(weighted);
    e->squares[i] = NAME(add_lanes)(squares);
}

FUNCTION void NAME(tempered_wide)(const Scores *s, const double *top, double beta, int exact,
                                  const Tempered *out)
{
    for (int64_t start = 0; start < s->rows; start += 8) {
        int64_t count = s->rows - start < 8 ? s->rows - start : 8;
        Eight e;
        for (int64_t i = 0; i < 8; i++)
            e.top[i] = e.weighted[i] = e.squares[i] = 0, e.total[i] = 1;
        for (int64_t i = 0; i < count; i++) {
            const char *row = floats_of(s, start + i);
            double origin = e.top[i] = top[start + i];
            if (s->type == DOUBLE)
                NAME(tempered_d)(DOUBLE, row, s->classes, beta, origin, &e, i);
            else if (exact)
                NAME(tempered_d)(FLOAT, row, s->classes, beta, origin, &e, i);
            else
                NAME(tempered_f)((const float *)row, s->classes, (float)beta, (float)origin, &e, i);
        }
        EACH NAME(finish_tempered)(&e, u * DW, beta, out, start, count);
    }
}

FUNCTION void NAME(tempered_narrow)(const Scores *s, double beta, const Tempered *out)
{
    vd x[NARROW], low = splat_d(LOWEST / beta);
    for (int64_t start = 0; start < s->rows; start += DW) {
        int64_t count = s->rows - start < DW ? s->rows - start : DW;
        vd total = splat_d(0), weighted = total, squares = total, top;
        vl predicted;
        Eight e;
        NAME(turn)(s, start, count, x);
        NAME(top_of)(x, s->classes, &top, &predicted);
        for (int64_t k = 0; k < s->classes; k++) {
            vd d = x[k] - top;
            vd p = NAME(expd)(d * beta);
            d = MAX_D(low, d);
            vd first = p * d;
            total += p;
            weighted += first;
            squares = FMA_D(first, d, squares);
        }
        STORE_D(e.top, top);
        STORE_D(e.total, total);
        STORE_D(e.weighted, weighted);
        STORE_D(e.squares, squares);
        NAME(finish_tempered)(&e, 0, beta, out, start, count);
    }
}

#undef INLINE
#undef FUNCTION
#undef P
#undef FW
#undef DW
#undef EACH
#undef BLOCK
