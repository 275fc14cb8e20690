/* Sums over samples ranked by confidence: the twin of metrics/_ranking.py. */

#define RANKED 512 /* entries listed at a time */

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

/* What lies below the entry that is looked at, and the harmonic number of what is not above it. */
typedef struct {
    double hits, misses, before, wanted;
} Below;

/* Add an entry with `count` > 0 samples, `hits` of them right. Most entries have only right or only
   wrong ones: no branch depends on which, and of the quotients only the one that counts is taken. */
static inline void add_rank(Ranks *r, Below *below, double count, double hits, const double *table,
                            int64_t length)
{
    double misses = count - hits;
    double kept_hits = r->hits - below->hits, kept_misses = r->misses - below->misses;
    r->kept_misses = kept_hits >= below->wanted ? kept_misses : r->kept_misses;
    r->area += hits * (below->misses + misses / 2);
    below->hits += hits;
    below->misses += misses;
    double kept = kept_hits + kept_misses, passed = below->hits + below->misses, share;
    if (least(hits, misses) > 0) {
        share = misses / count;
        r->success += hits * (kept_hits / kept);
        r->error += misses * (below->misses / passed);
    } else {
        int wrong = misses > 0;
        share = wrong;
        double quotient = (wrong ? below->misses : kept_hits) / (wrong ? passed : kept);
        r->success += hits * quotient;
        r->error += misses * quotient;
    }
    double above = (r->hits - below->hits) + (r->misses - below->misses);
    double after = harmonic(above, table, length);
    r->risk += misses + ((kept_misses - misses) - above * share) * (below->before - after);
    below->before = after;
}

/* `count` and `right` at each confidence, rising. `recall` of the hits are kept at a threshold. */
static Ranks rank_sums(int64_t size, const double *count, const double *right, double recall,
                       const double *table, int64_t length)
{
    Ranks r = {0};
    for (int64_t i = 0; i < size; i++) {
        r.hits += right[i];
        r.misses += count[i] - right[i];
    }
    Below below = {0, 0, harmonic(r.hits + r.misses, table, length), recall * r.hits};
    r.kept_misses = r.misses;
    for (int64_t start = 0; start < size; start += RANKED) {
        /* A third of the entries of a resample were not drawn, at random: listed first, they do not
           make the branches of the rest unpredictable. */
        int32_t there[RANKED];
        int64_t end = start + RANKED < size ? start + RANKED : size, listed = 0;
        for (int64_t i = start; i < end; i++) {
            there[listed] = (int32_t)(i - start);
            listed += count[i] > 0;
        }
        for (int64_t k = 0; k < listed; k++) {
            int64_t i = start + there[k];
            add_rank(&r, &below, count[i], right[i], table, length);
        }
    }
    return r;
}
