/* What the losses of training call: see _rows_losses.h and _rows_curves.h. */

/* A matrix with dense rows of floats; the step between them is in entries. */
static void *dense_rows(Held *held, PyObject *object, const char *name, const char *type,
                        int64_t rows, int64_t width, int64_t *step, int writable)
{
    Py_ssize_t size = *type == 'd' ? sizeof(double) : sizeof(float);
    Py_buffer *view = hold(held, object, writable ? PyBUF_WRITABLE : 0);
    if (!view)
        return NULL;
    if (!view->format || strcmp(view->format, type) || view->itemsize != size || view->ndim != 2 ||
        view->shape[0] != rows || view->shape[1] != width ||
        (width > 1 && view->strides[1] != size) || view->strides[0] % size ||
        (uintptr_t)view->buf % (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s must be %lld dense rows of %lld numbers", name,
                     (long long)rows, (long long)width);
        return NULL;
    }
    *step = view->strides[0] / size;
    return view->buf;
}

static int block_of(Held *held, PyObject *object, int64_t rows, Block *b)
{
    b->at = dense_rows(held, object, "block", "d", BLOCK_WIDTH, rows, &b->step, 1);
    return b->at != NULL;
}

static int loss_rows(Held *held, PyObject **given, Scores *s, LossRows *l)
{
    if (!matrix(held, given[0], s, 0))
        return 0;
    Py_ssize_t size = s->type == DOUBLE ? sizeof(double) : sizeof(float);
    if (s->type == HALF || s->class_step != size) {
        PyErr_SetString(PyExc_ValueError, "logits must be dense rows of float32 or float64");
        return 0;
    }
    return (given[1] != Py_None || missing_labels()) &&
           label_column(held, given[1], s, &l->labels) &&
           block_of(held, given[2], s->rows, &l->block);
}

static int classes_in_range(const LossRows *l, const Scores *s)
{
    const double *top = l->block.at + PREDICTED * l->block.step;
    const double *rival = l->block.at + RIVAL_CLASS * l->block.step;
    for (int64_t i = 0; i < s->rows; i++)
        if (!(top[i] >= 0 && top[i] < (double)s->classes && rival[i] >= -1 &&
              rival[i] < (double)s->classes)) {
            PyErr_SetString(PyExc_ValueError, "block must have classes in 0 ... K - 1");
            return 0;
        }
    return 1;
}

/* The gradient by the value: one number per row, or one for all. */
static int by_value(Held *held, PyObject *object, const char *type, int64_t rows, LossGradient *g)
{
    Py_ssize_t size = *type == 'd' ? sizeof(double) : sizeof(float);
    Py_buffer *view = hold(held, object, 0);
    if (!view)
        return 0;
    if (!view->format || strcmp(view->format, type) || view->itemsize != size || view->ndim > 1 ||
        (view->ndim && (view->shape[0] != rows || view->strides[0] % size)) ||
        (uintptr_t)view->buf % (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "by_value must be a number or a column");
        return 0;
    }
    g->by_value = view->buf;
    g->by_value_step = view->ndim ? view->strides[0] : 0;
    return 1;
}

PyDoc_STRVAR(loss_gradient_doc,
             "loss_gradient(logits, labels, block, wanted, margin, by_value, out): the gradient by\n"
             "the logits from the slopes in the block.");

static PyObject *rows_loss_gradient(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3], *by_value_, *out_;
    LossRows l = {0};
    LossGradient g = {0};
    int64_t step = 0;
    if (!PyArg_ParseTuple(args, "OOOidOO", o, o + 1, o + 2, &l.wanted, &l.margin, &by_value_, &out_))
        return NULL;
    int fine = loss_rows(held, o, s, &l) && classes_in_range(&l, s);
    const char *type = s->type == DOUBLE ? "d" : "f";
    fine = fine && by_value(held, by_value_, type, s->rows, &g) &&
           (g.out = dense_rows(held, out_, "out", type, s->rows, s->classes, &step, 1)) != NULL;
    if (fine) {
        g.out_step = step * (*type == 'd' ? (int64_t)sizeof(double) : (int64_t)sizeof(float));
        UNLOCKED(CALL(loss_gradient, s, &l, &g));
    }
    return done(held, s, fine, -1);
}

/* A loss by its name, with what is given per sample and which samples count. */
static int curve_of(Held *held, PyObject **given, const char *name, const Scores *s, Curve *k,
                    const Named **found)
{
    Py_ssize_t size = s->type == DOUBLE ? sizeof(double) : sizeof(float);
    const void *numbers = NULL;
    for (*found = CURVES; (*found)->name && strcmp((*found)->name, name);)
        (*found)++;
    if (!(*found)->name || ((*found)->takes_given && given[0] == Py_None)) {
        PyErr_Format(PyExc_ValueError, "no loss %s with these arguments", name);
        return 0;
    }
    if ((given[0] != Py_None &&
         !(numbers = column(held, given[0], "given", size == sizeof(double) ? "d" : "f", size,
                            k->rows, 0))) ||
        (given[1] != Py_None && !(k->valid = column(held, given[1], "valid", "?", 1, k->rows, 0))))
        return 0;
    if (!(k->room = malloc((size_t)(k->rows + 1) * (2 * sizeof(Place) + 5 * sizeof(double))))) {
        PyErr_NoMemory();
        return 0;
    }
    k->given = numbers_of(k, 4);
    for (int64_t i = 0; numbers && i < k->rows; i++)
        k->given[i] = size == sizeof(double) ? ((const double *)numbers)[i]
                                             : (double)((const float *)numbers)[i];
    return 1;
}

/* One value per sample, or that of the batch, in float32 or float64. */
static int values_to(Held *held, PyObject *object, Curve *k, int of_batch)
{
    Py_buffer *view = hold(held, object, PyBUF_WRITABLE);
    if (!view)
        return 0;
    const char *format = view->format ? view->format : "B";
    Py_ssize_t size = *format == 'd' ? sizeof(double) : sizeof(float);
    if ((strcmp(format, "d") && strcmp(format, "f")) || view->itemsize != size ||
        view->ndim != !of_batch || (uintptr_t)view->buf % (size_t)size ||
        (!of_batch && (view->shape[0] != k->rows || (k->rows > 1 && view->strides[0] != size)))) {
        PyErr_SetString(PyExc_ValueError, "out must be a number or a dense column");
        return 0;
    }
    k->out = view->buf;
    k->wide = *format == 'd';
    return 1;
}

PyDoc_STRVAR(loss_columns_doc,
             "loss_columns(logits, labels, block, wanted, margin): fill the columns of losses.\n\n"
             "The first row that is not finite, or -1.");

static PyObject *rows_loss_columns(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3];
    LossRows l = {0};
    int64_t bad = -1;
    if (!PyArg_ParseTuple(args, "OOOid", o, o + 1, o + 2, &l.wanted, &l.margin))
        return NULL;
    int fine = loss_rows(held, o, s, &l);
    if (fine) {
        UNLOCKED(bad = CALL(loss_columns, s, &l));
    }
    return done(held, s, fine, bad);
}

PyDoc_STRVAR(loss_value_doc,
             "loss_value(logits, labels, block, wanted, margin, name, a, b, c, given, valid, out,\n"
             "filled): the columns, unless they are filled, and a loss from them. Its slopes go to\n"
             "the block, its value per sample, or that of the batch, to `out`. The first row that is\n"
             "not finite, or -1.");

static PyObject *rows_loss_value(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[6];
    const char *name;
    const Named *found;
    LossRows l = {0};
    Curve k = {0};
    int64_t bad = -1;
    int filled;
    if (!PyArg_ParseTuple(args, "OOOidsdddOOOp", o, o + 1, o + 2, &l.wanted, &l.margin, &name, &k.a,
                          &k.b, &k.c, o + 3, o + 4, o + 5, &filled))
        return NULL;
    int fine = loss_rows(held, o, s, &l);
    k.rows = s->rows;
    k.block = l.block;
    fine = fine && curve_of(held, o + 3, name, s, &k, &found) &&
           values_to(held, o[5], &k, found->of_batch);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        bad = filled ? -1 : CALL(loss_columns, s, &l);
        if (bad < 0)
            run_curve(&k, found);
        Py_END_ALLOW_THREADS
    }
    free(k.room);
    return done(held, s, fine, bad);
}
