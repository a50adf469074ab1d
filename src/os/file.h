/* file.h - files, mapped or read whole.  Paths are bytes as given by the user. */
#ifndef NB_OS_FILE_H
#define NB_OS_FILE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* What tells one state of a file from another. */
typedef struct nb_file_state {
    uint64_t device, inode, n_bytes;
    int64_t modified_ns, changed_ns; /* content; content, mode, owner or links */
} nb_file_state;

/* A read-only mapping; p is NULL for an empty file.  Close with nb_file_unmap.  Where the file is
 * truncated or cannot be read any more the bytes are zeros: nb_file_map_check tells. */
typedef struct nb_file_map {
    const unsigned char *p;
    size_t n_bytes;
    struct nb_map_guard *guard;
    nb_file_state state;
    uint64_t sample; /* nb_file_map_sample; 0: none */
} nb_file_map;

/* Regular files only (a directory, fifo or device is NB_ERR_IO).  The error line
 * names the path and the system's reason. */
nb_status nb_file_mmap(const char *path, nb_file_map *m, nb_error *err);
void nb_file_unmap(nb_file_map *m);
/* Whether the bytes read so far are those of the file as it was mapped: NB_ERR_IO with a line when
 * reading has failed, or when the file was changed in place.  *replaced (may be NULL): the path leads to
 * another file now, or to none, which does not harm the mapping. */
nb_status nb_file_map_check(nb_file_map *m, const char *path, bool *replaced, nb_error *err);
/* Reads a few pages, so that nb_file_map_check can tell a change of the content from one of mode or owner
 * where the time of the last modification is the same: without a sample it takes it for the latter. */
void nb_file_map_sample(nb_file_map *m);
/* Only what reading has found, and without a system call. */
nb_status nb_file_map_fault(const nb_file_map *m, const char *path, nb_error *err);
/* Reads exactly n_bytes from the beginning of a regular file, in pieces; report (may be NULL) hears of
 * each piece.  NB_ERR_IO when there are fewer. */
typedef void nb_file_report_fn(void *ctx, size_t n_bytes);
nb_status nb_file_read_into(const char *path, void *p, size_t n_bytes, nb_file_report_fn *report,
                            void *ctx, nb_error *err);
/* Appends the file's bytes; NB_ERR_LIMIT when it is larger than max_bytes, and then
 * nothing was appended.  Regular files only, so that a fifo in a model's directory
 * cannot hang the program; /dev/stdin and /dev/fd/N are read whatever they are. */
nb_status nb_file_read(const char *path, size_t max_bytes, nb_buf *out, nb_error *err);
nb_status nb_stdin_read(size_t max_bytes, nb_buf *out, nb_error *err);
/* Writes the bytes to path (created with mode 0666 less umask, or truncated). */
nb_status nb_file_write(const char *path, const void *p, size_t n_bytes, nb_error *err);
/* The same at once, for readers and after a crash: written beside it, then renamed.  What is there and is
 * no regular file (/dev/stdout, a link) is written to as it is. */
nb_status nb_file_replace(const char *path, const void *p, size_t n_bytes, nb_error *err);
/* Makes a folder and those above it; one that is there is fine. */
nb_status nb_dir_make(const char *path, nb_error *err);

/* Whether there is a regular file (or a link to one): *found.  What is there and no regular file, such as a
 * dangling link, a fifo or a directory, is NB_ERR_IO, and the line says what it is. */
nb_status nb_path_found(const char *path, bool *found, nb_error *err);
bool nb_path_is_dir(const char *path);
bool nb_path_is_file(const char *path);
/* Whether the name itself is there and no regular file: a link, device, fifo, directory.  It is
 * written to as it is: to put a file in its place would end it. */
bool nb_path_is_other(const char *path);
/* dir + "/" + name into out (replacing its content); no second slash after a dir
 * that ends in one, name alone for an empty dir. */
nb_status nb_path_join(nb_buf *out, const char *dir, const char *name);
/* A relative path whose components are names, none of them empty, "." or "..": nothing that leads
 * out of the folder that it is joined to. */
bool nb_path_is_inside(const char *path);
/* How many regular files directly in dir have a name that ends in suffix, and the
 * bytewise smallest such name (replacing *name's content; empty when there is none). */
nb_status nb_dir_find(const char *dir, const char *suffix, nb_buf *name, size_t *n_match,
                      nb_error *err);
/* The same of folders in dir, whose names begin with prefix. */
nb_status nb_dir_find_folder(const char *dir, const char *prefix, nb_buf *name, size_t *n_match,
                             nb_error *err);

/* Calls fn for every name in dir but "." and "..", in no particular order, until it fails. */
typedef nb_status nb_dir_fn(void *ctx, const char *name, nb_error *err);
nb_status nb_dir_each(const char *dir, nb_dir_fn *fn, void *ctx, nb_error *err);
/* Makes one folder, a new one.  NB_ERR_IO, also where there is something of that name. */
nb_status nb_dir_make_new(const char *dir, nb_error *err);
/* Removes a folder and the files in it, as far as it can. */
void nb_dir_remove(const char *dir);
/* Gives what is at `from` the name `to`.  NB_ERR_IO. */
nb_status nb_path_rename(const char *from, const char *to, nb_error *err);

/* Reads one byte of every page in [p, p + n_bytes): what is mapped there is in memory afterwards. */
void nb_pages_touch(const void *p, size_t n_bytes);
/* The opposite, for a mapped file: the pages of [p, p + n_bytes) leave the process's memory and are
 * read again when they are used again.  Anonymous memory would lose its content. */
void nb_pages_drop(const void *p, size_t n_bytes);
/* Asks for large pages for the whole ones within [p, p + n_bytes): fewer faults and
 * fewer misses of the address cache for memory that is used densely.  A mapped file is then read from its disk in
 * pieces of 2 to 4 MiB, whatever its device reads ahead.  Only a hint. */
void nb_pages_prefer_huge(void *p, size_t n_bytes);
/* Anonymous zero pages, committed when first touched, aligned to a page; NULL when
 * refused or for n_bytes == 0.  Nothing is reserved: a large range that is used
 * sparsely costs what was touched. */
void *nb_pages_alloc(size_t n_bytes);
void nb_pages_free(void *p, size_t n_bytes);
#endif
