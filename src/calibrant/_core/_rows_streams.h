/* Exact sums of columns and histograms of samples, for streams: the twin of streaming/_counts.py. */

/* Sum of values 0 <= x < MOST_TERM, each rounded to a multiple of 2^-52:
   sums[0] * 2^-26 + sums[1] * 2^-52. Returns 0 where a value is larger, infinite or NaN. */
FUNCTION int NAME(exact_sum)(const double *x, int64_t count, int64_t *sums)
{
    vl high = splat_l(0), low = splat_l(0), fine = (vl)(splat_d(0) == splat_d(0));
    for (int64_t i = 0; i < count; i += DW) {
        double last[8] = {0};
        if (i + DW > count)
            memcpy(last, x + i, (size_t)(count - i) * sizeof *x);
        vd value = LOAD_D(i + DW > count ? last : x + i);
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
