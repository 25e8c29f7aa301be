// Runs a command under what a unit's RestrictAddressFamilies= and SystemCallFilter=~@privileged forbid:
//
//     confine FAMILY... -- COMMAND...
//
// Sockets of other families fail with EAFNOSUPPORT and privileged calls with EPERM, as systemd has it
// (seccomp(2), systemd.exec(5)). Numbers stand for the families.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))

// Of `systemd-analyze syscall-filter @privileged`: what every architecture has.
static const int privileged[] = {
    SYS_acct, SYS_adjtimex, SYS_bpf, SYS_capset, SYS_chroot, SYS_clock_adjtime, SYS_clock_settime, SYS_delete_module,
    SYS_fanotify_init, SYS_fchown, SYS_fchownat, SYS_finit_module, SYS_init_module, SYS_kexec_load,
    SYS_open_by_handle_at, SYS_pivot_root, SYS_quotactl, SYS_reboot, SYS_setdomainname, SYS_setfsgid, SYS_setfsuid,
    SYS_setgid, SYS_setgroups, SYS_sethostname, SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid,
    SYS_settimeofday, SYS_setuid, SYS_swapoff, SYS_swapon, SYS_vhangup,
};

int main(int count, char **words)
{
    struct sock_filter filter[512];
    int size = 0, word = 1;
#define ADD(...) filter[size++] = (struct sock_filter)__VA_ARGS__
    ADD(FIELD(arch));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    ADD(ANSWER(SECCOMP_RET_KILL_PROCESS));
    ADD(FIELD(nr));
    for (size_t i = 0; i < sizeof privileged / sizeof *privileged; i++) {
        ADD(UNLESS(privileged[i], 1));
        ADD(REFUSE(EPERM));
    }
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0));
    ADD(ANSWER(SECCOMP_RET_ALLOW));
    ADD(FIELD(args[0]));  // its lower half, on a little-endian machine
    for (; word < count && strcmp(words[word], "--"); word++) {
        ADD(UNLESS(atoi(words[word]), 1));
        ADD(ANSWER(SECCOMP_RET_ALLOW));
    }
    ADD(REFUSE(EAFNOSUPPORT));
    struct sock_fprog program = {size, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        return 97;
    }
    execvp(words[word + 1], words + word + 1);
    perror(words[word + 1]);
    return 98;
}
