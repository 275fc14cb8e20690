/* Losses as curves of the columns of _rows_losses.h: their values and their slopes in the columns.
   The reference are the functions of the same names in calibrant.losses, in PyTorch's operations,
   where the formulas are explained. */

typedef struct {
    int64_t rows;
    Block block;
    double *given;        /* one number per sample, where a loss takes that */
    const uint8_t *valid; /* which samples of the batch count; NULL for all */
    double a, b, c;       /* options */
    double count;         /* how many count, at least 1 */
    double value;         /* of the batch, where there is no value per sample */
    void *room;           /* two Places and five numbers per sample */
    void *out;            /* for the values, in float64 if `wide`, else in float32 */
    int wide;
} Curve;

typedef struct {
    double at;
    int64_t i;
} Place;

#define AT(column) (k->block.at[(column)*k->block.step + i])
#define ALL(i) for (int64_t i = 0; i < k->rows; i++)
#define COUNTED(i) \
    ALL(i) \
    if (!k->valid || k->valid[i])

static inline double sign_of(double x) { return (double)((x > 0) - (x < 0)); }

/* --- losses of single samples ---------------------------------------------------------------- */

/* base ** gamma * -log p, with a base that moves by sign * p as -log p does. */
static inline void power_of(Curve *k, int64_t i, double base, double gamma, double sign)
{
    base = base > DBL_MIN ? base : DBL_MIN; /* at 0 the slope is 0, not infinite */
    double rise = gamma == 3 ? base * base : pow(base, gamma - 1), nll = AT(NLL);
    double weight = rise * base;
    rise *= gamma * nll;
    AT(VALUE) = weight * nll;
    AT(BY_NLL) = weight + sign * rise * (1 - AT(MISS));
    AT(BY_RIVAL) = rise;
}

static void focal_curve(Curve *k) { ALL(i) power_of(k, i, AT(MISS), k->a, 1); }

static void sample_dependent_curve(Curve *k)
{
    ALL(i) power_of(k, i, AT(MISS), AT(MISS) > 1 - k->c ? k->a : k->b, 1);
}

static void inverse_focal_curve(Curve *k) { ALL(i) power_of(k, i, 2 - AT(MISS), k->a, -1); }

static void adafocal_curve(Curve *k)
{
    ALL(i)
    {
        double gamma = k->given[i];
        if (gamma > 0)
            power_of(k, i, AT(MISS), gamma, 1);
        else
            power_of(k, i, 2 - AT(MISS), -gamma, -1);
    }
}

static void dual_focal_curve(Curve *k) { ALL(i) power_of(k, i, AT(MISS) + AT(RIVAL), k->a, 1); }

static void label_smoothing_curve(Curve *k)
{
    ALL(i)
    {
        AT(VALUE) = (1 - k->a) * AT(NLL) + k->a * AT(SPREAD);
        AT(BY_NLL) = 1 - k->a;
        AT(BY_SPREAD) = k->a;
    }
}

static void times_column(Curve *k, int column, int slope, double factor)
{
    ALL(i)
    {
        AT(VALUE) = factor * AT(column);
        AT(slope) = factor;
    }
}

static void brier_curve(Curve *k) { times_column(k, BRIER, BY_BRIER, k->a); }

static void negative_entropy_curve(Curve *k) { times_column(k, ENTROPY, BY_ENTROPY, -1); }

static void margin_smoothing_curve(Curve *k) { times_column(k, RAMP, BY_RAMP, k->a); }

/* The weight is held. */
static void bsce_gra_curve(Curve *k)
{
    ALL(i)
    {
        AT(BY_NLL) = k->a == 2 ? AT(BRIER) : pow(AT(BRIER), k->a / 2);
        AT(VALUE) = AT(BY_NLL) * AT(NLL);
    }
}

static void acls_curve(Curve *k)
{
    ALL(i)
    {
        double above = AT(TOP) - k->c > 0 ? AT(TOP) - k->c : 0;
        AT(VALUE) = k->a * above * above + k->b * AT(RAMP_SQUARES);
        AT(BY_TOP) = 2 * k->a * above;
        AT(BY_RAMP_SQUARES) = k->b;
    }
}

/* --- penalties of the confidences of a batch ------------------------------------------------- */

static void dca_curve(Curve *k)
{
    double gap = 0;
    COUNTED(i) gap += AT(CONFIDENCE) - AT(CORRECT);
    k->value = fabs(gap) / k->count;
    COUNTED(i) AT(BY_CONFIDENCE) = sign_of(gap) / k->count;
}

/* A sample and the next, the last and the first, by the rates that are given. */
static void correctness_ranking_curve(Curve *k)
{
    double sum = 0, pairs = 0;
    for (int pass = 0; pass < 2; pass++)
        ALL(i)
        {
            int64_t j = i + 1 < k->rows ? i + 1 : 0;
            if (k->valid && !(k->valid[i] && k->valid[j]))
                continue;
            double ahead = k->given[i] - k->given[j], sign = sign_of(ahead);
            double next = k->block.at[CONFIDENCE * k->block.step + j];
            double loss = fabs(ahead) - sign * (AT(CONFIDENCE) - next);
            if (!pass) {
                sum += loss > 0 ? loss : 0;
                pairs++;
            } else if (loss > 0) {
                AT(BY_CONFIDENCE) -= sign / pairs;
                k->block.at[BY_CONFIDENCE * k->block.step + j] += sign / pairs;
            }
        }
    k->value = sum / (pairs > 0 ? pairs : 1);
}

/* The samples that count by confidence, in the room; merged from runs of one, two, four … */
static const Place *sorted_places(Curve *k, int64_t *count)
{
    Place *from = k->room, *to = from + k->rows;
    int64_t n = 0;
    COUNTED(i) from[n++] = (Place){AT(CONFIDENCE), i};
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t start = 0; start < n; start += 2 * run) {
            int64_t middle = start + run < n ? start + run : n;
            int64_t end = middle + run < n ? middle + run : n, x = start, y = middle;
            for (int64_t at = start; at < end; at++) {
                int first = y >= end || (x < middle && from[x].at <= from[y].at);
                to[at] = first ? from[x++] : from[y++];
            }
        }
        Place *other = from;
        from = to;
        to = other;
    }
    *count = n;
    return from;
}

/* The room behind the places: five columns of numbers. */
static inline double *numbers_of(const Curve *k, int which)
{
    return (double *)((Place *)k->room + 2 * k->rows) + which * k->rows;
}

/* Where the samples of the same confidence as p[first] end. */
static inline int64_t end_of_ties(const Place *p, int64_t first, int64_t n)
{
    int64_t end = first + 1;
    while (end < n && p[end].at == p[first].at)
        end++;
    return end;
}

/* The root of a value and its slope: both 0 at 0 and at rounding below it. */
static double root_and_slope(double value, double order, double *slope)
{
    *slope = order == 1;
    if (order == 1 || value <= 0)
        return order == 1 ? value : 0;
    double root = order == 2 ? sqrt(value) : pow(value, 1 / order);
    *slope = root / (order * value);
    return root;
}

/* Sum of r_i r_j exp(-|c_i - c_j| / a) over all pairs, its root if b: with the residuals of all
   samples in the first column of numbers, which move by -turn as c does. */
static void kernel_energy(Curve *k, const double *turn)
{
    int64_t n, end;
    const Place *p = sorted_places(k, &n);
    const double *residual = numbers_of(k, 0);
    double *below = numbers_of(k, 2), *ties = numbers_of(k, 3), so_far = 0, energy = 0, slope = 1;
    for (int64_t first = 0; first < n; first = end) {
        end = end_of_ties(p, first, n);
        double own = 0;
        for (int64_t j = first; j < end; j++)
            own += residual[p[j].i];
        so_far = first ? so_far * exp((p[first - 1].at - p[first].at) / k->a) : 0;
        for (int64_t j = first; j < end; j++) {
            below[j] = so_far;
            ties[j] = own;
        }
        so_far += own;
    }
    so_far = 0;
    for (int64_t j = n - 1; j >= 0; j--) {
        /* Of equal ones, the last of all counts their sum when the next smaller one is reached. */
        if (j < n - 1 && p[j].at < p[j + 1].at)
            so_far = (so_far + ties[j + 1]) * exp((p[j].at - p[j + 1].at) / k->a);
        double field = below[j] + ties[j] + so_far;
        energy += residual[p[j].i] * field;
        k->block.at[BY_CONFIDENCE * k->block.step + p[j].i] =
            residual[p[j].i] * (so_far - below[j]) / k->a - turn[p[j].i] * field;
    }
    k->value = k->b != 0 ? root_and_slope(energy, 2, &slope) : energy;
    COUNTED(i) AT(BY_CONFIDENCE) *= 2 * slope;
}

static void mmce_curve(Curve *k)
{
    double *residual = numbers_of(k, 0), *turn = numbers_of(k, 1);
    ALL(i)
    {
        turn[i] = 1 / k->count;
        residual[i] = (AT(CORRECT) - AT(CONFIDENCE)) * turn[i];
    }
    kernel_energy(k, turn);
}

static void mmce_weighted_curve(Curve *k)
{
    double *residual = numbers_of(k, 0), *turn = numbers_of(k, 1), right = 0, wrong = 0;
    COUNTED(i)
    {
        right += AT(CORRECT);
        wrong += 1 - AT(CORRECT);
    }
    ALL(i)
    {
        turn[i] = 1 / (AT(CORRECT) > 0 ? right : wrong);
        residual[i] = (AT(CORRECT) - AT(CONFIDENCE)) * turn[i];
    }
    kernel_energy(k, turn);
}

/* Means over the samples up to each one's confidence, but it; `a` is the least number of samples. */
static void esd_curve(Curve *k)
{
    int64_t n, end;
    const Place *p = sorted_places(k, &n);
    double *mean = numbers_of(k, 0), *residual = numbers_of(k, 1), sum = 0, squares = 0, value = 0;
    double others = (double)n - 1, factor = 1 / ((double)n * others * ((double)n - 2));
    if ((double)n < k->a)
        return;
    for (int64_t first = 0; first < n; first = end) {
        end = end_of_ties(p, first, n);
        for (int64_t j = first; j < end; j++) {
            residual[j] = k->block.at[CORRECT * k->block.step + p[j].i] - p[j].at;
            sum += residual[j];
            squares += residual[j] * residual[j];
        }
        for (int64_t j = first; j < end; j++) {
            double r = residual[j];
            mean[j] = (sum - r) / others;
            value += mean[j] * mean[j] * others * others - (squares - r * r);
        }
    }
    k->value = value * factor;
    sum = 0;
    int64_t first = n; /* the sum is over all from here on */
    for (int64_t j = n - 1; j >= 0; j--) {
        while (first > 0 && p[first - 1].at == p[j].at)
            sum += mean[--first];
        double behind = others * (sum - mean[j]) - residual[j] * (double)(n - first - 1);
        k->block.at[BY_CONFIDENCE * k->block.step + p[j].i] = -2 * factor * behind;
    }
}

/* Shares of a sample in `bins` soft bins, by the ratio of each to the one nearer to the sample. */
static void soft_shares(double c, int64_t bins, double temperature, double bend, double *u)
{
    double width = 1 / (double)bins, total = 1;
    int64_t near = (int64_t)(c * (double)bins);
    near = near < bins ? near : bins - 1;
    double off = c - ((double)near + 0.5) * width;
    u[near] = 1;
    for (int side = -1; side <= 1; side += 2) {
        double ratio = exp((2 * side * off - width) * width / temperature);
        for (int64_t j = near + side; j >= 0 && j < bins; j += side) {
            u[j] = u[j - side] * ratio;
            total += u[j];
            ratio *= bend;
        }
    }
    for (int64_t j = 0; j < bins; j++)
        u[j] /= total;
}

/* The error of the bins' confidence: `a` bins of softness b, in the norm c. */
static void soft_binned_curve(Curve *k)
{
    int64_t bins = (int64_t)k->a;
    double bend = exp(-2 / (k->a * k->a * k->b)), error = 0, slope;
    double *u = calloc((size_t)bins, 5 * sizeof *u);
    if (!u) {
        k->value = NAN;
        return;
    }
    double *size = u + bins, *sum = size + bins, *by_size = sum + bins, *by_sum = by_size + bins;
    COUNTED(i)
    {
        soft_shares(AT(CONFIDENCE), bins, k->b, bend, u);
        for (int64_t j = 0; j < bins; j++) {
            size[j] += u[j];
            sum[j] += u[j] * (AT(CORRECT) - AT(CONFIDENCE));
        }
    }
    for (int64_t j = 0; j < bins; j++) {
        double gap = sum[j] / (size[j] > DBL_MIN ? size[j] : DBL_MIN);
        double power = k->c == 2 ? gap * gap : pow(fabs(gap), k->c);
        error += size[j] * power;
        by_size[j] = (1 - k->c) * power;
        by_sum[j] = k->c * sign_of(gap) * (k->c == 2 ? fabs(gap) : pow(fabs(gap), k->c - 1));
    }
    k->value = root_and_slope(error / k->count, k->c, &slope);
    COUNTED(i)
    {
        double r = AT(CORRECT) - AT(CONFIDENCE), place = 0, mean = 0, moved = 0, held = 0;
        soft_shares(AT(CONFIDENCE), bins, k->b, bend, u);
        for (int64_t j = 0; j < bins; j++) {
            double by_share = u[j] * (by_size[j] + r * by_sum[j]), at = ((double)j + 0.5) / k->a;
            place += u[j] * at;
            mean += by_share;
            moved += by_share * at;
            held += u[j] * by_sum[j];
        }
        AT(BY_CONFIDENCE) = slope / k->count * ((moved - place * mean) * 2 / k->b - held);
    }
    free(u);
}

/* --- accuracy versus uncertainty ------------------------------------------------------------- */

/* log(1 + bad / good), and its slopes by both; a little keeps it finite. */
static double trade_off(double good, double bad, double *by_good, double *by_bad)
{
    good += 1e-10;
    *by_bad = 1 / (good + bad);
    *by_good = -bad / good * *by_bad;
    return log1p(bad / good);
}

/* `a` is the threshold; no gradient flows through the confidence if b. */
static void avuc_curve(Curve *k)
{
    double sums[2] = {0, 0}, by[2];
    COUNTED(i)
    {
        double entropy = AT(ENTROPY), certainty = 2 / (1 + exp(2 * entropy));
        int right = AT(CORRECT) > 0, unsure = entropy >= k->a;
        double weight = unsure ? tanh(entropy) : certainty;
        double own = right ? AT(CONFIDENCE) : 1 - AT(CONFIDENCE);
        sums[right == unsure] += weight * own;
        AT(BY_CONFIDENCE) = k->b != 0 ? 0 : right ? weight : -weight;
        AT(BY_ENTROPY) = (unsure ? own : -own) * (2 - certainty) * certainty;
    }
    k->value = trade_off(sums[0], sums[1], by, by + 1);
    COUNTED(i)
    {
        double slope = by[(AT(CORRECT) > 0) == (AT(ENTROPY) >= k->a)];
        AT(BY_CONFIDENCE) *= slope;
        AT(BY_ENTROPY) *= slope;
    }
}

/* `a` is the log-odds of kappa, b the temperature, c the largest entropy. */
static void soft_avuc_curve(Curve *k)
{
    double sums[2] = {0, 0}, by[2];
    double *certain = numbers_of(k, 0), *uncertain = numbers_of(k, 1);
    COUNTED(i)
    {
        double entropy = AT(ENTROPY), h = entropy / k->c, most = 1 - DBL_EPSILON;
        double inside = h < DBL_MIN ? DBL_MIN : h > most ? most : h;
        double odds = exp(-(log(inside / (1 - inside)) - k->a) / k->b);
        double t = 1 / (1 + odds), rest = odds > DBL_MAX ? 1 : odds / (1 + odds);
        double rise = inside == h ? t * rest / (inside * (1 - inside)) / (k->b * k->c) : 0;
        double certainty = 2 / (1 + exp(2 * entropy)), bend = (2 - certainty) * certainty;
        int right = AT(CORRECT) > 0;
        sums[!right] += rest * certainty;
        sums[right] += t * tanh(entropy);
        certain[i] = rise * certainty + rest * bend;
        uncertain[i] = rise * tanh(entropy) + t * bend;
    }
    k->value = trade_off(sums[0], sums[1], by, by + 1);
    COUNTED(i)
    {
        int right = AT(CORRECT) > 0;
        AT(BY_ENTROPY) = by[right] * uncertain[i] - by[!right] * certain[i];
    }
}

typedef struct {
    const char *name;
    void (*curve)(Curve *);
    int takes_given, of_batch;
} Named;

static const Named CURVES[] = {{"focal", focal_curve, 0, 0},
                               {"sample_dependent_focal", sample_dependent_curve, 0, 0},
                               {"inverse_focal", inverse_focal_curve, 0, 0},
                               {"adafocal", adafocal_curve, 1, 0},
                               {"dual_focal", dual_focal_curve, 0, 0},
                               {"label_smoothing", label_smoothing_curve, 0, 0},
                               {"squared_gap", brier_curve, 0, 0},
                               {"bsce_gra", bsce_gra_curve, 0, 0},
                               {"negative_entropy", negative_entropy_curve, 0, 0},
                               {"margin_smoothing", margin_smoothing_curve, 0, 0},
                               {"acls", acls_curve, 0, 0},
                               {"dca", dca_curve, 0, 1},
                               {"correctness_ranking", correctness_ranking_curve, 1, 1},
                               {"kernel_energy", mmce_curve, 0, 1},
                               {"kernel_energy_weighted", mmce_weighted_curve, 0, 1},
                               {"esd", esd_curve, 0, 1},
                               {"soft_binned_ece", soft_binned_curve, 0, 1},
                               {"avuc", avuc_curve, 0, 1},
                               {"soft_avuc", soft_avuc_curve, 0, 1},
                               {NULL, NULL, 0, 0}};

static void put_value(const Curve *k, int64_t i, double value)
{
    if (k->wide)
        ((double *)k->out)[i] = value;
    else
        ((float *)k->out)[i] = (float)value;
}

static void run_curve(Curve *k, const Named *loss)
{
    for (int c = BY_NLL; c < BLOCK_WIDTH; c++)
        memset(k->block.at + c * k->block.step, 0, (size_t)k->rows * sizeof(double));
    k->count = 0;
    COUNTED(i) k->count++;
    k->count = k->count > 0 ? k->count : 1;
    loss->curve(k);
    if (loss->of_batch)
        put_value(k, 0, k->value);
    else
        ALL(i) put_value(k, i, AT(VALUE));
}
#undef AT
#undef ALL
#undef COUNTED
