-- Which sample a row is of.
    d.archive, -- archive that holds the record
    d.run, -- start of the daemon that recorded it
    d.boot, -- boot id of the kernel
    d.seq, -- number of the sample
    d.time, -- wall clock of the sample
    d.boottime, -- nanoseconds since boot
