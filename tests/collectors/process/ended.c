/* Work that ends: each line on standard output is what wait4(2) says of a child: pid, status, microseconds of CPU,
   peak memory in KiB, minor and major faults. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long milliseconds;

static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* By the wall's clock: to ask for the CPU time would bring the scheduler's sum up to date. */
static void *burn(void *unused)
{
    for (double end = now() + milliseconds; now() < end;) {}
    return unused;
}

static void *burn_and_exit(void *code)
{
    burn(NULL);
    _exit((int)(long)code);
}

static void tell(pid_t pid)
{
    int status;
    struct rusage usage;
    if (wait4(pid, &status, 0, &usage) != pid) exit(99);
    long micros = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    printf("%d %d %ld %ld %ld %ld\n", pid, status, micros, usage.ru_maxrss, usage.ru_minflt, usage.ru_majflt);
}

static void work(const char *what, long number)
{
    pthread_t threads[4];
    if (!strcmp(what, "burn")) {
        burn(NULL);
    } else if (!strcmp(what, "naps")) {  /* sleeps between short bursts */
        for (int i = 0; i < number; i++) {
            usleep(500);
            burn(NULL);
        }
    } else if (!strcmp(what, "threads")) {  /* four of them, waited for */
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, burn, NULL);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(what, "headless")) {  /* the main thread ends first, another one gives the code later */
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, burn, NULL);
        milliseconds += 60;
        pthread_create(&threads[3], NULL, burn_and_exit, (void *)number);
        pthread_exit(NULL);
    } else if (!strcmp(what, "busy_threads")) {  /* the main thread ends all the others */
        milliseconds = 1000000;
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, burn, NULL);
        usleep(100000);
        _exit((int)number);
    } else if (!strcmp(what, "memory")) {
        char *held = mmap(NULL, number << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(held, 1, number << 20);
        munmap(held, number << 20);
    } else if (!strcmp(what, "signal")) {
        raise((int)number);
        pause();
    }
}

int main(int count, char **words)
{
    /* ended WHAT NUMBER MILLISECONDS TIMES: MILLISECONDS may be LOW-HIGH, of which each child takes another. */
    long number = atol(words[2]), times = atol(words[4]), low = atol(words[3]);
    char *dash = strchr(words[3], '-');
    long high = dash ? atol(dash + 1) : low;
    if (count != 5) return 98;
    for (long i = 0; i < times; i++) {
        pid_t pid = fork();
        if (!pid) {
            milliseconds = low + i % (high - low + 1);
            work(words[1], number);
            _exit(!strcmp(words[1], "burn") ? (int)number : 0);
        }
        tell(pid);
    }
    return 0;
}
