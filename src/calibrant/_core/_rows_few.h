/* Rows of up to NARROW classes in float32, FW at a time, compiled once per instruction set as
   _rows_sweeps.h is. A tile of rows is first laid out class by class: the planes of an image lie a
   power of two apart, where they drive each other out of the cache.

   Sums are relative to the runner-up, whose own term is exactly 1, and no lane knows its
   neighbours: a row has the same bits wherever it stands. */

/* TILE rows from `start` on, class by class; past the end the last row again. */
INLINE void NAME(fill_tile)(const Scores *s, int64_t start, int64_t count, float (*tile)[TILE])
{
    for (int64_t k = 0; k < s->classes; k++) {
        const char *at = s->data + start * s->row_step + k * s->class_step;
        if (s->type == FLOAT && s->row_step == sizeof(float))
            memcpy(tile[k], at, (size_t)count * sizeof(float));
        else if (s->type == FLOAT)
            for (int64_t i = 0; i < count; i++)
                tile[k][i] = *(const float *)(at + i * s->row_step);
        else
            for (int64_t i = 0; i < count; i++)
                tile[k][i] = half_to_float(*(const uint16_t *)(at + i * s->row_step));
        for (int64_t i = count; i < TILE && i % FW; i++)
            tile[k][i] = tile[k][count - 1];
    }
}

/* The first of `count` lanes that is set, or -1. */
INLINE int64_t NAME(first_set)(vi lanes, int64_t count)
{
    unsigned mask = (unsigned)MASK_I(lanes);
    int64_t at = mask ? __builtin_ctz(mask) : count;
    return at < count ? at : -1;
}

/* Largest, runner-up and predicted class of FW rows; says which are bad. */
INLINE vi NAME(top_two)(const float (*tile)[TILE], int64_t classes, int64_t at, vf *top, vf *next,
                        vi *predicted)
{
    vi nan = {0};
    *top = *next = splat_f(-INFINITY);
    *predicted = nan;
    for (int64_t k = 0; k < classes; k++) {
        vf x = LOAD_F(tile[k] + at);
        vi above = (vi)(x > *top);
        *next = MAX_F(MIN_F(x, *top), *next);
        *predicted = (above & (int32_t)k) | (~above & *predicted);
        *top = MAX_F(x, *top);
        nan |= (vi)(x != x);
    }
    return nan | (vi)(*top - *top != splat_f(0)); /* infinite tops, too */
}

/* The terms of all classes but the predicted one, and their sums. `terms` has K vectors, rounded up
   to a multiple of four; eight sums of at most four terms round less than one. If not `whole`, only
   the sum of the terms. */
INLINE void NAME(few_sums)(int whole, const float (*tile)[TILE], int64_t classes, int64_t at,
                           vf base, vi kept, vi predicted, vf *terms, vf *total, vf *squares,
                           vf *weighted)
{
    vf s[2] = {{0}}, w[2] = {{0}};
    for (int64_t part = 0; part < NARROW; part += NARROW / 2) {
        vf t[4] = {{0}};
        for (int64_t k = part; k < classes && k < part + NARROW / 2; k += 4)
            for (int u = 0; u < 4; u++) {
                vf x = MAX_F(splat_f(FAINTEST), LOAD_F(tile[k + u] + at) - base);
                vi other = kept & (vi)(predicted != (int32_t)(k + u));
                vf e = (vf)((vi)NAME(expf)(x) & other);
                t[u] += e;
                if (!whole)
                    continue;
                terms[k + u] = e;
                s[u / 2] = FMA_F(e, e, s[u / 2]);
                w[u / 2] = FMA_F(e, x, w[u / 2]);
            }
        for (int u = 0; u < 4; u++)
            *total++ = t[u];
    }
    for (int u = 0; whole && u < 2; u++)
        squares[u] = s[u], weighted[u] = w[u];
}

/* Two or eight float32 sums of every lane, as one in float64. */
INLINE void NAME(join)(int count, const vf *sums, double *out)
{
    float part[8][FW];
    for (int u = 0; u < count; u++)
        STORE_F(part[u], sums[u]);
    for (int h = 0; h < FW; h += DW) {
        vd sum = splat_d(0);
        for (int u = 0; u < count; u += 2)
            sum += WIDE(part[u] + h) + WIDE(part[u + 1] + h);
        STORE_D(out + h, sum);
    }
}

/* The classes of up to DW rows of terms: those that were not predicted, whose terms are not 0, and
   the predicted ones. */
INLINE void NAME(count_few)(const vf *terms, int64_t classes, int from, const int64_t *predicted,
                            const double *factor, const double *confidence, int64_t count,
                            vl *first, const Table *t)
{
    Listed list;
    vd scale = LOAD_D(factor) * LOAD_D(confidence) * UNITS;
    scale = (vd)((vl)scale & NAME(lanes_below)(count));
    list.count = 0;
    for (int64_t k = 0; k < classes; k++)
        NAME(bin_lanes)(WIDE((const float *)(terms + k) + from) * scale, k, NAME(first_limit)(t),
                        first, &list);
    NAME(count_listed)(&list, t);
    for (int64_t i = 0; i < DW && i < count; i++)
        count_entry(t, predicted[i], confidence[i]);
}

/* Columns of FW rows of a tile, `count` of them real; -1, or the first bad one. */
INLINE int64_t NAME(few_rows)(const float (*tile)[TILE], int64_t classes, int64_t at, int64_t count,
                              const int64_t *labels, double most, const Columns *out, int64_t to,
                              vl *first, const Table *t)
{
    vf top, next, terms[NARROW], total[8], squares[2], weighted[2];
    vi found;
    int64_t bad = NAME(first_set)(NAME(top_two)(tile, classes, at, &top, &next, &found), count);
    if (bad >= 0)
        return bad;
    vi alone = (vi)(next == splat_f(-INFINITY)); /* no other class has a probability */
    vf base = SELECT_F(alone, top, next);
    float tops[FW], bases[FW];
    int32_t classes_of[FW];
    double sums[3][FW];
    NAME(few_sums)(1, tile, classes, at, base, ~alone, found, terms, total, squares, weighted);
    STORE_F(tops, top);
    STORE_F(bases, base);
    STORE_I(classes_of, found);
    NAME(join)(8, total, sums[0]);
    NAME(join)(2, squares, sums[1]);
    NAME(join)(2, weighted, sums[2]);
    for (int from = 0; from < FW && from < count; from += 8) {
        Eight e;
        int64_t predicted[8], right[8], here = count - from < 8 ? count - from : 8;
        int lanes = FW < 8 ? FW : 8;
        /* Straight to where they belong, unless there are fewer rows than lanes. */
        Columns some = here == lanes ? columns_at(out, to + from) : spare_columns(&e);
        for (int i = 0; i < lanes; i++) {
            predicted[i] = classes_of[from + i];
            int64_t label = labels && i < here ? labels[from + i] : predicted[i];
            right[i] = -(label == predicted[i]);
            e.label[i] = tile[label][at + from + i];
            e.top[i] = tops[from + i];
            e.gap[i] = (double)bases[from + i] - tops[from + i];
            e.total[i] = sums[0][from + i];
            e.squares[i] = sums[1][from + i];
            e.weighted[i] = sums[2][from + i];
        }
        for (int u = 0; u < lanes; u += DW)
            NAME(finish)(&e, u, right, most, &some, u);
        if (here < lanes)
            copy_columns(out, to + from, &some, here);
        for (int64_t i = 0; i < here; i++) {
            out->predicted[to + from + i] = predicted[i];
            out->correct[to + from + i] = right[i] != 0;
        }
        for (int u = 0; t && u < here; u += DW)
            NAME(count_few)(terms, classes, from + u, predicted + u, e.factor + u, some.confidence + u,
                            here - u, first, t);
        for (int64_t i = 0; t && i < here; i++)
            count_label(t, labels[from + i], some.label_prob[i]);
    }
    return -1;
}

FUNCTION int64_t NAME(logits_few)(const Scores *s, const int64_t *labels, const Columns *out,
                                  const Table *t)
{
    float tile[NARROW][TILE] __attribute__((aligned(64)));
    double most = log((double)s->classes);
    vl first[NARROW];
    for (int64_t k = 0; k < s->classes; k++)
        first[k] = splat_l(0);
    for (int64_t k = s->classes; k < NARROW; k++)
        for (int i = 0; i < TILE; i++)
            tile[k][i] = -INFINITY;
    for (int64_t start = 0; start < s->rows; start += TILE) {
        int64_t count = s->rows - start < TILE ? s->rows - start : TILE;
        NAME(fill_tile)(s, start, count, tile);
        for (int64_t at = 0; at < count; at += FW) {
            const int64_t *given = labels ? labels + start + at : NULL;
            int64_t here = count - at < FW ? count - at : FW;
            int64_t bad = NAME(few_rows)((const float (*)[TILE])tile, s->classes, at, here, given,
                                         most, out, start + at, first, t);
            if (bad >= 0)
                return start + at + bad;
        }
    }
    if (t)
        NAME(add_first)(first, s->classes, t);
    return -1;
}

/* Columns of the predicted class of FW rows of a tile, as `finish` has them; says which are bad. */
INLINE vi NAME(few_tops)(const float (*tile)[TILE], int64_t classes, int64_t at, int32_t *predicted,
                         double *odds, double *confidence)
{
    vf top, next, total[8];
    vi found, bad = NAME(top_two)(tile, classes, at, &top, &next, &found);
    vi alone = (vi)(next == splat_f(-INFINITY));
    vf base = SELECT_F(alone, top, next);
    float tops[FW], bases[FW];
    double sums[FW];
    NAME(few_sums)(0, tile, classes, at, base, ~alone, found, NULL, total, NULL, NULL);
    NAME(join)(8, total, sums);
    STORE_I(predicted, found);
    STORE_F(tops, top);
    STORE_F(bases, base);
    for (int i = 0; i < FW; i += DW) {
        vd against = NAME(expd)(WIDE(bases + i) - WIDE(tops + i)) * LOAD_D(sums + i);
        STORE_D(odds + i, against);
        STORE_D(confidence + i, 1.0 / (1.0 + against));
    }
    return bad;
}

/* Columns of the predicted class of some rows, which are in rising order, one after the other; -1,
   or which of them is the first bad one. */
FUNCTION int64_t NAME(top_few)(const Scores *s, const int64_t *some, int64_t number,
                               const int64_t *labels, const Columns *out)
{
    float tile[NARROW][TILE] __attribute__((aligned(64)));
    int64_t done = 0;
    for (int64_t k = s->classes; k < NARROW; k++)
        for (int i = 0; i < TILE; i++)
            tile[k][i] = -INFINITY;
    for (int64_t start = 0; start < s->rows && done < number; start += TILE) {
        int64_t count = s->rows - start < TILE ? s->rows - start : TILE;
        if (some[done] >= start + count)
            continue;
        NAME(fill_tile)(s, start, count, tile);
        for (int64_t at = 0; at < count && done < number; at += FW) {
            double odds[FW], confidence[FW];
            int32_t predicted[FW];
            if (some[done] >= start + at + FW)
                continue;
            unsigned bad = (unsigned)MASK_I(NAME(few_tops)((const float (*)[TILE])tile, s->classes,
                                                           at, predicted, odds, confidence));
            for (; done < number && some[done] < start + at + FW; done++) {
                int64_t lane = some[done] - start - at;
                if (bad >> lane & 1)
                    return done;
                out->predicted[done] = predicted[lane];
                out->correct[done] = !labels || labels[done] == predicted[lane];
                out->odds[done] = odds[lane];
                out->confidence[done] = confidence[lane];
            }
        }
    }
    return -1;
}

/* First row with NaN, +inf, or nothing finite, of float32 classes one after the other. */
FUNCTION int64_t NAME(check_few)(const Scores *s)
{
    float top[TILE], holes[TILE];
    for (int64_t start = 0; start < s->rows; start += TILE) {
        int64_t count = s->rows - start < TILE ? s->rows - start : TILE, sound = 1;
        for (int64_t i = 0; i < count; i++)
            top[i] = -INFINITY, holes[i] = 0;
        for (int64_t k = 0; k < s->classes; k++) {
            const float *x = (const float *)(s->data + k * s->class_step) + start;
            for (int64_t i = 0; i < count; i++) {
                top[i] = x[i] > top[i] ? x[i] : top[i];
                holes[i] += x[i] != x[i] ? 1.0f : 0.0f;
            }
        }
        for (int64_t i = 0; i < count; i++)
            sound &= (holes[i] == 0) & (top[i] - top[i] == 0);
        for (int64_t i = 0; !sound && i < count; i++)
            if (holes[i] != 0 || !(top[i] - top[i] == 0))
                return start + i;
    }
    return -1;
}
