/* jinja_ops.c - arithmetic, comparison and membership with Python's rules.
 * Integers have 64 bits; where Python would go on with more, that is an error. */
#include <math.h>

#include "text/jinja_internal.h"

static nb_status overflow(nb_jr *r)
{
    return nb_j_fail(r, NB_ERR_RANGE, "integer larger than 64 bits");
}

static nb_status unsupported(nb_jr *r, nb_jop op, const nb_jv *a, const nb_jv *b)
{
    static const char *const names[] = { "+", "-", "*", "/", "//", "%" };
    return NB_J_TYPE_ERROR(r, "unsupported operand type(s) for %s: '%s' and '%s'",
                           names[op - NB_JE_ADD], nb_jv_type_name(a), nb_jv_type_name(b));
}

/* v = a op b; false if it does not fit. */
static bool add_fits(int64_t a, int64_t b, int64_t *v)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return false;
    *v = a + b;
    return true;
}

static bool sub_fits(int64_t a, int64_t b, int64_t *v)
{
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) return false;
    *v = a - b;
    return true;
}

static bool mul_fits(int64_t a, int64_t b, int64_t *v)
{
    if (a && b) {
        if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                  : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a))
            return false;
    }
    *v = a * b;
    return true;
}

static nb_status int_op(nb_jr *r, nb_jop op, int64_t a, int64_t b, nb_jv *out)
{
    int64_t v = 0;
    bool over = false;
    if ((op == NB_JE_DIV || op == NB_JE_FLOORDIV || op == NB_JE_MOD) && b == 0)
        return nb_j_fail(r, NB_ERR_FORMAT, "ZeroDivisionError: %s",
                         op == NB_JE_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case NB_JE_ADD: over = !add_fits(a, b, &v); break;
    case NB_JE_SUB: over = !sub_fits(a, b, &v); break;
    case NB_JE_MUL: over = !mul_fits(a, b, &v); break;
    case NB_JE_DIV: *out = nb_jv_float((double)a / (double)b); return NB_OK;
    default: /* // and %: towards minus infinity */
        if (b == -1) {
            over = op == NB_JE_FLOORDIV && a == INT64_MIN;
            v = op == NB_JE_MOD || over ? 0 : -a;
        } else if (op == NB_JE_FLOORDIV) {
            v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        } else {
            v = a % b;
            if (v != 0 && (v < 0) != (b < 0)) v += b;
        }
    }
    if (over) return overflow(r);
    *out = nb_jv_int(v);
    return NB_OK;
}

static nb_status float_op(nb_jr *r, nb_jop op, double a, double b, nb_jv *out)
{
    double v, m;
    if ((op == NB_JE_DIV || op == NB_JE_FLOORDIV || op == NB_JE_MOD) && b == 0)
        return nb_j_fail(r, NB_ERR_FORMAT, "ZeroDivisionError: float division or modulo by zero");
    switch (op) {
    case NB_JE_ADD: v = a + b; break;
    case NB_JE_SUB: v = a - b; break;
    case NB_JE_MUL: v = a * b; break;
    case NB_JE_DIV: v = a / b; break;
    default:
        m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0)) m += b;
        if (m == 0) m = copysign(0, b);
        v = m;
        if (op == NB_JE_FLOORDIV) {
            v = (a - m) / b;
            if (v != 0) v = floor(v) + (v - floor(v) > 0.5 ? 1 : 0);
            else v = copysign(0, a / b);
        }
    }
    *out = nb_jv_float(v);
    return NB_OK;
}

/* str + str; with Markup on one side the other one is escaped. */
static nb_status add_strings(nb_jr *r, const nb_jv *a, const nb_jv *b, nb_jv *out)
{
    const bool markup = a->sub || b->sub;
    const size_t mark = nb_j_mark(r);
    NB_TRY(markup && !a->sub ? nb_j_add_escaped(r, a->u.s) : nb_j_add(r, a->u.s));
    NB_TRY(markup && !b->sub ? nb_j_add_escaped(r, b->u.s) : nb_j_add(r, b->u.s));
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = markup;
    return NB_OK;
}

static bool is_list(const nb_jv *v)
{
    return v->kind == NB_JK_LIST || v->kind == NB_JK_TUPLE;
}

static nb_status append_list(nb_jr *r, nb_jlist *to, const nb_jlist *l)
{
    NB_TRY(nb_j_work(r, l->n * 8));
    for (size_t i = 0, n = l->n; i < n; i++) NB_TRY(nb_j_list_push(r, to, &l->v[i]));
    return NB_OK;
}

static nb_status op_add(nb_jr *r, const nb_jv *a, const nb_jv *b, nb_jv *out)
{
    if (a->kind == NB_JK_STR && b->kind == NB_JK_STR) return add_strings(r, a, b, out);
    if (is_list(a) && a->kind == b->kind) {
        NB_TRY(nb_j_list_new(r, (nb_jkind)a->kind, a->u.list->n + b->u.list->n, out));
        NB_TRY(append_list(r, out->u.list, a->u.list));
        return append_list(r, out->u.list, b->u.list);
    }
    if (a->kind == NB_JK_STR || is_list(a))
        return NB_J_TYPE_ERROR(r, "can only concatenate %s (not \"%s\") to %s", nb_jv_type_name(a),
                               nb_jv_type_name(b), nb_jv_type_name(a));
    return unsupported(r, NB_JE_ADD, a, b);
}

static nb_status op_mul(nb_jr *r, const nb_jv *a, const nb_jv *b, nb_jv *out)
{
    if (nb_jv_is_int(a)) {
        const nb_jv *t = a;
        a = b;
        b = t;
    }
    if (!nb_jv_is_int(b) || (a->kind != NB_JK_STR && !is_list(a)))
        return unsupported(r, NB_JE_MUL, a, b);
    const int64_t n = nb_jv_as_int(b);
    if (a->kind == NB_JK_STR) {
        const size_t mark = nb_j_mark(r);
        for (int64_t i = 0; i < n && a->u.s.n_bytes; i++) {
            NB_TRY(nb_j_work(r, 0));
            NB_TRY(nb_j_add(r, a->u.s));
        }
        NB_TRY(nb_j_take(r, mark, out));
        out->sub = a->sub;
        return NB_OK;
    }
    NB_TRY(nb_j_list_new(r, (nb_jkind)a->kind, 0, out));
    for (int64_t i = 0; i < n && a->u.list->n; i++) NB_TRY(append_list(r, out->u.list, a->u.list));
    return NB_OK;
}

nb_status nb_j_binop(nb_jr *r, nb_jop op, const nb_jv *a, const nb_jv *b, nb_jv *out)
{
    if (nb_jv_is_int(a) && nb_jv_is_int(b))
        return int_op(r, op, nb_jv_as_int(a), nb_jv_as_int(b), out);
    if (nb_jv_is_num(a) && nb_jv_is_num(b))
        return float_op(r, op, nb_jv_as_float(a), nb_jv_as_float(b), out);
    if (a->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, a);
    if (op == NB_JE_MOD && a->kind == NB_JK_STR)
        return nb_j_fail(r, NB_ERR_UNSUPPORTED, "formatting with %% is not supported");
    if (b->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, b);
    if (op == NB_JE_ADD) return op_add(r, a, b, out);
    if (op == NB_JE_MUL) return op_mul(r, a, b, out);
    return unsupported(r, op, a, b);
}

static nb_status contains(nb_jr *r, const nb_jv *box, const nb_jv *x, bool *out)
{
    nb_jiter it;
    nb_jv v;
    size_t at;
    *out = false;
    switch (box->kind) {
    case NB_JK_STR:
        if (x->kind != NB_JK_STR)
            return NB_J_TYPE_ERROR(r, "'in <string>' requires string as left operand, not %s",
                                   nb_jv_type_name(x));
        *out = nb_j_find(box->u.s, x->u.s, 0) != SIZE_MAX;
        return nb_j_work(r, box->u.s.n_bytes);
    case NB_JK_DICT:
        NB_TRY(nb_j_dict_find(r, box->u.dict, x, &at));
        *out = at != SIZE_MAX;
        return NB_OK;
    case NB_JK_UNDEF: return NB_OK;
    case NB_JK_LIST: case NB_JK_TUPLE: case NB_JK_VIEW: case NB_JK_GEN: case NB_JK_RANGE: break;
    default:
        return NB_J_TYPE_ERROR(r, "argument of type '%s' is not iterable", nb_jv_type_name(box));
    }
    NB_TRY(nb_j_iter(r, box, &it));
    for (bool got; !*out;) {
        NB_TRY(nb_j_next(r, &it, &v, &got));
        if (!got) break;
        NB_TRY(nb_jv_equal(r, &v, x, out));
    }
    return NB_OK;
}

nb_status nb_j_compare(nb_jr *r, nb_jcmp op, const nb_jv *a, const nb_jv *b, bool *out)
{
    static const char *const names[] = { "==", "!=", "<", "<=", ">", ">=" };
    int c;
    switch (op) {
    case NB_JC_EQ: return nb_jv_equal(r, a, b, out);
    case NB_JC_NE:
        NB_TRY(nb_jv_equal(r, a, b, out));
        *out = !*out;
        return NB_OK;
    case NB_JC_IN: return contains(r, b, a, out);
    case NB_JC_NOTIN:
        NB_TRY(contains(r, b, a, out));
        *out = !*out;
        return NB_OK;
    default: break;
    }
    NB_TRY(nb_jv_order(r, a, b, names[op], &c));
    *out = op == NB_JC_LT ? c == -1 : op == NB_JC_LE ? c == -1 || c == 0
         : op == NB_JC_GT ? c == 1 : c == 1 || c == 0;
    return NB_OK;
}
