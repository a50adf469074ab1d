/* attr.h - the only place where compiler attributes are spelled. */
#ifndef NB_BASE_ATTR_H
#define NB_BASE_ATTR_H

#define NB_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define NB_NORETURN __attribute__((noreturn))
#define NB_NODISCARD __attribute__((warn_unused_result))
#define NB_UNUSED __attribute__((unused))

#define NB_COUNT(a) (sizeof(a) / sizeof *(a))

#endif
