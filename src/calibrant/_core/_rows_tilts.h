/* Probabilities of all classes in float64 with their cells, and tilted ones: the twin of
   inference/_tilts.py. Compiled once per instruction set, as _rows_sweeps.h is. */

/* Writes those lanes that belong to the row. */
INLINE void NAME(put_d)(double *row, int64_t k, int64_t classes, vd x)
{
    double lanes[DW];
    if (k + DW <= classes) {
        STORE_D(row + k, x);
        return;
    }
    STORE_D(lanes, x);
    memcpy(row + k, lanes, (size_t)(classes - k) * sizeof *lanes);
}

INLINE double NAME(row_sum)(const double *row, int64_t classes)
{
    vd total[P];
    EACH total[u] = splat_d(0);
    for (int64_t k = 0; k < classes; k += 8)
        EACH total[u] += NAME(some_d)(DOUBLE, (const char *)row, k + u * DW, classes, 0);
    return NAME(add_lanes)(total);
}

/* The probabilities of a row; `total` is the sum of a row of probabilities, 0 for logits. */
INLINE void NAME(row_probs)(int type, const char *row, int64_t classes, double total, double *probs)
{
    vd most = splat_d(-INFINITY);
    double top = -INFINITY;
    if (total == 0) {
        for (int64_t k = 0; k < classes; k += DW)
            most = MAX_D(NAME(some_d)(type, row, k, classes, -INFINITY), most);
        for (int i = 0; i < DW; i++)
            top = most[i] > top ? most[i] : top;
        for (int64_t k = 0; k < classes; k += DW) {
            vd x = NAME(some_d)(type, row, k, classes, -INFINITY);
            NAME(put_d)(probs, k, classes, NAME(expd)(x - top));
        }
        total = NAME(row_sum)(probs, classes);
        for (int64_t k = 0; k < classes; k += DW)
            NAME(put_d)(probs, k, classes,
                        NAME(some_d)(DOUBLE, (const char *)probs, k, classes, 0) / total);
        return;
    }
    for (int64_t k = 0; k < classes; k += DW) {
        vd x = NAME(some_d)(type, row, k, classes, 0) / total;
        NAME(put_d)(probs, k, classes, MIN_D(splat_d(1), x));
    }
}

/* Probabilities (rows, classes) and their cells, class * bins + bin. */
FUNCTION void NAME(row_cells)(const Scores *s, const double *total, int64_t bins, double *probs,
                              int64_t *cell)
{
    double limit = (1 - EDGE) / (double)bins; /* most lie below: no need to look closer */
    for (int64_t i = 0; i < s->rows; i++, probs += s->classes, cell += s->classes) {
        const char *row = floats_of(s, i);
        if (s->type == DOUBLE)
            NAME(row_probs)(DOUBLE, row, s->classes, total ? total[i] : 0, probs);
        else
            NAME(row_probs)(FLOAT, row, s->classes, total ? total[i] : 0, probs);
        for (int64_t k = 0; k < s->classes; k++)
            cell[k] = k * bins + (probs[k] < limit ? 0 : width_index(probs[k], bins));
    }
}

/* DW classes from k on: p * factor[cell], in the first bin * exp(slope * (log max(p, least) -
   middle)). */
INLINE vd NAME(tilted_some)(const double *probs, const int64_t *cell, int64_t k, int64_t classes,
                            const Tilt *t)
{
    int64_t count = classes - k < DW ? classes - k : DW, cells[DW], firsts[DW];
    double factors[DW];
    for (int64_t i = 0; i < DW; i++) {
        cells[i] = i < count ? cell[k + i] : 0;
        factors[i] = t->factor[cells[i]];
        firsts[i] = (k + i) * t->bins;
    }
    vd p = NAME(some_d)(DOUBLE, (const char *)probs, k, classes, 0), q = p * LOAD_D(factors);
    if (t->slope == 0)
        return q;
    vd depth = NAME(logd)(MAX_D(splat_d(t->least), p), splat_d(0)) - t->middle;
    vd more = NAME(expd)(MIN_D(splat_d(-LOWEST), t->slope * depth));
    return q * SELECT_D(LOAD_L(cells) == LOAD_L(firsts), more, splat_d(1));
}

/* Tilted rows, divided by their sums. */
FUNCTION void NAME(tilted)(const Scores *s, const int64_t *cell, const Tilt *t, double *out)
{
    int64_t classes = s->classes;
    for (int64_t i = 0; i < s->rows; i++, cell += classes, out += classes) {
        const double *probs = (const double *)s->data + i * classes;
        vd sums[P];
        EACH sums[u] = splat_d(0);
        for (int64_t j = 0; j < classes; j += 8)
            for (int u = 0; u < P && j + u * DW < classes; u++) {
                vd q = NAME(tilted_some)(probs, cell, j + u * DW, classes, t);
                NAME(put_d)(out, j + u * DW, classes, q);
                sums[u] += q;
            }
        double total = NAME(add_lanes)(sums);
        for (int64_t k = 0; k < classes; k++)
            out[k] /= total;
    }
}
