/* parse_internal.h - the table that a format is, and the state of an answer. */
#ifndef NB_PARSE_INTERNAL_H
#define NB_PARSE_INTERNAL_H
#include "parse/parse.h"

/* ---- tables -------------------------------------------------------------- */

/* Where an answer is.  Each state has a handler for text (parse.c) and the rows
 * of the table that mention it. */
typedef enum nb_pstate {
    NB_PS_START,        /* only blanks so far: a thought may open, they are held  */
    NB_PS_BLANK,        /* the same behind a thought or a call                    */
    NB_PS_CONTENT,      /* text                                                   */
    NB_PS_THINK_START,  /* the prompt opened a thought, nothing came yet          */
    NB_PS_THINK,        /* reasoning                                              */
    NB_PS_EAT,          /* drop one line feed, then BLANK                         */
    NB_PS_EAT_THINK,    /* drop one line feed, then THINK                         */
    NB_PS_SECTION,      /* between calls of a section                             */
    NB_PS_TYPE,         /* the word in front of V3's name                         */
    NB_PS_NAME,         /* a name                                                 */
    NB_PS_ARGS,         /* JSON arguments                                         */
    NB_PS_OBJECT,       /* a call that is one JSON object                         */
    NB_PS_AFTER_OBJECT, /* it is complete, its closing marker is missing          */
    NB_PS_PARAMS,       /* between tagged arguments                               */
    NB_PS_KEY,          /* a key                                                  */
    NB_PS_VALUE,        /* a value                                                */
    NB_PS_PYTHON,       /* Python calls                                           */
    NB_PS_DROP,         /* behind a section                                       */
    NB_PS_QUOTED,       /* for the lexer only: inside a string, where no row is   */
    NB_PS_N
} nb_pstate;

/* What a row does on its way to the next state, in this order. */
enum {
    NB_PA_CLOSE = 1 << 0,  /* an opener without a call: its text is content       */
    NB_PA_END = 1 << 1,    /* the call, if there is one, is complete              */
    NB_PA_FLUSH = 1 << 2,  /* text held behind a call is content if not blank     */
    NB_PA_UNHOLD = 1 << 3, /* ... is dropped                                      */
    NB_PA_OPEN = 1 << 4,   /* an opener: keep the text until a call begins        */
    NB_PA_BEGIN = 1 << 5,  /* the name is complete                                */
    NB_PA_END_2 = 1 << 6,  /* ... and so is the call                              */
    NB_PA_KEY = 1 << 7,    /* the key is complete; type as the schema says        */
    NB_PA_STRING = 1 << 8, /* ... marked as a string                              */
    NB_PA_JSON = 1 << 9,   /* ... marked as JSON                                  */
    NB_PA_VALUE = 1 << 10, /* the value is complete                               */
    NB_PA_KEEP = 1 << 11   /* the row's text is the first text of the next state  */
};

typedef struct nb_prow {
    uint32_t in; /* bit set of states */
    const char *text;
    uint16_t next, act;
} nb_prow;

enum { NB_FORMAT_MAX_ROWS = 16, NB_FORMAT_MAX_NAMES = 6, NB_PARSE_MAX_MARKER_BYTES = 64 };
enum { NB_PARSE_MAX_ROWS = 2 * NB_FORMAT_MAX_ROWS };

struct nb_call_format {
    const char *names[NB_FORMAT_MAX_NAMES]; /* the first is the row's own */
    nb_call_style style;
    bool numbered;    /* Kimi: decorated names, ids with a running index           */
    bool bare;        /* a call is an object without markers: be strict about keys */
    const char *part; /* inside markers: the token in markers that are none        */
    const char *openers[3];
    nb_prow rows[NB_FORMAT_MAX_ROWS];
};

struct nb_thought_format {
    const char *names[NB_FORMAT_MAX_NAMES];
    const char *open, *close;
    nb_prow rows[NB_FORMAT_MAX_ROWS];
};

/* ---- declared tools (tools.c) -------------------------------------------- */

enum {
    NB_PT_STRING = 1,
    NB_PT_INTEGER = 2, /* also 2.0 */
    NB_PT_FRACTION = 4,
    NB_PT_BOOLEAN = 8,
    NB_PT_NULL = 16,
    NB_PT_ARRAY = 32,
    NB_PT_OBJECT = 64,
    NB_PT_ALL = 127
};

typedef struct nb_pproperty {
    char *name;
    unsigned types; /* what the schema admits */
} nb_pproperty;

typedef struct nb_ptool {
    char *name;
    nb_pproperty *properties; /* [n_properties], by name */
    size_t n_properties;
} nb_ptool;

typedef struct nb_ptools {
    nb_ptool *tools; /* [n_tools], by name */
    size_t n_tools;
} nb_ptools;
nb_status nb_ptools_create(const nb_parse_tool *in, size_t n, nb_ptools *out, nb_error *err);
void nb_ptools_deinit(nb_ptools *t);
const nb_ptool *nb_ptools_find(const nb_ptools *t, nb_str name);
/* Types that the property admits, 0 if it is not declared; t may be NULL. */
unsigned nb_ptool_types(const nb_ptool *t, nb_str property);
/* The type of a JSON text with blanks around it, 0 if it is none. */
unsigned nb_json_text_type(nb_str text);
/* Whether it is an object whose keys are all properties of the tool. */
bool nb_json_text_fits(nb_str text, const nb_ptool *t);

/* ---- the parser ---------------------------------------------------------- */

/* A row with the token that it needs. */
typedef struct nb_pmarker {
    nb_str text;
    uint32_t in;
    uint16_t next, act;
    uint8_t tok;               /* index of an added token + NB_CLS_TOKEN, 0: none */
    uint8_t tok_at, tok_bytes; /* the bytes that must come from it               */
} nb_pmarker;

/* Where a byte came from: a class and, for tokens, the offset in the token. */
enum { NB_CLS_UNKNOWN = 0, NB_CLS_PLAIN = 1, NB_CLS_TOKEN = 2 };
typedef struct nb_pbyte {
    char c;
    uint8_t cls, at;
} nb_pbyte;

struct nb_parser {
    const nb_call_format *calls;
    const nb_thought_format *thought;
    nb_ptools tools;
    size_t n_history_calls;
    bool starts_in_thought;
    nb_pmarker rows[NB_PARSE_MAX_ROWS];
    size_t n_rows;
    uint8_t of_state[NB_PS_N][NB_PARSE_MAX_ROWS], n_of_state[NB_PS_N];
    bool first[NB_PS_N][256]; /* some row of the state starts with this byte */
    uint32_t ids[NB_PARSE_MAX_ROWS], by_id[NB_PARSE_MAX_ROWS]; /* by_id: ascending */
    nb_str id_text[NB_PARSE_MAX_ROWS];
    size_t n_ids;
};

/* ---- the state of an answer ---------------------------------------------- */

/* Decodes the inside of a JSON string byte by byte. */
typedef struct nb_pstring {
    uint8_t esc; /* 0: none, 1: behind a backslash, 2..5: hex digits seen + 2 */
    uint16_t hex, high;
} nb_pstring;
/* Decodes one byte; out gets *n bytes, at most 8.  True at the closing quote. */
bool nb_pstring_push(nb_pstring *s, char c, char out[8], size_t *n);

/* A JSON value, by its brackets and quotes only. */
typedef struct nb_pscan {
    size_t depth;
    bool quoted, esc;
} nb_pscan;
void nb_pscan_push(nb_pscan *s, char c);

typedef enum nb_pargs { NB_PG_BEFORE, NB_PG_FENCE, NB_PG_INSIDE, NB_PG_RAW, NB_PG_DONE } nb_pargs;

typedef enum nb_pobject {
    NB_PO_START,
    NB_PO_KEY,
    NB_PO_KEY_STRING,
    NB_PO_COLON,
    NB_PO_VALUE,
    NB_PO_NAME,
    NB_PO_ARGS_STRING,
    NB_PO_RAW
} nb_pobject;

typedef enum nb_ppython {
    NB_PP_BETWEEN,
    NB_PP_FENCE, /* a line that starts with a back quote */
    NB_PP_SKIP,  /* a line that is no call               */
    NB_PP_NAME,
    NB_PP_ARGS
} nb_ppython;

typedef enum nb_pvalue { NB_PV_STREAM, NB_PV_HOLD, NB_PV_WRAPPED } nb_pvalue;

struct nb_parse {
    const nb_parser *p;
    uint64_t seed;
    nb_parse_fn fn;
    void *ctx;
    nb_status status; /* the first that was not NB_OK */
    nb_pstate state, origin;
    bool recording, in_call, cut;
    nb_pbyte q[NB_PARSE_MAX_MARKER_BYTES]; /* may become a marker */
    size_t n_q;
    nb_buf out; /* of this push, all of out_kind */
    nb_parse_kind out_kind;
    nb_buf hold; /* blanks, or what follows an object                */
    nb_buf raw;  /* from an opener until its call begins             */
    nb_buf name, key, value, wrapper;
    char id[NB_PARSE_ID_BYTES];
    size_t n_calls, n_args_bytes, n_reasoning_tokens;
    const nb_ptool *tool;
    nb_pscan scan; /* ARGS, OBJECT */
    nb_pargs args;
    char pend[16]; /* ARGS: blanks and back quotes that may be the end */
    size_t n_pend;
    /* OBJECT */
    nb_pobject object;
    nb_pstring string;
    bool have_name, have_args, args_are_string, in_args, scalar;
    size_t args_from, args_to; /* in raw */
    /* VALUE */
    nb_pvalue value_mode;
    unsigned key_act, key_types;
    size_t n_params;
    bool wrapped; /* value holds a first argument that may be all arguments */
    /* PYTHON */
    nb_ppython python;
    uint8_t quote_state;
    char quote;
};

/* Events; text of one kind is collected until the end of a push. */
nb_status nb_parse_emit(nb_parse *a, nb_parse_kind kind, nb_str text);
nb_status nb_parse_begin(nb_parse *a); /* with the name in a->name; may fail the opener */
nb_status nb_parse_end_call(nb_parse *a);
nb_status nb_parse_fail(nb_parse *a); /* nothing parsable behind the opener */

/* Handlers of text, and of what follows it. */
nb_status nb_parse_args_text(nb_parse *a, char c);
nb_status nb_parse_object_text(nb_parse *a, char c);
void nb_parse_object_open(nb_parse *a);
nb_status nb_parse_key_end(nb_parse *a, unsigned act);
nb_status nb_parse_value_text(nb_parse *a, char c);
nb_status nb_parse_value_end(nb_parse *a);
nb_status nb_parse_params_end(nb_parse *a);
nb_status nb_parse_python_text(nb_parse *a, char c);
/* "f(k=v)" to the arguments' JSON; *name: inside text.  NB_ERR_FORMAT: no such call. */
nb_status nb_python_call(nb_str text, nb_str *name, nb_buf *json);
nb_status nb_json_quote(nb_buf *out, nb_str s); /* without the quotes */

static inline bool nb_parse_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
nb_str nb_parse_trim(nb_str s);

#endif
