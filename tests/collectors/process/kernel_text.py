"""The end of a line of /proc/PID/stat, and /proc/PID/io (proc(5))."""

TAIL = (
    b"S 7 8 9 34816 -1 4194304 101 102 3 4 55 66 77 88 20 0 5 0 122072 3133440 355 18446744073709551615 "
    b"94007126028288 94007126048169 140732799878352 0 0 0 0 0 0 1 0 0 17 0 0 0 0 0 0 94007126064176\n"
)


IO = (
    b"rchar: 7312\nwchar: 336\nsyscr: 16\nsyscw: 3\nread_bytes: 40960\nwrite_bytes: 8192\n"
    b"cancelled_write_bytes: 4096\n"
)
