/* Preloaded into a process, this counts what it changes below a folder, and kills it, fails or
   waits at a chosen one: opening, writing, renaming, removing files, making and removing folders.
   Writes into one file without anything between them are one change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char folder[PATH_MAX], written[PATH_MAX];
static char kind;
static int count, chosen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* kind: 'k' kills at change `number` of this process below `path`, 'f' fails it, 's' slows all. */
void arrange(const char *path, char how, int number) {
    strcpy(folder, path);
    kind = how;
    count = 0;
    chosen = number;
}

int changes(void) { return count; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether the chosen change is that of `path` in the folder open as `at`, or the writing of the
   file open as `at`, whose path is NULL. */
static int strikes(const char *what, int at, const char *path) {
    char place[PATH_MAX] = "", link[64];
    if (!*folder) return 0;
    if (!path || (*path != '/' && at >= 0)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        if (readlink(link, place, sizeof place - 1) < 0) return 0;
    }
    if (strncmp(path && *path == '/' ? path : place, folder, strlen(folder))) return 0;
    pthread_mutex_lock(&lock);
    int is_new = path || strcmp(written, place);
    strcpy(written, path ? "" : place);
    count += is_new;
    int chosen_now = is_new && count == chosen;
    if (chosen_now) dprintf(2, "change %d: %s %s%s\n", count, what, place, path ? path : "");
    pthread_mutex_unlock(&lock);
    if (is_new && kind == 's') usleep(20000);
    return chosen_now;
}

#define FAIL(value) \
    do { if (kind == 'k') die(); if (kind == 'f') { errno = EIO; return value; } } while (0)

static int changing(int flags) { return flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC); }

#define LIST(...) __VA_ARGS__
#define OPEN(name, folder, types, names) \
    int name(types, int flags, ...) { \
        va_list more; va_start(more, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; va_end(more); \
        if (changing(flags) && strikes(#name, folder, path)) FAIL(-1); \
        return REAL(name)(names, flags, mode); \
    }
OPEN(open, -1, const char *path, path)
OPEN(open64, -1, const char *path, path)
OPEN(openat, at, LIST(int at, const char *path), LIST(at, path))
OPEN(openat64, at, LIST(int at, const char *path), LIST(at, path))

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        if (strpbrk(mode, "wa+") && strikes(#name, -1, path)) FAIL(NULL); \
        return REAL(name)(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define CHANGE(name, types, names, at, path) \
    int name types { if (strikes(#name, at, path)) FAIL(-1); return REAL(name) names; }
CHANGE(rename, (const char *old, const char *new), (old, new), -1, new)
CHANGE(renameat, (int a, const char *old, int b, const char *new), (a, old, b, new), b, new)
CHANGE(renameat2, (int a, const char *old, int b, const char *new, unsigned how),
       (a, old, b, new, how), b, new)
CHANGE(unlink, (const char *path), (path), -1, path)
CHANGE(unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path)
CHANGE(rmdir, (const char *path), (path), -1, path)
CHANGE(mkdir, (const char *path, mode_t mode), (path, mode), -1, path)
CHANGE(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path)

/* A process that is killed has written half. */
#define WRITE(name, types, names, half) \
    ssize_t name types { \
        if (strikes(#name, file, NULL)) { if (kind == 'k') { REAL(name) half; die(); } FAIL(-1); } \
        return REAL(name) names; \
    }
WRITE(write, (int file, const void *data, size_t size), (file, data, size), (file, data, size / 2))
WRITE(pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at),
      (file, data, size / 2, at))
WRITE(pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at),
      (file, data, size / 2, at))

size_t fwrite(const void *data, size_t size, size_t number, FILE *stream) {
    if (strikes("fwrite", fileno(stream), NULL)) {
        if (kind == 'k') {
            REAL(fwrite)(data, 1, size * number / 2, stream);
            fflush(stream);
            die();
        }
        FAIL(0);
    }
    return REAL(fwrite)(data, size, number, stream);
}
