/* jinja_time.c - strftime_now: Python's datetime.strftime in the C locale for a
 * time without zone, from seconds since 1970-01-01; no clock and no zone is asked.
 * Civil date from day number: Howard Hinnant's days algorithm
 * (https://howardhinnant.github.io/date_algorithms.html). */
#include <stdio.h>

#include "text/jinja_internal.h"

typedef struct civil {
    int64_t year;
    int month, day, hour, minute, second; /* month, day from 1 */
    int wday, yday;                       /* Sunday = 0; January 1st = 0 */
} civil;

static bool is_leap(int64_t y)
{
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

static civil civil_of(int64_t now_s)
{
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
    civil c;
    int64_t days = now_s / 86400, s = now_s % 86400;
    if (s < 0) {
        s += 86400;
        days--;
    }
    c.hour = (int)(s / 3600);
    c.minute = (int)(s / 60 % 60);
    c.second = (int)(s % 60);
    c.wday = (int)(((days + 4) % 7 + 7) % 7);
    const int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    const int64_t doe = z - era * 146097;
    const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    c.day = (int)(doy - (153 * mp + 2) / 5 + 1);
    c.month = (int)(mp < 10 ? mp + 3 : mp - 9);
    c.year = yoe + era * 400 + (c.month <= 2);
    c.yday = before[c.month - 1] + c.day - 1 + (c.month > 2 && is_leap(c.year));
    return c;
}

static const char *const day_names[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday",
                                         "Friday", "Saturday" };
static const char *const month_names[] = { "January", "February", "March", "April", "May", "June",
                                           "July", "August", "September", "October", "November",
                                           "December" };

/* A number of a directive: its value and width; false if d is not numeric. */
static bool number_of(const civil *c, char d, int64_t *v, int *width, char *pad)
{
    const int hour12 = (c->hour + 11) % 12 + 1;
    *width = 2;
    *pad = '0';
    switch (d) {
    case 'Y': *v = c->year; *width = 1; return true;
    case 'y': *v = c->year % 100; return true;
    case 'm': *v = c->month; return true;
    case 'd': *v = c->day; return true;
    case 'e': *v = c->day; *pad = ' '; return true;
    case 'H': *v = c->hour; return true;
    case 'k': *v = c->hour; *pad = ' '; return true;
    case 'I': *v = hour12; return true;
    case 'l': *v = hour12; *pad = ' '; return true;
    case 'M': *v = c->minute; return true;
    case 'S': *v = c->second; return true;
    case 'j': *v = c->yday + 1; *width = 3; return true;
    default: return false;
    }
}

static nb_status add_time(nb_jr *r, nb_str fmt, const civil *c);

static nb_status add_directive(nb_jr *r, char d, bool no_pad, const civil *c)
{
    int64_t v;
    int width;
    char pad, t[32];
    if (number_of(c, d, &v, &width, &pad)) {
        if (no_pad) snprintf(t, sizeof t, "%lld", (long long)v);
        else if (pad == ' ') snprintf(t, sizeof t, "%*lld", width, (long long)v);
        else snprintf(t, sizeof t, "%0*lld", width, (long long)v);
        return nb_j_add_c(r, t);
    }
    switch (d) {
    case 'A': return nb_j_add_c(r, day_names[c->wday]);
    case 'a': return nb_j_add(r, (nb_str){ day_names[c->wday], 3 });
    case 'B': return nb_j_add_c(r, month_names[c->month - 1]);
    case 'b': return nb_j_add(r, (nb_str){ month_names[c->month - 1], 3 });
    case 'p': return nb_j_add_c(r, c->hour < 12 ? "AM" : "PM");
    case 'c': return add_time(r, nb_str_c("%a %b %e %H:%M:%S %Y"), c);
    case 'x': case 'D': return add_time(r, nb_str_c("%m/%d/%y"), c);
    case 'X': case 'T': return add_time(r, nb_str_c("%H:%M:%S"), c);
    case 'R': return add_time(r, nb_str_c("%H:%M"), c);
    case 'F': return add_time(r, nb_str_c("%Y-%m-%d"), c);
    case '%': return nb_j_add_ch(r, '%');
    default:
        return nb_j_fail(r, NB_ERR_UNSUPPORTED, "strftime_now: the directive %%%c is not supported",
                         d > 32 && d < 127 ? d : '?');
    }
}

static nb_status add_time(nb_jr *r, nb_str fmt, const civil *c)
{
    for (size_t i = 0; i < fmt.n_bytes; i++) {
        if (fmt.p[i] != '%' || i + 1 >= fmt.n_bytes) {
            NB_TRY(nb_j_add_ch(r, fmt.p[i]));
            continue;
        }
        const bool no_pad = fmt.p[i + 1] == '-' && i + 2 < fmt.n_bytes;
        i += no_pad ? 2 : 1;
        NB_TRY(add_directive(r, fmt.p[i], no_pad, c));
    }
    return NB_OK;
}

nb_status nb_j_strftime(nb_jr *r, nb_str fmt, int64_t now_s, nb_jv *out)
{
    const int64_t last = 253402300799; /* 9999-12-31, as far as Python goes */
    if (now_s > last || now_s < -62135596800)
        return nb_j_fail(r, NB_ERR_RANGE, "strftime_now: the time is outside of years 1 to 9999");
    const civil c = civil_of(now_s);
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_work(r, fmt.n_bytes * 8));
    NB_TRY(add_time(r, fmt, &c));
    return nb_j_take(r, mark, out);
}
