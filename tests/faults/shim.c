/* A preloaded library that lets system calls fail, stall or stop short for files below one folder.
 *
 * See tests/faults/shim.py for what it can do and how it is told. A call is looked at only when the file it is
 * about lies below FAULTS_UNDER; everything else goes straight through. The rules are read again whenever the
 * control file was replaced, so that they can change while a process runs; each process counts for itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 64
#define MAX_PATH 4400

enum action { FAIL, STALL, SHORT, DIE };

struct rule {
    char operation[16];
    char path[256];
    enum action action;
    int error;
    double argument;
    long left; /* -1: for ever */
    long skip;
    double chance;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MAX_RULES];
static int rule_count;
static struct stat rules_from;
static unsigned int dice;
static int dice_thrown;

static const struct { const char *name; int number; } errors[] = {
    {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"EINTR", EINTR},
    {"EACCES", EACCES}, {"EPERM", EPERM}, {"EMFILE", EMFILE}, {"ENOENT", ENOENT}, {"ESTALE", ESTALE},
};

static void complain(const char *what, const char *line) {
    fprintf(stderr, "faults: %s: %s\n", what, line);
    _exit(97); /* a rule that is not understood must not pass for a test that passed */
}

static void take_action(struct rule *rule, char *word, const char *line) {
    char *argument = strchr(word, '=');
    if (argument) *argument++ = 0;
    rule->argument = argument ? atof(argument) : 0;
    if (!strcmp(word, "STALL")) rule->action = STALL;
    else if (!strcmp(word, "SHORT")) rule->action = SHORT;
    else if (!strcmp(word, "KILL")) rule->action = DIE;
    else {
        rule->action = FAIL;
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (!strcmp(word, errors[i].name)) rule->error = errors[i].number;
        if (!rule->error) complain("unknown action", line);
    }
}

static void add_rule(char *text) {
    char line[1024], *words[8], *rest = NULL;
    int count = 0;
    snprintf(line, sizeof line, "%s", text);
    for (char *word = strtok_r(text, " \t", &rest); word && count < 8; word = strtok_r(NULL, " \t", &rest))
        words[count++] = word;
    if (count == 0 || words[0][0] == '#') return;
    if (!strcmp(words[0], "clear")) { rule_count = 0; return; }
    if (count < 3 || rule_count == MAX_RULES) complain("not a rule, or one too many", line);
    struct rule *rule = &rules[rule_count++];
    memset(rule, 0, sizeof *rule);
    snprintf(rule->operation, sizeof rule->operation, "%s", words[0]);
    take_action(rule, words[1], line);
    rule->left = strcmp(words[2], "*") ? atol(words[2]) : -1;
    rule->chance = 1;
    for (int i = 3; i < count; i++) {
        if (!strncmp(words[i], "after=", 6)) rule->skip = atol(words[i] + 6);
        else if (!strncmp(words[i], "chance=", 7)) rule->chance = atof(words[i] + 7);
        else if (!strncmp(words[i], "path=", 5)) snprintf(rule->path, sizeof rule->path, "%s", words[i] + 5);
        else complain("unknown setting", line);
    }
}

static int same_file(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

/* Reads the rules again if they were replaced; the lock is held. */
static void refresh(void) {
    const char *control = getenv("FAULTS_FILE");
    struct stat now;
    if (!control || stat(control, &now) != 0) { rule_count = 0; memset(&rules_from, 0, sizeof rules_from); return; }
    if (same_file(&now, &rules_from)) return;
    FILE *file = fopen(control, "re");
    if (!file) return;
    char line[1024];
    rule_count = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        add_rule(line);
    }
    fclose(file);
    rules_from = now;
}

static double throw_dice(void) {
    if (!dice_thrown) {
        const char *seed = getenv("FAULTS_SEED");
        dice = seed ? (unsigned int)atol(seed) : 1;
        dice_thrown = 1;
    }
    return rand_r(&dice) / (RAND_MAX + 1.0);
}

static void note(const char *operation, const struct rule *rule, const char *path) {
    const char *log = getenv("FAULTS_LOG");
    if (!log) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    static const char *const names[] = {"FAIL", "STALL", "SHORT", "KILL"};
    const char *name = names[rule->action];
    for (size_t i = 0; rule->action == FAIL && i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == rule->error) name = errors[i].name;
    char line[MAX_PATH + 64];
    int size = snprintf(line, sizeof line, "%d %s %s %s\n", (int)getpid(), operation, name, path);
    if (syscall(SYS_write, file, line, (size_t)size) < 0) { /* nobody can be told */ }
    syscall(SYS_close, file);
}

static int below(const char *path) {
    const char *under = getenv("FAULTS_UNDER");
    size_t size = under ? strlen(under) : 0;
    return size && !strncmp(path, under, size) && (path[size] == '/' || path[size] == 0 || path[size] == ' ');
}

/* The rule that holds for this call, if any; it counts as used. */
static int choose(const char *operation, const char *path, struct rule *chosen) {
    int found = 0;
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = 0; i < rule_count && !found; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->operation, operation) || !rule->left || !strstr(path, rule->path)) continue;
        if (rule->skip > 0) { rule->skip--; continue; }
        if (rule->chance < 1 && throw_dice() >= rule->chance) continue;
        if (rule->left > 0) rule->left--;
        *chosen = *rule;
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Waits until the time is over or the rules were replaced. */
static void stall(double seconds) {
    struct timespec step = {0, 10 * 1000 * 1000};
    struct stat begun, now;
    const char *control = getenv("FAULTS_FILE");
    if (!control || stat(control, &begun) != 0) return;
    for (double waited = 0; waited < seconds; waited += 0.01) {
        nanosleep(&step, NULL);
        if (stat(control, &now) != 0 || !same_file(&begun, &now)) return;
    }
}

/* What to do about a call: 0 let it through, 1 let it through with the size at hand, -1 it failed. */
static int judge(const char *operation, const char *path, size_t *size) {
    struct rule rule;
    if (!below(path) || !choose(operation, path, &rule)) return 0;
    note(operation, &rule, path);
    switch (rule.action) {
    case FAIL: errno = rule.error; return -1;
    case STALL: stall(rule.argument); return 0;
    case DIE: kill(getpid(), SIGKILL); pause(); return 0;
    case SHORT: break;
    }
    if (size && *size > (size_t)rule.argument) *size = (size_t)rule.argument;
    return 1;
}

static int judge_file(const char *operation, int file, size_t *size) {
    char link[64], path[MAX_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int saved = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return judge(operation, path, size);
}

/* The absolute path of a name given relative to a folder. */
static void resolve(int folder, const char *name, char *path, size_t size) {
    char base[MAX_PATH / 2] = "", link[64];
    if (name[0] != '/') {
        if (folder == AT_FDCWD) { if (!getcwd(base, sizeof base)) base[0] = 0; }
        else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            base[length > 0 ? length : 0] = 0;
        }
    }
    snprintf(path, size, "%.2100s%s%.2100s", base, base[0] ? "/" : "", name);
}

static int judge_name(const char *operation, int folder, const char *name) {
    char path[MAX_PATH];
    resolve(folder, name, path, sizeof path);
    return judge(operation, path, NULL);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return judge_file("write", file, &size) < 0 ? -1 : real(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return judge_file("write", file, &size) < 0 ? -1 : real(file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return judge_file("write", file, &size) < 0 ? -1 : real(file, data, size, offset);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    size_t size = count > 0 ? parts[0].iov_len : 0;
    int verdict = judge_file("write", file, &size);
    if (verdict < 0) return -1;
    if (!verdict || count <= 0) return real(file, parts, count);
    struct iovec first = {parts[0].iov_base, size};
    return real(file, &first, 1);
}

int ftruncate(int file, off_t size) {
    REAL(int, ftruncate, int, off_t);
    return judge_file("ftruncate", file, NULL) < 0 ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(int, ftruncate64, int, off64_t);
    return judge_file("ftruncate", file, NULL) < 0 ? -1 : real(file, size);
}

int fsync(int file) {
    REAL(int, fsync, int);
    return judge_file("fsync", file, NULL) < 0 ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(int, fdatasync, int);
    return judge_file("fdatasync", file, NULL) < 0 ? -1 : real(file);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return judge_name("rename", AT_FDCWD, to) < 0 ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return judge_name("rename", to_folder, to) < 0 ? -1 : real(from_folder, from, to_folder, to);
}

int unlink(const char *name) {
    REAL(int, unlink, const char *);
    return judge_name("unlink", AT_FDCWD, name) < 0 ? -1 : real(name);
}

int unlinkat(int folder, const char *name, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return judge_name("unlink", folder, name) < 0 ? -1 : real(folder, name, flags);
}

int mkdir(const char *name, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return judge_name("mkdir", AT_FDCWD, name) < 0 ? -1 : real(name, mode);
}

/* Only files opened for writing: reading has no rules. */
static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPENING(folder, name, flags, call) \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = mode_of(flags, more); \
    va_end(more); \
    if ((flags) & (O_WRONLY | O_RDWR) && judge_name("open", folder, name) < 0) return -1; \
    return call

int open(const char *name, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    OPENING(AT_FDCWD, name, flags, real(name, flags, mode));
}

int open64(const char *name, int flags, ...) {
    REAL(int, open64, const char *, int, ...);
    OPENING(AT_FDCWD, name, flags, real(name, flags, mode));
}

int openat(int folder, const char *name, int flags, ...) {
    REAL(int, openat, int, const char *, int, ...);
    OPENING(folder, name, flags, real(folder, name, flags, mode));
}

int openat64(int folder, const char *name, int flags, ...) {
    REAL(int, openat64, int, const char *, int, ...);
    OPENING(folder, name, flags, real(folder, name, flags, mode));
}
