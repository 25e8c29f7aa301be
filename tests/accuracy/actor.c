// An actor: a process that does what its plan says, and whose kernel accounts are known apart from any recorder.
//
// The plan is one text of words. `job NAME` moves the process into the control group of that name (the oracle of its
// CPU time) and tells the log who it is; what it forks stays there. Environment: ACTOR_GROUPS (folder with a
// control group per account), ACTOR_LOG (on tmpfs, so that telling is no I/O), ACTOR_FILES (on a real file system),
// ACTOR_PHASE_1000 and ACTOR_PHASE_10000 (nanoseconds by which the recorders' ticks follow the multiples of their
// interval).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024L * 1024L)
#define MAPPINGS 16
#define PIECE MIB

struct clone3_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup; };

static char *self;
static char account[128] = "-";
static int64_t born;
static int64_t grouped;
static pid_t last_child;
static unsigned int dice;
static struct { char *at; long size; } mapped[MAPPINGS];
static int mappings;

static void act(char **word, char **end);

static void fail(const char *what)
{
    fprintf(stderr, "actor %d (%s): %s: %s\n", getpid(), account, what, strerror(errno));
    _exit(97);
}

static int64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void nap(int64_t ns)
{
    struct timespec t = {ns / 1000000000LL, ns % 1000000000LL};
    while (ns > 0 && nanosleep(&t, &t) < 0 && errno == EINTR) {}
}

static void burn(clockid_t clock, long ms)
{
    volatile unsigned long sum = 0;
    int64_t end = now(clock) + ms * 1000000LL;
    while (now(clock) < end)
        for (int i = 0; i < 2000; i++) sum += i;
}

// starttime of /proc/self/stat, the 22nd field; the name in brackets may hold anything.
static long long start_ticks(void)
{
    char text[1024], *at;
    int fd = open("/proc/self/stat", O_RDONLY);
    long size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size <= 0) fail("/proc/self/stat");
    close(fd);
    text[size] = 0;
    at = strrchr(text, ')') + 1;
    for (int field = 3; field < 22; field++) at = strchr(at + 1, ' ');
    return atoll(at);
}

// One line per write: several processes append to the same file.
static void tell(const char *what, const char *extra)
{
    char line[512];
    int fd = open(getenv("ACTOR_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    int size = snprintf(line, sizeof line, "%s %s %d %lld %s\n", what, account, getpid(),
                        (long long)now(CLOCK_BOOTTIME), extra);
    if (fd < 0 || write(fd, line, size) != size) fail("log");
    close(fd);
}

static void enter_control_group(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/cgroup.procs", getenv("ACTOR_GROUPS"), name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) fail(path);
    close(fd);
}

static void enter(const char *name)
{
    char text[256], before[128];
    snprintf(before, sizeof before, "%s", account);
    snprintf(account, sizeof account, "%s", name);
    setenv("ACTOR_ACCOUNT", name, 1);
    enter_control_group(name);
    snprintf(text, sizeof text, "%d %lld %d %s %lld", getpgrp(), start_ticks(), getuid(), before, (long long)grouped);
    tell("job", text);
}

// The group of an account that somebody entered before us.
static void join(const char *name)
{
    char line[512], what[16], who[128];
    int pid, group = 0;
    long long at;
    FILE *log = fopen(getenv("ACTOR_LOG"), "r");
    while (log && fgets(line, sizeof line, log)) {
        int found;
        if (sscanf(line, "%15s %127s %d %lld %d", what, who, &pid, &at, &found) == 5 &&
            !strcmp(what, "job") && !strcmp(who, name)) group = found;
    }
    if (!group || setpgid(0, group) < 0) fail("join");
    fclose(log);
}

static void map(long size, int flags)
{
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED || mappings == MAPPINGS) fail("mmap");
    memset(at, 7, size);
    mapped[mappings].at = at;
    mapped[mappings++].size = size;
}

static void unmap(void)
{
    mappings--;
    munmap(mapped[mappings].at, mapped[mappings].size);
}

static void own_file(char *path, size_t size)
{
    snprintf(path, size, "%s/%s.%d", getenv("ACTOR_FILES"), account, getpid());
}

static char *piece(void)
{
    static char *at;
    if (!at && posix_memalign((void **)&at, 4096, PIECE)) fail("memory");
    return at;
}

// Known bytes to a real disk; the file goes only when nothing of it is dirty, so that no write is cancelled.
static void write_file(long mib)
{
    char path[512], text[64];
    own_file(path, sizeof path);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0) fail(path);
    for (long done = 0; done < mib; done++)
        if (write(fd, memset(piece(), 'a' + done % 26, PIECE), PIECE) != PIECE) fail("write");
    if (fsync(fd) < 0) fail("fsync");
    close(fd);
    unlink(path);
    snprintf(text, sizeof text, "%ld", mib * MIB);
    tell("write", text);
}

static void read_file(long mib)
{
    char path[512], text[64];
    snprintf(path, sizeof path, "%s/input", getenv("ACTOR_FILES"));
    int fd = open(path, O_RDONLY | O_DIRECT);
    if (fd < 0) fail(path);
    for (long done = 0; done < mib; done++)
        if (pread(fd, piece(), PIECE, done * MIB) != PIECE) fail("read");
    close(fd);
    snprintf(text, sizeof text, "%ld", mib * MIB);
    tell("read", text);
}

static void leave(int code)
{
    tell("end", "");
    _exit(code);
}

static void *burn_alone(void *ms)
{
    burn(CLOCK_THREAD_CPUTIME_ID, (long)ms);
    return NULL;
}

static void threads(int count, long ms)
{
    pthread_t thread[64];
    for (int i = 0; i < count; i++)
        if (pthread_create(&thread[i], NULL, burn_alone, (void *)ms)) fail("thread");
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

struct rest { char **word, **end; };

static void *act_rest(void *rest)
{
    struct rest *left = rest;
    act(left->word, left->end);
    leave(0);
    return NULL;
}

// The main thread ends, another one goes on with the plan.
static void lose_main_thread(char **word, char **end)
{
    static struct rest left;
    pthread_t thread;
    left = (struct rest){word, end};
    if (pthread_create(&thread, NULL, act_rest, &left)) fail("thread");
    pthread_exit(NULL);
}

static int act_shared(void *rest)
{
    struct rest *left = rest;
    act(left->word, left->end);
    _exit(0);
}

// What a child uses before it leads its group, to become another program too, is its own.
static void enter_early(char **word, char **end)
{
    if (end - word > 2 && (!strcmp(*word, "group") || !strcmp(*word, "session")) && !strcmp(word[1], "job"))
        enter_control_group(word[2]);
}

static void child(char **word, char **end)
{
    enter_early(word, end);
    born = now(CLOCK_BOOTTIME);
    dice = getpid();
    act(word, end);
    leave(0);
}

// Replaces this process by one that acts the words, so that memory and name begin anew.
static void become(char **word, char **end)
{
    size_t size = 1;
    for (char **at = word; at < end; at++) size += strlen(*at) + 1;
    char *plan = calloc(1, size);
    for (char **at = word; at < end; at++) strcat(strcat(plan, *at), " ");
    char *arguments[] = {self, plan, NULL};
    enter_early(word, end);
    execv(self, arguments);
    fail(self);
}

static void again_with_same_pid(char **word, char **end)
{
    pid_t wanted = last_child;
    struct clone3_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid < 0) fail("clone3");
    if (!pid) child(word, end);
}

static void fork_twice(char **word, char **end)
{
    pid_t middle = fork();
    if (middle < 0) fail("fork");
    if (!middle) {
        if (!fork()) child(word, end);
        _exit(0);
    }
    while (waitpid(middle, NULL, 0) < 0 && errno == EINTR) {}
}

static void begin(const char *how, char **word, char **end)
{
    if (!strcmp(how, "double")) { fork_twice(word, end); return; }
    if (!strcmp(how, "reuse")) { again_with_same_pid(word, end); return; }
    if (!strcmp(how, "clonevm")) {
        static struct rest left;
        left = (struct rest){word, end};
        char *stack = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (clone(act_shared, stack + MIB, CLONE_VM | SIGCHLD, &left) < 0) fail("clone");
        return;
    }
    pid_t pid = !strcmp(how, "vfork") ? vfork() : fork();
    if (pid < 0) fail("fork");
    if (!pid && strcmp(how, "fork")) become(word, end);
    if (!pid) child(word, end);
    last_child = pid;
}

static char **closing(char **word, char **end)
{
    int depth = 0;
    for (; word < end; word++) {
        if (!strcmp(*word, "{")) depth++;
        if (!strcmp(*word, "}") && !--depth) return word;
    }
    errno = EINVAL;
    fail("a plan without its closing bracket");
    return NULL;
}

// Sleeps until the recorders' next tick, and some milliseconds (of either sign) more.
static void await_tick(long interval_ms, long delta_ms)
{
    char name[32];
    snprintf(name, sizeof name, "ACTOR_PHASE_%ld", interval_ms);
    int64_t phase = atoll(getenv(name)), interval = interval_ms * 1000000LL;
    int64_t past = (now(CLOCK_REALTIME) - phase - delta_ms * 1000000LL) % interval;
    nap(interval - past);
}

static int is(const char *word, const char *name) { return !strcmp(word, name); }

static void act(char **word, char **end)
{
    for (; word < end; word++) {
        char *op = *word;
        if (is(op, "fork") || is(op, "spawn") || is(op, "vfork") || is(op, "double") || is(op, "reuse") ||
            is(op, "clonevm")) {
            char **close = closing(word + 1, end);
            begin(op, word + 2, close);
            word = close;
        } else if (is(op, "repeat")) {
            long count = atol(*++word);
            char **close = closing(word + 1, end);
            while (count--) act(word + 2, close);
            word = close;
        } else if (is(op, "command")) {
            char **close = closing(word + 1, end);
            *close = NULL;
            execvp(word[2], word + 2);
            fail(word[2]);
        } else if (is(op, "ghost")) lose_main_thread(word + 1, end);
        else if (is(op, "job")) enter(*++word);
        else if (is(op, "join")) join(*++word);
        else if (is(op, "group")) { setpgid(0, 0); grouped = now(CLOCK_BOOTTIME); }
        else if (is(op, "session")) { setsid(); grouped = now(CLOCK_BOOTTIME); }
        else if (is(op, "burn")) burn(CLOCK_PROCESS_CPUTIME_ID, atol(*++word));
        else if (is(op, "flicker")) { long low = atol(*++word), high = atol(*++word); burn(CLOCK_PROCESS_CPUTIME_ID, low + rand_r(&dice) % (high - low + 1)); }
        else if (is(op, "threads")) { int count = atoi(*++word); threads(count, atol(*++word)); }
        else if (is(op, "sleep")) nap(atol(*++word) * 1000000LL);
        else if (is(op, "last")) nap(born + atol(*++word) * 1000000LL - now(CLOCK_BOOTTIME));
        else if (is(op, "tick")) { long interval = atol(*++word); await_tick(interval, atol(*++word)); }
        else if (is(op, "write")) write_file(atol(*++word));
        else if (is(op, "read")) read_file(atol(*++word));
        else if (is(op, "touch")) map(atol(*++word) * MIB, MAP_PRIVATE | MAP_ANONYMOUS);
        else if (is(op, "shm")) map(atol(*++word) * MIB, MAP_SHARED | MAP_ANONYMOUS);
        else if (is(op, "huge")) map(atol(*++word) * MIB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
        else if (is(op, "again")) memset(mapped[mappings - 1].at, 9, atol(*++word) * MIB);
        else if (is(op, "free")) unmap();
        else if (is(op, "wait")) { while (wait(NULL) > 0 || errno == EINTR) {} }
        else if (is(op, "ignore")) signal(SIGCHLD, SIG_IGN);
        else if (is(op, "subreaper")) prctl(PR_SET_CHILD_SUBREAPER, 1);
        else if (is(op, "uid")) { int uid = atoi(*++word); if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)) fail("uid"); }
        else if (is(op, "exit")) leave(atoi(*++word));
        else { errno = EINVAL; fail(op); }
    }
}

int main(int count, char **arguments)
{
    static char *words[65536];
    int found = 0;
    if (count < 2) return 2;
    self = getenv("ACTOR");
    born = now(CLOCK_BOOTTIME);
    dice = getpid();
    if (getenv("ACTOR_ACCOUNT")) snprintf(account, sizeof account, "%s", getenv("ACTOR_ACCOUNT"));
    for (char *word = strtok(arguments[1], " \n"); word && found < 65535; word = strtok(NULL, " \n")) words[found++] = word;
    act(words, words + found);
    leave(0);
}
