/* Exact sums of columns and histograms of samples, for streams: the twin of streaming/_counts.py. */

/* Part of a column from entry i on, in which 0 follows the last of `count`. */
INLINE vd NAME(part_of)(const double *x, int64_t i, int64_t count)
{
    double last[DW] = {0};
    if (i + DW <= count)
        return LOAD_D(x + i);
    memcpy(last, x + i, (size_t)(count - i) * sizeof *x);
    return LOAD_D(last);
}

/* Sum of values 0 <= x < MOST_TERM, each rounded to a multiple of 2^-52:
   sums[0] * 2^-26 + sums[1] * 2^-52. Returns 0 where a value is larger, infinite or NaN. */
FUNCTION int NAME(exact_sum)(const double *x, int64_t count, int64_t *sums)
{
    vl high = splat_l(0), low = splat_l(0), fine = (vl)(splat_d(0) == splat_d(0));
    for (int64_t i = 0; i < count; i += DW) {
        vd value = NAME(part_of)(x, i, count);
        vd scaled = value * HALF_UNITS, near = (scaled + MAGIC) - MAGIC;
        fine &= (vl)(value < splat_d(MOST_TERM));
        high += ROUNDED(scaled);
        low += ROUNDED((scaled - near) * HALF_UNITS);
    }
    for (int i = 0; i < DW; i++) {
        sums[0] += high[i];
        sums[1] += low[i];
        if (!fine[i])
            return 0;
    }
    return 1;
}

/* Such sums of values below sqrt(MOST_TERM), and of their squares. */
FUNCTION void NAME(sum_squares)(const double *x, int64_t count, int64_t *sums)
{
    vl high[2] = {{0}}, low[2] = {{0}};
    for (int64_t i = 0; i < count; i += DW) {
        vd value[2] = {NAME(part_of)(x, i, count)};
        value[1] = value[0] * value[0];
        for (int k = 0; k < 2; k++) {
            vd scaled = value[k] * HALF_UNITS, near = (scaled + MAGIC) - MAGIC;
            high[k] += ROUNDED(scaled);
            low[k] += ROUNDED((scaled - near) * HALF_UNITS);
        }
    }
    for (int i = 0; i < 2 * DW; i++) {
        sums[2 * (i / DW)] += high[i / DW][i % DW];
        sums[2 * (i / DW) + 1] += low[i / DW][i % DW];
    }
}

/* Turn logarithms of probabilities into losses; whether one reaches `large`. */
FUNCTION int NAME(to_losses)(double *x, int64_t count, double large)
{
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = -x[i];
        found |= x[i] >= large;
    }
    return found;
}

FUNCTION void NAME(add_by_width)(const Histogram *h, int64_t rows, const double *confidence,
                                 const uint8_t *correct)
{
    const Histogram to = *h;
    int64_t i = 0;
    for (; i + DW <= rows; i += DW) {
        int64_t bin[DW];
        STORE_L(bin, NAME(width_bins)(LOAD_D(confidence + i), to.cells));
        for (int u = 0; u < DW; u++)
            add_sample(&to, 2 * bin[u] + (correct[i + u] != 0), confidence[i + u]);
    }
    for (; i < rows; i++)
        add_sample(&to, 2 * width_index(confidence[i], to.cells) + (correct[i] != 0),
                   confidence[i]);
}

/* Cells of the odds as odds_cell has them; wrong and correct samples side by side. */
FUNCTION void NAME(odds_cells)(const double *odds, const uint8_t *correct, int64_t rows,
                               int32_t first, int drop, int64_t cells, int32_t *out)
{
    for (int64_t i = 0; i < rows; i++)
        out[i] = 2 * (int32_t)odds_cell(odds[i], first, drop, cells) + (correct[i] != 0);
}

/* Labels other than `ignored`, one after the other, and for every 16 rows a mask of them; their
   number, or -1 where one is not a class. `to` has room for whole vectors. */
FUNCTION int64_t NAME(kept_labels)(const int64_t *labels, int64_t count, int64_t classes,
                                   int64_t ignored, int64_t *to, uint16_t *masks)
{
    int64_t found = 0, last[16];
    vl bad = splat_l(0);
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t *from = labels + i;
        unsigned all = 0;
        if (i + 16 > count) {
            for (int u = 0; u < 16; u++)
                last[u] = i + u < count ? labels[i + u] : ignored;
            from = last;
        }
        for (int u = 0; u < 16; u += DW) {
            vl label = LOAD_L(from + u), kept = (vl)(label != ignored);
            unsigned mask = (unsigned)MASK_L(kept);
            bad |= kept & (label | (classes - 1 - label));
            LIST_D((double *)(to + found), (vd)label, mask);
            found += __builtin_popcount(mask);
            all |= mask << u;
        }
        masks[i / 16] = (uint16_t)all;
    }
    return MASK_L((vl)(bad < 0)) ? -1 : found;
}

/* The rows in the masks, of float32 classes one after the other; `step` floats lie between two
   classes of `to`, which has room for whole vectors. */
FUNCTION void NAME(squeeze)(const Scores *s, const uint16_t *masks, float *to, int64_t step)
{
    for (int64_t k = 0; k < s->classes; k++) {
        const float *from = (const float *)(s->data + k * s->class_step);
        int32_t *at = (int32_t *)(to + k * step);
        for (int64_t i = 0; i < s->rows; i += 16) {
            float last[16];
            const float *part = from + i;
            __builtin_prefetch(part + s->rows); /* of the block after this one */
            if (i + 16 > s->rows) {
                memcpy(last, part, (size_t)(s->rows - i) * sizeof *last);
                part = last;
            }
            EACH
            {
                unsigned mask = masks[i / 16] >> u * FW & ((1u << FW) - 1);
                LIST_I(at, LOAD_I(part + u * FW), mask);
                at += __builtin_popcount(mask);
            }
        }
    }
}

/* Sums of three losses in whole units, none counted above `largest`; those of rows whose first one
   is infinite are left out, and counted in sums[3]. */
FUNCTION void NAME(sum_units)(const double *const *losses, int64_t rows, double unit,
                              double largest, int64_t *sums)
{
    vl sum[4] = {{0}};
    for (int64_t i = 0; i < rows; i += DW) {
        vl infinite = (vl)(NAME(part_of)(losses[0], i, rows) == splat_d(INFINITY));
        for (int k = 0; k < 3; k++) {
            vd x = MIN_D(NAME(part_of)(losses[k], i, rows), splat_d(largest));
            sum[k] += ROUNDED((vd)((vl)(x * unit) & ~infinite));
        }
        sum[3] -= infinite;
    }
    for (int i = 0; i < 4 * DW; i++)
        sums[i / DW] += sum[i / DW][i % DW];
}
