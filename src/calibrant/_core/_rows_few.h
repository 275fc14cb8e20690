/* Rows of up to NARROW classes in float32, FW at a time, compiled once per instruction set as
   _rows_sweeps.h is, class by class. The planes of an image lie a power of two apart, where they drive
   each other out of the cache: a tile of such rows is first laid out elsewhere, as are rows that do
   not lie class by class.

   Sums are relative to the runner-up, whose own term is exactly 1, and no lane knows its
   neighbours: a row has the same bits wherever it stands. */

/* Some rows class by class, `step` floats from one class to the next. */
typedef struct {
    const float *data;
    int64_t step, classes;
} NAME(Planes);

/* FW rows of a class. */
#define PLANE(p, k, at) LOAD_F((p)->data + (k) * (p)->step + (at))

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
                tile[k][i] = short_to_float(s->type, at + i * s->row_step);
        for (int64_t i = count; i < TILE && i % FW; i++)
            tile[k][i] = tile[k][count - 1];
    }
}

/* `count` rows from `start` on, where they lie or in the tile. */
INLINE NAME(Planes) NAME(planes_of)(const Scores *s, int64_t start, int64_t count,
                                    float (*tile)[TILE])
{
    NAME(Planes) p = {tile[0], TILE, s->classes};
    if (s->type == FLOAT && s->row_step == sizeof(float) && count % FW == 0 &&
        s->class_step % CROWDED) {
        p.data = (const float *)s->data + start;
        p.step = s->class_step / (int64_t)sizeof(float);
    } else
        NAME(fill_tile)(s, start, count, tile);
    return p;
}

/* Equal-width bins of DW values, as width_index has them. */
INLINE vl NAME(width_bins)(vd value, int64_t bins)
{
    vd scaled = value * (double)bins, shifted = scaled + MAGIC, near = shifted - MAGIC;
    vl whole = (vl)shifted - MAGIC_BITS, index = whole + (vl)(scaled <= near);
    vl close = (vl)((vd)((vl)(scaled - near) & INT64_MAX) < splat_d(EDGE * (double)bins));
    if (MASK_L(close))
        index = SELECT_L(close, whole + (vl)(value <= near / (double)bins), index);
    index &= (vl)(index > 0);
    return SELECT_L(index < bins, index, splat_l(bins - 1));
}

/* The first of `count` lanes that is set, or -1. */
INLINE int64_t NAME(first_set)(vi lanes, int64_t count)
{
    unsigned mask = (unsigned)MASK_I(lanes);
    int64_t at = mask ? __builtin_ctz(mask) : count;
    return at < count ? at : -1;
}

/* Largest, runner-up and predicted class of FW rows; says which are bad. */
INLINE vi NAME(top_two)(const NAME(Planes) *p, int64_t at, vf *top, vf *next, vi *predicted)
{
    vi nan = {0};
    *top = *next = splat_f(-INFINITY);
    *predicted = nan;
    for (int64_t k = 0; k < p->classes; k++) {
        vf x = PLANE(p, k, at);
        vi above = (vi)(x > *top);
        *next = MAX_F(MIN_F(x, *top), *next);
        *predicted = (above & (int32_t)k) | (~above & *predicted);
        *top = MAX_F(x, *top);
        nan |= (vi)(x != x);
    }
    return nan | (vi)(*top - *top != splat_f(0)); /* infinite tops, too */
}

/* The terms of all classes but the predicted one, and their sums; eight sums of at most four terms
   round less than one. If not `whole`, only the sum of the terms. */
INLINE void NAME(few_sums)(int whole, const NAME(Planes) *p, int64_t at, vf base, vi kept,
                           vi predicted, vf *terms, vf *total, vf *squares, vf *weighted)
{
    vf s[2] = {{0}}, w[2] = {{0}};
    for (int64_t part = 0; part < NARROW; part += NARROW / 2) {
        vf t[4] = {{0}};
        for (int64_t k = part; k < p->classes && k < part + NARROW / 2; k += 4)
            for (int u = 0; u < 4 && k + u < p->classes; u++) {
                vf x = MAX_F(splat_f(FAINTEST), PLANE(p, k + u, at) - base);
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

/* FW rows on their way to columns: terms by class, then what is known of each row. */
typedef struct {
    vf terms[NARROW];
    float top[FW], base[FW], label[FW];
    int32_t predicted[FW];
    int64_t right[FW];
    double sums[3][FW], scale[FW];
} NAME(Few);

/* First bins by class and lane, in 32 bits without a sign on their way to 64. */
typedef struct {
    vu recent[NARROW];
    int64_t held, most;
} NAME(FirstBins);

INLINE void NAME(empty_bins)(NAME(FirstBins) *f, const Table *t)
{
    memset(f->recent, 0, sizeof f->recent);
    f->held = 0;
    f->most = t ? 4 * (t->bins < 1024 ? t->bins : 1024) - 1 : 0;
}

INLINE void NAME(flush_bins)(NAME(FirstBins) *f, int64_t classes, const Table *t)
{
    for (int64_t k = 0; k < classes; k++) {
        int32_t lanes[FW];
        STORE_I(lanes, (vi)f->recent[k]);
        for (int i = 0; i < FW; i++)
            t->units[k * t->bins] += (uint32_t)lanes[i];
    }
    NAME(empty_bins)(f, t);
}

/* Terms above the first bin, as the list has them: class times FW plus lane. */
INLINE void NAME(bin_listed)(const NAME(Few) *f, const uint32_t *list, int64_t listed,
                             const Table *t)
{
    const Table to = *t;
    const float *terms = (const float *)f->terms;
    double scaled[NARROW * FW + DW];
    for (int64_t i = 0; i < listed; i++)
        scaled[i] = (double)terms[list[i]] * f->scale[list[i] % FW];
    STORE_D(scaled + listed, splat_d(0));
    for (int64_t i = 0; i < listed; i += DW) {
        int64_t bin[DW], units[DW];
        STORE_L(bin, NAME(width_bins)(LOAD_D(scaled + i) * (1 / UNITS), to.bins));
        STORE_L(units, ROUNDED(LOAD_D(scaled + i)));
        for (int64_t u = 0; u < DW && i + u < listed; u++) {
            int64_t cell = list[i + u] / FW * to.bins + bin[u];
            to.count[cell]++;
            to.units[cell] += units[u];
        }
    }
}

/* The classes of FW rows that were not predicted. Terms in the first bin are added up in float32, as
   those of long rows are; the few others are listed, so that no branch depends on the data, and
   binned in float64. */
INLINE void NAME(count_few)(const NAME(Few) *f, int64_t classes, NAME(FirstBins) *bins,
                            const Table *t)
{
    uint32_t list[NARROW * FW + FW];
    int64_t listed = 0;
    float narrow[FW];
    for (int i = 0; i < FW; i++)
        narrow[i] = (float)f->scale[i];
    vf scale = LOAD_F(narrow), limit = splat_f(UNITS / (double)t->bins * (1 - SLACK));
    for (int64_t k = 0; k < classes; k++) {
        vf units = f->terms[k] * scale;
        vi above = (vi)(units > limit);
        unsigned mask = (unsigned)MASK_I(above);
        bins->recent[k] += (vu)WHOLE_F((vf)((vi)units & ~above));
        LIST_I((int32_t *)list + listed, NAME(lanes)() + (int32_t)(k * FW), mask);
        listed += __builtin_popcount(mask);
    }
    NAME(bin_listed)(f, list, listed, t);
    if (++bins->held == bins->most)
        NAME(flush_bins)(bins, classes, t);
}

/* The predicted classes and the labels of some rows. */
INLINE void NAME(count_tops)(const int64_t *labels, const Columns *c, int64_t rows, const Table *t)
{
    const Table to = *t;
    int64_t i = 0;
    for (; i + DW <= rows; i += DW) {
        int64_t top[DW], label[DW], units[DW];
        vd confidence = LOAD_D(c->confidence + i);
        STORE_L(top, NAME(width_bins)(confidence, to.bins));
        STORE_L(label, NAME(width_bins)(LOAD_D(c->label_prob + i), to.bins));
        STORE_L(units, ROUNDED(confidence * UNITS));
        for (int u = 0; u < DW; u++) {
            int64_t cell = c->predicted[i + u] * to.bins + top[u];
            to.count[cell]++;
            to.units[cell] += units[u];
            to.hits[labels[i + u] * to.bins + label[u]]++;
        }
    }
    for (; i < rows; i++) {
        count_entry(&to, c->predicted[i], c->confidence[i]);
        count_label(&to, labels[i], c->label_prob[i]);
    }
}

/* Sums of FW rows, `count` of them real; -1, or the first bad one. The logits of labels are looked
   up long before they are read as vectors: a load waits for the stores that it overlaps. */
INLINE int64_t NAME(add_few)(const NAME(Planes) *p, int64_t at, int64_t count,
                             const int64_t *labels, NAME(Few) *f)
{
    vf top, next, total[8], squares[2], weighted[2];
    vi found;
    int64_t bad = NAME(first_set)(NAME(top_two)(p, at, &top, &next, &found), count);
    if (bad >= 0)
        return bad;
    vi alone = (vi)(next == splat_f(-INFINITY)); /* no other class has a probability */
    vf base = SELECT_F(alone, top, next);
    STORE_F(f->top, top);
    STORE_F(f->base, base);
    STORE_I(f->predicted, found);
    for (int i = 0; i < FW; i++) {
        int64_t label = labels && i < count ? labels[i] : f->predicted[i];
        f->label[i] = p->data[label * p->step + at + i];
        f->right[i] = -(label == f->predicted[i]);
    }
    NAME(few_sums)(1, p, at, base, ~alone, found, f->terms, total, squares, weighted);
    NAME(join)(8, total, f->sums[0]);
    NAME(join)(2, squares, f->sums[1]);
    NAME(join)(2, weighted, f->sums[2]);
    return -1;
}

/* Columns of DW rows from lane `from` on, and the factors of their terms in units. */
INLINE void NAME(finish_few)(NAME(Few) *f, int from, double most, const Columns *out, int64_t to)
{
    Eight e;
    vd top = WIDE(f->top + from);
    STORE_D(e.top, top);
    STORE_D(e.gap, WIDE(f->base + from) - top);
    STORE_D(e.label, WIDE(f->label + from));
    STORE_D(e.total, LOAD_D(f->sums[0] + from));
    STORE_D(e.squares, LOAD_D(f->sums[1] + from));
    STORE_D(e.weighted, LOAD_D(f->sums[2] + from));
    NAME(finish)(&e, 0, f->right + from, most, out, to);
    STORE_D(f->scale + from, LOAD_D(e.factor) * LOAD_D(out->confidence + to) * UNITS);
}

/* Columns of FW rows, `count` of them real; -1, or the first bad one. */
INLINE int64_t NAME(few_rows)(const NAME(Planes) *p, int64_t at, int64_t count,
                              const int64_t *labels, double most, const Columns *out, int64_t to,
                              NAME(FirstBins) *bins, const Table *t)
{
    NAME(Few) f;
    int64_t bad = NAME(add_few)(p, at, count, labels, &f);
    if (bad >= 0)
        return bad;
    for (int from = 0; from < FW && from < count; from += DW) {
        Eight e;
        int64_t here = count - from < DW ? count - from : DW;
        Columns spare = spare_columns(&e);
        /* Straight to where they belong, unless there are fewer rows than lanes. */
        if (here == DW)
            NAME(finish_few)(&f, from, most, out, to + from);
        else {
            NAME(finish_few)(&f, from, most, &spare, 0);
            copy_columns(out, to + from, &spare, here);
        }
    }
    for (int64_t i = count; i < FW; i++)
        f.scale[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        out->predicted[to + i] = f.predicted[i];
        out->correct[to + i] = f.right[i] != 0;
    }
    if (t)
        NAME(count_few)(&f, p->classes, bins, t);
    return -1;
}

FUNCTION int64_t NAME(logits_few)(const Scores *s, const int64_t *labels, const Columns *out,
                                  const Table *t)
{
    float tile[NARROW][TILE] __attribute__((aligned(64)));
    double most = log((double)s->classes);
    NAME(FirstBins) bins;
    NAME(empty_bins)(&bins, t);
    for (int64_t start = 0; start < s->rows; start += TILE) {
        int64_t count = s->rows - start < TILE ? s->rows - start : TILE;
        NAME(Planes) p = NAME(planes_of)(s, start, count, tile);
        for (int64_t at = 0; at < count; at += FW) {
            const int64_t *given = labels ? labels + start + at : NULL;
            int64_t here = count - at < FW ? count - at : FW;
            int64_t bad = NAME(few_rows)(&p, at, here, given, most, out, start + at, &bins, t);
            if (bad >= 0)
                return start + at + bad;
        }
        Columns done = columns_at(out, start);
        if (t)
            NAME(count_tops)(labels + start, &done, count, t);
    }
    if (t)
        NAME(flush_bins)(&bins, s->classes, t);
    return -1;
}

/* Columns of the predicted class of FW rows, as `finish` has them; says which are bad. */
INLINE vi NAME(few_tops)(const NAME(Planes) *p, int64_t at, int32_t *predicted, double *odds,
                         double *confidence)
{
    vf top, next, total[8];
    vi found, bad = NAME(top_two)(p, at, &top, &next, &found);
    vi alone = (vi)(next == splat_f(-INFINITY));
    vf base = SELECT_F(alone, top, next);
    float tops[FW], bases[FW];
    double sums[FW];
    NAME(few_sums)(0, p, at, base, ~alone, found, NULL, total, NULL, NULL);
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
    for (int64_t start = 0; start < s->rows && done < number; start += TILE) {
        int64_t count = s->rows - start < TILE ? s->rows - start : TILE;
        if (some[done] >= start + count)
            continue;
        NAME(Planes) p = NAME(planes_of)(s, start, count, tile);
        for (int64_t at = 0; at < count && done < number; at += FW) {
            double odds[FW], confidence[FW];
            int32_t predicted[FW];
            if (some[done] >= start + at + FW)
                continue;
            unsigned bad = (unsigned)MASK_I(NAME(few_tops)(&p, at, predicted, odds, confidence));
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
#undef PLANE
