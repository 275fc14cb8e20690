/* Sums over rows of softmax(scale * f + bias) with f = z - shift: those of vector scaling. In
   float64 throughout; the row is read in the precision it comes in. */

/* DW entries of a row from k on; past its end the filling. */
INLINE vd NAME(some_d)(int type, const char *row, int64_t k, int64_t classes, double filling)
{
    double part[DW];
    if (k + DW <= classes && type == DOUBLE)
        return LOAD_D((const double *)row + k);
    if (k + DW <= classes)
        return WIDE((const float *)row + k);
    for (int i = 0; i < DW; i++)
        part[i] = k + i >= classes ? filling
                  : type == DOUBLE ? ((const double *)row)[k + i]
                                   : (double)((const float *)row)[k + i];
    return LOAD_D(part);
}

/* exp(u - top) of a row to `room`, with u = scale * f + bias; returns their sum. */
INLINE double NAME(affine_terms)(int type, const char *row, int64_t classes, double shift,
                                 const Affine *a, double *top)
{
    vd most = splat_d(-INFINITY), sum = splat_d(0);
    double total = 0, lanes[DW];
    for (int64_t k = 0; k < classes; k += DW) {
        vd f = NAME(some_d)(type, row, k, classes, -INFINITY) - shift;
        vd u = f * LOAD_D(a->scale + k) + LOAD_D(a->bias + k);
        STORE_D(a->room + k, u);
        most = MAX_D(u, most);
    }
    STORE_D(lanes, most);
    *top = -INFINITY;
    for (int i = 0; i < DW; i++)
        *top = lanes[i] > *top ? lanes[i] : *top;
    for (int64_t k = 0; k < classes; k += DW) {
        vd e = NAME(expd)(LOAD_D(a->room + k) - *top);
        STORE_D(a->room + k, e);
        sum += e;
    }
    STORE_D(lanes, sum);
    for (int i = 0; i < DW; i++)
        total += lanes[i];
    return total;
}

/* Adds weight * softmax to `offset` and weight * softmax * f to `slope`; both are padded. */
INLINE void NAME(affine_row)(int type, const char *row, int64_t classes, double weight,
                             double shift, const Affine *a)
{
    double top, share = weight / NAME(affine_terms)(type, row, classes, shift, a, &top);
    for (int64_t k = 0; k < classes; k += DW) {
        vd p = LOAD_D(a->room + k) * share;
        vd f = NAME(some_d)(type, row, k, classes, shift) - shift;
        STORE_D(a->offset + k, LOAD_D(a->offset + k) + p);
        STORE_D(a->slope + k, LOAD_D(a->slope + k) + p * f);
    }
}

FUNCTION void NAME(affine)(const Scores *s, const Affine *a)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const char *row = s->data + i * s->row_step;
        if (a->weight[i] == 0)
            continue;
        if (s->type == DOUBLE)
            NAME(affine_row)(DOUBLE, row, s->classes, a->weight[i], a->shift[i], a);
        else
            NAME(affine_row)(FLOAT, row, s->classes, a->weight[i], a->shift[i], a);
    }
}

/* -log softmax at the label of each row. */
FUNCTION void NAME(affine_losses)(const Scores *s, const Affine *a, const int64_t *labels,
                                  double *losses)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const char *row = s->data + i * s->row_step;
        int64_t k = labels[i];
        double top, shift = a->shift[i];
        double total = s->type == DOUBLE
                           ? NAME(affine_terms)(DOUBLE, row, s->classes, shift, a, &top)
                           : NAME(affine_terms)(FLOAT, row, s->classes, shift, a, &top);
        double own = (entry(s, row, k) - shift) * a->scale[k] + a->bias[k];
        losses[i] = log(total) - (own - top);
    }
}
