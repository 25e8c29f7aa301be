#!/bin/sh
# slurm.sh, both as Prolog= and as Epilog= of slurm.conf: a bundle of each job, from each of its nodes.
mark=/run/vmsonar-job-$SLURM_JOB_ID

case $SLURM_SCRIPT_CONTEXT in
prolog_slurmd)
    touch "$mark"
    ;;
epilog_slurmd)
    [ -e "$mark" ] && vmsonar bundle --since "$(date -u -r "$mark" +%FT%TZ)" \
        -o "/shared/vmsonar/$SLURM_JOB_ID-${SLURM_JOB_RESTART_COUNT:-0}-$(hostname -s).tar"
    rm -f "$mark"
    ;;
esac
exit 0 # with any other code Slurm would take the node out of service
