/* What fits call: see _rows_affine.h. */

/* Logits, shifts, scale and bias; `room` gets copies padded to whole vectors. */
static int affine_of(Held *held, PyObject **given, Scores *s, Affine *a)
{
    const double *scale = NULL, *bias = NULL;
    if (!matrix(held, given[0], s, 5 * sizeof(double)) ||
        !(a->shift = DOUBLES(given[1], "shift", 0)) ||
        !(scale = column(held, given[2], "scale", "d", sizeof(double), s->classes, 0)) ||
        !(bias = column(held, given[3], "bias", "d", sizeof(double), s->classes, 0)))
        return 0;
    Py_ssize_t size = s->type == DOUBLE ? sizeof(double) : sizeof(float);
    if (s->type < FLOAT || (s->classes > 1 && s->class_step != size)) {
        PyErr_SetString(PyExc_ValueError, "logits must be dense rows of float32 or float64");
        return 0;
    }
    size_t bytes = (size_t)s->classes * sizeof(double);
    int64_t padded = (s->classes + 31) & ~(int64_t)31;
    double **to[5] = {&a->scale, &a->bias, &a->slope, &a->offset, &a->room};
    for (int i = 0; i < 5; i++)
        *to[i] = (double *)s->room + i * padded;
    memset(s->room, 0, 5 * (size_t)padded * sizeof(double));
    for (int64_t k = s->classes; k < padded; k++)
        a->scale[k] = 1; /* times the filling, minus infinity */
    memcpy(a->scale, scale, bytes);
    memcpy(a->bias, bias, bytes);
    return 1;
}

PyDoc_STRVAR(affine_doc,
             "affine(logits, shift, scale, bias, weight, slope, offset): add the sums over rows of\n"
             "softmax(scale * (z - shift) + bias) times z - shift, and times 1.");

static PyObject *rows_affine(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[7];
    double *slope = NULL, *offset = NULL;
    Affine a = {0};
    if (!PyArg_ParseTuple(args, "OOOOOOO", o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6))
        return NULL;
    int fine = affine_of(held, o, s, &a) && (a.weight = DOUBLES(o[4], "weight", 0)) &&
               (slope = column(held, o[5], "slope", "d", sizeof(double), s->classes, 1)) &&
               (offset = column(held, o[6], "offset", "d", sizeof(double), s->classes, 1));
    if (fine) {
        UNLOCKED(CALL(affine, s, &a));
        for (int64_t k = 0; k < s->classes; k++) {
            slope[k] += a.slope[k];
            offset[k] += a.offset[k];
        }
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(affine_losses_doc,
             "affine_losses(logits, shift, scale, bias, labels, losses): -log of\n"
             "softmax(scale * (z - shift) + bias) at the label of each row.");

static PyObject *rows_affine_losses(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[6];
    const int64_t *labels = NULL;
    double *losses = NULL;
    Affine a = {0};
    if (!PyArg_ParseTuple(args, "OOOOOO", o, o + 1, o + 2, o + 3, o + 4, o + 5))
        return NULL;
    int fine = affine_of(held, o, s, &a) && (o[4] != Py_None || missing_labels()) &&
               label_column(held, o[4], s, &labels) && (losses = DOUBLES(o[5], "losses", 1));
    if (fine) {
        UNLOCKED(CALL(affine_losses, s, &a, labels, losses));
    }
    return done(held, s, fine, -1);
}
