#!/usr/bin/env bash
# A real Slurm of several nodes on this one machine, for tests. As root:
#
#   cluster.sh install              Debian's packages
#   cluster.sh start DIR [NODES [TRACKING]]
#                                   from nothing to idle nodes in seconds; prints the variable to export.
#                                   TRACKING of processes: linuxproc, or pgid, at ports of its own
#   cluster.sh stop DIR
#
# Each node is a slurmd in a UTS and a mount namespace of its own: it has its own host name and its own
# /etc/hosts, so that MPI sees several hosts. Its address is 127.0.1.i. The two GPUs of a node are
# device files that stand for them, which is all that Slurm looks at.
set -euo pipefail

action=${1:-} directory=${2:-} num_nodes=${3:-4} tracking=${4:-linuxproc}
ports=$([[ $tracking == linuxproc ]] && echo 0 || echo 100)
[[ $action == install || -n $directory ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

install() {
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        slurm-wlm munge libpmix-dev >/dev/null
}

start() {
    mkdir -p "$directory"/{state,spool,log,run,tmp}
    directory=$(realpath "$directory")
    hosts
    start_munge
    configure
    export SLURM_CONF=$directory/slurm.conf
    slurmctld -f "$SLURM_CONF"
    for i in $(seq "$num_nodes"); do
        unshare --uts --mount sh -c "mount --bind '$directory/hosts' /etc/hosts &&
            hostname node$i && exec slurmd -f '$SLURM_CONF' -N node$i"
    done
    for _ in $(seq 60); do
        [[ $(sinfo -h -N -o %T 2>/dev/null | grep -cx idle) == "$num_nodes" ]] && break
        sleep 0.5
    done
    [[ $(sinfo -h -N -o %T | grep -cx idle) == "$num_nodes" ]] || { sinfo >&2; exit 1; }
    echo "export SLURM_CONF=$SLURM_CONF"
}

# Jobs first: a step does not end with its slurmd.
stop() {
    directory=$(realpath "$directory")
    export SLURM_CONF=$directory/slurm.conf
    local file
    if squeue -h >/dev/null 2>&1; then
        squeue -h -o %i | xargs -r scancel || true
        for _ in $(seq 40); do
            [[ -z $(squeue -h -o %i 2>/dev/null) ]] && break
            sleep 0.5
        done
    fi
    for file in "$directory"/run/slurmd.*.pid "$directory"/run/slurmctld.pid "$directory"/run/munged.pid; do
        if [[ -s $file ]]; then kill "$(cat "$file")" 2>/dev/null || true; fi
    done
}

hosts() {
    cp /etc/hosts "$directory/hosts"
    for i in $(seq "$num_nodes"); do
        mkdir -p "$directory/tmp/node$i"
        echo "127.0.1.$i node$i" >>"$directory/hosts"
    done
    for i in 0 1; do
        [[ -e $directory/gpu$i ]] || mknod "$directory/gpu$i" c 1 3
    done
}

start_munge() {
    local run=$directory/run
    if [[ ! -s $directory/munge.key ]]; then
        dd if=/dev/urandom of="$directory/munge.key" bs=32 count=1 status=none
        chmod 600 "$directory/munge.key"
    fi
    munged --force --key-file="$directory/munge.key" --socket="$run/munge.socket" \
        --pid-file="$run/munged.pid" --seed-file="$run/munge.seed" --log-file="$directory/log/munged.log"
}

# cred_expire: a job that is queued again waits for so many seconds, or two minutes.
configure() {
    echo "Name=gpu File=$directory/gpu[0-1]" >"$directory/gres.conf"
    printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$directory/cgroup.conf"
    cat >"$directory/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmctldPort=$((16817 + ports))
AuthType=auth/munge
AuthInfo=socket=$directory/run/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool/%n
TmpFS=$directory/tmp/%n
SlurmctldPidFile=$directory/run/slurmctld.pid
SlurmdPidFile=$directory/run/slurmd.%n.pid
SlurmctldLogFile=$directory/log/slurmctld.log
SlurmdLogFile=$directory/log/slurmd.%n.log
ProctrackType=proctrack/$tracking
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$directory/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=30
KillWait=5
OverTimeLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
MailProg=/bin/true
CONF
    for i in $(seq "$num_nodes"); do
        echo "NodeName=node$i NodeHostname=node$i NodeAddr=127.0.1.$i Port=$((17000 + ports + i)) CPUs=8" \
            "Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:2 State=UNKNOWN"
    done >>"$directory/slurm.conf"
    echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >>"$directory/slurm.conf"
}

case $action in
start)
    trap '[[ $? == 0 ]] || stop' EXIT # one that failed to start leaves nothing behind
    start
    ;;
install | stop) "$action" ;;
*) echo "no action $action: install, start or stop" >&2; exit 2 ;;
esac
