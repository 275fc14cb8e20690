/* Sums over samples ranked by confidence: the twin of metrics/_ranking.py. */

/* Sums of one resample, in the order in which they are written. */
typedef struct {
    double hits, misses, area, success, error, risk, kept_misses;
} Ranks;

/* Harmonic numbers less Euler's constant: from a table, or by the asymptotic series. */
static inline double harmonic(double n, const double *table, int64_t length)
{
    if (!(n > 0))
        return table[0];
    if (n < (double)length) {
        int64_t whole = (int64_t)n;
        if ((double)whole == n || n < SERIES_FROM)
            return table[whole];
    }
    return log(n) + 1 / (2 * n) - 1 / (12 * n * n) + 1 / (120 * n * n * n * n);
}

/* `count` and `right` at each confidence, rising. `recall` of the hits are kept at a threshold. */
static Ranks rank_sums(int64_t size, const double *count, const double *right, double recall,
                       const double *table, int64_t length)
{
    Ranks r = {0};
    double hits_below = 0, misses_below = 0;
    for (int64_t i = 0; i < size; i++) {
        r.hits += right[i];
        r.misses += count[i] - right[i];
    }
    double before = harmonic(r.hits + r.misses, table, length), wanted = recall * r.hits;
    r.kept_misses = r.misses;
    for (int64_t i = 0; i < size; i++) {
        if (!(count[i] > 0))
            continue;
        double hits = right[i], misses = count[i] - hits;
        double kept_hits = r.hits - hits_below, kept_misses = r.misses - misses_below;
        if (kept_hits >= wanted)
            r.kept_misses = kept_misses;
        r.success += hits * (kept_hits / (kept_hits + kept_misses));
        r.area += hits * (misses_below + misses / 2);
        hits_below += hits;
        misses_below += misses;
        r.error += misses * (misses_below / (hits_below + misses_below));
        double above = (r.hits - hits_below) + (r.misses - misses_below);
        double after = harmonic(above, table, length), wrong = kept_misses - misses;
        r.risk += misses + (wrong - above * (misses / count[i])) * (before - after);
        before = after;
    }
    return r;
}
